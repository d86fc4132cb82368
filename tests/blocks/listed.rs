//! The list of blocks: its entries and its bound.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::{Clock, Limiter, LimiterOptions};

use super::support::{ENGINES, ms, state};
use super::{limits, limits_of_all, on};

#[test]
fn blocks_are_listed_by_limit_and_id() {
    for engine in ENGINES {
        let (limiter, handle, hand) = on(&limits_of_all()[0], engine);
        let other = limiter.limit("Other").unwrap();
        handle.block_with_reason("mallory", ms(100), "ticket 4711").unwrap();
        handle.block("trudy", ms(30)).unwrap();
        other.block("mallory", ms(50)).unwrap();
        hand.advance(ms(10));
        let mut listed: Vec<_> =
            limiter.blocks().into_iter().map(|it| (it.limit, it.id, it.left, it.reason)).collect();
        listed.sort();
        let expected = [
            ("Other", "mallory", 40, None),
            ("Own", "mallory", 90, Some("ticket 4711")),
            ("Own", "trudy", 20, None),
        ];
        let expected = expected.map(|(limit, id, left, reason)| {
            (limit.to_owned(), id.to_owned(), ms(left), reason.map(str::to_owned))
        });
        assert_eq!(listed, expected, "{engine:?}");
        assert_eq!(handle.blocked_for("trudy").unwrap(), Some(ms(20)));
        assert_eq!(other.blocked_for("trudy").unwrap(), None);
        hand.advance(ms(20));
        assert_eq!(handle.blocked_for("trudy").unwrap(), None);
        assert_eq!(limiter.blocks().len(), 2);
    }
}

#[test]
fn the_longer_block_stays_with_its_reason() {
    for engine in ENGINES {
        let (limiter, handle, hand) = on(&limits_of_all()[1], engine);
        let reason = || limiter.blocks()[0].reason.clone();
        assert_eq!(handle.block_with_reason("id", ms(500), "first").unwrap(), ms(500));
        assert_eq!(handle.block_with_reason("id", ms(300), "shorter").unwrap(), ms(500));
        assert_eq!(reason().as_deref(), Some("first"));
        assert_eq!(handle.block_with_reason("id", ms(900), "longer").unwrap(), ms(900));
        assert_eq!(state(&handle).retry_in(), ms(900));
        assert_eq!(reason().as_deref(), Some("longer"));
        assert!(handle.unblock("id").unwrap());
        handle.block("id", ms(10)).unwrap();
        hand.advance(ms(600));
        assert!(!handle.unblock("id").unwrap(), "it was over");
        assert_eq!(handle.block("id", ms(50)).unwrap(), ms(50));
        // A block of no time is no block, and a block of all time has an end.
        assert_eq!(handle.block("x", Duration::ZERO).unwrap(), Duration::ZERO);
        assert!(handle.block("x", Duration::MAX).unwrap() > 100 * 365 * ms(86_400_000));
        assert_eq!(limiter.blocks().len(), 2);
    }
}

#[test]
fn exceeding_max_blocks_is_an_error_naming_it() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_blocks(3);
        let limiter = Limiter::with_options(limits(&limits_of_all()[0]), options).unwrap();
        let (handle, other) = (limiter.limit("Own").unwrap(), limiter.limit("Other").unwrap());
        handle.block("a", ms(10)).unwrap();
        handle.block("b", ms(20)).unwrap();
        other.block("c", ms(20)).unwrap();
        let error = handle.block("d", ms(10)).unwrap_err();
        assert!(error.is_invalid_block(), "{error}");
        assert_eq!(error.to_string(), "Own:d cannot be blocked: 3 ids are, which is max_blocks");
        assert_eq!(handle.block("a", ms(15)).unwrap(), ms(15), "it is listed already");
        assert!(handle.spend("d", 1).unwrap().allowed());
        hand.advance(ms(15));
        handle.block("d", ms(10)).unwrap();
        assert_eq!(limiter.blocks().len(), 3, "one that was over has made room");
        assert!(handle.block("e", ms(10)).unwrap_err().is_invalid_block());
        assert!(handle.unblock("b").unwrap());
        handle.block("e", ms(10)).unwrap();

        let none = LimiterOptions::default().max_blocks(0);
        let limiter = Limiter::with_options(limits(&limits_of_all()[0]), none).unwrap();
        assert!(limiter.limit("Own").unwrap().block("a", ms(10)).unwrap_err().is_invalid_block());
    }
}

