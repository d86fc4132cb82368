//! Estimated charges and their settlement.

use proptest::prelude::*;
use tollgate::limit::Parameters;
use tollgate::limits::{LimitOptions, OverrideOptions};
use tollgate::reserve::Receipt;

use super::dropped::keeps_the_bound;
use super::*;

/// A limiter whose buckets may owe `max_debt` units.
fn limiter_owing(limit: &Limit, max_debt: u64, clock: Clock, engine: Engine) -> Limiter {
    let options = LimitOptions::default().max_debt(max_debt);
    let limits = Limits::builder().limit_with("Own", IdFormat::String, limit.clone(), options);
    let options = LimiterOptions::default().clock(clock).engine(engine);
    Limiter::with_options(limits.unwrap().build(), options)
}

fn owing(limit: &Limit, max_debt: u64) -> (KeyedLimit, ManualClock) {
    let (clock, hand) = Clock::manual();
    (limiter_owing(limit, max_debt, clock, Engine::LockFree).limit("Own").unwrap(), hand)
}

#[test]
fn overestimate_is_refunded_and_no_more() {
    for limit in limits_of_all(10) {
        let (handle, _hand) = by_hand(&limit);
        let left = |handle: &KeyedLimit| handle.check("id", 0).unwrap().remaining().unwrap();
        let full = left(&handle);
        let (_, receipt) = handle.spend_estimate("id", 8).unwrap();
        assert_eq!(receipt.unwrap().settle(3).remaining(), Some(full - 3), "{limit:?}");
        // Settled to nothing while another caller's charge builds on it.
        let (_, first) = handle.spend_estimate("id", 4).unwrap();
        assert!(handle.spend("id", 2).unwrap().allowed());
        assert_eq!(first.unwrap().settle(0).remaining(), Some(full - 5), "{limit:?}");
        // Settled at the estimate, and not settled.
        let (_, same) = handle.spend_estimate("id", 1).unwrap();
        assert_eq!(same.unwrap().settle(1).remaining(), Some(full - 6), "{limit:?}");
        drop(handle.spend_estimate("id", 1).unwrap());
        assert_eq!(left(&handle), full - 7, "{limit:?}: a receipt that is dropped");
        let (denied, none) = handle.spend_estimate("id", 9).unwrap();
        assert!(!denied.allowed() && none.is_none());
    }
}

#[test]
fn concurrent_receipts_settle_exactly_in_any_order() {
    for limit in limits_of_all(40) {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let (handle, _hand) = by_hand(&limit);
            let full = handle.check("id", 0).unwrap().remaining().unwrap();
            let mut receipts: Vec<_> =
                (0..4).map(|_| handle.spend_estimate("id", 10).unwrap().1).collect();
            for which in order {
                let _ = receipts[which].take().unwrap().settle(which as u64 + 1);
            }
            let left = handle.check("id", 0).unwrap().remaining();
            assert_eq!(left, Some(full - 10), "{limit:?} {order:?}: 1 + 2 + 3 + 4");
        }
    }
}

/// Calls some ms apart, of which the one that opened the window, or found the bucket empty, is settled to nothing.
#[test]
fn all_of_failed_calls_come_back() {
    const CALLS: usize = 6;
    let limits = [
        Limit::new(400, 1, ms(60_000)).unwrap(),
        Limit::fixed_window(400, ms(3_600_000)).unwrap(),
        Limit::token_bucket(400, ms(3_600_000), 400).unwrap(),
        Limit::leaky_bucket(400u32, ms(60_000), 1).unwrap(),
    ];
    for (engine, limit) in
        ENGINES.into_iter().flat_map(|engine| limits.iter().map(move |it| (engine, it)))
    {
        for first in 0..CALLS {
            for actual in [0, 3] {
                let (clock, hand) = Clock::manual();
                let handle = limiter_on(limit, clock, engine).limit("Own").unwrap();
                let mut receipts = Vec::new();
                for cost in [10, 10, 300, 10, 10, 10] {
                    hand.advance(ms(2));
                    receipts.push(handle.spend_estimate("id", cost).unwrap().1.unwrap());
                }
                // That call first, then the others in their order.
                receipts[..=first].rotate_right(1);
                for (at, receipt) in receipts.into_iter().enumerate() {
                    hand.advance(ms(2));
                    let _ = receipt.settle(if at == 0 { 0 } else { actual });
                }
                let left = handle.check("id", 0).unwrap().remaining();
                let charged = actual * (CALLS as u64 - 1);
                // gcra's charges lose the time for which they were held, which is part of a unit here.
                let lost = (400 - charged).checked_sub(left.unwrap()).unwrap();
                let is_gcra = limit.algorithm() == "gcra";
                assert!(
                    lost <= u64::from(is_gcra),
                    "{lost}: {engine:?} {limit:?} {first} {actual}"
                );
            }
        }
    }
}

