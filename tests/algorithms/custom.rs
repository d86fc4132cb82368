//! Puts the rule of `examples/custom_algorithm.rs` through the laws that every rule keeps, and through a
//! limiter. For a custom rule, copy this file and `laws.rs`.

#[path = "../../examples/custom_algorithm/halves.rs"]
mod halves;

use std::sync::Arc;
use std::time::Duration;

use halves::Halves;
use proptest::prelude::*;
use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::clock::ManualClock;
use tollgate::options::{AtCap, Engine};
use tollgate::{Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::laws;
use super::support::{self, ENGINES, limiter_with, limits, sweep_all};

const SECOND: u64 = 1_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn keeps_the_laws(
        (whole, half, day_s) in (1..12u64, 1..12u64, 2..20u64),
        start_ns in prop_oneof![1..3 * SECOND, 1..1u64 << 58],
        history in laws::steps(3 * SECOND),
    ) {
        let rule = Halves::new(whole, half, Duration::from_secs(day_s));
        laws::laws(&rule, start_ns, SECOND, &history);
        // As a limit, through the enum that a limiter calls.
        laws::laws(&Limit::custom(Arc::new(rule)).unwrap(), start_ns, SECOND, &history);
    }
}

fn limiter(rule: impl Algorithm + 'static) -> (Limiter, ManualClock) {
    let limit = Limit::custom(Arc::new(rule)).unwrap();
    support::limiter(limits(&[("Uploads", limit)]), Engine::LockFree)
}

#[test]
fn is_a_limit_like_any_other() {
    let (limiter, hand) = limiter(Halves::new(10, 6, Duration::from_secs(20)));
    let uploads = limiter.limit("Uploads").unwrap();
    assert!(uploads.spend("alice", 6).unwrap().allowed());
    let denied = uploads.spend("alice", 2).unwrap();
    assert_eq!(denied.retry_in(), Duration::from_secs(10));
    assert_eq!(denied.remaining(), Some(4));
    hand.advance(Duration::from_secs(10));
    assert!(uploads.spend("alice", 4).unwrap().allowed());
    assert!(uploads.refund("alice", 1).unwrap().allowed());
    assert!(uploads.check("alice", 1).unwrap().allowed());
    assert!(uploads.spend("alice", 7).is_err());
    hand.advance(Duration::from_secs(10));
    while limiter.stats().cells > 0 {
        limiter.sweep(1 << 20);
    }
    assert_eq!(uploads.check("alice", 6).unwrap().remaining(), Some(4));
}

#[test]
fn has_a_scale_if_it_says_so() {
    let limit = Limit::custom(Arc::new(Halves::new(10, 6, Duration::from_secs(20)))).unwrap();
    let doubled = limit.scaled("0.5".parse().unwrap()).unwrap().unwrap();
    assert_eq!((limit.burst(), doubled.burst()), (6, 12));
    assert_ne!(limit, doubled);
    assert_eq!(limit, limit.clone());
}

/// A rule that writes forbidden words.
#[derive(Debug)]
struct Wrong(u64);

impl Algorithm for Wrong {
    fn spend(&self, _: u64, _: u64, _: u64) -> Outcome {
        let decision = Decision::to_spend(true, 0, Duration::ZERO, Duration::ZERO);
        Outcome { word: Some(self.0), decision }
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.spend(word, now_ns, cost)
    }

    fn is_full(&self, _: u64, _: u64) -> bool {
        false
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        1
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "leaves its top bit clear"))]
fn denies_what_must_not_be_written() {
    for word in [0, 1 << 63, u64::MAX] {
        let (limiter, _) = limiter(Wrong(word));
        let uploads = limiter.limit("Uploads").unwrap();
        assert!(!uploads.spend("alice", 1).unwrap().allowed(), "{word:#x}");
        assert!(!uploads.refund("alice", 1).unwrap().allowed(), "{word:#x}");
    }
}

#[test]
fn without_scale_only_0_and_1_are_factors() {
    let limit = Limit::custom(Arc::new(Wrong(1))).unwrap();
    let error = limit.scaled("2".parse().unwrap()).unwrap_err();
    assert!(error.to_string().ends_with("Wrong has no scale: only 0 and 1 are allowed"), "{error}");
    assert_eq!(limit.scaled("1".parse().unwrap()).unwrap(), Some(limit));
}

/// A unit a second. A spend of 2 marks the word, and `is_full` panics at a marked word.
#[derive(Debug)]
struct Panics;

const MARK: u64 = 1 << 62;

impl Algorithm for Panics {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let mark = if cost == 2 { MARK } else { 0 };
        let after = (word & !MARK).max(now_ns) + SECOND;
        let decision = Decision::to_spend(true, 0, Duration::ZERO, Duration::ZERO);
        Outcome { word: (cost > 0).then_some(after | mark), decision }
    }

    fn refund(&self, _: u64, _: u64, _: u64) -> Outcome {
        Outcome { word: None, decision: Decision::to_refund(false, 0, Duration::ZERO) }
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        assert!(word & MARK == 0, "as a rule should not");
        word <= now_ns
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        2
    }
}

fn beside_panics(
    max_keys: usize,
    engine: Engine,
) -> (Limiter, KeyedLimit, KeyedLimit, ManualClock) {
    let limits = Limits::builder()
        .limit("Panics", IdFormat::RegId, Limit::custom(Arc::new(Panics)).unwrap())
        .unwrap()
        .limit("Plain", IdFormat::RegId, Limit::new(1, 1, Duration::from_secs(1)).unwrap())
        .unwrap();
    let options = LimiterOptions::default().engine(engine).max_keys(max_keys).at_cap(AtCap::Deny);
    let (limiter, hand) = limiter_with(limits.build(), options);
    let (panics, plain) = (limiter.limit("Panics").unwrap(), limiter.limit("Plain").unwrap());
    (limiter, panics, plain, hand)
}

#[test]
fn sweep_continues_after_a_panicking_rules_cell() {
    for engine in ENGINES {
        let (limiter, panics, plain, hand) = beside_panics(10_000, engine);
        for id in 0..500 {
            assert!(plain.spend(id, 1).unwrap().allowed());
            let _ = panics.spend(id, if id % 100 == 7 { 2 } else { 1 }).unwrap();
        }
        hand.advance(Duration::from_secs(2));
        (0..2).for_each(|_| sweep_all(&limiter));
        let stats = limiter.stats();
        assert_eq!((stats.cells, stats.swept), (5, 995), "{engine:?}");
        assert!(stats.rule_panics >= 10, "{engine:?}: each is counted, in both passes: {stats:?}");
    }
}

#[test]
fn panicking_rule_at_cap_delays_no_other_limit() {
    for engine in ENGINES {
        let (limiter, panics, plain, hand) = beside_panics(4, engine);
        let _ = panics.spend(1, 2).unwrap();
        for round in 0..10 {
            for id in 0..3 {
                assert!(plain.spend(round * 3 + id, 1).unwrap().allowed(), "{engine:?} {round}");
            }
            hand.advance(Duration::from_secs(2));
        }
        assert!(limiter.stats().rule_panics > 0, "{engine:?}");
    }
}
