//! Models of a word that moves to a later slot because the override of its key has ended.

use super::*;

impl Bench {
    /// Spends one unit by the limit that applies after `ends` overrides have ended, or by a later
    /// limit if another call has acted on a later end. Returns the number of ends of the limit that
    /// decided.
    pub(super) fn spend_after(&self, fingerprint: Fingerprint, ends: u32) -> u32 {
        let mut limits = Limits { ends, ..Limits::of_generation(0) };
        loop {
            let done = self.update_by(limits, fingerprint, Absent::Insert, |word, at_ns| {
                Some(word.max(at_ns) + UNIT_NS)
            });
            match done {
                Ok(()) => return limits.ends,
                Err(undone) => assert_eq!(undone, UpdateError::Outdated),
            }
            coverage::hit(Race::Outdated);
            limits.ends += 1;
            assert!(limits.ends <= 2, "nothing comes after the default");
        }
    }

    /// Returns the key's word by the default limit.
    fn word_after_ends(&self, fingerprint: Fingerprint) -> u64 {
        let limits = Limits { ends: 2, ..Limits::of_generation(0) };
        self.word_by(limits, fingerprint).expect("nothing comes after the default")
    }
}

/// Returns the word, counted in the default limit, of a key that has spent these numbers of units
/// by its override, by its account's override and by the default.
pub(super) fn owed(by_override: u64, by_account: u64, by_default: u64) -> u64 {
    1 + (9 * by_override + 3 * by_account + by_default) * UNIT_NS
}