#[test]
fn the_default_bound_holds_exactly() {
    let (limiter, handle, hand) = on(&limits_of_all()[0], Engine::LockFree);
    for id in 0..65_536 {
        handle.block(&*format!("{id}"), ms(10)).unwrap();
    }
    let error = handle.block("one more", ms(10)).unwrap_err();
    assert!(error.to_string().ends_with("65536 ids are, which is max_blocks"), "{error}");
    assert_eq!(limiter.blocks().len(), 65_536);
    for id in 0..65_536 {
        assert!(handle.spend(&*format!("{id}"), 1).unwrap().blocked(), "{id}");
    }
    assert!(handle.spend("one more", 1).unwrap().allowed());
    handle.block("7", ms(20)).unwrap();
    hand.advance(ms(10));
    handle.block("one more", ms(10)).unwrap();
    assert_eq!(limiter.blocks().len(), 2, "those that are over have made room");
}

#[test]
fn dropped_ended_blocks_are_not_counted() {
    const MOST: u32 = 5000;
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_blocks(MOST as usize);
    let limiter = Limiter::with_options(limits(&limits_of_all()[0]), options).unwrap();
    let handle = limiter.limit("Own").unwrap();
    // More ids than bins: each round's blocks drop the previous round's from their bins.
    for round in 0..3 {
        for id in 0..4000 {
            handle.block(&*format!("{round}-{id}"), ms(10)).unwrap();
        }
        hand.advance(ms(20));
    }
    for id in 0..MOST {
        handle.block(&*id.to_string(), ms(10)).unwrap();
    }
}

#[test]
fn a_bad_id_or_reason_is_an_error() {
    let (limiter, handle, _hand) = on(&limits_of_all()[0], Engine::LockFree);
    assert!(handle.block("", ms(10)).unwrap_err().is_invalid_id());
    let reason = "x".repeat(1025);
    assert!(handle.block_with_reason("id", ms(10), &reason[1..]).is_ok());
    let error = handle.block_with_reason("it", ms(10), reason).unwrap_err();
    assert!(error.is_invalid_block());
    assert_eq!(error.to_string(), "Own:it cannot be blocked: its reason is longer than 1024 bytes");
    assert_eq!(limiter.blocks().len(), 1);
}

#[test]
fn a_reload_to_any_numbers_keeps_blocks() {
    for limit in limits_of_all() {
        for next in limits_of_all() {
            for debt in [CarryOver::Share, CarryOver::Units, CarryOver::Time, CarryOver::Afresh] {
                let (limiter, handle, hand) = on(&limit, Engine::LockFree);
                handle.block("id", ms(700)).unwrap();
                hand.advance(ms(100));
                let other = next.scaled("0.5".parse().unwrap()).unwrap().unwrap();
                assert!(limiter.reload_with(limits(&other), debt).unwrap().changed);
                assert_eq!(handle.blocked_for("id").unwrap(), Some(ms(600)));
                let context = format!("{limit:?} to {other:?} by {debt:?}");
                assert_eq!(state(&handle).retry_in(), ms(600), "{context}");
                assert!(handle.unblock("id").unwrap());
                assert_eq!(handle.check("id", 0).unwrap().reset_in(), ms(0), "{context}");
            }
        }
    }
}

/// Eight threads block, unblock and spend. An id that a thread has blocked stays denied until that thread
/// lifts the block, and afterwards nothing is listed or counted.
#[test]
fn no_block_is_lost_among_threads() {
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).max_blocks(8 * 4);
        let limiter = Limiter::with_options(limits(&limits_of_all()[0]), options).unwrap();
        let handle = limiter.limit("Own").unwrap();
        let spent = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8_u32 {
                let (handle, spent) = (&handle, &spent);
                scope.spawn(move || {
                    let hour = Duration::from_secs(3600);
                    for round in 0..if cfg!(miri) { 3 } else { 2000_u32 } {
                        // Each thread has four ids: there is room for all.
                        let id = format!("{thread}-{}", round % 4);
                        handle.block(&*id, hour + ms(u64::from(round))).unwrap();
                        handle.block(&*id, ms(1)).unwrap();
                        assert!(handle.spend(&*id, 1).unwrap().blocked(), "{id}");
                        assert!(handle.unblock(&*id).unwrap(), "{id}");
                        let decision = handle.spend(&*id, 1).unwrap();
                        assert!(!decision.blocked(), "{id}");
                        spent.fetch_add(u64::from(decision.allowed()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(spent.into_inner() > 0);
        assert!(limiter.blocks().is_empty());
        // Nothing is counted any more: the maximum of blocks can be listed.
        for id in 0..8_u64 * 4 {
            handle.block(&*id.to_string(), ms(60_000)).unwrap();
        }
        assert!(handle.block("one more", ms(1)).unwrap_err().is_invalid_block());
    }
}
