//! The bound under clocks that jump back and forth.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::options::Engine;
use tollgate::{Clock, Limit, Limiter, LimiterOptions};

use super::support::{ENGINES, limits};

const BURST: u64 = 5;
const INTERVAL_NS: u64 = 100;

fn engines() -> impl Strategy<Value = Engine> {
    prop::sample::select(ENGINES.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(super::support::full_size(400, 2_000)))]

    #[test]
    fn the_bound_holds_under_any_clock(
        steps in prop::collection::vec((0..400u64, 1..4u64, 0..8u8), 1..80),
        engine in engines(),
    ) {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limit = Limit::new(BURST, 1, Duration::from_nanos(INTERVAL_NS)).unwrap();
        let limiter = Limiter::with_options(limits(&[("A", limit)]), options).unwrap();
        let handle = limiter.limit("A").unwrap();
        let mut latest = 0;
        // Time and cost of each admission. A decision on a new cell is made at the time of the latest sweep or
        // later.
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        let mut swept_at = 0;
        for (now, cost, what) in steps {
            hand.set(Duration::from_nanos(now));
            latest = latest.max(now);
            if what == 0 {
                while !limiter.sweep(1).finished {}
                swept_at = swept_at.max(now);
            } else if handle.spend("id", cost).unwrap().allowed() {
                admitted.push((now.max(swept_at.min(latest)), cost));
            }
        }
        for &(a, _) in &admitted {
            for &(b, _) in &admitted {
                let sum: u64 = admitted.iter().filter(|(t, _)| (a..=b).contains(t)).map(|(_, c)| c).sum();
                if a <= b {
                    prop_assert!(sum <= BURST + (b - a) / INTERVAL_NS, "{} in [{}, {}]", sum, a, b);
                }
            }
        }
    }
}