#[test]
fn underestimate_is_owed_down_to_the_floor() {
    for limit in limits_of_all(10) {
        for (max_debt, more, owed) in [(0, 5, 2), (4, 5, 5), (4, 6, 6), (4, 50, 6)] {
            let (handle, _hand) = owing(&limit, max_debt);
            let (_, receipt) = handle.spend_estimate("id", 8).unwrap();
            let after = receipt.unwrap().settle(8 + more);
            assert_eq!(after.allowed(), owed <= 2, "{limit:?} {max_debt} {more}");
            // The debt has to come back before one unit is there.
            let (same, _same_hand) = owing(&limit, 100);
            let _ = same.spend_estimate("id", 8).unwrap().1.unwrap().settle(8 + owed);
            assert_eq!(state(&handle), state(&same), "{limit:?} {max_debt} {more}");
        }
    }
}

#[test]
fn an_overrides_own_floor_is_its_own() {
    let limit = Limit::new(10, 1, ms(1)).unwrap();
    let limits = Limits::builder()
        .limit_with("Own", IdFormat::String, limit.clone(), LimitOptions::default().max_debt(3))
        .unwrap()
        .override_with("Own", "deep", limit, OverrideOptions::default().max_debt(6))
        .unwrap();
    let handle = Limiter::with_clock(limits.build(), Clock::manual().0).limit("Own").unwrap();
    for (id, owed) in [("any", 3), ("deep", 6)] {
        let after = handle.spend_estimate(id, 1).unwrap().1.unwrap().settle(100);
        assert_eq!(after.reset_in(), ms(10 + owed), "{id}");
    }
}

#[test]
fn an_estimate_of_nothing_can_be_settled() {
    let (handle, _hand) = by_hand(&Limit::new(10, 1, ms(1)).unwrap());
    let (decision, receipt) = handle.spend_estimate("id", 0).unwrap();
    assert!(decision.allowed());
    assert_eq!(receipt.unwrap().settle(7).remaining(), Some(3));
}

#[test]
fn receipts_of_waiters_settle() {
    let (handle, hand) = by_hand(&Limit::new(10, 1, ms(1)).unwrap());
    assert!(handle.spend("id", 10).unwrap().allowed());
    let place = place(&handle, 6);
    assert_eq!(place.wait(), ms(6));
    hand.advance(ms(6));
    let said = place.into_receipt().settle(2);
    assert_eq!((said.allowed(), said.remaining()), (true, Some(4)));
}

/// Settles three charges that a waiter's charge builds on. Each settlement must count the units that the others have
/// lowered, or four units are used at one instant, of a burst of three.
#[test]
fn many_refunds_leave_the_waiters_reservation() {
    let (handle, hand) = by_hand(&Limit::new(3, 1, ms(10)).unwrap());
    let receipts = [(); 3].map(|()| handle.spend_estimate("id", 1).unwrap().1.unwrap());
    let waiter = place(&handle, 1);
    let told = waiter.wait();
    let [first, second, third] = receipts;
    for receipt in [third, first, second] {
        let _ = receipt.settle(0);
    }
    hand.advance(told);
    assert!(waiter.wait().is_zero());
    assert!(!handle.spend("id", 3).unwrap().allowed(), "beside the waiter's one");
}

