//! Which of a limit's numbers apply: they are noted beside a cell before its first word, and who carries
//! the word has to find the note. (Who finds a word without its note asks the registry: that is no race.)

use std::time::Duration;

use super::*;
use crate::store::Store;

const SOME: Option<usize> = Some(2);

/// Limit A has one unit by default, and so many for the id "k".
fn with_override(burst: u64) -> Limits {
    let limit = |burst| Limit::new(burst, 1, Duration::from_nanos(10)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, limit(1)).unwrap();
    limits.override_id("A", "k", limit(burst)).unwrap().build()
}

/// Excluded: a word is carried without the note that was made before it, and nobody can tell what it
/// owes when the limits change.
fn numbers_vs_migration_model() {
    let (clock, _hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).max_keys(8);
    let limiter = Limiter::with_options(with_override(2), options);
    // So that there is a segment.
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
    fails_bounded(SOME, Fault::FreezeRelaxed, "half of it is spent", numbers_vs_migration_model);
}
