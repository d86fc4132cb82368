//! Places that were cancelled before others: the next callers take them.

use tollgate::options::AtCap;

use super::*;

/// Ten ms a unit, nothing at once, and these places behind each other.
fn with_places<const N: usize>(costs: [u64; N]) -> (KeyedLimit, ManualClock, [Reservation; N]) {
    let (handle, hand) = by_hand(&Limit::new(4, 1, ms(10)).unwrap());
    assert!(handle.spend("id", 4).unwrap().allowed());
    let places = costs.map(|cost| place(&handle, cost));
    (handle, hand, places)
}

fn wait_of(handle: &KeyedLimit, cost: u64) -> Duration {
    place(handle, cost).wait()
}

#[test]
fn next_callers_take_it_or_a_part() {
    let (handle, _hand, [first, second, _last]) = with_places([1, 3, 1]);
    assert_eq!([&first, &second].map(Reservation::wait), [ms(10), ms(40)]);
    let before = handle.check("id", 0).unwrap().reset_in();
    second.cancel();
    assert_eq!(handle.check("id", 0).unwrap().reset_in(), before, "the last place is behind it");
    assert_eq!(wait_of(&handle, 2), ms(30), "the first two of the three");
    assert_eq!(wait_of(&handle, 4), ms(90), "one is left: no room for four");
    assert_eq!(wait_of(&handle, 1), ms(40), "the third");
    assert_eq!(wait_of(&handle, 1), ms(100));
}

#[test]
fn neighbours_are_one_place() {
    let (handle, _hand, [first, second, third, _last]) = with_places([1, 1, 1, 1]);
    first.cancel();
    third.cancel();
    second.cancel();
    assert_eq!(wait_of(&handle, 3), ms(30));
    assert_eq!(wait_of(&handle, 1), ms(50));
}

#[test]
fn vacant_before_last_goes_back_with_it() {
    let (handle, _hand, [first, second, third]) = with_places([1, 1, 1]);
    second.cancel();
    third.cancel();
    assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(50));
    first.cancel();
    assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(40));
}

#[test]
fn place_that_comes_too_late_is_not_taken() {
    let (handle, _hand, [_first, second, _last]) = with_places([1, 1, 1]);
    second.cancel();
    let refused = handle.reserve("id", 1, ms(19)).unwrap_err();
    assert_eq!(refused.needed(), Some(ms(40)), "at the end; the vacant one comes in 20 ms");
    assert_eq!(handle.reserve("id", 1, ms(20)).unwrap().wait(), ms(20));
}

#[test]
fn list_has_its_bound() {
    let options = LimiterOptions::default().clock(Clock::manual().0).max_vacant_places(1);
    let limits = support::limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]);
    let handle = Limiter::with_options(limits, options).unwrap().limit("Own").unwrap();
    assert!(handle.spend("id", 1).unwrap().allowed());
    let [first, _second, third, _last] = [(); 4].map(|()| place(&handle, 1));
    first.cancel();
    third.cancel();
    assert_eq!(wait_of(&handle, 1), ms(10));
    assert_eq!(wait_of(&handle, 1), ms(50), "the third stays charged");
}

/// What changes a bucket's times by hand drops its vacant places.
#[test]
fn changes_by_hand_drop_the_list() {
    type Change = fn(&KeyedLimit);
    let changes: [Change; 2] = [
        |handle| assert!(handle.refund("id", 1).unwrap().allowed()),
        |handle| assert!(handle.reset("id").unwrap().allowed()),
    ];
    for change in changes {
        let (handle, _hand, [first, _second]) = with_places([1, 1]);
        first.cancel();
        change(&handle);
        let expected = handle.check("id", 1).unwrap().retry_in();
        assert_eq!(wait_of(&handle, 1), expected, "no earlier than a call's own turn");
    }
}

