//! Model of the limit tag beside a cell: a call sets it before the first word, and a call that migrates the word has
//! to find it. (A call that finds a word without a tag asks the registry: that is no race.)

use std::time::Duration;

use super::*;
use crate::store::Store;

const SOME: Option<usize> = Some(2);

/// Limit A has one unit by default, and `burst` units for the id "k".
fn with_override(burst: u64) -> Limits {
    let limit = |burst| Limit::new(burst, 1, Duration::from_nanos(10)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, limit(1)).unwrap();
    limits.override_id("A", "k", limit(burst)).unwrap().build()
}

/// Excluded: a word is migrated without the tag that was set before it, so that a reload cannot convert it.
fn numbers_vs_migration_model() {
    let (clock, _hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(8);
    let limiter = Limiter::with_options(with_override(2), options).unwrap();
    // Makes the first segment.
    assert!(limiter.limit("A").unwrap().spend("other", 1).unwrap().allowed());
    let spender = spawn(&limiter, |limiter| spend(&limiter, "A", 1));
    let migrator = spawn(&limiter, |limiter| {
        let Store::LockFree(table) = &limiter.inner.store else { panic!("the other engine") };
        table.migrate(1, &limiter.inner.view(&crate::store::pin()));
    });
    assert!(spender.join().unwrap());
    migrator.join().unwrap();
    limiter.reload(with_override(4)).unwrap();
    assert_eq!(remaining(&limiter, "A"), 2, "half of it is spent");
}

#[test]
fn numbers_vs_migration() {
    explore_bounded(SOME, numbers_vs_migration_model);
    assert!(coverage::count(Race::Completed) > 0);
    fails_bounded(SOME, Fault::TagUnpublished, "half of it is spent", numbers_vs_migration_model);
}
