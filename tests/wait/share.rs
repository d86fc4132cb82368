//! The share of a limit that callers use who settle their estimates, beside callers who are told to return units by
//! `refund`, which is the most that a bucket can give.

use std::collections::BTreeMap;

use super::*;

#[derive(Clone, Copy, PartialEq)]
enum Returns {
    BySettle,
    ByRefund,
}

/// Forty callers estimate 4,000 units and use 500 to 2,500, under a limit of 10,000 units a minute. A request takes
/// `request`. Returns the units used in an hour.
fn used(limit: &Limit, engine: Engine, request: Duration, returns: Returns) -> u64 {
    const ESTIMATE: u64 = 4000;
    const CALLERS: usize = 40;
    let (clock, hand) = Clock::manual();
    let handle = limiter_on(limit, clock, engine).limit("Own").unwrap();
    let mut random = Random(38);
    let mut free = CALLERS;
    let mut ends: BTreeMap<u64, Vec<tollgate::reserve::Receipt>> = BTreeMap::new();
    let mut sum = 0;
    for now_ms in (0..3_600_000).step_by(500) {
        hand.set(ms(now_ms));
        for receipt in ends.remove(&now_ms).unwrap_or_default() {
            let actual = random.within(500, 2500);
            sum += actual;
            free += 1;
            match returns {
                Returns::BySettle => drop(receipt.settle(actual)),
                Returns::ByRefund => drop(handle.refund("id", ESTIMATE - actual).unwrap()),
            }
        }
        while free > 0 {
            let (decision, receipt) = handle.spend_estimate("id", ESTIMATE).unwrap();
            if !decision.allowed() {
                break;
            }
            free -= 1;
            ends.entry(now_ms + request.as_millis() as u64).or_default().push(receipt.unwrap());
        }
    }
    sum
}

#[test]
fn settling_callers_use_what_refunding_ones_do() {
    let minute = Duration::from_secs(60);
    let limits = [
        Limit::new(10_000, 10_000, minute).unwrap(),
        Limit::token_bucket(10_000, minute, 10_000).unwrap(),
        Limit::leaky_bucket(10_000u32, ms(6), 1).unwrap(),
        Limit::fixed_window(10_000, minute).unwrap(),
    ];
    for engine in ENGINES {
        for limit in &limits {
            // A window that has ended takes nothing back.
            let is_fixed = limit.algorithm() == "fixed_window";
            for seconds in [5, 10, 20, 40].into_iter().filter(|&it| !is_fixed || it < 40) {
                let request = Duration::from_secs(seconds);
                let [settled, refunded] = [Returns::BySettle, Returns::ByRefund]
                    .map(|returns| used(limit, engine, request, returns));
                println!("{engine:?} {} {seconds} s: {settled} of {refunded}", limit.algorithm());
                assert!(
                    settled * 100 >= refunded * 98,
                    "{engine:?} {} {seconds} s: {settled} of {refunded}",
                    limit.algorithm()
                );
            }
        }
    }
}