#[test]
fn reload_and_sweep_beside_vacant_places() {
    let of = |other, period| {
        support::limits(&[("Other", other), ("Own", Limit::new(1, 1, period).unwrap())])
    };
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).at_cap(AtCap::Deny);
        let limiter = Limiter::with_options(of(support::hourly(1), ms(10)), options).unwrap();
        let handle = limiter.limit("Own").unwrap();
        assert!(handle.spend("id", 1).unwrap().allowed());
        let [first, last] = [(); 2].map(|()| place(&handle, 1));
        first.cancel();
        for period in [ms(10), ms(20), ms(10)] {
            assert!(limiter.reload(of(support::hourly(2), period)).unwrap().changed);
        }
        assert_eq!(
            wait_of(&handle, 1),
            ms(30),
            "{engine:?}: a reload of the limit drops its places"
        );
        last.cancel();
        assert_eq!(wait_of(&handle, 1), ms(40), "{engine:?}: one from before it stays empty");
        hand.advance(ms(100));
        support::sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
        assert_eq!(wait_of(&handle, 1), ms(0), "{engine:?}");
        assert_eq!(wait_of(&handle, 1), ms(10), "{engine:?}");
    }
}

#[test]
fn blocked_id_takes_no_vacant_place() {
    let (handle, _hand, [first, _last]) = with_places([1, 1]);
    first.cancel();
    let _ = handle.block("id", ms(5)).unwrap();
    assert!(handle.reserve("id", 1, Duration::MAX).unwrap_err().is_blocked());
    assert!(handle.unblock("id").unwrap());
    assert_eq!(wait_of(&handle, 1), ms(10));
}

/// A place of several units lost those that it alone would have had earlier.
#[test]
fn vacant_place_is_whole_until_its_time() {
    for is_first in [true, false] {
        let (handle, hand, [first, second]) = with_places([3, 1]);
        hand.advance(ms(29));
        let places = if is_first { [first, second] } else { [second, first] };
        places.into_iter().for_each(Reservation::cancel);
        assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(40 - 29));
    }
    let (handle, hand, [first, _last]) = with_places([3, 1]);
    first.cancel();
    hand.advance(ms(29));
    assert_eq!(handle.reserve("id", 3, Duration::MAX).unwrap().wait(), ms(1));
    // Its units are those from 40 to 70 ms, which its caller could have had since 30 ms.
    for (now_ms, left) in [(31, 3), (40, 3), (41, 2), (51, 1), (61, 0)] {
        let (handle, hand, [first, last]) = with_places([3, 1]);
        let _behind = place(&handle, 4);
        first.cancel();
        hand.advance(ms(now_ms));
        let at_once = (0..4).take_while(|_| wait_of(&handle, 1).is_zero()).count();
        assert_eq!(at_once, left, "{now_ms}");
        drop(last);
    }
}

/// Places were the last ones only where the word was the one that they had written: after any return none was.
#[test]
fn client_leaves_a_bucket_after_a_settlement() {
    for is_reversed in [true, false] {
        let (handle, _hand) = by_hand(&Limit::new(10, 1, ms(10)).unwrap());
        let (_, receipt) = handle.spend_estimate("id", 10).unwrap();
        let mut places: Vec<_> = (0..1000).map(|_| place(&handle, 2)).collect();
        let _ = receipt.unwrap().settle(9);
        if is_reversed {
            places.reverse();
        }
        places.into_iter().for_each(Reservation::cancel);
        assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(90));
    }
}

/// The cancel of the place whose time has just come is a return, behind which the others have to go back as well.
#[test]
fn client_leaves_a_bucket_at_a_grant() {
    let (handle, hand) = by_hand(&Limit::new(10, 1, ms(10)).unwrap());
    assert!(handle.spend("id", 10).unwrap().allowed());
    let places = [10, 7, 7, 7, 7, 7].map(|cost| place(&handle, cost));
    hand.advance(ms(100));
    places.into_iter().for_each(Reservation::cancel);
    assert_eq!(handle.check("id", 0).unwrap().remaining(), Some(10));
}

