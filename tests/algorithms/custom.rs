//! Checks the algorithm of `examples/custom_algorithm.rs` against the contract of `Algorithm`, alone and in a limiter.
//!
//! To check your own algorithm, see "A custom algorithm" in `docs/algorithms.md`, which shows the test of the laws.

#[path = "../../examples/custom_algorithm/halves.rs"]
mod halves;

use std::sync::Arc;
use std::time::Duration;

use halves::Halves;
use proptest::prelude::*;
use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::clock::ManualClock;
use tollgate::options::{AtCap, Engine};
use tollgate::{Clock, Decision, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::laws;
use super::support::ENGINES;

const SECOND: u64 = 1_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn keeps_the_contract(
        (whole, half, day_s) in (1..12u64, 1..12u64, 2..20u64),
        start_ns in prop_oneof![1..3 * SECOND, 1..1u64 << 58],
        history in laws::steps(3 * SECOND),
    ) {
        let halves = Halves::new(whole, half, Duration::from_secs(day_s));
        laws::laws(&halves, start_ns, SECOND, &history);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(super::support::full_size(200, 1000)))]

    #[test]
    fn keeps_the_contract_as_a_limit(
        (whole, half, day_s) in (1..12u64, 1..12u64, 2..20u64),
        start_ns in prop_oneof![1..3 * SECOND, 1..1u64 << 58],
        history in laws::steps(3 * SECOND),
    ) {
        let halves = Halves::new(whole, half, Duration::from_secs(day_s));
        laws::laws(&Limit::custom(Arc::new(halves)).unwrap(), start_ns, SECOND, &history);
    }
}

#[test]
fn guide_shows_the_test_above() {
    let page = include_str!("../../docs/algorithms.md");
    let test = page.split("```rust,ignore").nth(1).and_then(|rest| rest.split("```").next());
    let (_, shown) = test.and_then(|test| test.split_once("proptest! {")).expect("the test");
    assert!(include_str!("custom.rs").contains(&format!("proptest! {{{}", shown.trim_end())));
}

fn limiter(algorithm: impl Algorithm + 'static) -> (Limiter, ManualClock) {
    let limit = Limit::custom(Arc::new(algorithm)).unwrap();
    let limits = Limits::builder().limit("Uploads", IdFormat::String, limit).unwrap().build();
    let (clock, manual) = Clock::manual();
    (Limiter::with_options(limits, clock).unwrap(), manual)
}

#[test]
fn works_in_a_limiter() {
    let (limiter, manual) = limiter(Halves::new(10, 6, Duration::from_secs(20)));
    let uploads = limiter.limit("Uploads").unwrap();
    assert!(uploads.spend("alice", 6).unwrap().allowed());
    let denied = uploads.spend("alice", 2).unwrap();
    assert_eq!(denied.retry_in(), Duration::from_secs(10));
    assert_eq!(denied.remaining(), Some(4));
    manual.advance(Duration::from_secs(10));
    assert!(uploads.spend("alice", 4).unwrap().allowed());
    assert!(uploads.refund("alice", 1).unwrap().allowed());
    assert!(uploads.check("alice", 1).unwrap().allowed());
    assert!(uploads.spend("alice", 7).is_err());
    manual.advance(Duration::from_secs(10));
    while limiter.stats().cells > 0 {
        limiter.sweep(1 << 20);
    }
    assert_eq!(uploads.check("alice", 6).unwrap().remaining(), Some(4));
}

/// An algorithm that returns a forbidden word.
#[derive(Debug)]
struct BadWord(u64);

impl Algorithm for BadWord {
    fn spend(&self, _: u64, _: u64, _: u64) -> Outcome {
        let decision = Decision::for_spend(true, 0, Duration::ZERO, Duration::ZERO);
        Outcome { word: Some(self.0), decision }
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.spend(word, now_ns, cost)
    }

    fn is_full(&self, _: u64, _: u64) -> bool {
        false
    }

    fn full(&self, _: u64) -> u64 {
        self.0
    }

    fn max_cost(&self) -> u64 {
        1
    }
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "leaves its top bit clear"))]
fn a_forbidden_word_denies_the_call() {
    for word in [0, 1 << 63, u64::MAX] {
        let (limiter, _) = limiter(BadWord(word));
        let uploads = limiter.limit("Uploads").unwrap();
        assert!(!uploads.spend("alice", 1).unwrap().allowed(), "{word:#x}");
        assert!(!uploads.refund("alice", 1).unwrap().allowed(), "{word:#x}");
    }
}

