//! Ids that are blocked: by their words alone, until they are over or lifted.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Algorithm, AtCap, Clock, Debt, Decision, Engine, Error, Hand, Handle, IdFormat, Limit, Limiter,
    LimiterOptions, Limits, Outcome,
};

const NS: Duration = Duration::from_nanos(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A limit of each algorithm, one unit every 10 ms or so.
fn limits_of_all() -> [Limit; 4] {
    [
        Limit::new(4, 1, ms(10)).unwrap(),
        Limit::fixed_window(4, ms(40)).unwrap(),
        Limit::token_bucket(8, ms(80), 4).unwrap(),
        Limit::leaky_bucket(4, ms(10), 1).unwrap(),
    ]
}

fn limits(limit: &Limit) -> Limits {
    let limits = Limits::builder().limit("Own", IdFormat::String, limit.clone()).unwrap();
    let other = Limit::new(9, 1, ms(1)).unwrap();
    limits.limit("Other", IdFormat::String, other).unwrap().build()
}

fn on(limit: &Limit, engine: Engine) -> (Limiter, Handle, Hand) {
    let (clock, hand) = Clock::manual();
    // Some time after the origin: windows may begin before a block does.
    hand.set(ms(1000));
    let options = LimiterOptions::default().clock(clock).engine(engine);
    let limiter = Limiter::with_options(limits(limit), options);
    let handle = limiter.limit("Own").unwrap();
    (limiter, handle, hand)
}

fn standing(handle: &Handle) -> Decision {
    handle.check("id", 1).unwrap()
}

#[test]
fn a_block_denies_until_it_is_over_and_not_a_moment_longer() {
    for engine in [Engine::LockFree, Engine::Exact] {
        for limit in limits_of_all() {
            for (spent, time) in [(0, ms(1)), (3, ms(25)), (4, ms(700)), (1, ms(86_400_000))] {
                let (limiter, handle, hand) = on(&limit, engine);
                assert!(spent == 0 || handle.spend("id", spent).unwrap().allowed());
                let said = standing(&handle);
                let told = if said.allowed() { ms(0) } else { said.retry_in() };
                assert_eq!(handle.block("id", time).unwrap(), time.max(told), "{limit:?} {time:?}");
                let denied = standing(&handle);
                assert!(!denied.allowed() && denied.remaining() == Some(0) || limit.count() == 8);
                assert_eq!(denied.retry_in(), time.max(told), "{limit:?} {time:?} of {spent}");
                hand.advance(time.max(told) - NS);
                limiter.sweep(1 << 20);
                assert!(!handle.spend("id", 1).unwrap().allowed(), "{limit:?} {time:?} of {spent}");
                hand.advance(NS);
                assert!(handle.spend("id", 1).unwrap().allowed(), "{limit:?} {time:?} of {spent}");
                assert!(limiter.blocked().is_empty() && handle.blocked("id").unwrap().is_none());
            }
        }
    }
}

#[test]
fn lifting_a_block_brings_back_what_the_bucket_would_be() {
    for engine in [Engine::LockFree, Engine::Exact] {
        for limit in limits_of_all() {
            for (spent, later) in [(0, 0), (3, 0), (4, 0), (4, 15), (4, 1000)] {
                let (_limiter, handle, hand) = on(&limit, engine);
                let (_same_limiter, same, same_hand) = on(&limit, engine);
                for handle in [&handle, &same] {
                    assert!(spent == 0 || handle.spend("id", spent).unwrap().allowed());
                }
                handle.block("id", ms(5000)).unwrap();
                for hand in [hand, same_hand] {
                    hand.advance(ms(later));
                }
                assert!(!standing(&handle).allowed());
                assert!(handle.unblock("id").unwrap(), "{limit:?}");
                assert_eq!(standing(&handle), standing(&same), "{limit:?}: {spent}, {later} ms");
                assert!(!handle.unblock("id").unwrap(), "there is none any more");
            }
        }
    }
}

#[test]
fn the_longer_block_stays() {
    for limit in limits_of_all() {
        let (_limiter, handle, hand) = on(&limit, Engine::LockFree);
        assert!(handle.spend("id", 2).unwrap().allowed());
        let before = standing(&handle);
        assert_eq!(handle.block("id", ms(500)).unwrap(), ms(500));
        assert_eq!(handle.block("id", ms(300)).unwrap(), ms(500), "a shorter one changes nothing");
        assert_eq!(handle.block("id", ms(900)).unwrap(), ms(900));
        assert_eq!(standing(&handle).retry_in(), ms(900), "{limit:?}");
        assert!(handle.unblock("id").unwrap());
        assert_eq!(standing(&handle), before, "{limit:?}: as before the first");
        handle.block("id", ms(10)).unwrap();
        hand.advance(ms(600));
        assert!(!handle.unblock("id").unwrap(), "it was over");
        assert_eq!(handle.block("id", ms(50)).unwrap(), ms(50));
    }
}

#[test]
fn refunds_and_resets_leave_a_block_and_change_what_comes_back() {
    for engine in [Engine::LockFree, Engine::Exact] {
        for limit in limits_of_all() {
            let (limiter, handle, _hand) = on(&limit, engine);
            let (_, same, _same_hand) = on(&limit, engine);
            assert!(handle.spend("id", 4).unwrap().allowed());
            assert!(same.spend("id", 4).unwrap().allowed());
            let time = ms(700);
            handle.block("id", time).unwrap();
            assert!(handle.refund("id", 1).unwrap().allowed());
            assert!(limiter.batch(&[handle.member("id")]).refund().unwrap().allowed());
            assert_eq!(standing(&handle).retry_in(), time, "{engine:?} {limit:?}: it stays");
            assert!(same.refund("id", 2).unwrap().allowed());
            assert!(handle.unblock("id").unwrap());
            assert_eq!(standing(&handle), standing(&same), "{engine:?} {limit:?}");

            handle.block("id", time).unwrap();
            let reset = handle.reset("id").unwrap();
            assert_eq!(reset.remaining(), Some(0), "of the bucket as it is");
            assert_eq!(standing(&handle).retry_in(), time, "{engine:?} {limit:?}: it stays");
            assert!(!handle.refund("id", 1).unwrap().allowed(), "nothing is spent beneath it");
            assert!(handle.unblock("id").unwrap());
            assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(0), "{engine:?} {limit:?}");
            assert!(handle.refund("other", 1).unwrap().remaining() > Some(0), "others' are theirs");
        }
    }
}