/// A reset fills the bucket: the places that wait beside it are no charge in it.
#[test]
fn client_leaves_a_bucket_after_a_reset() {
    let (handle, _hand, places) = with_places([1; 20]);
    let _ = handle.reset("id").unwrap();
    places.into_iter().for_each(Reservation::cancel);
    assert_eq!(handle.check("id", 0).unwrap().remaining(), Some(4));
    assert!([(); 4].iter().all(|()| handle.spend("id", 1).unwrap().allowed()));
    assert_eq!(wait_of(&handle, 1), ms(10), "no place is left of before");
}

/// Places that a reload has dropped kept their room in the list.
#[test]
fn reload_makes_room_in_the_list() {
    let limits = |burst| support::limits(&[("Own", Limit::new(burst, 1, ms(10)).unwrap())]);
    let options = LimiterOptions::default().clock(Clock::manual().0).max_vacant_places(1);
    let limiter = Limiter::with_options(limits(1), options).unwrap();
    let own = limiter.limit("Own").unwrap();
    for id in ["before", "id"] {
        assert!(own.spend(id, 1).unwrap().allowed());
        let [_, second, _last] = [(); 3].map(|()| own.reserve(id, 1, Duration::MAX).unwrap());
        second.cancel();
        if id == "before" {
            assert!(limiter.reload(limits(2)).unwrap().changed);
        }
    }
    assert_eq!(wait_of(&own, 1), ms(10), "the second of a burst of 2");
}

/// A refund that refunds nothing dropped the places of its id.
#[test]
fn refund_of_nothing_leaves_vacant_places() {
    let (clock, _hand) = Clock::manual();
    let limiter = Limiter::with_options(
        support::limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]),
        clock,
    )
    .unwrap();
    let handle = limiter.limit("Own").unwrap();
    assert!(handle.spend("id", 1).unwrap().allowed());
    let [first, _last] = [(); 2].map(|()| place(&handle, 1));
    first.cancel();
    let members = [handle.member("id").mode(tollgate::batch::MemberMode::CheckOnly)];
    let _ = limiter.batch(&members).refund().unwrap();
    let _ = handle.refund("id", 0).unwrap();
    assert_eq!(wait_of(&handle, 1), ms(10));
}

/// What is taken can be cancelled again, and taken again.
#[test]
fn taken_place_is_cancelled_again() {
    let (handle, _hand, [first, last]) = with_places([2, 1]);
    first.cancel();
    let taken = place(&handle, 1);
    assert_eq!(taken.wait(), ms(10));
    taken.cancel();
    assert_eq!(wait_of(&handle, 2), ms(20), "both parts are one place again");
    last.cancel();
    assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(60), "the taken one is before it");
}

/// A place that no call has settled can be settled by the one that took it.
#[test]
fn taken_place_settles_to_its_cost() {
    let (handle, hand, [first, _last]) = with_places([2, 1]);
    first.cancel();
    let taken = place(&handle, 2);
    hand.advance(ms(20));
    let after = taken.into_receipt().settle(1);
    assert_eq!(after.reset_in(), ms(70 - 20 - 10));
}

#[test]
fn place_before_override_end_is_not_taken() {
    let end = std::time::SystemTime::now() + Duration::from_secs(100);
    let options = tollgate::limits::OverrideOptions::default().expires(end);
    let hourly = |burst| Limit::new(burst, 1, Duration::from_secs(3600)).unwrap();
    for default in [1, 2] {
        let limits = Limits::builder().limit("Own", IdFormat::String, hourly(default)).unwrap();
        let limits = limits.override_with("Own", "id", hourly(1), options.clone()).unwrap();
        let (clock, hand) = Clock::manual();
        let handle = Limiter::with_options(limits.build(), clock).unwrap().limit("Own").unwrap();
        assert!(handle.spend("id", 1).unwrap().allowed());
        let [first, last] = [(); 2].map(|()| place(&handle, 1));
        hand.advance(Duration::from_secs(200));
        let before = handle.check("id", 0).unwrap();
        first.cancel();
        last.cancel();
        assert_eq!(handle.check("id", 0).unwrap(), before, "they are of the override");
    }
}

