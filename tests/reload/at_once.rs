//! The units that a token bucket has at once after its limit changes.

use std::time::SystemTime;

use proptest::prelude::*;
use tollgate::limits::OverrideOptions;
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, full_size, ms, seconds};

/// The quota, the window in seconds, and the burst.
type Numbers = (u64, u64, u64);

fn token_bucket((quota, window, burst): Numbers) -> Limit {
    Limit::token_bucket(burst, quota, seconds(window)).unwrap()
}

fn numbers() -> impl Strategy<Value = Numbers> {
    (1..1000_u64, 1..100_u64)
        .prop_flat_map(|(quota, window)| (Just(quota), Just(window), 1..=quota))
}

/// Returns how many units are spent at once.
fn spent_at_once(limiter: &Limiter) -> u64 {
    let own = limiter.limit("Own").unwrap();
    (0..2000).map(|_| u64::from(own.spend("id", 1).unwrap().allowed())).sum()
}

fn with_own(limit: Limit) -> Limits {
    Limits::builder().limit("Own", IdFormat::String, limit).unwrap().build()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(full_size(32, 128)))]

    /// After the change the bucket has no more than before it, or the new burst if that is more.
    #[test]
    fn token_bucket_has_no_more_after_a_change(
        old in numbers(),
        new in numbers(),
        spent in 1..10_u64,
        later_ms in 0..100_000_u64,
        carry_over in prop_oneof![Just(CarryOver::Units), Just(CarryOver::Time), Just(CarryOver::Share)],
        engine in prop::sample::select(ENGINES.to_vec()),
        by_end in any::<bool>(),
    ) {
        let with_spent = || {
            let (clock, hand) = Clock::manual();
            hand.set(seconds(1000));
            let options = LimiterOptions::default().clock(clock).engine(engine);
            let limiter = Limiter::with_options(with_own(token_bucket(new)), options).unwrap();
            // The override ends at the time of the change.
            let end = OverrideOptions::default().expires(SystemTime::now() + ms(later_ms + 500));
            let limits = if by_end {
                let limits = Limits::builder().limit("Own", IdFormat::String, token_bucket(new)).unwrap();
                limits.override_with("Own", "id", token_bucket(old), end).unwrap().build()
            } else {
                with_own(token_bucket(old))
            };
            limiter.reload_with(limits, carry_over).unwrap();
            let own = limiter.limit("Own").unwrap();
            for _ in 0..spent {
                let _ = own.spend("id", 1).unwrap();
            }
            hand.advance(ms(later_ms));
            (limiter, hand)
        };
        let (unchanged, _) = with_spent();
        let (changed, hand) = with_spent();
        if by_end {
            hand.advance(ms(2_000));
        } else {
            changed.reload_with(with_own(token_bucket(new)), carry_over).unwrap();
        }
        let (before, after) = (spent_at_once(&unchanged), spent_at_once(&changed));
        // Two seconds pass until the override's end, in which both limits bring units.
        let come = |(quota, window, _): Numbers| (2 * quota).div_ceil(window) + 1;
        let come = if by_end { come(old) + come(new) } else { 0 };
        prop_assert!(after <= before.max(new.2) + come, "{after} after, {before} before");
    }
}

#[test]
fn longer_window_brings_no_earlier_tokens() {
    for carry_over in [CarryOver::Units, CarryOver::Time, CarryOver::Share] {
        let (clock, hand) = Clock::manual();
        hand.set(seconds(10_000));
        let limiter = Limiter::with_options(with_own(token_bucket((60, 60, 10))), clock).unwrap();
        assert!(limiter.limit("Own").unwrap().spend("id", 1).unwrap().allowed());
        limiter.reload_with(with_own(token_bucket((3600, 3600, 10))), carry_over).unwrap();
        assert_eq!(spent_at_once(&limiter), 10, "{carry_over:?}");
    }
}
