//! The share of a shared limit that is used when callers settle their estimates: as much as with refunds by hand.

use std::collections::BTreeMap;

use tollgate::shared::SharedReceipt;

use super::*;
use crate::full_size::full_size;
use crate::random::Random;

/// Forty callers of two nodes estimate 4,000 units and use 500 to 2,500, under a limit of 10,000 units a minute. A request takes
/// `request_s`. Returns the units used in half an hour.
fn used(limit: &Limit, request_s: u64, by_settle: bool) -> u64 {
    const ESTIMATE: u64 = 4000;
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let nodes = [(); 2].map(|()| {
        let limits =
            Limits::builder().limit_with("All", IdFormat::String, limit.clone(), exact()).unwrap();
        node(limits.build(), &store, &clock).shared("All").unwrap()
    });
    let (mut random, mut free, mut sum) = (Random(38), 40, 0);
    let mut ends: BTreeMap<u64, Vec<SharedReceipt>> = BTreeMap::new();
    for now_s in 0..1800 {
        hand.set(Duration::from_secs(now_s));
        for receipt in ends.remove(&now_s).unwrap_or_default() {
            let actual = random.within(500, 2500);
            (sum, free) = (sum + actual, free + 1);
            let _ = match by_settle {
                true => now(receipt.settle(actual)).unwrap(),
                false => now(nodes[0].refund("id", ESTIMATE - actual)).unwrap(),
            };
        }
        while free > 0 {
            let all = &nodes[free % 2];
            let (decision, receipt) = now(all.spend_estimate("id", ESTIMATE)).unwrap();
            if !decision.allowed() {
                break;
            }
            free -= 1;
            ends.entry(now_s + request_s).or_default().push(receipt.unwrap());
        }
    }
    sum
}

#[test]
fn settling_callers_use_what_refunding_ones_do() {
    let minute = Duration::from_secs(60);
    let limits = [
        Limit::new(10_000, 10_000, minute).unwrap(),
        Limit::token_bucket(10_000, 10_000, minute).unwrap(),
        Limit::leaky_bucket(10_000, 1, Duration::from_millis(6)).unwrap(),
    ];
    for limit in &limits {
        for &request_s in full_size(&[5, 40][..], &[5, 10, 20, 40]) {
            let [settled, refunded] = [true, false].map(|it| used(limit, request_s, it));
            println!("{} {request_s} s: {settled} of {refunded}", limit.algorithm());
            assert!(
                settled * 100 >= refunded * 98,
                "{limit} {request_s} s: {settled} of {refunded}"
            );
        }
    }
}
