//! Denied batches of members with a factor, beside calls without one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tollgate::limit::Factor;

use super::support::limits;
use super::support::rules::scripted;
use super::*;

/// Charges "Own" by a batch with this factor, which is denied. While the batch holds its charge, `between` is called.
fn denied_with_factor(
    limiter: &Limiter,
    asked: &Hook,
    factor: &str,
    between: impl FnOnce(&KeyedLimit) + Send + 'static,
) {
    let [own, then] = ["Own", "Then"].map(|name| limiter.limit(name).unwrap());
    let held = own.clone();
    *asked.lock().unwrap() = Some(Box::new(move || between(&held)));
    let factor: Factor = factor.parse().unwrap();
    let batch = [own.member("id").factor(factor), then.member("id")];
    assert!(!limiter.batch(&batch).spend().unwrap().allowed());
    assert!(asked.lock().unwrap().is_none());
}

/// Called when "Then" is charged.
type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A limiter with "Own", and "Then", which is allowed by the look of a batch and denied by its charge.
fn with_hook(own: &Limit, clock: Clock, engine: Engine) -> (Limiter, Limit, Hook) {
    let hook: Hook = Arc::default();
    let (of_rule, looks) = (hook.clone(), AtomicU64::new(0));
    let then = scripted(move || {
        let is_look = looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if !is_look && let Some(call) = of_rule.lock().unwrap().take() {
            call();
        }
        is_look
    });
    let options = LimiterOptions::default().clock(clock).engine(engine);
    let limits = limits(&[("Own", own.clone()), ("Then", then.clone())]);
    (Limiter::with_options(limits, options), then, hook)
}

/// By a factor below 1 more drips out, so a charge with it can leave the bucket with less in it than before. A denied
/// batch puts that back, also if another call has charged since, and beside a reload that changes another limit.
#[test]
fn denied_factor_keeps_debt_of_leaky_bucket() {
    for engine in ENGINES {
        for (between, drips, is_reloaded) in
            [(0, 0, false), (1, 0, false), (5, 0, false), (5, 2, false), (5, 0, true), (9, 4, true)]
        {
            let (clock, hand) = Clock::manual();
            hand.set(ms(1_000));
            let leaky = Limit::leaky_bucket(100, ms(60_000), 1).unwrap();
            let (limiter, then, hook) = with_hook(&leaky, clock, engine);
            let own = limiter.limit("Own").unwrap();
            assert!(own.spend("id", 90).unwrap().allowed());
            hand.set(ms(60_000));
            let reloaded = limiter.clone();
            denied_with_factor(&limiter, &hook, "0.001", move |own| {
                if between > 0 {
                    assert!(own.spend("id", between).unwrap().allowed());
                }
                hand.advance(ms(60_000 * drips));
                if is_reloaded {
                    let other = Limit::new(1, 1, ms(1)).unwrap();
                    let limits = limits(&[("Own", leaky), ("Then", then), ("Other", other)]);
                    reloaded.reload(limits).unwrap();
                }
            });
            let left = own.check("id", 0).unwrap().remaining().unwrap();
            let case = format!("{engine:?} {between} {drips} {is_reloaded}");
            assert!(left <= 10 - between + drips, "{case}: {left}");
            assert!(left >= 10 - between, "{case}: {left}");
        }
    }
}

/// Calls by a factor below 1 let more drip out of a leaky bucket than the limit itself. A settlement of a charge that they have
/// let drip out returns nothing of theirs, whether another settlement has come between or not.
#[test]
fn emptied_by_factor_returns_own_units() {
    for engine in ENGINES {
        for (has_settlement, at_ms) in [(true, 3_100), (false, 3_000), (false, 1_600)] {
            let (clock, hand) = Clock::manual();
            let leaky = Limit::leaky_bucket(10, ms(1_000), 1).unwrap();
            let own = limiter_on(&leaky, clock, engine).limit("Own").unwrap();
            let estimate = |cost| own.spend_estimate("id", cost).unwrap().1.unwrap();
            let first = estimate(5);
            if has_settlement {
                let second = estimate(1);
                assert!(own.spend("id", 1).unwrap().allowed());
                let _ = second.settle(0);
            }
            hand.set(ms(at_ms));
            let scaled = own.scaled("0.5".parse().unwrap());
            // By the factor two units drip out a second.
            assert!(scaled.spend("id", 3).unwrap().allowed());
            hand.advance(ms(100));
            let _ = first.settle(0);
            let remaining = own.check("id", 0).unwrap().remaining();
            assert_eq!(remaining, Some(7), "{engine:?} {has_settlement} {at_ms}");
        }
    }
}

