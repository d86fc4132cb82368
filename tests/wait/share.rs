//! The share of a limit that is used when callers settle their estimates, beside the share when they return the same units by `refund`.

use std::collections::BTreeMap;

use super::*;

const ESTIMATE: u64 = 4000;
const MINUTES: u64 = 20;

/// Callers come every 100 ms until one is denied, and estimate 4,000 units. A request takes `seconds`, and costs 500 to 2,500
/// units. Returns the used share of 10,000 units a minute.
fn share(limit: &Limit, engine: Engine, seconds: u64, settles: bool) -> f64 {
    let (clock, hand) = Clock::manual();
    let handle = limiter_on(limit, clock, engine).limit("Own").unwrap();
    let (mut random, mut used) = (Random(38), 0);
    let mut ends: BTreeMap<u64, Vec<tollgate::reserve::Receipt>> = BTreeMap::new();
    for now_ms in (0..MINUTES * 60_000).step_by(100) {
        hand.set(ms(now_ms));
        for receipt in ends.remove(&now_ms).unwrap_or_default() {
            let actual = random.within(500, 2500);
            used += actual;
            if settles {
                let _ = receipt.settle(actual);
            } else {
                let _ = handle.refund("id", ESTIMATE - actual).unwrap();
            }
        }
        while let (_, Some(receipt)) = handle.spend_estimate("id", ESTIMATE).unwrap() {
            ends.entry(now_ms + 1000 * seconds).or_default().push(receipt);
        }
    }
    used as f64 / (10_000 * MINUTES) as f64
}

#[test]
fn settling_callers_use_what_refunding_ones_do() {
    let minute = Duration::from_secs(60);
    let limits = [
        Limit::new(10_000, 10_000, minute).unwrap(),
        Limit::token_bucket(10_000, 10_000, minute).unwrap(),
        Limit::token_bucket(10_000, 600_000, 60 * minute).unwrap(),
        Limit::leaky_bucket(10_000, 1, ms(6)).unwrap(),
        // A window that has ended takes nothing back, so it has no rule of its share.
        Limit::fixed_window(10_000, minute).unwrap(),
    ];
    println!("{:>28} {:>4} {:>7} {:>7}", "", "s", "settle", "refund");
    for engine in ENGINES {
        for limit in &limits {
            for &seconds in super::support::full_size(&[5, 40][..], &[5, 10, 20, 40]) {
                let [settled, refunded] =
                    [true, false].map(|settles| share(limit, engine, seconds, settles));
                let name = format!("{engine:?} {}", limit.algorithm());
                println!("{name:>28} {seconds:>4} {settled:>7.3} {refunded:>7.3}");
                let has_rule = limit.algorithm() != "fixed_window";
                assert!(!has_rule || settled >= 0.98 * refunded, "{name} {seconds} s");
            }
        }
    }
}
