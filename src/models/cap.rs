//! The lock-free engine under the whole limiter: the bucket that newcomers share, batches beside a
//! migration.

use super::*;
use crate::store::Store;

const SOME: Option<usize> = Some(1);

/// A limiter on the table without locks, with room for so many keys.
fn lock_free(burst_a: u64, burst_b: u64, max_keys: usize) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(max_keys);
    (Limiter::with_options(limits(burst_a, burst_b), options), hand)
}

fn migrate(limiter: &Limiter) {
    let Store::LockFree(table) = &limiter.inner.store else { panic!("the other engine") };
    table.migrate(1, &limiter.inner.view(&crate::store::pin()));
}

/// Excluded: a newcomer is charged to the shared bucket, and admitted once more by a bucket of its own
/// that an eviction has made room for.
fn overflow_vs_eviction_model(shared: &Tally, own: &Tally) {
    let (limiter, _hand) = lock_free(1, 1, 1);
    assert!(limiter.limit("A").unwrap().spend("first", 1).unwrap().allowed());
    migrate(&limiter);
    let newcomer = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let evictor = spawn(&limiter, |limiter| {
        let _ = limiter.limit("A").unwrap().reset("first").unwrap();
        spend(&limiter, "A", 1)
    });
    let (newcomer, evictor) = (newcomer.join().unwrap(), evictor.join().unwrap());
    assert!(newcomer ^ evictor, "one unit was there: {newcomer} {evictor}");
    if limiter.stats().shared > 0 { shared.add() } else { own.add() }
}

#[test]
fn overflow_vs_eviction() {
    let (shared, own) = (Tally::default(), Tally::default());
    let (in_shared, in_own) = (shared.clone(), own.clone());
    explore_bounded(SOME, move || overflow_vs_eviction_model(&in_shared, &in_own));
    assert!(shared.get() > 0 && own.get() > 0, "shared {}, own {}", shared.get(), own.get());
    assert!(coverage::count(Race::SharedRolledBack) > 0, "no charge was taken back");
    for fault in [Fault::ForgetShared, Fault::NoSecondLook, Fault::NoFence] {
        fails_bounded(SOME, fault, "one unit was there: true true", || {
            overflow_vs_eviction_model(&Tally::default(), &Tally::default());
        });
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

/// Excluded: a denied batch leaves its first member charged, when that has moved since.
fn roll_back_vs_migration_model() {
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
fn roll_back_vs_migration() {
    explore_bounded(Some(1), roll_back_vs_migration_model);
    assert!(coverage::count(Race::RolledBack) > 0, "no charge was taken back");
    fails_bounded(Some(1), Fault::NoRollBack, "all or nothing", roll_back_vs_migration_model);
}
