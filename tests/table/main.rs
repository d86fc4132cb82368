//! Tests the table through the public API, on a manual clock: growth and shrinking, the cap, calls for many ids.
#![cfg(not(tollgate_loom))]

mod last_limiter;
mod reserved;
mod stalled_thread;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::{AtCap, Engine};
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use support::rules::hooked;
use support::{ENGINES, in_own_process, sweep_all};

const SECOND: Duration = Duration::from_secs(1);
const BURST: u64 = 3;

/// Limits A and B: three units at once, one more every second.
fn limits() -> Limits {
    let limit = Limit::new(BURST, 1, SECOND).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::RegId, limit.clone()).unwrap();
    limits.limit("B", IdFormat::RegId, limit).unwrap().build()
}

fn limiter(options: LimiterOptions) -> (Limiter, ManualClock) {
    support::limiter_with(limits(), options)
}

/// Builds a limiter with the limit A alone, which has all buckets.
fn limiter_of_one(options: LimiterOptions) -> (Limiter, ManualClock) {
    let limit = Limit::new(BURST, 1, SECOND).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::RegId, limit).unwrap();
    support::limiter_with(limits.build(), options)
}

fn spend(handle: &KeyedLimit, id: u64) -> bool {
    handle.spend(id, 1).unwrap().allowed()
}

/// Spends until a denial. Returns the number of admitted spends.
fn drain(handle: &KeyedLimit, id: u64) -> u64 {
    (0..=BURST).take_while(|_| spend(handle, id)).count() as u64
}

#[test]
fn growth_keeps_buckets_and_sweeps_free_memory() {
    in_own_process(|| {
        grow_and_shrink();
    });
}

fn grow_and_shrink() {
    let keys: u64 = support::full_size(100_000, 300_000);
    let (limiter, hand) = limiter(LimiterOptions::default());
    let a = limiter.limit("A").unwrap();
    let empty = limiter.stats().bytes;
    for id in 0..keys {
        assert!(spend(&a, id));
        assert_eq!(a.check(id / 2, 1).unwrap().remaining(), Some(BURST - 2), "{} of {id}", id / 2);
    }
    let grown = limiter.stats();
    assert_eq!(grown.cells, keys as usize);
    assert!(grown.migrations > 0 && grown.bytes / (keys as usize) < 110, "{grown:?}");
    for id in 0..keys {
        assert_eq!(drain(&a, id), BURST - 1, "{id}");
    }
    hand.advance(BURST as u32 * SECOND);
    // Half of the keys are charged again before the sweep.
    for id in (0..keys).step_by(2) {
        assert!(spend(&a, id), "{id}");
    }
    sweep_all(&limiter);
    assert_eq!(limiter.stats().cells, keys as usize / 2);
    for id in 0..keys {
        assert_eq!(drain(&a, id), BURST - (id + 1) % 2, "{id}");
    }
    hand.advance(BURST as u32 * SECOND);
    sweep_all(&limiter);
    let swept = limiter.stats();
    assert_eq!(swept.cells, 0);
    let held = swept.bytes - empty;
    assert!(held < (grown.bytes - empty) / 20, "{held} of {grown:?}");
}

#[test]
fn cap_is_exact_and_drops_full_buckets_first() {
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).max_keys(10).at_cap(AtCap::Deny);
        let (limiter, hand) = limiter_of_one(options);
        let a = limiter.limit("A").unwrap();
        for id in 0..10 {
            assert!(spend(&a, id), "{engine:?}: {id}");
        }
        let denied = a.spend(10, 1).unwrap();
        assert!(!denied.allowed() && denied.retry_in() >= SECOND, "{engine:?}: {denied:?}");
        assert!(spend(&a, 3), "{engine:?}: a tracked key needs no room");
        assert_eq!(limiter.stats().denied_at_cap, 1, "{engine:?}");
        // All buckets but one are full again.
        hand.advance(SECOND);
        for id in 10..19 {
            assert!(spend(&a, id), "{engine:?}: {id} takes the place of a full one");
        }
        assert_eq!(limiter.stats().cells, 10, "{engine:?}");
        assert!(!spend(&a, 20), "{engine:?}");
        assert_eq!(a.check(3, 0).unwrap().remaining(), Some(BURST - 1), "{engine:?}: not evicted");
    }
}

