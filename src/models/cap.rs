//! Models of the lock-free table under the whole limiter: the overflow bucket of untracked keys, batches beside a
//! migration.

use super::*;
use crate::core::at_cap::AtCap;
use crate::limits::LimitOptions;
use crate::store::Store;
use crate::store::capacity::{LimitPart, Reservations};
use crate::store::key::{LimitIndex, LimitTag, Stamp};

const SOME: Option<usize> = Some(1);

/// Makes a limiter on the lock-free table, with room for `max_keys` keys.
pub(super) fn lock_free(burst_a: u64, burst_b: u64, max_keys: usize) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(max_keys);
    (Limiter::with_options(limits(burst_a, burst_b), options).unwrap(), hand)
}

pub(super) fn migrate(limiter: &Limiter) {
    let Store::LockFree(table) = &limiter.inner.store else { panic!("the other engine") };
    table.migrate(1, &limiter.inner.view(&crate::store::pin()));
}

/// Excluded: an untracked key is charged to the overflow bucket, and admitted once more by its own bucket, for which an
/// eviction has made room.
fn overflow_vs_eviction_model() {
    let (limiter, _hand) = lock_free(1, 1, 1);
    assert!(limiter.limit("A").unwrap().spend("first", 1).unwrap().allowed());
    migrate(&limiter);
    let untracked = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let evictor = spawn(&limiter, |limiter| {
        let _ = limiter.limit("A").unwrap().reset("first").unwrap();
        spend(&limiter, "A", 1)
    });
    let (untracked, evictor) = (untracked.join().unwrap(), evictor.join().unwrap());
    assert!(untracked ^ evictor, "one unit was there: {untracked} {evictor}");
    count(if limiter.stats().overflowed > 0 { "overflow" } else { "own" });
}

#[test]
fn overflow_vs_eviction() {
    explore_bounded(SOME, overflow_vs_eviction_model);
    assert_happened(&["overflow", "own"]);
    assert!(coverage::count(Race::SharedRolledBack) > 0, "no charge was rolled back");
    let faults = [Fault::ForgetShared, Fault::ChargeUnnoted, Fault::NoSecondLook, Fault::NoFence];
    for fault in faults {
        fails_bounded(SOME, fault, "one unit was there: true true", overflow_vs_eviction_model);
    }
}

/// Excluded: a batch beside a migration charges a member twice, or not at all.
fn batch_vs_migration_model() {
    let (limiter, _hand) = lock_free(2, 2, 8);
    assert!(spend_both(&limiter, 1, false));
    let batch = spawn(&limiter, |limiter| spend_both(&limiter, 1, true));
    let migrator = spawn(&limiter, |limiter| migrate(&limiter));
    assert!(batch.join().unwrap(), "there was room for two");
    migrator.join().unwrap();
    assert_eq!((remaining(&limiter, "A"), remaining(&limiter, "B")), (0, 0), "each is charged");
}

#[test]
fn batch_vs_migration() {
    explore_bounded(SOME, batch_vs_migration_model);
    assert!(coverage::count(Race::Completed) > 0);
    fails_bounded(SOME, Fault::CompleteEarly, "each is charged", batch_vs_migration_model);
}

/// Excluded: a denied batch leaves its first member charged because the member's cell has moved since.
fn return_vs_migration_model() {
    let (limiter, _hand) = lock_free(2, 1, 8);
    assert!(spend(&limiter, "A", 1));
    let batch = spawn(&limiter, |limiter| spend_both(&limiter, 1, false));
    let spender = spawn(&limiter, |limiter| {
        let spent = spend(&limiter, "B", 1);
        migrate(&limiter);
        spent
    });
    let (batch, spender) = (batch.join().unwrap(), spender.join().unwrap());
    assert!(batch ^ spender, "B had room for one: {batch} {spender}");
    assert_eq!(remaining(&limiter, "A"), u64::from(!batch), "all or nothing");
}

#[test]
fn return_vs_migration() {
    explore_bounded(Some(1), return_vs_migration_model);
    assert!(coverage::count(Race::Returned) > 0, "no charge was returned");
    fails_bounded(Some(1), Fault::NoReturn, "all or nothing", return_vs_migration_model);
}

/// Excluded: two inserts of a limit at its part both take the last place of it, and so the one that another limit has for
/// itself.
fn part_vs_two_inserts_model() {
    let limit = |burst| Limit::new(burst, 1, Duration::from_secs(3600)).unwrap();
    let mut builder = Limits::builder();
    for name in ["A", "B"] {
        let own = LimitOptions::default().max_keys(1);
        builder = builder.limit_with(name, IdFormat::String, limit(2), own).unwrap();
    }
    let (clock, _hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(2).at_cap(AtCap::Deny);
    let limiter = Limiter::with_options(builder.build(), options).unwrap();
    let inserts = ["one", "other"].map(|id| {
        spawn(&limiter, move |limiter| limiter.limit("A").unwrap().spend(id, 1).unwrap().allowed())
    });
    let [one, other] = inserts.map(|insert| insert.join().unwrap());
    assert!(one ^ other, "A has one place: {one} {other}");
    let own = limiter.limit("B").unwrap().spend("own", 1).unwrap();
    assert!(own.allowed(), "the place of B is taken");
    assert_eq!(limiter.stats().cells, 2);
}

#[test]
fn part_vs_two_inserts() {
    explore_bounded(SOME, part_vs_two_inserts_model);
    let because = "A has one place: true true";
    fails_bounded(SOME, Fault::PartUnreserved, because, part_vs_two_inserts_model);
}

/// Excluded: a reload that changes the parts while places are taken and released loses a common place, or makes one.
fn division_vs_insert_model() {
    let tag = |limit| Stamp::new(LimitIndex(limit), 0).tag(0);
    let of = |own| LimitPart { own, is_closed: false };
    let reservations = Arc::new(Reservations::new(3));
    reservations.divide(&[of(1), of(1)]);
    let held = |reservations: &Reservations, tag: LimitTag| {
        (0..4)
            .filter(|_| {
                reservations.reserve(tag).is_some_and(|place| {
                    place.hand_over();
                    true
                })
            })
            .count()
    };
    let insert = {
        let reservations = reservations.clone();
        loom::thread::spawn(move || {
            let first = reservations.reserve(tag(0)).map(|place| place.hand_over());
            let second = reservations.reserve(tag(0));
            count(if second.is_some() { "common" } else { "own" });
            drop(second);
            if first.is_some() {
                reservations.release(tag(0));
            }
        })
    };
    reservations.divide(&[of(0), of(3)]);
    reservations.divide(&[of(1), of(1)]);
    insert.join().unwrap();
    assert_eq!(reservations.taken(), 0);
    assert_eq!(held(&reservations, tag(0)), 2, "its own place and the common one");
    assert_eq!(held(&reservations, tag(1)), 1, "its own place");
}

#[test]
fn division_vs_insert() {
    explore_bounded(Some(3), division_vs_insert_model);
    assert_happened(&["common", "own"]);
    let because = "its own place";
    fails_bounded(Some(3), Fault::PartUnreserved, because, division_vs_insert_model);
}
