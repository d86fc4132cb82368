//! Which of a limit's numbers apply: they are noted beside a cell before its first word, and who finds the
//! word has to find the note, or it decides by the limit's default.

use std::time::Duration;

use super::*;
use crate::store::Store;

const SOME: Option<usize> = Some(2);

/// A limiter on the table without locks, whose limit A has one unit by default, and two for the id "k".
fn with_override() -> Limiter {
    let limit = |burst| Limit::new(burst, 1, Duration::from_nanos(10)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, limit(1)).unwrap();
    let limits = limits.override_id("A", "k", limit(2)).unwrap().build();
    let (clock, _hand) = Clock::manual();
    let limiter = Limiter::with_options(limits, LimiterOptions::default().clock(clock).max_keys(8));
    // So that there is a segment.
    assert!(limiter.limit("A").unwrap().spend("other", 1).unwrap().allowed());
    limiter
}

/// Excluded: who finds the word that another has just put in decides by the limit's default.
fn known_vs_first_spend_model() {
    let limiter = with_override();
    let other = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let third = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    assert!(other.join().unwrap() && third.join().unwrap(), "two units are this id's");
    assert_eq!(remaining(&limiter, "A"), 0);
}

#[test]
fn known_vs_first_spend() {
    explore_bounded(SOME, known_vs_first_spend_model);
    assert!(probe::count(Place::SwapLost) > 0, "no swap met another's");
    let because = "two units are this id's";
    fails_bounded(SOME, Fault::WordRelaxed, because, known_vs_first_spend_model);
}

/// Excluded: a word is carried without the note that was made before it.
fn numbers_vs_migration_model() {
    let limiter = with_override();
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let migrator = spawn(&limiter, |limiter| {
        let Store::LockFree(table) = &limiter.inner.store else { panic!("the other engine") };
        table.migrate(1, &limiter.inner.turn(&crate::store::pin()));
    });
    assert!(spender.join().unwrap());
    migrator.join().unwrap();
    assert!(spend(&limiter, "A", 1), "the second unit is this id's");
}

#[test]
fn numbers_vs_migration() {
    explore_bounded(SOME, numbers_vs_migration_model);
    assert!(probe::count(Place::Completed) > 0);
    let because = "the second unit is this id's";
    fails_bounded(SOME, Fault::FreezeRelaxed, because, numbers_vs_migration_model);
}