/// A check of one unit has the decision that a spend would have. A check of 0 units is never denied for lack of room.
#[test]
fn check_at_cap_answers_for_untracked_id() {
    for engine in ENGINES {
        for (at_cap, left, is_allowed) in
            [(AtCap::Deny, BURST, false), (AtCap::Share, 0, false), (AtCap::Allow, BURST, true)]
        {
            let options = LimiterOptions::default().engine(engine).max_keys(10).at_cap(at_cap);
            let limit = |burst| Limit::new(burst, 1, SECOND).unwrap();
            let limits = Limits::builder().limit("A", IdFormat::RegId, limit(BURST)).unwrap();
            let limits = limits.override_id("A", 60, limit(BURST + 1)).unwrap().build();
            let limiter = Limiter::with_options(limits, options.clock(Clock::manual().0)).unwrap();
            let a = limiter.limit("A").unwrap();
            (0..10).for_each(|id| assert!(spend(&a, id)));
            // With `Share` these untracked keys empty the overflow bucket.
            (0..BURST).for_each(|id| assert_eq!(spend(&a, 100 + id), at_cap != AtCap::Deny));
            let checked = a.check(50, 0).unwrap().remaining();
            assert_eq!(checked, Some(left), "{engine:?} {at_cap:?}");
            let checked = a.check(50, 1).unwrap();
            assert_eq!(checked.out_of_room(), at_cap == AtCap::Deny, "{engine:?} {at_cap:?}");
            assert_eq!(a.spend(50, 1).unwrap(), checked, "{engine:?} {at_cap:?}");
            assert_eq!(checked.allowed(), is_allowed, "{engine:?} {at_cap:?}");
            let of_override = a.check(60, 0).unwrap().remaining();
            assert_eq!(of_override, Some(BURST + 1), "{engine:?} {at_cap:?}");
            assert!(spend(&a, 60), "{engine:?} {at_cap:?}: its bucket is beside the cap");
        }
    }
}

#[test]
fn callers_sweep_without_a_sweeper() {
    let (limiter, hand) = limiter_of_one(LimiterOptions::default().max_keys(1000));
    let a = limiter.limit("A").unwrap();
    (0..800).for_each(|id| assert!(spend(&a, id)));
    hand.advance(SECOND);
    (800..950).for_each(|id| assert!(spend(&a, id)));
    let stats = limiter.stats();
    assert_eq!((stats.steps, stats.overflowed), (0, 0), "no key lacked room, and no sweeper ran");
    assert!(stats.cells <= 760, "calls drop full cells above three quarters of the cap: {stats:?}");
}

#[test]
fn untracked_keys_share_a_bucket_and_owe_units() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(LimiterOptions::default().engine(engine).max_keys(1));
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        assert_eq!(drain(&a, 0), BURST, "{engine:?}: the one bucket there is room for");
        assert!(spend(&a, 1) && spend(&a, 2), "{engine:?}");
        assert_eq!(a.check(3, 1).unwrap().remaining(), Some(0), "{engine:?}: their third unit");
        assert!(spend(&a, 3) && !spend(&a, 1) && !spend(&a, 4), "{engine:?}: three units in all");
        assert_eq!(drain(&b, 1), BURST, "{engine:?}: B has its own overflow bucket");
        assert_eq!(limiter.stats().overflowed, 9, "{engine:?}");
        // There is room again. The key's own cell starts with its part of the debt of the overflow bucket.
        assert!(limiter.limit("A").unwrap().reset(0).unwrap().allowed());
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
        assert_eq!(drain(&a, 1), BURST - 1, "{engine:?}: it has used one of the three units");
        assert_eq!(limiter.stats().cells, 1, "{engine:?}");
    }
}

