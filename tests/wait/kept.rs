//! Places that are not lost: to a reload of another limit, to callers of another limit, to a settlement, to the clock.

use std::future::poll_fn;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::*;

/// Limits of one unit every 10 ms.
fn limits(other_burst: u64) -> Limits {
    let limit = |burst| Limit::new(burst, 1, ms(10)).unwrap();
    support::limits(&[("Own", limit(1)), ("Other", limit(other_burst))])
}

fn both(options: LimiterOptions) -> (Limiter, KeyedLimit, KeyedLimit) {
    let limiter = Limiter::with_options(limits(1), options.clock(Clock::manual().0)).unwrap();
    let [own, other] = ["Own", "Other"].map(|name| limiter.limit(name).unwrap());
    assert!(own.spend("id", 1).unwrap().allowed());
    (limiter, own, other)
}

fn wait(handle: &KeyedLimit) -> Duration {
    handle.check("id", 1).unwrap().retry_in()
}

#[test]
fn reload_of_another_limit_leaves_places() {
    for engine in ENGINES {
        let (limiter, own, _) = both(LimiterOptions::default().engine(engine));
        let mut waiting: Vec<Reservation> = (0..100).map(|_| place(&own, 1)).collect();
        // Some are vacant before the reload; the list keeps them.
        waiting.drain(..10).for_each(Reservation::cancel);
        assert!(limiter.reload(limits(2)).unwrap().changed);
        let taken = place(&own, 1);
        assert_eq!(taken.wait(), ms(10), "{engine:?}: the first of the vacant ones");
        waiting.into_iter().for_each(Reservation::cancel);
        assert_eq!(wait(&own), ms(20), "{engine:?}: the one that was taken is left");
        taken.cancel();
        assert_eq!(wait(&own), ms(10), "{engine:?}");
    }
}

/// The callers of one of two limits have filled the list. The other limit still has half as many places.
#[test]
fn callers_of_another_limit_leave_a_part() {
    let (_limiter, own, other) = both(LimiterOptions::default().max_vacant_places(64));
    let all: Vec<Reservation> =
        (0..1000).map(|_| other.reserve("mallory", 1, Duration::MAX).unwrap()).collect();
    let (vacant, _kept): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|it| it.0 % 2 == 1);
    vacant.into_iter().take(499).for_each(|(_, place)| place.cancel());
    let places: Vec<Reservation> = (0..64).map(|_| place(&own, 1)).collect();
    let (odd, even): (Vec<_>, Vec<_>) =
        places.into_iter().enumerate().partition(|it| it.0 % 2 == 1);
    // The 31 cancelled places do not touch until the places between them are cancelled as well.
    odd.into_iter().rev().skip(1).for_each(|(_, place)| place.cancel());
    even.into_iter().for_each(|(_, place)| place.cancel());
    assert!(wait(&own) > ms(600), "the last one is still there");
    let waits: Vec<Duration> = (1..64).map(|_| place(&own, 1).wait()).collect();
    let all_but_the_last: Vec<Duration> = (1..64).map(|at| ms(10 * at)).collect();
    assert_eq!(waits, all_but_the_last);
}

#[test]
fn settled_last_place_returns_those_in_front() {
    for engine in ENGINES {
        let (_limiter, own, _) = both(LimiterOptions::default().engine(engine));
        let mut waiting: Vec<Reservation> = (0..50).map(|_| place(&own, 1)).collect();
        let last = waiting.pop().unwrap().into_receipt();
        waiting.into_iter().for_each(Reservation::cancel);
        let _ = last.settle(0);
        assert_eq!(wait(&own), ms(10), "{engine:?}");
    }
}

/// A place that was granted at once is returned, also if the clock has gone back since.
#[test]
fn granted_place_is_a_spend_on_any_clock() {
    let (handle, hand) = by_hand(&Limit::new(10, 1, ms(10)).unwrap());
    hand.set(Duration::from_secs(10));
    let granted = handle.reserve("id", 5, Duration::ZERO).unwrap();
    assert!(handle.spend("id", 5).unwrap().allowed());
    hand.set(Duration::from_secs(10) - Duration::from_nanos(1));
    granted.cancel();
    hand.set(Duration::from_secs(10));
    assert_eq!(handle.check("id", 0).unwrap().remaining(), Some(5));
}

/// A clock that panics while a caller waits: the caller's task unwinds, and the process goes on.
#[test]
fn clock_that_panics_ends_one_wait() {
    let is_bad = Arc::new(AtomicBool::new(false));
    let read = is_bad.clone();
    let clock = Clock::custom(move || {
        assert!(!read.load(Ordering::Relaxed), "the clock is broken");
        Duration::from_secs(1)
    });
    let handle = handle_on(&Limit::new(1, 1, ms(10)).unwrap(), clock);
    assert!(handle.spend("id", 1).unwrap().allowed());
    // A timer that is early: the future reads the clock again at its second poll.
    let timer = |_| {
        let mut is_first = true;
        poll_fn(move |_| if take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) })
    };
    let mut waiting = Box::pin(handle.until_allowed("id", 1, Duration::MAX, timer));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    is_bad.store(true, Ordering::Relaxed);
    let unwound = catch_unwind(AssertUnwindSafe(|| waiting.as_mut().poll(&mut context).is_ready()));
    assert!(unwound.is_err(), "its own panic, and no second one in a destructor");
    is_bad.store(false, Ordering::Relaxed);
    assert_eq!(handle.check("id", 1).unwrap().retry_in(), ms(20), "its place stays charged");
}