/// The waiters' times follow from used-up windows and drips. No unit of these can go to other callers.
#[test]
fn windows_and_leaky_buckets_never_refund_under_waiters() {
    for limit in limits_of_all(4) {
        let (handle, _hand) = by_hand(&limit);
        let receipts = [(); 2].map(|()| handle.spend_estimate("id", 2).unwrap().1.unwrap());
        let waiter = place(&handle, 2);
        let told = waiter.wait();
        let next = |handle: &KeyedLimit| {
            let place = place(handle, 4);
            let wait = place.wait();
            place.cancel();
            wait
        };
        let before = next(&handle);
        for receipt in receipts {
            let _ = receipt.settle(0);
        }
        let after = next(&handle);
        match limit.algorithm() {
            "fixed_window" | "leaky_bucket" => assert_eq!(after, before, "{limit:?}"),
            // The units that the waiter does not need: it has its two of four at its time.
            "gcra" => assert_eq!(after, told + ms(2), "{limit:?}"),
            // All units count from the window's start.
            _ => assert!(after < before, "{limit:?}"),
        }
        assert_eq!(waiter.wait(), told);
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Charge(u64),
    /// Settles an open receipt to a final cost.
    Settle(usize, u64),
    Spend(u64),
    Place(u64),
    Refund(u64),
    Advance(u64),
    Back(u64),
}

fn ops(with_refunds: bool, with_back: bool) -> impl Strategy<Value = Vec<Op>> {
    let advance = || prop_oneof![0..3 * MS, Just(MS), 0..40 * MS].prop_map(Op::Advance).boxed();
    let mut kinds = vec![
        (4, (1..9u64).prop_map(Op::Charge).boxed()),
        (4, (any::<usize>(), 0..14u64).prop_map(|(which, to)| Op::Settle(which, to)).boxed()),
        (3, (1..5u64).prop_map(Op::Spend).boxed()),
        (1, (1..5u64).prop_map(Op::Place).boxed()),
        (4, advance()),
    ];
    if with_refunds {
        kinds.push((1, (1..5u64).prop_map(Op::Refund).boxed()));
    }
    if with_back {
        kinds.push((1, (0..3 * MS).prop_map(Op::Back).boxed()));
    }
    prop::collection::vec(prop::strategy::Union::new_weighted(kinds), 1..50)
}

/// An event of a bucket, with final costs in place of estimates. For each question a naive gcra bucket in
/// unbounded integers is charged with all events again.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Used at a granted time: the final cost and the estimate.
    Used {
        at: i128,
        actual: u64,
        estimate: u64,
    },
    Refund {
        at: i128,
        units: u64,
    },
    /// More than the estimate, as far as the debt floor left room at that time.
    Owed {
        at: i128,
        ns: i128,
    },
}

struct NaiveBucket {
    interval: i128,
    events: Vec<Event>,
}

impl NaiveBucket {
    /// When the bucket is full, by the estimates or by the final costs.
    fn full_at(&self, by_estimate: bool) -> i128 {
        self.events.iter().fold(0, |tat, event| match *event {
            Event::Used { at, actual, estimate } => {
                let units = if by_estimate { estimate } else { actual.min(estimate) };
                if units == 0 { tat } else { tat.max(at) + self.interval * i128::from(units) }
            }
            Event::Refund { at, units } if tat > at => {
                (tat - self.interval * i128::from(units)).max(at)
            }
            Event::Refund { .. } => tat,
            Event::Owed { ns: 0, .. } => tat,
            Event::Owed { at, ns } => tat.max(at) + ns,
        })
    }
}

struct UnderWay {
    receipt: Receipt,
    event: usize,
    charged_at: i128,
}