#[test]
fn untracked_keys_may_pass_uncounted() {
    let (limiter, _hand) = limiter(LimiterOptions::default().max_keys(1).at_cap(AtCap::Allow));
    let a = limiter.limit("A").unwrap();
    assert_eq!(drain(&a, 0), BURST);
    assert!((0..10).all(|_| a.spend(1, BURST).unwrap().allowed()));
    assert!(!spend(&a, 0), "a key with a bucket is limited");
    assert_eq!((limiter.stats().allowed_at_cap, limiter.stats().cells), (10, 1));
}

#[test]
fn batch_at_the_cap_is_all_or_nothing() {
    let (limiter, _hand) = limiter(LimiterOptions::default().max_keys(1));
    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
    assert_eq!(drain(&b, 7), BURST);
    let batch = [a.member(7), b.member(7)];
    assert_eq!(limiter.batch(&batch).spend().unwrap().denied_by(), Some(1));
    assert_eq!(a.check(7, 1).unwrap().remaining(), Some(BURST - 1), "A is not charged");
    let batch = [a.member(8), b.member(9).cost(BURST)];
    assert!(limiter.batch(&batch).spend().unwrap().allowed());
    assert!(!limiter.batch(&batch).spend().unwrap().allowed());
    assert_eq!(a.check(8, 1).unwrap().remaining(), Some(BURST - 2), "charged once");
}

#[test]
fn spend_many_answers_as_one_by_one() {
    for engine in ENGINES {
        let (one_by_one, _hand) = limiter(LimiterOptions::default().engine(engine));
        let (at_once, _other) = limiter(LimiterOptions::default().engine(engine));
        let ids: Vec<String> = (0..100_u32).map(|i| (i * i % 37).to_string()).collect();
        let single = one_by_one.limit("A").unwrap();
        let expected: Vec<_> = ids.iter().map(|id| single.spend(id, 2).unwrap()).collect();
        let mut said = Vec::new();
        at_once.limit("A").unwrap().spend_many(&ids, 2, &mut said);
        let said: Vec<_> = said.into_iter().map(Result::unwrap).collect();
        assert_eq!(said, expected, "{engine:?}");
    }
}

#[test]
fn many_ids_at_once_have_an_error_each() {
    let (limiter, _hand) = limiter(LimiterOptions::default());
    let mut said = Vec::new();
    limiter.limit("A").unwrap().spend_many(["1", "no number", "2"], 1, &mut said);
    assert!(said[0].is_ok() && said[2].is_ok());
    assert!(said[1].as_ref().unwrap_err().is_invalid_id());
    said.clear();
    limiter.limit("A").unwrap().spend_many([1_u64, 2], BURST + 1, &mut said);
    assert!(said.iter().all(|said| said.as_ref().unwrap_err().is_cost_above_burst()));
}

#[test]
fn key_that_comes_and_goes_leaves_nothing() {
    in_own_process(|| {
        come_and_go();
    });
}

fn come_and_go() {
    let (clock, hand) = Clock::manual();
    let slow = Limit::new(1, 1, 1_000_000 * SECOND).unwrap();
    let fast = Limit::new(1, 1, SECOND).unwrap();
    let limits = Limits::builder().limit("Slow", IdFormat::RegId, slow).unwrap();
    let limits = limits.limit("Fast", IdFormat::RegId, fast).unwrap().build();
    let options = LimiterOptions::default().max_keys(4096).clock(clock);
    let limiter = Limiter::with_options(limits, options).unwrap();
    let (slow, fast) = (limiter.limit("Slow").unwrap(), limiter.limit("Fast").unwrap());
    // These keys keep their cells, so that the table is never empty, for which it would be rebuilt.
    (0..1000).for_each(|id| assert!(spend(&slow, id)));
    let rounds: u64 = support::full_size(3_000, 10_000);
    for _ in 0..rounds {
        assert!(spend(&fast, 7) && !spend(&fast, 7));
        hand.advance(SECOND);
        sweep_all(&limiter);
    }
    let after = limiter.stats();
    assert_eq!((after.cells, after.swept), (1000, rounds));
    // Migrations remove dead cells long before half of the slots are dead, because a search for the key
    // reads each of its dead cells.
    assert!(after.migrations > rounds / 100, "migrations remove dead cells: {after:?}");
    assert!((0..1000).all(|id| !spend(&slow, id)), "no debt is forgotten");
}

