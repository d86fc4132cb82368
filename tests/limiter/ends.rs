//! Overrides that have ended while a caller's clock is behind; calls while the limiter is off; a full table's sweeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use tollgate::limits::OverrideOptions;
use tollgate::options::AtCap;
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, full_size};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

fn slow(burst: u64) -> Limit {
    Limit::new(burst, 1, HOUR * 24).unwrap()
}

fn one(limit: Limit) -> Limits {
    Limits::builder().limit("U", IdFormat::String, limit).unwrap().build()
}

/// 10 units for all, 100 for alice for one hour.
fn with_end() -> Limits {
    let end = OverrideOptions::default().expires(SystemTime::now() + HOUR);
    let limits = Limits::builder().limit("U", IdFormat::String, slow(10)).unwrap();
    limits.override_with("U", "alice", slow(100), end).unwrap().build()
}

/// Starts `explain` on another thread. The function that it returns waits for the end, for at most 20 s.
fn start_explain(users: &KeyedLimit, name: &str) -> impl FnOnce() -> bool + use<> {
    let (tell, told) = std::sync::mpsc::channel();
    let users = users.clone();
    let explain = move || {
        let _ = tell.send(users.explain("alice", 1).is_ok());
    };
    std::thread::Builder::new().name(name.into()).spawn(explain).unwrap();
    move || told.recv_timeout(20 * SECOND) == Ok(true)
}

#[test]
fn explain_returns_after_the_clock_went_back() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let users = Limiter::with_options(with_end(), options).unwrap().limit("U").unwrap();
        assert!(users.spend("alice", 50).unwrap().allowed());
        hand.advance(HOUR * 2);
        assert!(users.spend("alice", 1).unwrap().allowed(), "by the default");
        hand.set(HOUR / 60);
        assert_eq!(users.check("alice", 1).unwrap().remaining(), Some(2), "{engine:?}");
        assert!(start_explain(&users, "explain")(), "{engine:?}: explain does not return");
    }
}

#[test]
fn explain_returns_when_suspended_at_an_overrides_end() {
    let now_s = Arc::new(AtomicU64::new(0));
    let [go, reached] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
    let clock = {
        let (now_s, go, reached) = (now_s.clone(), go.clone(), reached.clone());
        Clock::custom(move || {
            let now = Duration::from_secs(now_s.load(SeqCst));
            if std::thread::current().name() == Some("explainer") && !go.load(SeqCst) {
                reached.store(true, SeqCst);
                while !go.load(SeqCst) {
                    std::thread::yield_now();
                }
            }
            now
        })
    };
    let users = Limiter::with_options(with_end(), clock).unwrap().limit("U").unwrap();
    assert!(users.spend("alice", 50).unwrap().allowed());
    let returns = start_explain(&users, "explainer");
    while !reached.load(SeqCst) {
        std::thread::yield_now();
    }
    now_s.store(7200, SeqCst);
    assert!(users.spend("alice", 1).unwrap().allowed());
    go.store(true, SeqCst);
    assert!(returns(), "explain does not return");
}

#[test]
fn explain_goes_by_the_limiters_clock() {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).counting(true);
    let limiter = Limiter::with_options(with_end(), options).unwrap();
    let users = limiter.limit("U").unwrap();
    let burst = |cost| {
        let explained = users.explain("alice", cost).unwrap();
        assert_eq!(explained.call.unwrap().decision.is_none(), cost > 10, "cost {cost}");
        explained.limit.unwrap().burst()
    };
    assert_eq!(burst(1), 100);
    hand.advance(HOUR * 2);
    assert_eq!((burst(1), burst(50)), (10, 10), "the override has ended");
    assert_eq!(limiter.counters().limits[0].errors, 0, "no error was counted");
}

