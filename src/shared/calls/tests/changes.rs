//! Changes of buckets of which nodes hold leases.

use super::*;
use crate::decision::Decision;
use crate::shared::block_on;

const SECOND: Duration = Duration::from_secs(1);

/// Two nodes of a leased limit of 20 units, one each `period`. The first has spent two units of id `a`, and holds 8 until 20 s
/// after the clock's first reading.
fn with_lease(period: Duration) -> (SharedLimit, SharedLimit, ManualClock) {
    let (clock, hand) = Clock::manual();
    let leased = LimitOptions::default().shared(Shared::Leased).lease(10 * SECOND);
    let limit = Limit::new(20, 1, period).unwrap();
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit, leased).unwrap();
    let options = LimiterOptions::default().clock(clock.clone()).store(Store::in_memory(clock));
    let (limits, others) = (limits.build(), options.clone());
    let other = Limiter::with_options(limits.clone(), others).unwrap().shared("All").unwrap();
    let all = Limiter::with_options(limits, options).unwrap().shared("All").unwrap();
    for _ in 0..2 {
        hand.advance(MS);
        assert!(block_on(all.spend("a", 1)).unwrap().allowed());
    }
    assert_eq!(here(&all, all.check("a", 0)).unwrap().remaining(), Some(8), "held");
    (all, other, hand)
}

fn left(other: &SharedLimit) -> Option<u64> {
    block_on(other.check("a", 0)).unwrap().remaining()
}

#[test]
fn refunds_and_resets_keep_leases() {
    type Change = fn(&SharedLimit) -> Result<Decision, Error>;
    let changes: [Change; 2] = [|all| block_on(all.reset("a")), |all| block_on(all.refund("a", 5))];
    for change in changes {
        let (all, other, hand) = with_lease(MINUTE);
        assert_eq!(left(&other), Some(10));
        let _ = change(&all).unwrap();
        assert_eq!(left(&other), Some(12), "8 of 20 are leased");
        hand.advance(20 * SECOND);
        assert_eq!(left(&other), Some(12), "they are taken for spent");
    }
}

/// A unit of a lease takes its time of the limit without a factor, also for a call whose limit is twice as fast.
#[test]
fn factors_do_not_shrink_leases_in_changes() {
    let (all, _, hand) = with_lease(SECOND);
    hand.advance(8 * SECOND);
    let twice = Factor::from_millionths(500_000);
    let fast = all.scaled(twice);
    let before = block_on(fast.check("a", 0)).unwrap().remaining();
    assert_eq!(before, Some(24), "of 40, 8 units of a second each are leased");
    let after = block_on(fast.refund("a", 1)).unwrap().remaining();
    assert_eq!(after, Some(24), "the leased units are still held");
    assert_eq!(block_on(fast.check("a", 0)).unwrap().remaining(), after);
}

/// The texts of a leaky bucket remember a call with a factor, also if the next ones are of another node.
#[test]
fn texts_outlive_the_factors_of_other_nodes() {
    let (clock, hand) = Clock::manual();
    let limit = Limit::leaky_bucket(10, 1, SECOND).unwrap();
    let limits = Limits::builder().limit_with("All", IdFormat::String, limit, exact()).unwrap();
    let options = LimiterOptions::default().clock(clock.clone()).store(Store::in_memory(clock));
    let limits = limits.build();
    let node =
        || Limiter::with_options(limits.clone(), options.clone()).unwrap().shared("All").unwrap();
    let (one, other) = (node(), node());
    let slow = one.scaled(Factor::from_millionths(1_000_000_000));
    assert!(block_on(slow.spend("a", 1)).unwrap().allowed());
    let changes: [fn(&SharedLimit); 3] = [
        |other| assert!(block_on(other.spend("a", 1)).unwrap().allowed()),
        |other| assert_eq!(block_on(other.spend_up_to("a", 1)).unwrap().0, 1),
        |other| assert_eq!(block_on(other.drain("a", 9)).unwrap().remaining(), Some(9)),
    ];
    for change in changes {
        hand.advance(SECOND);
        change(&other);
        hand.advance(100 * SECOND);
        assert!(!block_on(slow.check("a", 1)).unwrap().allowed());
        assert!(block_on(slow.refund("a", 1)).is_ok());
        assert!(block_on(slow.spend("a", 1)).unwrap().allowed());
    }
}