#[test]
fn sweep_drops_a_bucket_exactly_when_full() {
    let second = |units| Limit::new(units, units, SECOND).unwrap();
    let rules = [
        ("gcra", second(3)),
        ("fixed_window", Limit::fixed_window(3, SECOND).unwrap()),
        ("token_bucket", Limit::token_bucket(3, 3, SECOND).unwrap()),
        ("leaky_bucket", Limit::leaky_bucket(3, 1, SECOND).unwrap()),
    ];
    for engine in ENGINES {
        for (name, limit) in &rules {
            let (clock, hand) = Clock::manual();
            let limits = Limits::builder().limit("A", IdFormat::RegId, limit.clone()).unwrap();
            let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(100);
            let limiter = Limiter::with_options(limits.build(), options).unwrap();
            let a = limiter.limit("A").unwrap();
            hand.set(10 * SECOND);
            assert!(spend(&a, 1), "{engine:?}, {name}");
            let full_in = a.check(1, 0).unwrap().reset_in();
            assert!(full_in > Duration::ZERO, "{engine:?}, {name}");
            hand.advance(full_in - Duration::from_nanos(1));
            sweep_all(&limiter);
            assert_eq!(limiter.stats().swept, 0, "{engine:?}, {name}: 1 ns before");
            hand.advance(Duration::from_nanos(1));
            sweep_all(&limiter);
            assert_eq!(limiter.stats().swept, 1, "{engine:?}, {name}: full after {full_in:?}");
        }
    }
}

/// Between an untracked key's search for its cell and the charge to the overflow bucket, another call inserts
/// and charges a cell for the key, the cell becomes full, and a sweep drops it.
#[test]
fn untracked_key_is_not_charged_twice_at_once() {
    // The number of spends to let pass, then a closure to run once.
    type Interruption = (u32, Box<dyn FnOnce() + Send>);
    let pending = Arc::new(Mutex::new(None::<Interruption>));
    let due = pending.clone();
    let rule = hooked(Limit::new(1, 1, SECOND).unwrap(), move |_| {
        let due = due.lock().unwrap().take_if(|(spends, _)| {
            let is_due = *spends == 0;
            *spends = spends.saturating_sub(1);
            is_due
        });
        if let Some((_, run)) = due {
            run();
        }
    });
    let limits = Limits::builder().limit("A", IdFormat::RegId, rule).unwrap().build();
    let options = LimiterOptions::default().max_keys(1).at_cap(AtCap::Share);
    let (limiter, hand) = support::limiter_with(limits, options);
    let a = limiter.limit("A").unwrap();
    assert!(spend(&a, 0), "the one bucket there is room for");
    let (inner, in_hook, in_hand) = (a.clone(), limiter.clone(), hand.clone());
    let run = move || {
        assert!(inner.reset(0).unwrap().allowed());
        assert!(spend(&inner, 1), "in its own bucket");
        in_hand.advance(SECOND);
        sweep_all(&in_hook);
        assert_eq!(in_hook.stats().cells, 0);
    };
    // The first spend that the limiter asks of the algorithm is for the missing cell, the second for the
    // overflow bucket.
    *pending.lock().unwrap() = Some((1, Box::new(run)));
    let allowed = spend(&a, 1);
    assert!(pending.lock().unwrap().is_none(), "the interruption ran within the call");
    assert!(allowed, "after a second one unit has refilled");
    assert!(!spend(&a, 1), "a second unit at that time exceeds the burst of one");
    assert_eq!(limiter.stats().overflowed, 0, "its own bucket was charged");
}