#[test]
fn who_is_blocked_is_listed_by_limit_and_id() {
    let (limiter, handle, hand) = on(&limits_of_all()[0], Engine::LockFree);
    let other = limiter.limit("Other").unwrap();
    handle.block("mallory", ms(100)).unwrap();
    handle.block("trudy", ms(30)).unwrap();
    other.block("mallory", ms(50)).unwrap();
    hand.advance(ms(10));
    let mut listed: Vec<_> =
        limiter.blocked().into_iter().map(|b| (b.limit, b.id, b.left)).collect();
    listed.sort();
    let wanted = [("Other", "mallory", 40), ("Own", "mallory", 90), ("Own", "trudy", 20)];
    let wanted = wanted.map(|(limit, id, left)| (limit.to_owned(), id.to_owned(), ms(left)));
    assert_eq!(listed, wanted);
    assert_eq!(handle.blocked("trudy").unwrap(), Some(ms(20)));
    assert_eq!(other.blocked("trudy").unwrap(), None);
    let explained = handle.explain("trudy", 1).unwrap().call.expect("a limiter has buckets");
    assert_eq!(explained.blocked, Some(ms(20)));
    assert_eq!(explained.decision.unwrap().retry_in(), ms(20));
    assert_eq!(handle.explain("alice", 1).unwrap().call.unwrap().blocked, None);
    hand.advance(ms(20));
    assert_eq!(handle.blocked("trudy").unwrap(), None);
    assert_eq!(limiter.blocked().len(), 2);
}

/// Allows everything, and knows no other word.
#[derive(Debug)]
struct Open;

impl Algorithm for Open {
    fn spend(&self, _: u64, now_ns: u64, cost: u64) -> Outcome {
        let decision = Decision::to_spend(true, 1, Duration::ZERO, Duration::ZERO);
        Outcome { word: (cost > 0).then_some(now_ns), decision }
    }

    fn refund(&self, _: u64, _: u64, _: u64) -> Outcome {
        Outcome { word: None, decision: Decision::to_refund(false, 1, Duration::ZERO) }
    }

    fn is_full(&self, _: u64, _: u64) -> bool {
        true
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        1
    }
}