/// A bucket that the limit itself has charged is full much later by a factor of 3 than one that is charged by that factor only.
#[test]
fn texts_outlive_own_units_by_factor() {
    let hour = 60 * MINUTE;
    for limit in [
        Limit::leaky_bucket(600, 1, SECOND),
        Limit::fixed_window(600, hour),
        Limit::token_bucket(600, 600, hour),
    ] {
        let limit = limit.unwrap();
        let (clock, hand) = Clock::manual();
        let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
        let limits = limits.limit_with("All", IdFormat::String, limit.clone(), exact()).unwrap();
        let options = LimiterOptions::default().clock(clock.clone()).store(Store::in_memory(clock));
        let limits = limits.build();
        let node = || Limiter::with_options(limits.clone(), options.clone()).unwrap();
        let (one, other) = (node(), node());
        let [own, all] = ["Own", "All"].map(|name| one.shared(name).unwrap());
        let factor = Factor::from_millionths(3_000_000);
        let (slow, slow_own) = (all.scaled(factor), own.scaled(factor));
        assert!(block_on(slow.spend("a", 1)).unwrap().allowed());
        assert!(now(slow_own.spend("a", 1)).unwrap().allowed());
        hand.advance(MS);
        assert!(block_on(other.shared("All").unwrap().spend("a", 599)).unwrap().allowed());
        assert!(now(own.spend("a", 599)).unwrap().allowed());
        let mut answers = Vec::new();
        for _ in 0..4 {
            hand.advance(limit.burst_offset() + 61 * SECOND);
            let allowed = now(slow_own.check("a", 200)).unwrap().allowed();
            let shared = block_on(slow.check("a", 200)).unwrap().allowed();
            assert_eq!(shared, allowed, "{limit}");
            answers.push(allowed);
        }
        assert_eq!(answers, [false, false, true, true], "{limit}");
    }
}

/// A call whose caller has gone does all of its work on its node after the store has answered.
#[test]
fn abandoned_changes_are_noted_here() {
    let leased = LimitOptions::default().shared(Shared::Leased);
    for what in ["block", "unblock", "refund", "grant"] {
        let node = node_with(limits_of((10, 20), leased.clone()));
        assert!(node.is_allowed(1) && node.is_allowed(1), "the node has a lease");
        if what == "unblock" {
            node.answer(node.all.block("a", 60 * MINUTE)).unwrap();
        } else if what == "refund" {
            assert!(node.is_allowed(18) && !node.is_allowed(2), "the node keeps a denial");
        }
        let before = node.counts()[1];
        {
            let mut call: Pin<Box<dyn Future<Output = ()> + '_>> = match what {
                "block" => Box::pin(async {
                    let _ = node.all.block("a", 60 * MINUTE).await;
                }),
                "unblock" => Box::pin(async {
                    let _ = node.all.unblock("a").await;
                }),
                "refund" => Box::pin(async {
                    let _ = node.all.refund("a", 20).await;
                }),
                _ => Box::pin(async {
                    let _ = node.all.spend_up_to("a", 2).await;
                }),
            };
            assert!(poll(call.as_mut()).is_pending());
        }
        while node.store.run_all() > 0 {}
        if what == "grant" {
            assert_eq!(node.counts()[1].0, before.0 + 1);
        }
        assert_eq!(node.is_allowed(2), what != "block", "{what}");
    }
}

/// A limiter that is switched off while a partial grant waits: the call goes on as it began.
#[test]
fn grants_that_wait_meet_the_policy() {
    let node = node_of(exact().on_error(OnError::Allow));
    node.set_outage(true);
    let mut grant = Box::pin(node.all.spend_up_to("a", 2));
    assert!(poll(grant.as_mut()).is_pending());
    node.limiter.set_enabled(false);
    node.store.run_all();
    let Poll::Ready(granted) = poll(grant.as_mut()) else { panic!("answered") };
    assert_eq!(granted.unwrap().0, 2);
}

#[test]
fn costs_above_the_burst_are_counted_errors() {
    let node = node_of(exact());
    let errors = || node.limiter.counters().limits[1].errors;
    assert!(node.answer(node.all.reserve("a", 99, Duration::ZERO)).is_err());
    assert_eq!(errors(), 1);
    assert!(node.answer(node.all.refund("a", 99)).is_err());
    assert_eq!(errors(), 2);
    let scaled = node.all.scaled(Factor::from_millionths(500_000));
    assert!(node.answer(scaled.refund("a", 99)).is_err());
    assert_eq!(errors(), 3);
}

#[test]
fn batch_refunds_ask_all_at_once() {
    let node = node();
    for id in ["a", "b"] {
        assert!(node.answer(node.all.spend(id, 3)).unwrap().allowed());
    }
    let members = [node.all.member("a").cost(2), node.all.member("b").cost(2)];
    let batch = node.limiter.shared_batch(&members);
    let mut refund = Box::pin(batch.refund());
    assert!(poll(refund.as_mut()).is_pending());
    assert_eq!(node.store.run_all(), 2);
    assert!(matches!(poll(refund.as_mut()), Poll::Ready(Ok(given)) if given.allowed()));
}
