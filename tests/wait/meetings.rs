//! Where two features meet: faults that were planted there, and that no other test noticed.
#![cfg(feature = "valkey")]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate::limits::{LimitOptions, OverrideOptions, Shared};
use tollgate::options::AtCap;
use tollgate::reserve::ReserveError;
use tollgate::shared::{Store, block_on};

use super::support::{hourly, seconds};
use super::*;

#[test]
fn passed_places_make_room_in_the_list() {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_vacant_places(1);
    let limits = support::limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]);
    let own = Limiter::with_options(limits, options).unwrap().limit("Own").unwrap();
    let place = |id: &str| own.reserve(id, 1, Duration::MAX).unwrap();
    let [_now, first, _behind] = [(); 3].map(|()| place("a"));
    first.cancel();
    hand.advance(ms(20)); // no caller has taken it, and its time is over
    let [_now, first, _behind] = [(); 3].map(|()| place("b"));
    first.cancel();
    assert_eq!(place("b").wait(), ms(10), "the list has room for it");
}

#[test]
fn joined_places_count_as_one() {
    let options = LimiterOptions::default().clock(Clock::manual().0).max_vacant_places(2);
    let limits = support::limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]);
    let own = Limiter::with_options(limits, options).unwrap().limit("Own").unwrap();
    let place = || own.reserve("id", 1, Duration::MAX).unwrap();
    let [_now, one, two, _three, four, _five] = [(); 6].map(|()| place());
    one.cancel();
    two.cancel();
    four.cancel();
    let waits = [(); 3].map(|()| place().wait());
    assert_eq!(waits, [ms(10), ms(20), ms(40)], "one and two are one place of the list");
}

#[test]
fn retry_without_room_is_refused_at_once() {
    for engine in ENGINES {
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let options = options.max_keys(1).at_cap(AtCap::Deny);
        let limits = support::limits(&[("Own", Limit::fixed_window(1, seconds(1)).unwrap())]);
        let own = Limiter::with_options(limits, options).unwrap().limit("Own").unwrap();
        assert!(own.spend("tracked", 1).unwrap().allowed());
        let never = |_| std::future::pending::<()>();
        let waiting = pin!(own.until_allowed("new", 1, Duration::MAX, never));
        match waiting.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(ReserveError::NoRoom)) => {}
            other => panic!("{engine:?}: {other:?}"),
        }
    }
}

#[test]
fn receipt_of_a_forgotten_limit_charges_no_other() {
    for engine in ENGINES {
        let with = |names: &[&str]| {
            let options = LimitOptions::default().max_debt(5);
            let add = |builder: tollgate::limits::LimitsBuilder, name: &&str| {
                builder.limit_with(name, IdFormat::String, hourly(10), options.clone()).unwrap()
            };
            names.iter().fold(Limits::builder(), add).build()
        };
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(with(&["A", "B"]), options).unwrap();
        let a = limiter.limit("A").unwrap();
        let receipt = a.spend_estimate("x", 2).unwrap().1.unwrap();
        drop(a);
        limiter.reload(with(&["B"])).unwrap();
        limiter.reload(with(&["B", "C", "D"])).unwrap();
        let after = receipt.settle(6);
        for name in ["C", "D"] {
            let new = limiter.limit(name).unwrap();
            assert_eq!(new.check("x", 0).unwrap().remaining(), Some(10), "{engine:?} {name}");
        }
        assert_eq!(after.remaining(), None, "no limit applies any more");
    }
}

