//! Models of a snapshot's scan beside calls that move words.

use super::renumber::owed;
use super::*;

/// Returns the words that a scan finds for a key.
fn scanned(bench: &Bench, fingerprint: Fingerprint) -> Vec<u64> {
    let mut words = Vec::new();
    bench.table.scan(0, &mut |met, _, word| {
        if met == fingerprint {
            words.push(word);
        }
    });
    words
}

/// Excluded: a debt that a key had during the whole scan is not in the snapshot, because its word
/// was moving; or the snapshot has a debt that the key never had.
fn snapshot_vs_migration_model() {
    let bench = Bench::with_spent(2, &[L, K]);
    let scanner = spawn(&bench, |bench| scanned(bench, K));
    let migrator = spawn(&bench, |bench| {
        bench.start();
        assert!(bench.spend(K), "the second unit was there");
        bench.migrate();
    });
    let words = scanner.join().unwrap();
    assert!(!words.is_empty(), "the debt is in no snapshot");
    let [one, two] = [1, 2].map(|units| 1 + units * UNIT_NS);
    assert!(words.iter().all(|word| [one, two].contains(word)), "{words:?} were never owed");
    migrator.join().unwrap();
    assert_eq!(scanned(&bench, K), [two], "it is there once, with both spends");
    assert_eq!(scanned(&bench, L), [one]);
}

#[test]
fn snapshot_vs_migration() {
    explore_bounded(PREEMPTIONS_2, snapshot_vs_migration_model);
    assert_reached(&[Race::ScannedMoving, Race::Completed]);
    let because = "the debt is in no snapshot";
    fails_bounded(PREEMPTIONS_2, Fault::ScanSkipsMoved, because, snapshot_vs_migration_model);
}

/// Excluded: a debt that a key had during the whole scan is not in the snapshot, because its word moved from the last slot
/// to the first when an override ended.
fn snapshot_vs_renumber_model() {
    let bench = Bench::with_spent(3, &[NEXT_TO_LAST, WRAPPED]);
    let scanner = spawn(&bench, |bench| scanned(bench, WRAPPED));
    assert_eq!(bench.spend_after(WRAPPED, 2), 2);
    let words = scanner.join().unwrap();
    assert!(!words.is_empty(), "the debt is in no snapshot");
    let ever = [1 + UNIT_NS, owed(1, 0, 0), owed(1, 0, 1)];
    assert!(words.iter().all(|word| ever.contains(word)), "{words:?} were never owed");
    assert_eq!(scanned(&bench, WRAPPED), [owed(1, 0, 1)], "it is there once");
    assert_eq!(scanned(&bench, NEXT_TO_LAST), [1 + UNIT_NS]);
}

#[test]
fn snapshot_vs_renumber() {
    explore_bounded(PREEMPTIONS_2, snapshot_vs_renumber_model);
    assert_reached(&[Race::Renumbered, Race::ScannedWrapped]);
    let because = "the debt is in no snapshot";
    fails_bounded(PREEMPTIONS_2, Fault::ScanInOrder, because, snapshot_vs_renumber_model);
}