#[test]
fn no_bucket_changes_while_the_limiter_is_off() {
    for engine in ENGINES {
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(one(slow(10)), options).unwrap();
        let users = limiter.limit("U").unwrap();
        let (_, receipt) = users.spend_estimate("a", 5).unwrap();
        let (_, more) = users.spend_estimate("c", 5).unwrap();
        let reservation = users.reserve("b", 5, Duration::ZERO).unwrap();
        limiter.set_enabled(false);
        assert_eq!(receipt.unwrap().settle(1).remaining(), None, "no limit applies");
        assert_eq!(more.unwrap().settle(9).remaining(), None, "no limit applies");
        reservation.cancel();
        limiter.set_enabled(true);
        for id in ["a", "b", "c"] {
            assert_eq!(users.check(id, 0).unwrap().remaining(), Some(5), "{engine:?} {id}");
        }
    }
}

/// The number of places that the first of some limits can have, and that limit.
fn first_of(limits: usize, cap: u64, limit: &Limit, options: LimiterOptions) -> (u64, KeyedLimit) {
    let named =
        ["A", "B", "C"].into_iter().take(limits).fold(Limits::builder(), |builder, name| {
            builder.limit(name, IdFormat::RegId, limit.clone()).unwrap()
        });
    let options = options.max_keys(cap as usize);
    let limiter = Limiter::with_options(named.build(), options).unwrap();
    (cap / 2 + cap / 2 / limits as u64, limiter.limit("A").unwrap())
}

/// Takes all places of a limit, waits until all buckets are full again, and returns how many of as many new keys are denied.
fn denied_among_full(
    limits: usize,
    cap: u64,
    options: LimiterOptions,
    wait: impl FnOnce(),
) -> usize {
    let limit = Limit::new(1, 1, SECOND).unwrap();
    let (keys, users) = first_of(limits, cap, &limit, options.at_cap(AtCap::Deny));
    for id in 0..keys {
        assert!(users.spend(id, 1).unwrap().allowed());
    }
    wait();
    // A check looks at the buckets that the spend sweeps.
    let is_denied = |id| {
        let (check, spend) = (users.check(id, 1).unwrap(), users.spend(id, 1).unwrap());
        !check.allowed() || !spend.allowed()
    };
    (keys..2 * keys).filter(|&id| is_denied(id)).count()
}

#[test]
fn full_buckets_make_room_at_the_cap() {
    for engine in ENGINES {
        let options = || LimiterOptions::default().engine(engine);
        // With these caps, half of the tables are about to move their buckets to more memory, or have just done so.
        for (limits, cap, tables) in [(1, 6_200, 8), (1, 8_000, 2), (2, 8_000, 4), (3, 9_300, 2)] {
            let denied = |_| {
                let (clock, hand) = Clock::manual();
                denied_among_full(limits, cap, options().clock(clock), || hand.advance(HOUR))
            };
            let denied: usize = (0..full_size(tables, 20 * tables)).map(denied).sum();
            // A call looks at a bounded number of buckets, and may find none that is full. In 50,000 tables no call was denied.
            assert!(denied <= 1, "{engine:?} {limits} {cap}: {denied}");
        }
        let wait = || std::thread::sleep(SECOND * 3 / 2);
        let cap = full_size(5_000, 20_000);
        assert_eq!(denied_among_full(1, cap, options(), wait), 0, "{engine:?}: the system's clock");
    }
}

/// Calls at the cap sweep as well. They do not move the place at which the sweeper's next pass begins.
#[test]
fn one_pass_drops_all_full_buckets() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().engine(engine).clock(clock).at_cap(AtCap::Deny);
        let limits = Limits::builder().limit("U", IdFormat::RegId, slow(1)).unwrap().build();
        let limiter = Limiter::with_options(limits, options.max_keys(20_000)).unwrap();
        let users = limiter.limit("U").unwrap();
        for id in 0..20_000 {
            assert!(users.spend(id, 1).unwrap().allowed());
        }
        let is_allowed = |&id: &u64| users.spend(id, 1).unwrap().allowed();
        assert_eq!((20_000..20_500).filter(is_allowed).count(), 0, "no bucket is full");
        hand.advance(HOUR * 25);
        while !limiter.sweep(1_000).finished {}
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
    }
}

