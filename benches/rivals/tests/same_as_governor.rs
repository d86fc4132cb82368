//! Checks a claim of docs/migration-from-governor.md: a quota of governor and the limit that corresponds to it give the
//! same answers at the same times.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use rivals::random::Random;
use tollgate::{Bucket, Clock, Limit};

/// Returns a random number from 1 to `most`.
fn from_1(random: &mut Random, most: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(random.below(most as usize))
}

#[test]
fn answers_and_waits_are_governors() {
    let random = &mut Random::new(0);
    let (mut allowed, mut denied) = (0, 0);
    for _ in 0..1_000 {
        let (rate, burst) = (from_1(random, 1_000), from_1(random, 50));
        let (quota, period) = match random.below(3) {
            0 => (Quota::per_second(rate), Duration::from_secs(1)),
            1 => (Quota::per_minute(rate), Duration::from_secs(60)),
            _ => (Quota::per_hour(rate), Duration::from_secs(3600)),
        };
        let limit = Limit::new(burst.get().into(), rate.get().into(), period).unwrap();
        let interval_ns = limit.emission_interval().as_nanos() as u64;
        let fake = FakeRelativeClock::default();
        let theirs = RateLimiter::direct_with_clock(quota.allow_burst(burst), fake.clone());
        let (clock, manual) = Clock::manual();
        let ours = Bucket::new(limit, clock);
        for _ in 0..100 {
            // Less than three emission intervals, in steps of a thousandth of an interval.
            let step = Duration::from_nanos(interval_ns * u64::from(random.below(3_000)) / 1_000);
            fake.advance(step);
            manual.advance(step);
            let cost = from_1(random, burst.get().min(5));
            let decision = ours.spend(cost.get().into()).unwrap();
            match theirs.check_n(cost).unwrap() {
                Ok(()) => {
                    assert!(decision.allowed(), "{rate} {burst} {cost}");
                    allowed += 1;
                }
                Err(not_until) => {
                    assert!(!decision.allowed(), "{rate} {burst} {cost}");
                    assert_eq!(decision.retry_in(), not_until.wait_time_from(fake.now()));
                    denied += 1;
                }
            }
        }
    }
    assert!(allowed > 10_000 && denied > 10_000, "{allowed} allowed, {denied} denied");
}
