//! Batches that are denied, or panic, when they have charged some of their members: they return these charges.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::options::{AtCap, Engine};
use tollgate::{Clock, KeyedLimit, Limit, Limiter, LimiterOptions};

use super::support::rules::{RuleCall, hooked, scripted};
use super::support::{ENGINES, limiter_with, limits, limits_of_all, ms};

/// A limiter with the limits "Own" and "Then". A batch finds that "Then" allows; when the batch charges it,
/// `when_charged` runs, which may panic, and "Then" denies.
fn with_late_denial(
    limit: &Limit,
    options: LimiterOptions,
    when_charged: impl Fn() + Send + Sync + 'static,
) -> (Limiter, [KeyedLimit; 2]) {
    let asked = AtomicU64::new(0);
    let then = scripted(move || {
        let is_look = asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if !is_look {
            when_charged();
        }
        is_look
    });
    let limiter =
        Limiter::with_options(limits(&[("Own", limit.clone()), ("Then", then)]), options).unwrap();
    let handles = ["Own", "Then"].map(|name| limiter.limit(name).unwrap());
    (limiter, handles)
}

/// A batch reads the clock, charges, and returns its unit after another call has charged. So the other call's unit counts
/// from the batch's earlier reading, and a window that begins with the other call has the returned unit more than `burst` and
/// what refills. The ledger of `tests/endurance` counts such returns.
#[test]
fn unit_of_a_denied_batch_counts_as_returned() {
    let us = Duration::from_micros;
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let other = Arc::new(Mutex::new(None::<KeyedLimit>));
        let (in_between, other_hand) = (other.clone(), hand.clone());
        let limit = Limit::new(4, 1, ms(1000)).unwrap();
        let (limiter, [own, then]) = with_late_denial(&limit, options, move || {
            other_hand.advance(us(10));
            let other = in_between.lock().unwrap();
            assert!(other.as_ref().unwrap().spend("id", 1).unwrap().allowed());
        });
        *other.lock().unwrap() = Some(own.clone());
        let members = [own.member("id"), then.member("c")];
        assert!(!limiter.batch(&members).spend().unwrap().allowed());
        assert!(own.spend("id", 3).unwrap().allowed(), "{engine:?}: 4 in the window");
        let retry_in = own.spend("id", 1).unwrap().retry_in();
        assert_eq!(retry_in, ms(1000) - us(10), "{engine:?}: a fifth before a whole interval");
        hand.advance(retry_in);
        assert!(own.spend("id", 1).unwrap().allowed() && !own.spend("id", 1).unwrap().allowed());
        // The rule would keep its own limiter for good.
        *other.lock().unwrap() = None;
    }
}

#[test]
fn panic_between_charges_leaves_none() {
    for engine in ENGINES {
        for limit in limits_of_all(5, ms(1)) {
            let (clock, hand) = Clock::manual();
            let options = LimiterOptions::default().clock(clock).engine(engine);
            let (limiter, [own, then]) = with_late_denial(&limit, options, move || {
                hand.advance(ms(1));
                panic!("as a rule may");
            });
            let members = [own.member("id").cost(2), own.member("other").cost(3), then.member("c")];
            let caught = catch_unwind(AssertUnwindSafe(|| limiter.batch(&members).spend()));
            assert!(caught.is_err());
            for id in ["id", "other"] {
                let left = own.check(id, 0).unwrap();
                assert!(left.reset_in().is_zero(), "{engine:?} {limit:?}: {left:?}");
            }
            // No lock is left held: the next batch goes through the same cells.
            assert!(limiter.batch(&members[..2]).spend().unwrap().allowed());
        }
    }
}

/// This covers a rule that is asked again after its bucket was charged.
#[test]
fn panicking_rule_leaves_no_batch_half_charged() {
    for engine in ENGINES {
        for calls in 1..12 {
            let rule = Limit::new(5, 1, ms(1000)).unwrap();
            let spends_left = Arc::new(AtomicU64::new(u64::MAX));
            let left_of_rule = spends_left.clone();
            let panics = hooked(rule.clone(), move |call| {
                if let RuleCall::Spend { .. } = call {
                    let left = left_of_rule.fetch_sub(1, Ordering::Relaxed);
                    assert_ne!(left, 1, "as a rule may");
                }
            });
            let limits = limits(&[("Own", rule), ("Panics", panics)]);
            let (limiter, _hand) = limiter_with(limits, LimiterOptions::default().engine(engine));
            let [first, second] = ["Own", "Panics"].map(|name| limiter.limit(name).unwrap());
            let members = [first.member("id"), second.member("id"), second.member("other")];
            spends_left.store(calls, Ordering::Relaxed);
            let caught = catch_unwind(AssertUnwindSafe(|| limiter.batch(&members).spend()));
            spends_left.store(u64::MAX, Ordering::Relaxed);
            let left = [(&first, "id"), (&second, "id"), (&second, "other")];
            let left = left.map(|(handle, id)| handle.check(id, 0).unwrap().remaining());
            let is_charged = caught.is_ok();
            assert_eq!(left, [Some(if is_charged { 4 } else { 5 }); 3], "{engine:?}: {calls}");
        }
    }
}