#[test]
fn shared_override_has_its_own_floor() {
    let limit = Limit::new(10, 1, ms(1)).unwrap();
    let options = LimitOptions::default().max_debt(3).shared(Shared::Exact);
    let limits = Limits::builder()
        .limit_with("Own", IdFormat::String, limit.clone(), options)
        .unwrap()
        .override_with("Own", "deep", limit, OverrideOptions::default().max_debt(6))
        .unwrap();
    let clock = Clock::manual().0;
    let options = LimiterOptions::default().store(Store::in_memory(clock.clone())).clock(clock);
    let own = Limiter::with_options(limits.build(), options).unwrap().shared("Own").unwrap();
    for (id, owed) in [("any", 3), ("deep", 6)] {
        let receipt = block_on(own.spend_estimate(id, 1)).unwrap().1.unwrap();
        let after = block_on(receipt.settle(100)).unwrap();
        assert_eq!(after.reset_in(), ms(10 + owed), "{id}");
    }
}

#[test]
fn retried_wait_counts_once_in_the_shadow() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).counting(true);
        let window = || Limit::fixed_window(1, ms(10)).unwrap();
        let with = LimitOptions::default().shadow(window());
        let limits = Limits::builder().limit_with("Own", IdFormat::String, window(), with).unwrap();
        let limiter = Limiter::with_options(limits.build(), options).unwrap();
        let own = limiter.limit("Own").unwrap();
        let counts = || {
            let counters = limiter.counters();
            let of = &counters.limits[0];
            (of.allowed, of.denied, of.shadow_denied)
        };
        assert!(own.spend("id", 1).unwrap().allowed());
        let ready = |_: Duration| std::future::ready(());
        let mut tries = 0;
        let timer = |time: Duration| {
            tries += 1;
            if tries == 3 {
                hand.advance(ms(10));
            }
            ready(time)
        };
        let timer = std::cell::RefCell::new(timer);
        let waiting = own.until_allowed("id", 1, ms(100), |time| (timer.borrow_mut())(time));
        assert!(block_on(waiting).is_ok());
        assert_eq!(counts(), (2, 0, 0), "{engine:?}: the wait counts once, as allowed");
        let refused = own.until_allowed("id", 1, ms(1), ready);
        assert!(block_on(refused).unwrap_err().is_not_in_time());
        assert_eq!(counts(), (2, 1, 1), "{engine:?}");
    }
}

#[test]
fn denied_known_batch_returns_each_members_cost() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let limits = support::limits(&[("A", hourly(1_000_000)), ("B", hourly(3))]);
    let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
    assert!(a.spend("id", 500_000).unwrap().allowed() && b.spend("id", 1).unwrap().allowed());
    assert!(b.refund("id", 1).unwrap().allowed());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if b.spend("id", 1).unwrap().allowed() {
                    let _ = b.refund("id", 1).unwrap();
                }
            }
        });
        let members = [a.member("id"), b.member("id").cost(3)];
        for _ in 0..200_000 {
            if limiter.batch(&members).spend().unwrap().allowed() {
                let _ = limiter.batch(&members).refund().unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(a.check("id", 0).unwrap().remaining(), Some(500_000));
}

#[test]
fn cancel_of_a_place_while_off_changes_nothing() {
    for engine in ENGINES {
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limits = support::limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]);
        let limiter = Limiter::with_options(limits, options).unwrap();
        let own = limiter.limit("Own").unwrap();
        let place = || own.reserve("id", 1, Duration::MAX).unwrap();
        let [_now, first, _second, last] = [(); 4].map(|()| place());
        limiter.set_enabled(false);
        first.cancel();
        last.cancel();
        limiter.set_enabled(true);
        assert_eq!(own.check("id", 0).unwrap().reset_in(), ms(40), "{engine:?}: no return");
        assert_eq!(place().wait(), ms(40), "{engine:?}: no vacant place");
    }
}

#[test]
fn vacant_places_apart_go_back_together() {
    let limits = support::limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]);
    let own = Limiter::with_options(limits, Clock::manual().0).unwrap().limit("Own").unwrap();
    let place = || own.reserve("id", 1, Duration::MAX).unwrap();
    let [_now, one, between, other, last] = [(); 5].map(|()| place());
    one.cancel();
    other.cancel();
    let _ = between.into_receipt().settle(0);
    last.cancel();
    assert_eq!(own.check("id", 0).unwrap().reset_in(), ms(10), "as before all of them");
}