/// Excluded: a spend beside an override's end is lost, or counts in other units than those of its
/// decision.
fn renumber_vs_spend_model(by_override: &Tally, by_default: &Tally) {
    let bench = Bench::with_spent(2, &[K]);
    let behind = spawn(&bench, |bench| bench.spend_after(K, 0));
    assert_eq!(bench.spend_after(K, 2), 2);
    let spent_by = match behind.join().unwrap() {
        0 => (by_override.add(), owed(2, 0, 1)).1,
        1 => owed(1, 1, 1),
        _ => (by_default.add(), owed(1, 0, 2)).1,
    };
    assert_eq!(bench.word_after_ends(K), spent_by, "each unit in its own units");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn renumber_vs_spend() {
    let (by_override, by_default) = (Tally::default(), Tally::default());
    let (first, second) = (by_override.clone(), by_default.clone());
    explore_bounded(PREEMPTIONS_1, move || renumber_vs_spend_model(&first, &second));
    assert!(by_override.get() > 0, "no spend by the override");
    assert!(by_default.get() > 0, "no spend by the default");
    assert_reached(&[Race::Renumbered, Race::Outdated, Race::SwapLost]);
    fails_bounded(PREEMPTIONS_1, Fault::StoreForSwap, "each unit in its own units", || {
        renumber_vs_spend_model(&Tally::default(), &Tally::default());
    });
}

/// Excluded: of two calls that move a word, one loses its spend, or the key gets two cells.
fn renumber_vs_renumber_model() {
    let bench = Bench::with_spent(2, &[K]);
    let other = spawn(&bench, |bench| bench.spend_after(K, 2));
    assert_eq!((bench.spend_after(K, 2), other.join().unwrap()), (2, 2));
    assert_eq!(bench.word_after_ends(K), owed(1, 0, 2), "both spends count");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn renumber_vs_renumber() {
    explore_bounded(PREEMPTIONS_2, renumber_vs_renumber_model);
    assert_reached(&[Race::Renumbered, Race::SeededBefore]);
    fails_bounded(PREEMPTIONS_2, Fault::NextNotFirst, "one cell", renumber_vs_renumber_model);
    fails_bounded(PREEMPTIONS_2, Fault::EveryoneReleases, "one cell", renumber_vs_renumber_model);
}

/// Excluded: of two calls whose clocks differ, one sets a word's tag and the other computes the
/// word by another limit.
fn renumber_vs_later_renumber_model(by_account: &Tally) {
    let bench = Bench::with_spent(2, &[K]);
    let earlier = spawn(&bench, |bench| bench.spend_after(K, 1));
    assert_eq!(bench.spend_after(K, 2), 2);
    let expected = match earlier.join().unwrap() {
        1 => (by_account.add(), owed(1, 1, 1)).1,
        _ => owed(1, 0, 2),
    };
    assert_eq!(bench.word_after_ends(K), expected, "each unit in its own units");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn renumber_vs_later_renumber() {
    let by_account = Tally::default();
    let tally = by_account.clone();
    explore_bounded(PREEMPTIONS_1, move || renumber_vs_later_renumber_model(&tally));
    assert!(by_account.get() > 0, "no spend by the account's override");
    assert_reached(&[Race::Renumbered, Race::Outdated, Race::SeededBefore]);
    fails_bounded(PREEMPTIONS_1, Fault::TagByStore, "each unit in its own units", || {
        renumber_vs_later_renumber_model(&Tally::default());
    });
}

/// Excluded: a word has moved to a later slot, and a migration moves the word of the old slot in
/// place of the new one, or moves both.
fn renumber_vs_migration_model(keys: &[Fingerprint]) {
    let bench = Bench::with_spent(2, keys);
    let migrator = spawn(&bench, Bench::migrate);
    assert_eq!(bench.spend_after(K, 2), 2);
    migrator.join().unwrap();
    bench.migrate();
    assert_eq!(bench.word_after_ends(K), owed(1, 0, 1), "the word moved once");
    assert_eq!(bench.taken(), keys.len(), "a reservation for each cell");
}

#[test]
fn renumber_vs_migration() {
    explore_bounded(PREEMPTIONS_2, || renumber_vs_migration_model(&[K]));
    assert_reached(&[Race::Renumbered, Race::Completed]);
    fails_bounded(PREEMPTIONS_2, Fault::MigrateUnchecked, "the word moved once", || {
        renumber_vs_migration_model(&[K]);
    });
    fails_bounded(PREEMPTIONS_2, Fault::EndUnlooked, "a reservation for each cell", || {
        renumber_vs_migration_model(&[K]);
    });
}

/// Excluded: a sweep drops the slot that a word is about to move to, or releases a reservation
/// twice.
fn renumber_vs_sweep_model() {
    let bench = Bench::with_spent(2, &[K]);
    let sweeper = spawn(&bench, |bench| bench.sweep().dropped);
    assert_eq!(bench.spend_after(K, 2), 2);
    let _ = sweeper.join().unwrap();
    assert_eq!(bench.word_after_ends(K), owed(1, 0, 1), "the word moved");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn renumber_vs_sweep() {
    explore_bounded(PREEMPTIONS_2, renumber_vs_sweep_model);
    assert_reached(&[Race::Renumbered]);
    // With this fault the word has no slot to move to, and the caller retries without end.
    let because = "maximum number of branches";
    fails_bounded(PREEMPTIONS_2, Fault::EvictAwaited, because, renumber_vs_sweep_model);
}

/// Excluded: after a word has moved to a later slot, was refunded and was dropped, a late call
/// writes the old debt again.
fn late_renumber_vs_sweep_model() {
    let bench = Bench::with_spent(2, &[K]);
    let late = spawn(&bench, |bench| bench.spend_after(K, 2));
    assert_eq!(bench.spend_after(K, 2), 2);
    let limits = Limits { ends: 2, ..Limits::of_generation(0) };
    let _ =
        bench.update_by(limits, K, Absent::Leave, |word, at_ns| (word > at_ns).then_some(at_ns));
    bench.sweep();
    assert_eq!(late.join().unwrap(), 2);
    let word = bench.word_after_ends(K);
    assert!(word <= owed(0, 0, 1), "a refunded debt is owed again: {word}");
}

#[test]
fn late_renumber_vs_sweep() {
    explore_bounded(PREEMPTIONS_1, late_renumber_vs_sweep_model);
    assert_reached(&[Race::Renumbered, Race::Evicted, Race::SeededBefore]);
    fails_bounded(PREEMPTIONS_1, Fault::SeedByMax, "is owed again", late_renumber_vs_sweep_model);
}

/// Excluded: of two inserts of one key, before and after its override's end, one sets the cell's tag and the other takes
/// the slot with a place in another room, which the end of the cell does not release; or the earlier call freezes the
/// word of the later one, and no call can move it.
fn insert_vs_later_insert_model() {
    let bench = Bench::new(8, 2);
    bench.begin();
    let behind = spawn(&bench, |bench| bench.spend_after(OWN, 0));
    assert_eq!(bench.spend_after(OWN, 2), 2);
    let _ = behind.join().unwrap();
    let limits = Limits { ends: 2, ..Limits::of_generation(0) };
    // The word moves from the override's cell, if it is there.
    let full = bench.update_by(limits, OWN, Absent::Leave, |_, at_ns| Some(at_ns));
    assert_eq!(full, Ok(()));
    assert_eq!((bench.taken(), bench.taken_beside_cap()), (1, 0), "one place, under the cap");
    bench.sweep();
    assert_eq!((bench.taken(), bench.taken_beside_cap()), (0, 0), "no place");
}

#[test]
fn insert_vs_later_insert() {
    explore_bounded(PREEMPTIONS_2, insert_vs_later_insert_model);
    assert_reached(&[Race::PlaceMoved, Race::Renumbered, Race::Outdated]);
    let because = "one place, under the cap";
    fails_bounded(PREEMPTIONS_2, Fault::PlaceNotMoved, because, insert_vs_later_insert_model);
    let because = "nothing comes after the default";
    fails_bounded(PREEMPTIONS_2, Fault::UnchargedUnchecked, because, insert_vs_later_insert_model);
}