/// A rule whose refund panics keeps its charge. The batch that unwinds returns the others.
#[test]
fn panic_in_a_return_stays_with_its_member() {
    for engine in ENGINES {
        let panics = hooked(Limit::new(5, 1, ms(1000)).unwrap(), |call| {
            assert!(call != RuleCall::Refund, "as a rule may");
        });
        let then = scripted({
            let asked = AtomicU64::new(0);
            move || {
                assert!(asked.fetch_add(1, Ordering::Relaxed) == 0, "as a rule may");
                true
            }
        });
        let own = Limit::new(5, 1, ms(1000)).unwrap();
        let limits = limits(&[("A", own.clone()), ("B", panics), ("C", own), ("Then", then)]);
        let (limiter, _hand) = limiter_with(limits, LimiterOptions::default().engine(engine));
        let [a, b, c, then] = ["A", "B", "C", "Then"].map(|name| limiter.limit(name).unwrap());
        let members = [a.member("id"), b.member("id"), c.member("id"), then.member("id")];
        assert!(catch_unwind(AssertUnwindSafe(|| limiter.batch(&members).spend())).is_err());
        let left = [&a, &b, &c].map(|handle| handle.check("id", 0).unwrap().remaining().unwrap());
        assert_eq!(left, [5, 4, 5], "{engine:?}");
    }
}

/// Two untracked keys at the cap share one bucket, so the second charge builds on the first.
#[test]
fn denied_batch_returns_both_shared_charges() {
    for limit in limits_of_all(9, ms(1)) {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).max_keys(1).at_cap(AtCap::Share);
        let (limiter, [own, then]) = with_late_denial(&limit, options, move || hand.advance(ms(1)));
        assert!(own.spend("the one key", 1).unwrap().allowed());
        let members = [own.member("a").cost(3), own.member("b").cost(4), then.member("c")];
        assert!(!limiter.batch(&members).spend().unwrap().allowed());
        assert_eq!(limiter.stats().overflowed, 2, "both were charged to the overflow bucket");
        let left = own.check("any", 0).unwrap();
        assert!(left.reset_in().is_zero(), "{limit:?}: {left:?}");
        assert!(own.spend("any", 9).unwrap().allowed(), "{limit:?}");
    }
}

/// Another caller spends and the time passes while a batch holds its charge, with and without a factor: what the batch returns
/// is its own.
#[test]
fn denied_batch_leaves_the_spends_of_others() {
    for engine in ENGINES {
        for limit in limits_of_all(20, ms(100)) {
            for factor in ["1", "2", "0.5"] {
                let (clock, hand) = Clock::manual();
                let options = LimiterOptions::default().clock(clock).engine(engine);
                let others = Arc::new(Mutex::new(None::<KeyedLimit>));
                let (in_rule, moves) = (others.clone(), hand.clone());
                // The exact engine holds a lock while it asks a rule.
                let is_exact = engine != Engine::LockFree;
                let (limiter, [own, then]) = with_late_denial(&limit, options, move || {
                    if !is_exact {
                        let others = in_rule.lock().unwrap();
                        assert!(others.as_ref().unwrap().spend("id", 2).unwrap().allowed());
                    }
                    moves.advance(ms(1));
                });
                *others.lock().unwrap() = Some(own.clone());
                assert!(own.spend("id", 3).unwrap().allowed());
                let (alone, alone_hand) = limiter_with(
                    limits(&[("Own", limit.clone())]),
                    LimiterOptions::default().engine(engine),
                );
                let alone = alone.limit("Own").unwrap();
                assert!(alone.spend("id", if is_exact { 3 } else { 5 }).unwrap().allowed());
                let member = own.member("id").cost(4).factor(factor.parse().unwrap());
                assert!(!limiter.batch(&[member, then.member("id")]).spend().unwrap().allowed());
                alone_hand.advance(ms(1));
                let [found, expected] = [&own, &alone].map(|it| it.check("id", 0).unwrap());
                assert_eq!(found, expected, "{engine:?} {limit:?} {factor}");
                // The rule, which the limiter owns, holds no handle of it any more.
                *others.lock().unwrap() = None;
            }
        }
    }
}