#[test]
fn a_forbidden_full_word_counts_as_1() {
    for word in [0, 1 << 63, u64::MAX] {
        let limit = Limit::custom(Arc::new(BadWord(word))).unwrap();
        assert_eq!(limit.full(5), 1, "{word:#x}");
    }
    assert_eq!(Limit::custom(Arc::new(BadWord(7))).unwrap().full(5), 7);
}

#[test]
fn without_support_only_0_and_1_are_factors() {
    let limit = Limit::custom(Arc::new(BadWord(1))).unwrap();
    let error = limit.scaled("2".parse().unwrap()).unwrap_err();
    assert!(
        error.to_string().ends_with("BadWord does not support factors: only 0 and 1 are allowed"),
        "{error}"
    );
    assert_eq!(limit.scaled("1".parse().unwrap()).unwrap(), Some(limit));
}

/// One unit a second. A charge of 2 units marks the word, and `is_full` panics on a marked word.
#[derive(Debug)]
struct Panics;

const MARK: u64 = 1 << 62;

impl Algorithm for Panics {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let mark = if cost == 2 { MARK } else { 0 };
        let after = (word & !MARK).max(now_ns) + SECOND;
        let decision = Decision::for_spend(true, 0, Duration::ZERO, Duration::ZERO);
        Outcome { word: (cost > 0).then_some(after | mark), decision }
    }

    fn refund(&self, _: u64, _: u64, _: u64) -> Outcome {
        Outcome { word: None, decision: Decision::for_refund(false, 0, Duration::ZERO) }
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        assert!(word & MARK == 0, "as an algorithm should not");
        word <= now_ns
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        2
    }
}

/// A limiter with a limit by `Panics` and a gcra limit.
fn with_panics(max_keys: usize, engine: Engine) -> (Limiter, KeyedLimit, KeyedLimit, ManualClock) {
    let limits = Limits::builder()
        .limit("Panics", IdFormat::RegId, Limit::custom(Arc::new(Panics)).unwrap())
        .unwrap()
        .limit("Plain", IdFormat::RegId, Limit::new(1, 1, Duration::from_secs(1)).unwrap())
        .unwrap();
    let (clock, manual) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(max_keys);
    let limiter = Limiter::with_options(limits.build(), options.at_cap(AtCap::Deny)).unwrap();
    let (panics, plain) = (limiter.limit("Panics").unwrap(), limiter.limit("Plain").unwrap());
    (limiter, panics, plain, manual)
}

#[test]
fn a_sweep_continues_after_a_panic() {
    for engine in ENGINES {
        let (limiter, panics, plain, manual) = with_panics(10_000, engine);
        for id in 0..500 {
            assert!(plain.spend(id, 1).unwrap().allowed());
            let _ = panics.spend(id, if id % 100 == 7 { 2 } else { 1 }).unwrap();
        }
        manual.advance(Duration::from_secs(2));
        for _ in 0..2 {
            while !limiter.sweep(64).finished {}
        }
        let stats = limiter.stats();
        assert_eq!((stats.cells, stats.swept), (5, 995), "{engine:?}");
        assert!(stats.rule_panics >= 10, "{engine:?}: each panic of both passes counts: {stats:?}");
    }
}

#[test]
fn panic_at_the_cap_affects_no_other_limit() {
    for engine in ENGINES {
        let (limiter, panics, plain, manual) = with_panics(4, engine);
        let _ = panics.spend(1, 2).unwrap();
        for round in 0..10 {
            for id in 0..3 {
                assert!(plain.spend(round * 3 + id, 1).unwrap().allowed(), "{engine:?} {round}");
            }
            manual.advance(Duration::from_secs(2));
        }
        assert!(limiter.stats().rule_panics > 0, "{engine:?}");
    }
}

#[test]
fn names_of_built_in_algorithms_are_refused() {
    let limits = super::support::limits_of_all(4, Duration::from_millis(10));
    let names = limits.clone().map(|limit| limit.algorithm());
    assert_eq!(names, ["gcra", "fixed_window", "token_bucket", "leaky_bucket"]);
    // A `Limit` implements `Algorithm`, and has a name of a built-in algorithm.
    for (limit, name) in limits.into_iter().zip(names) {
        let error = Limit::custom(Arc::new(limit)).unwrap_err();
        assert!(error.is_invalid_limit(), "{error}");
        let expected = format!(
            "invalid name {name:?} of a custom algorithm: any is allowed but those of the built-in algorithms, gcra, fixed_window, token_bucket, leaky_bucket"
        );
        assert!(error.to_string().contains(&expected), "{error}");
    }
    assert!(Limit::custom(Arc::new(Halves::new(10, 6, Duration::from_secs(20)))).is_ok());
}