#[test]
fn receipt_of_ended_override_returns_nothing() {
    let day = |burst| Limit::new(burst, burst, seconds(86_400)).unwrap();
    let until = |hours: u64| {
        let end = std::time::SystemTime::now() + seconds(hours * 3600);
        let own = OverrideOptions::default().expires(end);
        let builder = Limits::builder().limit("Own", IdFormat::String, day(10)).unwrap();
        builder.override_with("Own", "id", day(100), own).unwrap().build()
    };
    for engine in ENGINES {
        let (limiter, hand) = support::limiter(until(1), engine);
        let own = limiter.limit("Own").unwrap();
        let receipt = own.spend_estimate("id", 50).unwrap().1.unwrap();
        hand.advance(seconds(2 * 3600));
        assert_eq!(own.limit_for("id").unwrap().unwrap().burst(), 10, "it has ended");
        limiter.reload(until(10)).unwrap();
        let before = own.check("id", 0).unwrap();
        assert!(before.remaining() < Some(100));
        let _ = receipt.settle(0);
        assert_eq!(own.check("id", 0).unwrap(), before, "{engine:?}: its override has ended");
    }
}

#[test]
fn panic_in_a_return_returns_the_others_once() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, Ordering};
    use support::rules::{RuleCall, hooked, scripted};
    for engine in ENGINES {
        let own = Limit::new(5, 1, seconds(1)).unwrap();
        let panics = hooked(own.clone(), |call| {
            assert!(call != RuleCall::Refund, "as a rule may");
        });
        let asked = AtomicU64::new(0);
        let then = scripted(move || asked.fetch_add(1, Ordering::Relaxed) == 0);
        let limits =
            support::limits(&[("A", own.clone()), ("B", panics), ("C", own), ("Then", then)]);
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(limits, options).unwrap();
        let [a, b, c, then] = ["A", "B", "C", "Then"].map(|name| limiter.limit(name).unwrap());
        assert!(a.spend("id", 2).unwrap().allowed() && c.spend("id", 2).unwrap().allowed());
        // "Then" denies when it is charged, and B's return panics behind C's.
        let members = [a.member("id"), b.member("id"), c.member("id"), then.member("id")];
        assert!(catch_unwind(AssertUnwindSafe(|| limiter.batch(&members).spend())).is_err());
        let left = [&a, &b, &c].map(|handle| handle.check("id", 0).unwrap().remaining().unwrap());
        assert_eq!(left, [3, 4, 3], "{engine:?}: A and C once");
    }
}

#[test]
fn refund_of_a_checked_member_leaves_its_shadow() {
    use tollgate::batch::MemberMode;
    for engine in ENGINES {
        let with = LimitOptions::default().shadow(hourly(2));
        let limits = Limits::builder().limit_with("A", IdFormat::String, hourly(9), with).unwrap();
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(limits.build(), options.counting(true)).unwrap();
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("k", 2).unwrap().allowed());
        let checked = [a.member("k").cost(2).mode(MemberMode::CheckOnly)];
        let _ = (limiter.batch(&checked).refund(), limiter.batch(&checked).reset());
        assert_eq!(a.check("k", 0).unwrap().remaining(), Some(7), "{engine:?}");
        assert!(a.spend("k", 1).unwrap().allowed());
        assert_eq!(limiter.counters().limits[0].shadow_denied, 1, "{engine:?}: it is empty");
    }
}

#[test]
fn custom_rule_owes_what_it_has() {
    for engine in ENGINES {
        let rule = support::rules::hooked(hourly(10), |_| ());
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(support::limits(&[("Own", rule)]), options).unwrap();
        let own = limiter.limit("Own").unwrap();
        let receipt = own.spend_estimate("id", 8).unwrap().1.unwrap();
        assert_eq!(receipt.settle(13).remaining(), Some(0), "{engine:?}: two of five");
    }
}
