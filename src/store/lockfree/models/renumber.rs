//! Models of a word that goes on in another slot, because the override of its key has ended.

use super::*;

impl Bench {
    /// One unit, charged by the default, or by the override where the caller's clock is behind its end and no other
    /// call has acted upon the end. Returns whether it was charged by the default.
    fn spend_beside_end(&self, print: Fingerprint, have_ended: bool) -> bool {
        let mut limits = Limits { have_ended, ..Limits::of(0) };
        loop {
            let done = self.update_by(limits, print, Absent::Insert, |word, at_ns| {
                Some(word.max(at_ns) + UNIT_NS)
            });
            match done {
                Ok(()) => return limits.have_ended,
                Err(undone) => assert_eq!(undone, Undone::Outdated),
            }
            reached(Place::Outdated);
            assert!(!limits.have_ended, "nothing comes after the default");
            limits.have_ended = true;
        }
    }

    /// The key's word by the default.
    fn word_after_end(&self, print: Fingerprint) -> u64 {
        let limits = Limits { have_ended: true, ..Limits::of(0) };
        self.word_by(limits, print).expect("nothing comes after the default")
    }
}

/// What is owed by the default after so many units by the override and by the default.
fn owed(by_override: u64, by_default: u64) -> u64 {
    1 + (3 * by_override + by_default) * UNIT_NS
}

/// Excluded: a spend beside an override's end is lost, or counts in other units than those it was decided by.
fn renumber_vs_spend_model(by_override: &Tally, by_default: &Tally) {
    let bench = Bench::with_spent(2, &[K]);
    let behind = spawn(&bench, |bench| bench.spend_beside_end(K, false));
    assert!(bench.spend_beside_end(K, true));
    let by = u64::from(behind.join().unwrap());
    (if by == 0 { by_override } else { by_default }).add();
    assert_eq!(bench.word_after_end(K), owed(2 - by, 1 + by), "each unit in its own units");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn renumber_vs_spend() {
    let (by_override, by_default) = (Tally::default(), Tally::default());
    let (first, second) = (by_override.clone(), by_default.clone());
    explore_bounded(SOME, move || renumber_vs_spend_model(&first, &second));
    assert!(by_override.get() > 0, "no spend by the override");
    assert!(by_default.get() > 0, "no spend by the default");
    assert_reached(&[Place::Renumbered, Place::Outdated, Place::SwapLost]);
    fails_bounded(SOME, Fault::StoreForSwap, "", || {
        renumber_vs_spend_model(&Tally::default(), &Tally::default());
    });
}

/// Excluded: of two calls that move a word one loses its spend, or the key gets two cells.
fn renumber_vs_renumber_model() {
    let bench = Bench::with_spent(2, &[K]);
    let other = spawn(&bench, |bench| bench.spend_beside_end(K, true));
    assert!(bench.spend_beside_end(K, true) && other.join().unwrap());
    assert_eq!(bench.word_after_end(K), owed(1, 2), "both spends count");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn renumber_vs_renumber() {
    explore_bounded(SOME, renumber_vs_renumber_model);
    assert_reached(&[Place::Renumbered, Place::SeededBefore]);
    fails_bounded(SOME, Fault::SeedByMax, "both spends count", renumber_vs_renumber_model);
    fails_bounded(SOME, Fault::EveryoneReleases, "", renumber_vs_renumber_model);
}

/// Excluded: a migration brings over the word that has gone on, and not the one it became; or both.
fn renumber_vs_migration_model(prints: &[Fingerprint]) {
    let bench = Bench::with_spent(2, prints);
    let migrator = spawn(&bench, Bench::migrate);
    assert!(bench.spend_beside_end(K, true));
    migrator.join().unwrap();
    bench.migrate();
    assert_eq!(bench.word_after_end(K), owed(1, 1), "the word went on once");
    assert_eq!(bench.taken(), prints.len(), "a place for each cell");
}

#[test]
fn renumber_vs_migration() {
    explore_bounded(SOME, || renumber_vs_migration_model(&[K]));
    assert_reached(&[Place::Renumbered, Place::Completed]);
    let because = "the word went on once";
    for fault in [Fault::CarriedUnlooked, Fault::RenumberInLeft] {
        fails_bounded(SOME, fault, because, || renumber_vs_migration_model(&[K]));
    }
}

/// Excluded: a sweep drops the slot that a word is on its way to, or gives back a place twice.
fn renumber_vs_sweep_model() {
    let bench = Bench::with_spent(2, &[K]);
    let sweeper = spawn(&bench, |bench| bench.sweep().dropped);
    assert!(bench.spend_beside_end(K, true));
    let _ = sweeper.join().unwrap();
    assert_eq!(bench.word_after_end(K), owed(1, 1), "the word went on");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn renumber_vs_sweep() {
    explore_bounded(SOME, renumber_vs_sweep_model);
    assert_reached(&[Place::Renumbered]);
    fails_bounded(SOME, Fault::BuryAwaited, "", renumber_vs_sweep_model);
}

/// Excluded: a call that is late brings a word back that has gone on, was given back since, and was dropped.
fn late_renumber_vs_sweep_model() {
    let bench = Bench::with_spent(2, &[K]);
    let late = spawn(&bench, |bench| bench.spend_beside_end(K, true));
    assert!(bench.spend_beside_end(K, true));
    let limits = Limits { have_ended: true, ..Limits::of(0) };
    let _ =
        bench.update_by(limits, K, Absent::Leave, |word, at_ns| (word > at_ns).then_some(at_ns));
    bench.sweep();
    assert!(late.join().unwrap());
    let word = bench.word_after_end(K);
    assert!(word <= owed(0, 1), "what was given back is owed again: {word}");
}

#[test]
fn late_renumber_vs_sweep() {
    explore_bounded(SOME, late_renumber_vs_sweep_model);
    assert_reached(&[Place::Renumbered, Place::Buried, Place::SeededBefore]);
    fails_bounded(SOME, Fault::SeedByMax, "is owed again", late_renumber_vs_sweep_model);
}