/// Runs one history on a limiter and on the naive bucket. Returns the used costs and their times.
fn settles_as_the_oracle(
    limit: &Limit,
    max_debt: u64,
    engine: Engine,
    ops: &[Op],
) -> Result<Vec<(u64, u64)>, TestCaseError> {
    let (clock, hand) = Clock::manual();
    let handle = limiter_owing(limit, max_debt, clock, engine).limit("Own").unwrap();
    let Parameters::Gcra { period, .. } = limit.parameters() else { panic!("{limit:?}") };
    let mut naive = NaiveBucket { interval: period.as_nanos() as i128, events: Vec::new() };
    let most_ns = limit.burst_offset().as_nanos() as i128 + naive.interval * i128::from(max_debt);
    let full_in =
        |handle: &KeyedLimit| handle.check("id", 0).unwrap().reset_in().as_nanos() as i128;
    let mut under_way: Vec<UnderWay> = Vec::new();
    let (mut now_ns, mut latest_ns) = (0u64, 0u64);
    // The allowed error of settlements: refunds, and how far the clock was behind.
    let (mut refunded, mut behind, mut held) = (0, 0, 0);
    // Whether any caller may have had to wait, by all charges so far: then a settlement may return less.
    let (mut is_brimful, mut went_back) = (false, false);
    for &op in ops {
        let now = i128::from(now_ns);
        match op {
            Op::Charge(estimate) => {
                let (_, receipt) = handle.spend_estimate("id", estimate).unwrap();
                let Some(receipt) = receipt else { continue };
                under_way.push(UnderWay { receipt, event: naive.events.len(), charged_at: now });
                naive.events.push(Event::Used { at: now, actual: estimate, estimate });
            }
            Op::Settle(which, actual) if !under_way.is_empty() => {
                let which = which % under_way.len();
                let UnderWay { receipt, event, charged_at } = under_way.swap_remove(which);
                let before_ns = full_in(&handle);
                let _ = receipt.settle(actual);
                let Event::Used { at, estimate, .. } = naive.events[event] else { panic!() };
                naive.events[event] = Event::Used { at, actual, estimate };
                if actual > estimate {
                    let more_ns = naive.interval * i128::from(actual - estimate);
                    let ns = more_ns.min((most_ns - before_ns).max(0));
                    naive.events.push(Event::Owed { at: now, ns });
                } else if actual < estimate {
                    behind += i128::from(latest_ns - now_ns);
                    held += (now - charged_at).max(0);
                }
            }
            Op::Spend(cost) if handle.spend("id", cost).unwrap().allowed() => {
                naive.events.push(Event::Used { at: now, actual: cost, estimate: cost });
            }
            Op::Place(cost) => {
                let place = handle.reserve("id", cost, Duration::MAX).unwrap();
                let at = now + place.wait().as_nanos() as i128;
                naive.events.push(Event::Used { at, actual: cost, estimate: cost });
            }
            Op::Refund(units) => {
                if handle.refund("id", units).unwrap().allowed() {
                    refunded += naive.interval * i128::from(units);
                    naive.events.push(Event::Refund { at: now, units });
                }
            }
            Op::Advance(by_ns) => now_ns += by_ns,
            Op::Back(by_ns) => now_ns = now_ns.saturating_sub(by_ns),
            Op::Settle(..) | Op::Spend(_) => {}
        }
        latest_ns = latest_ns.max(now_ns);
        hand.set(Duration::from_nanos(now_ns));
        let now = i128::from(now_ns);
        let said = now + full_in(&handle);
        let (least, most) = (naive.full_at(false), naive.full_at(true));
        // No charge of another caller is forgotten, and nothing is charged that was not spent.
        prop_assert!(
            said + refunded + behind >= least.max(now),
            "{} of {}: {:?}",
            said,
            least,
            naive.events
        );
        // A full bucket stays full when the clock goes back.
        went_back |= now_ns < latest_ns;
        if refunded == 0 && !went_back {
            prop_assert!(said <= most.max(now), "{} of {}: {:?}", said, most, naive.events);
        }
        is_brimful |= most > now + limit.burst_offset().as_nanos() as i128;
        if refunded == 0 && !went_back && !is_brimful {
            // Off by at most the cost that was held, and only for that time.
            prop_assert!(
                said <= (least + held).max(now),
                "{} of {}, held {}: {:?}",
                said,
                least,
                held,
                naive.events
            );
        }
    }
    let used = naive.events.iter().filter_map(|event| match *event {
        Event::Used { at, actual, estimate } if actual > 0 => {
            Some((at as u64, actual.min(estimate)))
        }
        _ => None,
    });
    Ok(used.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn settled_is_as_if_it_had_been_known(burst in 8..30u64, max_debt in 0..12u64, ops in ops(false, false)) {
        let limit = Limit::new(burst, 1, ms(1)).unwrap();
        for engine in ENGINES {
            let mut used = settles_as_the_oracle(&limit, max_debt, engine, &ops)?;
            used.sort_unstable();
            keeps_the_bound(&limit, &used);
        }
    }

    #[test]
    fn settling_errs_only_by_refunds_and_backward_clocks(
        burst in 8..30u64, max_debt in 0..12u64, ops in ops(true, true),
    ) {
        let limit = Limit::new(burst, 1, ms(1)).unwrap();
        settles_as_the_oracle(&limit, max_debt, Engine::LockFree, &ops)?;
    }

    /// Under the other algorithms used costs keep to the limit whatever is settled, and a settlement never
    /// takes more than the estimate.
    #[test]
    fn settled_use_keeps_bound_of_any_algorithm(burst in 8..30u64, ops in ops(false, false)) {
        for limit in limits_of_all(burst) {
            let (handle, hand) = by_hand(&limit);
            let mut now_ns = 0;
            let mut used: Vec<(u64, u64)> = Vec::new();
            let mut under_way = Vec::new();
            for &op in &ops {
                match op {
                    Op::Charge(estimate) => {
                        if let (_, Some(receipt)) = handle.spend_estimate("id", estimate).unwrap() {
                            under_way.push((receipt, used.len(), estimate));
                            used.push((now_ns, estimate));
                        }
                    }
                    Op::Settle(which, actual) if !under_way.is_empty() => {
                        let (receipt, event, estimate) = under_way.swap_remove(which % under_way.len());
                        let before = handle.check("id", 0).unwrap().remaining();
                        let after = receipt.settle(actual).remaining();
                        prop_assert!(actual > estimate || after >= before, "{:?}", limit);
                        used[event].1 = actual.min(estimate);
                    }
                    Op::Spend(cost) if handle.spend("id", cost).unwrap().allowed() => used.push((now_ns, cost)),
                    Op::Place(cost) => {
                        let wait = place(&handle, cost).wait();
                        used.push((now_ns + wait.as_nanos() as u64, cost));
                    }
                    Op::Advance(by_ns) => {
                        now_ns += by_ns;
                        hand.set(Duration::from_nanos(now_ns));
                    }
                    Op::Settle(..) | Op::Spend(_) | Op::Refund(_) | Op::Back(_) => {}
                }
            }
            used.retain(|&(_, cost)| cost > 0);
            used.sort_unstable();
            keeps_the_bound(&limit, &used);
        }
    }
}

/// One estimate is open while others of the same id are settled: each returns all that it has not used.
#[test]
fn long_request_beside_short_ones_returns_all() {
    for engine in ENGINES {
        for limit in support::limits_of_all(10_000, 1000 * ms(1000)) {
            for others in [1, 2, 3, 30] {
                let handle = limiter_on(&limit, Clock::manual().0, engine).limit("Own").unwrap();
                let estimate = |cost| handle.spend_estimate("id", cost).unwrap().1.unwrap();
                let long = estimate(4000);
                for _ in 0..others {
                    let _ = estimate(2000).settle(100);
                }
                let full = handle.check("full", 0).unwrap().remaining().unwrap();
                let left = long.settle(1000).remaining();
                assert_eq!(left, Some(full - 1000 - 100 * others), "{engine:?} {limit:?}");
            }
        }
    }
}

/// More ids than the rollback ledger has entries.
#[test]
fn settlements_of_many_ids_return_all() {
    for engine in ENGINES {
        for limit in support::limits_of_all(10_000, 1000 * ms(1000)) {
            let handle = limiter_on(&limit, Clock::manual().0, engine).limit("Own").unwrap();
            let estimate =
                |id: String| handle.spend_estimate(id.as_str(), 4000).unwrap().1.unwrap();
            let receipts: Vec<_> = (0..10_000).map(|id| estimate(format!("id {id}"))).collect();
            let left = handle.check("full", 1000).unwrap().remaining();
            for receipt in receipts {
                assert_eq!(receipt.settle(1000).remaining(), left, "{engine:?} {limit:?}");
            }
        }
    }
}