/// A reservation waits also while a call by a factor has left no more than the size in the bucket: nothing in front of it comes
/// back.
#[test]
fn settlement_before_waiting_place_returns_nothing() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let leaky = Limit::leaky_bucket(10, ms(10), 1).unwrap();
        let own = limiter_on(&leaky, clock, engine).limit("Own").unwrap();
        let estimate = own.spend_estimate("id", 10).unwrap().1.unwrap();
        assert_eq!(place(&own, 5).wait(), ms(50));
        hand.set(ms(6));
        assert!(own.scaled("0.1".parse().unwrap()).spend("id", 1).unwrap().allowed());
        let _ = estimate.settle(0);
        hand.set(ms(50));
        // 5 units are granted now, and 10 are the most at one instant.
        assert_eq!(own.check("id", 0).unwrap().remaining(), Some(4), "{engine:?}");
    }
}

/// The ledger counts the units that a charge drains early once, and it counts no drips as rollbacks.
#[test]
fn settlements_return_all_that_is_left() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let leaky = Limit::leaky_bucket(20, ms(10), 1).unwrap();
        let own = limiter_on(&leaky, clock, engine).limit("Own").unwrap();
        let remaining = |id: &str| own.check(id, 0).unwrap().remaining();
        let [one, two] = [10, 5].map(|cost| own.spend_estimate("id", cost).unwrap().1.unwrap());
        assert!(own.spend("id", 1).unwrap().allowed());
        let estimate = own.spend_estimate("other", 10).unwrap().1.unwrap();
        hand.set(ms(6));
        assert!(own.scaled("0.1".parse().unwrap()).spend("other", 1).unwrap().allowed());
        let _ = estimate.settle(0);
        assert_eq!(remaining("other"), Some(19), "{engine:?}: 6 of 10 have dripped out");
        hand.set(ms(50));
        let _ = one.settle(0);
        assert_eq!(remaining("id"), Some(14), "{engine:?}: 5 of 10 have dripped out");
        let _ = two.settle(0);
        assert_eq!(remaining("id"), Some(19), "{engine:?}: none of 5");
    }
}

/// A charge by a factor above 1 counts units that have dripped out by the limit itself. Its rollback leaves them to the
/// calls with that factor, and returns its own.
#[test]
fn settled_factor_returns_no_dripped_units() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        hand.set(ms(1_000));
        let leaky = Limit::leaky_bucket(100, ms(100), 1).unwrap();
        let (limiter, _, hook) = with_hook(&leaky, clock, engine);
        let own = limiter.limit("Own").unwrap();
        assert!(own.spend("id", 50).unwrap().allowed());
        hand.advance(ms(4_000));
        denied_with_factor(&limiter, &hook, "2", |own| {
            let scaled = own.scaled("2".parse().unwrap());
            assert!(scaled.spend("id", 1).unwrap().allowed());
        });
        // By the factor 30 of the 50 units are left; its size is 50.
        let scaled = own.scaled("2".parse().unwrap());
        assert_eq!(scaled.check("id", 0).unwrap().remaining(), Some(50 - 30 - 1), "{engine:?}");
    }
}

/// By a factor above 1 an ended window counts as used up, and a later one as open. A denied batch does not leave it open for
/// the calls that came meanwhile.
#[test]
fn denied_factor_leaves_no_old_window_open() {
    for engine in ENGINES {
        let hour = ms(3_600_000);
        for limit in
            [Limit::fixed_window(12, hour).unwrap(), Limit::token_bucket(12, hour, 12).unwrap()]
        {
            let (clock, hand) = Clock::manual();
            hand.set(ms(100_000));
            let (limiter, _, hook) = with_hook(&limit, clock, engine);
            let own = limiter.limit("Own").unwrap();
            assert!(own.spend("id", 6).unwrap().allowed());
            hand.advance(2 * hour - ms(60_000));
            denied_with_factor(&limiter, &hook, "3", |own| {
                assert!(own.spend("id", 9).unwrap().allowed());
            });
            hand.advance(ms(60_000));
            assert_eq!(own.check("id", 0).unwrap().remaining(), Some(3), "{engine:?} {limit:?}");
        }
    }
}