/// The list is not in the file: its places stay charged after a restore.
#[cfg(feature = "snapshot")]
#[test]
fn restored_bucket_keeps_vacant_units_charged() {
    let limits = || support::limits(&[("Own", Limit::new(1, 1, Duration::from_secs(60)).unwrap())]);
    let options = || LimiterOptions::default().clock(Clock::manual().0);
    let limiter = Limiter::with_options(limits(), options()).unwrap();
    let handle = limiter.limit("Own").unwrap();
    assert!(handle.spend("id", 1).unwrap().allowed());
    let [first, _last] = [(); 2].map(|()| place(&handle, 1));
    first.cancel();
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("buckets");
    limiter.snapshot(&path).unwrap();
    let (restored, _) = Limiter::restore(limits(), options(), &path).unwrap();
    let wait = place(&restored.limit("Own").unwrap(), 1).wait();
    assert!(wait > Duration::from_secs(170), "behind the last: {wait:?}");
}

/// A limit in shadow mode has no waits, so no place of it is ever vacant.
#[test]
fn place_of_shadow_mode_goes_back() {
    let options = tollgate::limits::LimitOptions::default();
    let options = options.mode(tollgate::limits::LimitMode::Shadow);
    let limit = Limit::new(2, 1, ms(10)).unwrap();
    let limits = Limits::builder().limit_with("Own", IdFormat::String, limit, options).unwrap();
    let handle =
        Limiter::with_options(limits.build(), Clock::manual().0).unwrap().limit("Own").unwrap();
    let places = [(); 3].map(|()| place(&handle, 1));
    assert!(places.iter().all(|place| place.wait().is_zero()));
    places.into_iter().for_each(Reservation::cancel);
    assert_eq!(handle.check("id", 0).unwrap().remaining(), Some(2));
}

#[test]
fn settlements_return_the_vacant_place_between() {
    let (handle, _hand) = by_hand(&Limit::new(1, 1, ms(10)).unwrap());
    let (_, receipt) = handle.spend_estimate("id", 1).unwrap();
    let [first, second, last] = [(); 3].map(|()| place(&handle, 1));
    second.cancel();
    for receipt in [receipt.unwrap(), first.into_receipt(), last.into_receipt()] {
        let _ = receipt.settle(0);
    }
    assert_eq!(wait_of(&handle, 1), ms(0), "nothing is charged any more");
}

#[test]
fn place_of_the_shared_bucket_is_not_listed() {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(1).at_cap(AtCap::Share);
    let limits = support::limits(&[("Own", Limit::new(1, 1, ms(10)).unwrap())]);
    let limiter = Limiter::with_options(limits, options).unwrap();
    let handle = limiter.limit("Own").unwrap();
    assert!(handle.spend("first", 1).unwrap().allowed());
    let place = |id: &str| handle.reserve(id, 1, Duration::MAX).unwrap();
    let [_a, _b, third, _d] = ["b", "b", "a", "b"].map(place);
    assert_eq!(third.wait(), ms(20));
    hand.set(ms(11));
    while limiter.stats().cells > 0 {
        limiter.sweep(1 << 20);
    }
    let [_first, own] = ["a", "a"].map(place);
    third.cancel();
    assert_eq!(place("a").wait(), own.wait() + ms(10), "a place of its own cell");
}

#[test]
fn places_of_an_ended_override_are_left() {
    let until = std::time::SystemTime::now() + Duration::from_secs(60);
    let until = tollgate::limits::OverrideOptions::default().expires(until);
    let limits =
        Limits::builder().limit("Own", IdFormat::String, Limit::new(2, 1, ms(10)).unwrap());
    let slow = Limit::new(1, 1, Duration::from_secs(100)).unwrap();
    let limits = limits.unwrap().override_with("Own", "id", slow, until).unwrap().build();
    let (clock, hand) = Clock::manual();
    let handle = Limiter::with_options(limits, clock).unwrap().limit("Own").unwrap();
    let [_first, second, _last] = [(); 3].map(|()| place(&handle, 1));
    second.cancel();
    hand.set(Duration::from_secs(61));
    let vacant = Duration::from_secs(100 - 61);
    assert!(wait_of(&handle, 1) > vacant, "behind the places that wait");
}
