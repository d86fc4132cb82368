//! Denied batches whose limit changes between their charges and their returns, by a reload or by an override's end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use tollgate::limits::OverrideOptions;
use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::scripted;
use super::support::{ENGINES, full_size, hourly, limiter_with, limits, seconds};

const HOUR: Duration = Duration::from_secs(3600);

const ALGORITHMS: [fn(u64) -> Limit; 6] = [
    |burst| Limit::new(burst, burst, 10 * HOUR).unwrap(),
    |burst| Limit::fixed_window(burst, 10 * HOUR).unwrap(),
    |burst| Limit::token_bucket(burst, burst, 10 * HOUR).unwrap(),
    |burst| Limit::leaky_bucket(burst, 1, 10 * HOUR).unwrap(),
    // A larger burst refills more slowly.
    |burst| Limit::new(burst, 1, HOUR * burst as u32).unwrap(),
    |burst| Limit::token_bucket(burst.div_ceil(2), burst, HOUR * burst as u32).unwrap(),
];

/// What happens while a batch holds its charge.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// A reload changes the limit, and gives it the parameters for this burst.
    Reload(u64),
    /// A reload changes another limit.
    Other,
    /// The override of the id ends.
    End,
}

/// How three units are charged in front of the change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Charge {
    Nothing,
    Spend,
    DeniedBatch,
}

/// Returns the units that are left after a charge and a change, and the seconds until the bucket is full. Another caller spends
/// `others` units in between.
fn left(
    make: fn(u64) -> Limit,
    (change, charge, others): (Change, Charge, u64),
    (carry_over, engine): (CarryOver, Engine),
) -> (Option<u64>, u64) {
    type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;
    let hook: Hook = Arc::default();
    let (of_rule, asked) = (hook.clone(), AtomicU64::new(0));
    // Allows the look of a batch; its charge calls the hook, and is denied.
    let then = scripted(move || {
        let is_look = asked.fetch_add(1, Ordering::Relaxed) == 0;
        let call = if is_look { None } else { of_rule.lock().unwrap().take() };
        if let Some(call) = call {
            call();
        }
        is_look
    });
    let end = OverrideOptions::default().expires(SystemTime::now() + seconds(10));
    let default = if change == Change::End { 12 } else { 20 };
    let first = Limits::builder()
        .limit("Own", IdFormat::String, make(default))
        .and_then(|it| it.limit("Then", IdFormat::String, then.clone()))
        .and_then(|it| match change {
            Change::End => it.override_with("Own", "id", make(20), end),
            _ => Ok(it),
        });
    // The override's end converts by the carry-over of the last reload.
    let options = LimiterOptions::default().engine(engine);
    let (limiter, hand) = limiter_with(limits(&[("Own", hourly(1))]), options);
    limiter.reload_with(first.unwrap().build(), carry_over).unwrap();
    let [own, denier] = ["Own", "Then"].map(|name| limiter.limit(name).unwrap());
    let (spends, reloads) = (own.clone(), limiter.clone());
    let act = move || {
        assert!(others == 0 || spends.spend("id", others).unwrap().allowed());
        let next = match change {
            Change::End => return hand.advance(seconds(11)),
            Change::Reload(burst) => limits(&[("Own", make(burst)), ("Then", then)]),
            Change::Other => limits(&[("Own", make(20)), ("Then", then), ("Other", hourly(1))]),
        };
        assert!(reloads.reload_with(next, carry_over).unwrap().changed);
    };
    match charge {
        Charge::DeniedBatch => {
            *hook.lock().unwrap() = Some(Box::new(act));
            let batch = [own.member("id").cost(3), denier.member("id")];
            assert!(!limiter.batch(&batch).spend().unwrap().allowed());
            assert!(hook.lock().unwrap().is_none(), "the limit has changed");
        }
        Charge::Spend => {
            assert!(own.spend("id", 3).unwrap().allowed());
            act();
        }
        Charge::Nothing => act(),
    }
    let left = own.check("id", 0).unwrap();
    // In minutes: the end of an override is by the system's clock. A unit is worth hours.
    (left.remaining(), (left.reset_in() + seconds(30)).as_secs() / 60)
}

/// Checks that a denied batch leaves what `charge` leaves in its place. A reload beside a call of the lock-free table waits for
/// that call. The exact engine has a lock while it asks a rule, so that the hook may only move the clock there.
fn is_as(charge: Charge, change: Change, carry_over: CarryOver) {
    let of = |make, engine| {
        let is_lock_free = engine == Engine::LockFree;
        if is_lock_free || change == Change::End {
            let others = if is_lock_free { 4 } else { 0 };
            let left = |charge| left(make, (change, charge, others), (carry_over, engine));
            let (found, expected) = (left(Charge::DeniedBatch), left(charge));
            assert_eq!(found, expected, "{engine:?} {:?} {change:?} {carry_over:?}", make(20));
        }
    };
    // A reload in a call waits for that call for a while.
    thread::scope(|scope| {
        for make in ALGORITHMS {
            scope.spawn(move || ENGINES.into_iter().for_each(|engine| of(make, engine)));
        }
    });
}

/// Its units are in the word in units of another limit. They stay charged, as those of an allowed batch.
#[test]
fn denied_batch_beside_change_leaves_its_charge() {
    is_as(Charge::Spend, Change::Reload(12), CarryOver::Share);
    is_as(Charge::Spend, Change::Reload(50), CarryOver::Units);
    let all = [CarryOver::Share, CarryOver::Units, CarryOver::Time];
    for &carry_over in full_size(&all[..1], &all) {
        is_as(Charge::Spend, Change::End, carry_over);
    }
}

#[test]
fn denied_batch_beside_other_reload_returns_all() {
    is_as(Charge::Nothing, Change::Other, CarryOver::Share);
}

/// A reload makes the burst smaller than a member's cost while the units of a batch are refunded: the bucket is full then.
#[test]
fn refund_of_a_batch_meets_a_smaller_burst() {
    type Hook = Box<dyn FnOnce() + Send>;

    for engine in ENGINES {
        let hook = Arc::new(Mutex::new(None::<Hook>));
        let of_clock = hook.clone();
        let clock = Clock::custom(move || {
            let call = of_clock.lock().unwrap().take();
            if let Some(call) = call {
                call();
            }
            Duration::from_secs(1000)
        });
        let limits = |burst| limits(&[("A", hourly(burst))]);
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(limits(100), options).unwrap();
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("id", 5).unwrap().allowed());
        let reloads = limiter.clone();
        *hook.lock().unwrap() = Some(Box::new(move || {
            assert!(reloads.reload_with(limits(10), CarryOver::Units).unwrap().changed);
        }));
        let members = [a.member("id").cost(50)];
        assert!(limiter.batch(&members).refund().unwrap().allowed());
        assert!(hook.lock().unwrap().is_none());
        assert_eq!(a.check("id", 0).unwrap().remaining(), Some(10), "{engine:?}");
    }
}
