//! The algorithms: laws, naive second implementations, recorded answers of PlugLimit, Sharkey and Boulder,
//! and a custom algorithm.

mod at_most;
mod boulder_sequences;
mod bounds;
mod custom;
mod factors;
mod in_a_limiter;
mod laws;
mod naive;
mod oracles;
mod pluglimit;
#[path = "../support/random.rs"]
mod random;
mod sharkey;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use proptest::prelude::*;
use tollgate::Limit;

use support::ms;

const MS: u64 = 1_000_000;

fn fixed(limit: u64, window_ms: u64) -> Limit {
    Limit::fixed_window(limit, ms(window_ms)).unwrap()
}

fn tokens(limit: u64, window_ms: u64, burst: u64) -> Limit {
    Limit::token_bucket(burst, limit, ms(window_ms)).unwrap()
}

fn leaky(size: u64, drip_rate_ms: u64, drip_size: u64) -> Limit {
    Limit::leaky_bucket(size, drip_size, ms(drip_rate_ms)).unwrap()
}

/// Limits of every counting algorithm, most often small ones, with the time in which their state changes.
fn any_limit() -> impl Strategy<Value = (Limit, u64)> {
    let count = || prop_oneof![4 => 1..8u64, 1 => 1..=16_777_215u64];
    let time = || prop_oneof![4 => 1..30u64, 1 => 1..100_000u64];
    prop_oneof![
        (count(), time()).prop_map(|(limit, window)| (fixed(limit, window), window * MS)),
        (count(), time(), any::<u64>()).prop_map(|(limit, window, part)| {
            (tokens(limit, window, 1 + part % limit), window * MS)
        }),
        (count(), time(), count()).prop_map(|(size, rate, drip)| {
            // The bucket is empty before the words' time ends, even after a history.
            let rate = rate.min((1 << 37) / size.div_ceil(drip));
            (leaky(size, rate, drip), rate * MS)
        }),
    ]
}

/// A limit, and a history at about the limit's pace.
fn limit_and_history() -> impl Strategy<Value = (Limit, u64, Vec<(laws::Step, u64)>)> {
    let start = prop_oneof![1..3 * MS, Just(1), 1..1u64 << 58];
    (any_limit(), start).prop_flat_map(|((limit, unit_ns), start_ns)| {
        (Just(limit), Just(start_ns), laws::steps(unit_ns))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::full_size(400, 2000)))]

    #[test]
    fn counting_rules_keep_the_laws((limit, start_ns, history) in limit_and_history()) {
        laws::laws(&limit, start_ns, MS, &history);
    }

    #[test]
    fn gcra_keeps_the_laws(
        burst in 1..20u64, interval_ns in 1..5 * MS, start_ns in 1..1u64 << 58,
        history in laws::steps(2 * MS),
    ) {
        let limit = Limit::new(burst, 1, Duration::from_nanos(interval_ns)).unwrap();
        laws::laws(&limit, start_ns, 1, &history);
    }
}