#[test]
fn an_id_that_cannot_be_blocked_is_an_error_that_says_why() {
    let refused = |made: Result<Duration, Error>| {
        let error = made.unwrap_err();
        assert!(error.is_block(), "{error}");
        error.to_string()
    };
    let options =
        || LimiterOptions::default().clock(Clock::manual().0).max_keys(1).at_cap(AtCap::Share);
    let limiter = Limiter::with_options(limits(&limits_of_all()[0]), options());
    let handle = limiter.limit("Own").unwrap();
    assert!(handle.spend("first", 1).unwrap().allowed());
    assert_eq!(
        refused(handle.block("second", ms(10))),
        "Own:second cannot be blocked: as many keys have a bucket as may"
    );
    assert!(limiter.blocked().is_empty() && handle.spend("second", 1).unwrap().allowed());
    assert_eq!(handle.block("first", ms(10)).unwrap(), ms(10), "this one has a bucket");

    let (_, own, _) = on(&Limit::own(Arc::new(Open)).unwrap(), Engine::LockFree);
    assert_eq!(
        refused(own.block("id", ms(10))),
        "Own:id cannot be blocked: its limit has no word for so long"
    );
    let numbers = limits_of_all()[0].clone();
    let only = Limits::builder().limit("Own", IdFormat::String, None::<Limit>);
    let only = only.unwrap().override_id("Own", "alice", numbers).unwrap().build();
    let handle = Limiter::new(only).limit("Own").unwrap();
    assert_eq!(
        refused(handle.block("bob", ms(10))),
        "Own:bob cannot be blocked: no limit applies to it"
    );
    assert!(handle.block("", ms(10)).unwrap_err().is_invalid_id());
}

#[test]
fn the_list_of_blocks_has_an_end() {
    let (limiter, handle, hand) = on(&limits_of_all()[0], Engine::LockFree);
    for id in 0..65_536 {
        handle.block(&*format!("{id}"), ms(10)).unwrap();
    }
    let error = handle.block("one more", ms(10)).unwrap_err();
    assert!(error.to_string().ends_with("65536 ids are, which is the most"), "{error}");
    handle.block("7", ms(20)).unwrap();
    hand.advance(ms(10));
    handle.block("one more", ms(10)).unwrap();
    assert_eq!(limiter.blocked().len(), 2, "those that are over have made room");
}

#[test]
fn a_reload_keeps_blocks() {
    for limit in limits_of_all() {
        for next in limits_of_all() {
            for debt in [Debt::Share, Debt::Units, Debt::Time, Debt::Afresh] {
                let (limiter, handle, hand) = on(&limit, Engine::LockFree);
                handle.block("id", ms(700)).unwrap();
                hand.advance(ms(100));
                // Other numbers, whatever the algorithm.
                let other = match next.scaled("0.5".parse().unwrap()).unwrap() {
                    Some(other) => other,
                    None => panic!("a factor of 0"),
                };
                assert!(limiter.reload_with(limits(&other), debt).unwrap().changed);
                let left = handle.blocked("id").unwrap().unwrap();
                assert!(left >= ms(600), "{limit:?} to {other:?} by {debt:?}: {left:?}");
                assert!(standing(&handle).retry_in() >= ms(600), "{limit:?} to {other:?} {debt:?}");
                assert!(handle.unblock("id").unwrap());
                assert!(standing(&handle).allowed(), "{limit:?} to {other:?} {debt:?}");
            }
        }
    }
}

#[test]
fn who_has_a_place_keeps_it_and_who_comes_waits_behind_the_block() {
    for limit in limits_of_all() {
        let (_limiter, handle, _hand) = on(&limit, Engine::LockFree);
        let place = || handle.reserve("id", 4, Duration::MAX).unwrap();
        let (_now, waiter) = (place(), place());
        let told = waiter.wait();
        handle.block("id", ms(700)).unwrap();
        assert_eq!(waiter.wait(), told, "{limit:?}");
        let behind = place();
        assert!(behind.wait() >= ms(700), "{limit:?}");
        behind.cancel();
        assert!(handle.unblock("id").unwrap());
        assert!(place().wait() < ms(700), "{limit:?}");
    }
}

#[test]
fn a_block_that_is_shorter_than_what_is_taken_lets_nobody_in_before() {
    for limit in limits_of_all() {
        let (_limiter, handle, _hand) = on(&limit, Engine::LockFree);
        let places = [(); 6].map(|()| handle.reserve("id", 4, Duration::MAX).unwrap());
        let before = standing(&handle);
        assert_eq!(handle.block("id", ms(15)).unwrap(), before.retry_in(), "{limit:?}");
        assert_eq!(standing(&handle), before, "{limit:?}");
        assert!(handle.unblock("id").unwrap());
        assert_eq!(standing(&handle), before, "{limit:?}");
        drop(places);
    }
}

#[test]
fn a_block_of_a_young_limiter_ends_with_its_first_window() {
    let (clock, hand) = Clock::manual();
    let limits = limits(&Limit::fixed_window(4, ms(10_000)).unwrap());
    let handle = Limiter::with_clock(limits, clock).limit("Own").unwrap();
    hand.set(ms(5));
    assert_eq!(handle.block("id", ms(100)).unwrap(), ms(9995));
    assert_eq!(standing(&handle).retry_in(), ms(9995));
    hand.advance(ms(9995));
    assert!(handle.spend("id", 4).unwrap().allowed());
}
