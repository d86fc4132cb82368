//! Models of batches on the fast path: every member's key is known to the lock-free table.

use super::cap::lock_free;
use super::*;

const SOME: Option<usize> = Some(2);

/// Excluded: of two batches of known keys that name them in opposite orders both are admitted, or both denied.
fn known_batch_vs_known_batch_model() {
    let (limiter, _hand) = lock_free(2, 2, 8);
    assert!(spend_both(&limiter, 1, false));
    let other = spawn(&limiter, |limiter| spend_both(&limiter, 1, true));
    let (this, other) = (spend_both(&limiter, 1, false), other.join().unwrap());
    assert!(this ^ other, "one unit of each was there: {this} {other}");
    assert_eq!((remaining(&limiter, "A"), remaining(&limiter, "B")), (0, 0), "all or nothing");
}

#[test]
fn known_batch_vs_known_batch() {
    explore_bounded(SOME, known_batch_vs_known_batch_model);
    assert!(coverage::count(Race::KnownBatchCharged) > 0, "no batch took the fast path");
    assert!(coverage::count(Race::SwapLost) > 0, "the batches did not meet");
    let because = "one unit of each was there: false false";
    fails_bounded(SOME, Fault::CallersOrder, because, known_batch_vs_known_batch_model);
}

/// Excluded: a batch of known keys that is denied by its second member leaves its first charged.
fn known_batch_vs_spend_model() {
    let (limiter, _hand) = lock_free(2, 2, 8);
    assert!(spend_both(&limiter, 1, false));
    let spender = spawn(&limiter, |limiter| spend(&limiter, "B", 1));
    let (batch, spender) = (spend_both(&limiter, 1, false), spender.join().unwrap());
    assert!(batch ^ spender, "B had room for one: {batch} {spender}");
    assert_eq!(remaining(&limiter, "A"), u64::from(!batch), "all or nothing");
}

#[test]
fn known_batch_vs_spend() {
    explore_bounded(SOME, known_batch_vs_spend_model);
    assert!(coverage::count(Race::KnownBatchDenied) > 0, "no batch was denied midway");
    fails_bounded(SOME, Fault::NoReturn, "all or nothing", known_batch_vs_spend_model);
}

/// Excluded: a batch of known keys whose second cell moves leaves its first charged once more, when it begins again.
fn known_batch_vs_migration_model() {
    let (limiter, _hand) = lock_free(3, 3, 8);
    assert!(spend_both(&limiter, 1, false));
    let migrator = spawn(&limiter, |limiter| cap::migrate(&limiter));
    assert!(spend_both(&limiter, 1, false), "there was room");
    migrator.join().unwrap();
    assert_eq!((remaining(&limiter, "A"), remaining(&limiter, "B")), (1, 1), "charged once");
}

#[test]
fn known_batch_vs_migration() {
    explore_bounded(SOME, known_batch_vs_migration_model);
    assert!(coverage::count(Race::KnownBatchMoved) > 0, "no cell moved midway");
    fails_bounded(SOME, Fault::NoReturn, "charged once", known_batch_vs_migration_model);
}

/// Excluded: a denied batch of known keys returns units that a later call has charged.
fn known_batch_vs_spends_model() {
    let (limiter, hand) = lock_free(3, 2, 8);
    assert!(spend_both(&limiter, 1, false));
    let spender = spawn(&limiter, move |limiter| {
        let last = spend(&limiter, "B", 1);
        hand.advance(Duration::from_nanos(5));
        (last, spend(&limiter, "A", 2))
    });
    let batch = spend_both(&limiter, 2, false);
    let (last, of_a) = spender.join().unwrap();
    assert!(batch ^ last, "B had room for one: {batch} {last}");
    let charged = 1 + 2 * u64::from(batch) + 2 * u64::from(of_a);
    assert!(charged <= 3, "A admits its burst");
    // Half a unit has come back meanwhile.
    let (owed_ns, most_ns) = (reset_in_ns(&limiter, "A"), u128::from(charged) * 10);
    assert!(owed_ns <= most_ns && owed_ns + 5 >= most_ns, "{owed_ns} ns for {charged} units");
}

#[test]
fn known_batch_vs_spends() {
    explore_bounded(SOME, known_batch_vs_spends_model);
    assert!(coverage::count(Race::KnownBatchDenied) > 0, "no batch was denied midway");
    fails_bounded(SOME, Fault::NoReturn, "units", known_batch_vs_spends_model);
}
