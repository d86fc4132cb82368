//! Models of the lock-free table under the whole limiter: the overflow bucket of untracked keys, batches beside a
//! migration.

use super::*;
use crate::store::Store;

const SOME: Option<usize> = Some(1);

/// Makes a limiter on the lock-free table, with room for `max_keys` keys.
pub(super) fn lock_free(burst_a: u64, burst_b: u64, max_keys: usize) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(max_keys);
    (Limiter::with_options(limits(burst_a, burst_b), options), hand)
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
    for fault in [Fault::ForgetShared, Fault::NoSecondLook, Fault::NoFence] {
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
