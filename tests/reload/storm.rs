//! Many reloads.

use std::sync::Arc;

use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::options::AtCap;
use tollgate::reload::{CarryOver, ReloadOptions};
use tollgate::{Clock, Decision, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::{
    ENGINES, full_size, hourly, in_own_process, limiter, limits, seconds, sweep_all,
};

/// More reloads than the lowest bits of a limit tag tell apart.
#[test]
fn many_reloads_keep_buckets_and_memory() {
    in_own_process(|| reload_often(full_size(400, 5_000)));
}

fn reload_often(times: u64) {
    for &engine in full_size(&ENGINES[..1], &ENGINES) {
        let (limiter, _hand) = limiter(limits(&[("A", hourly(10))]), engine);
        let a = limiter.limit("A").unwrap();
        for i in 0..100 {
            assert!(a.spend(format!("id {i}").as_str(), 1 + i % 10).unwrap().allowed());
        }
        let mut bytes = Vec::new();
        for round in 1..=times {
            let period = seconds(if round % 2 == 0 { 3600 } else { 7200 });
            let limit = Limit::new(10, 10, period).unwrap();
            let reloaded = limiter.reload(limits(&[("A", limit)])).unwrap();
            assert_eq!(reloaded.generation, round);
            if round.is_multiple_of(times / 5) {
                sweep_all(&limiter);
                bytes.push(limiter.stats().bytes);
            }
        }
        for i in 0..100 {
            let left = a.check(format!("id {i}").as_str(), 0).unwrap().remaining();
            assert_eq!(left, Some(10 - 1 - i % 10), "{engine:?}, id {i}");
        }
        let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
        assert!(*most < 2 * least + (1 << 20), "{engine:?}: {bytes:?}");
    }
}

#[test]
fn shared_bucket_is_carried_over_a_reload() {
    for engine in ENGINES {
        let (clock, _hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let options = options.max_keys(1).at_cap(AtCap::Share);
        let limiter = Limiter::with_options(limits(&[("A", hourly(10))]), options).unwrap();
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("inside", 1).unwrap().allowed());
        assert_eq!(a.spend("outside", 3).unwrap().remaining(), Some(7), "{engine:?}");
        limiter.reload_with(limits(&[("A", hourly(100))]), CarryOver::Share).unwrap();
        assert_eq!(a.spend("another", 1).unwrap().remaining(), Some(69), "{engine:?}");
        assert_eq!(a.check("inside", 0).unwrap().remaining(), Some(90), "{engine:?}");
    }
}

/// One unit, without refill.
#[derive(Debug)]
struct Once;

impl Algorithm for Once {
    fn spend(&self, word: u64, _: u64, cost: u64) -> Outcome {
        let left = u64::from(word == 0);
        let never = std::time::Duration::from_secs(u64::from(u32::MAX));
        let allowed = cost == 0 || left == 1;
        let word = (allowed && cost > 0).then_some(1);
        Outcome { word, decision: Decision::for_spend(allowed, left, never, never) }
    }

    fn refund(&self, _: u64, _: u64, _: u64) -> Outcome {
        let decision = Decision::for_refund(false, 0, std::time::Duration::ZERO);
        Outcome { word: None, decision }
    }

    fn is_full(&self, word: u64, _: u64) -> bool {
        word == 0
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        1
    }

    fn name(&self) -> &'static str {
        "once"
    }
}

#[test]
fn custom_rules_word_stays_with_it_or_goes() {
    for engine in ENGINES {
        let own = || Limit::custom(Arc::new(Once)).unwrap();
        let (limiter, _hand) = limiter(limits(&[("A", own())]), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("x", 1).unwrap().allowed());
        let error = limiter.reload(limits(&[("A", hourly(10))])).unwrap_err();
        assert!(error.is_invalid_limit() && error.to_string().contains("once"), "{error}");
        assert!(!a.spend("x", 1).unwrap().allowed(), "nothing has changed");
        assert!(limiter.reload(limits(&[("A", own())])).unwrap().changed);
        assert!(!a.spend("x", 1).unwrap().allowed(), "the word stays under the same name");
        limiter.reload_with(limits(&[("A", hourly(10))]), CarryOver::Afresh).unwrap();
        assert_eq!(a.check("x", 0).unwrap().remaining(), Some(10));
    }
}

/// A call with a factor uses the new limit.
#[test]
fn factors_scale_the_new_numbers() {
    let limiter = Limiter::new(limits(&[("A", hourly(10))]));
    let a = limiter.limit("A").unwrap();
    let half: tollgate::limit::Factor = "0.5".parse().unwrap();
    assert_eq!(a.scaled(half).check("x", 0).unwrap().remaining(), Some(20));
    limiter.reload(limits(&[("A", hourly(30))])).unwrap();
    assert_eq!(a.scaled(half).check("x", 0).unwrap().remaining(), Some(60));
    let none = Limits::builder().limit("B", IdFormat::String, hourly(1)).unwrap().build();
    limiter.reload_with(none, ReloadOptions::default().remove_missing(true)).unwrap();
    assert_eq!(a.scaled(half).check("x", 0).unwrap().remaining(), None);
}
