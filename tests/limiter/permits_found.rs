//! Permits: faults that random histories and an adversary found.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tollgate::batch::MemberMode;
use tollgate::limits::OverrideOptions;
use tollgate::options::Engine::LockFree;
use tollgate::{ConcurrencyLimit, IdFormat, LimiterOptions, Limits};

use super::permits::{at_most, is_allowed, on, taken, with_flights};
use super::support::rules::hooked;
use super::support::{ENGINES, hourly, limiter, limiter_with, limits, seconds};

/// Flights lifted, beside Units.
fn lifted() -> Limits {
    let lifted = Limits::builder().limit("Flights", IdFormat::String, None).unwrap();
    lifted.limit("Units", IdFormat::String, hourly(10)).unwrap().build()
}

/// A permit that came back while its limit was lifted stayed in the sum for good.
#[test]
fn total_lacks_what_a_lifted_limit_got_back() {
    for engine in ENGINES {
        let (limiter, flights, _) = with_flights(2, on(engine));
        let [first, second] = [taken(&flights, "a", 1), taken(&flights, "b", 1)];
        limiter.reload(lifted()).unwrap();
        drop(first);
        assert_eq!(flights.total_in_flight(), 1, "{engine:?}");
        limiter.reload(limits(&[("Flights", at_most(2)), ("Units", hourly(10))])).unwrap();
        drop(second);
        assert_eq!(flights.total_in_flight(), 0, "{engine:?}");
    }
}

/// By a reload that lifted the limit, and another: then `acquire` took units, and they never came back.
#[test]
fn lifted_permits_never_become_units() {
    let (limiter, flights, _) = with_flights(2, LimiterOptions::default());
    limiter.reload(lifted()).unwrap();
    let units = limits(&[("Flights", hourly(5)), ("Units", hourly(10))]);
    let error = limiter.reload(units).unwrap_err();
    assert!(error.to_string().contains("concurrency cannot become gcra"), "{error}");
    assert!(limiter.limit("Flights").is_err() && limiter.concurrency("Flights").is_ok());
    limiter.reload(limits(&[("Flights", at_most(1)), ("Units", hourly(10))])).unwrap();
    let held = taken(&flights, "a", 1);
    assert!(!is_allowed(&flights, "a", 1));
    drop(held);
}

/// A batch looked at permits at a cost of 0, so a member that only checks never denied it.
#[test]
fn member_that_checks_denies_without_permits() {
    for engine in ENGINES {
        let (limiter, flights, units) = with_flights(2, on(engine));
        let held = taken(&flights, "a", 1);
        let checks = |permits| flights.member("a").cost(permits).mode(MemberMode::CheckOnly);
        let batch = |permits| limiter.batch(&[checks(permits), units.member("a")]).spend_estimate();
        let (denied, none) = batch(2).unwrap();
        assert_eq!((denied.denied_by(), denied.remaining()), (Some(0), Some(1)), "{engine:?}");
        assert!(none.is_none() && batch(1).unwrap().0.allowed());
        assert_eq!(limiter.batch(&[checks(2)]).check().unwrap().denied_by(), Some(0));
        assert_eq!((units.check("a", 0).unwrap().remaining(), held.count()), (Some(9), 1));
    }
}

/// The reload compared the default of another limit.
#[test]
fn set_max_outlasts_reloads_of_other_limits() {
    for engine in ENGINES {
        let of = |units, max| limits(&[("Aunits", hourly(units)), ("Flights", at_most(max))]);
        let (limiter, _) = limiter_with(of(10, 2), on(engine));
        let flights = limiter.concurrency("Flights").unwrap();
        flights.set_max(4);
        limiter.reload(of(11, 2)).unwrap();
        assert_eq!(flights.max(), Some(4), "{engine:?}");
        limiter.reload(of(11, 3)).unwrap();
        assert_eq!(flights.max(), Some(3), "{engine:?}");
    }
}

#[test]
fn check_only_member_denies_without_enough_permits() {
    for engine in ENGINES {
        let (limiter, flights, units) = with_flights(2, on(engine));
        let out = taken(&flights, "a", 1);
        let batch_of = |permits: u64, leave: u64| {
            let flights = flights.member("a").cost(permits).leaving(leave);
            let members = [flights.mode(MemberMode::CheckOnly), units.member("a")];
            let batch = limiter.batch(&members);
            let checked = batch.check().unwrap();
            let (decision, _) = batch.spend_estimate().unwrap();
            assert_eq!(checked.allowed(), decision.allowed(), "{engine:?} {permits} {leave}");
            decision.denied_by()
        };
        assert_eq!((batch_of(1, 0), batch_of(0, 1)), (None, None));
        assert_eq!((batch_of(2, 0), batch_of(1, 1), batch_of(0, 2)), (Some(0), Some(0), Some(0)));
        assert_eq!(units.check("a", 0).unwrap().remaining(), Some(8), "{engine:?}");
        assert_eq!(flights.in_flight("a").unwrap(), 1, "a check takes none");
        drop(out);
        assert_eq!(batch_of(2, 0), None);
    }
}

#[test]
fn permits_come_back_in_a_lifted_time() {
    for engine in ENGINES {
        let end = OverrideOptions::default().expires(SystemTime::now() + seconds(10));
        let flights = Limits::builder().limit("Flights", IdFormat::String, at_most(2)).unwrap();
        let flights = flights.override_with("Flights", "a", None, end).unwrap().build();
        let (limiter, hand) = limiter_with(flights, on(engine));
        let flights = limiter.concurrency("Flights").unwrap();
        hand.advance(seconds(20)); // the override has ended
        let held = taken(&flights, "a", 2);
        hand.set(seconds(5)); // and has not, by a clock that goes back
        drop(held);
        hand.set(seconds(30));
        assert_eq!((flights.in_flight("a").unwrap(), flights.total_in_flight()), (0, 0));
        assert!(is_allowed(&flights, "a", 2), "{engine:?}");
    }
}

/// A call that comes in between is denied for lack of permits, not for lack of units that the batch gives back.
#[test]
fn permits_are_taken_before_units() {
    let streams = Arc::new(Mutex::new(None::<ConcurrencyLimit>));
    let (seen, asked) = channel();
    let asks = {
        let streams = streams.clone();
        // The lock-free table has no lock that this call could wait for.
        hooked(hourly(10), move |_| {
            let streams = streams.lock().unwrap();
            let out = streams.as_ref().map(|streams| streams.in_flight("a").unwrap());
            let _ = seen.send(out);
        })
    };
    let (limiter, _) = limiter(limits(&[("Calls", asks), ("Flights", at_most(2))]), LockFree);
    let (calls, flights) =
        (limiter.limit("Calls").unwrap(), limiter.concurrency("Flights").unwrap());
    *streams.lock().unwrap() = Some(flights.clone());
    let _ = asked.try_iter().count();
    let (_, held) =
        limiter.batch(&[calls.member("a"), flights.member("a")]).spend_estimate().unwrap();
    let out: Vec<_> = asked.try_iter().flatten().collect();
    assert_eq!((out.first(), out.last()), (Some(&0), Some(&1)), "looked at, and charged: {out:?}");
    drop(held);
    // The rule would keep its own limiter for good.
    *streams.lock().unwrap() = None;
}