/// New ids come at a steady rate. When one comes, `load` percent of the buckets that the limit can have are not full.
fn denied_of_a_crowd(cap: u64, limits: usize, load: u64, options: LimiterOptions) -> u64 {
    let limit = Limit::new(10, 10, SECOND * 10).unwrap();
    let (clock, hand) = Clock::manual();
    let (places, users) = first_of(limits, cap, &limit, options.clock(clock));
    // A bucket is full after a second.
    let step = SECOND * 100 / (places * load) as u32;
    let denied = (0..full_size(40_000, 400_000)).filter(|&id| {
        hand.advance(step);
        !users.spend(id, 1).unwrap().allowed()
    });
    denied.count() as u64
}

/// One new id that missed the full buckets charged the bucket that new ids share, whose debt then denied up to 85 % of the others.
#[test]
fn a_steady_crowd_is_served_at_the_cap() {
    for engine in ENGINES {
        for at_cap in [AtCap::Share, AtCap::Deny] {
            for (cap, limits, load) in
                [(10_000, 1, 90), (10_000, 2, 30), (10_000, 3, 95), (30_000, 1, 99)]
            {
                let options = LimiterOptions::default().engine(engine).at_cap(at_cap);
                let denied = denied_of_a_crowd(cap, limits, load, options);
                assert!(denied < 40, "{engine:?} {at_cap:?} {cap} {limits} {load} %: {denied}");
            }
        }
    }
}

/// Searches went round in a part of a table whose shards differ in size, and never came to the rest.
#[test]
fn few_quick_buckets_are_found_among_slow_ones() {
    for engine in ENGINES {
        for cap in [12_500, 40_000] {
            let (clock, hand) = Clock::manual();
            let options = LimiterOptions::default().engine(engine).clock(clock);
            let options = options.max_keys(cap as usize).at_cap(AtCap::Deny);
            let limit = Limit::new(1_000, 1, SECOND / 10).unwrap();
            let limits = Limits::builder().limit("U", IdFormat::RegId, limit).unwrap().build();
            let users = Limiter::with_options(limits, options).unwrap().limit("U").unwrap();
            for id in 0..cap - 50 {
                assert!(users.spend(id, 1_000).unwrap().allowed());
            }
            let mut new = cap;
            for part in 0..3 {
                let allowed = (0..2_000).filter(|_| {
                    hand.advance(Duration::from_millis(2));
                    new += 1;
                    users.spend(new, 1).unwrap().allowed()
                });
                let allowed = allowed.count();
                assert!(allowed > 500, "{engine:?} {cap}, part {part}: {allowed}");
            }
        }
    }
}

#[test]
fn full_bucket_makes_room_after_clock_went_back() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(1);
        let limiter = Limiter::with_options(one(slow(1)), options.at_cap(AtCap::Deny)).unwrap();
        let users = limiter.limit("U").unwrap();
        hand.set(HOUR);
        assert!(users.spend("a", 1).unwrap().allowed());
        assert!(!users.spend("b", 1).unwrap().allowed(), "a has the only place");
        hand.set(HOUR / 60);
        assert!(users.reset("a").unwrap().allowed());
        hand.set(HOUR - SECOND);
        assert!(users.spend("b", 1).unwrap().allowed(), "{engine:?}: a's bucket is full");
    }
}

/// The bucket of each new id began with the debt of the one that new ids share, and kept its place for as long: after seconds of
/// overload 99.8 % of half the load were denied for good.
#[test]
fn new_ids_are_served_after_an_overload() {
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().engine(engine).clock(clock);
        let limit = Limit::new(1_000, 1_000, SECOND * 1_000).unwrap();
        let (places, users) = first_of(1, 10_000, &limit, options);
        for id in 0..places - 1_000 {
            assert!(users.spend(id, 1_000).unwrap().allowed());
        }
        // Each takes one of 1,000 places for a second.
        let mut id = places;
        let mut denied_of = |each_second: u32, seconds: u32| {
            let is_denied = |_: &u32| {
                hand.advance(SECOND / each_second);
                id += 1;
                !users.spend(id, 1).unwrap().allowed()
            };
            (0..each_second * seconds).filter(is_denied).count()
        };
        let (over, after) = (denied_of(2_000, 4), denied_of(500, 10));
        println!("{engine:?}: {over} of 8,000 are denied, and {after} of 5,000 after them");
        assert!(over < 4_500, "{engine:?}: {over}");
        assert!(after < 50, "{engine:?}: {after}");
    }
}
