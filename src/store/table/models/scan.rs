//! A model of reading all words, for a file of buckets, beside a migration and calls.

use super::*;

/// The words that a scan finds for a key.
fn scanned(bench: &Bench, fingerprint: Fingerprint) -> Vec<u64> {
    let mut words = Vec::new();
    bench.table.scan(0, &mut |met, _, word| {
        if met == fingerprint {
            words.push(word);
        }
    });
    words
}

/// Excluded: what a key owed all the while is not in the file, because it was on its way; or what is there
/// is neither what it owed before nor after.
fn snapshot_vs_migration_model() {
    let bench = Bench::with_spent(2, &[L, K]);
    let scanner = spawn(&bench, |bench| scanned(bench, K));
    let migrator = spawn(&bench, |bench| {
        bench.start();
        assert!(bench.spend(K), "the second unit was there");
        bench.migrate();
    });
    let words = scanner.join().unwrap();
    assert!(!words.is_empty(), "what was owed is in no file");
    let [one, two] = [1, 2].map(|units| 1 + units * UNIT_NS);
    assert!(words.iter().all(|word| [one, two].contains(word)), "{words:?} were never owed");
    migrator.join().unwrap();
    assert_eq!(scanned(&bench, K), [two], "it is there once, with both spends");
    assert_eq!(scanned(&bench, L), [one]);
}

#[test]
fn snapshot_vs_migration() {
    explore_bounded(SOME, snapshot_vs_migration_model);
    assert_reached(&[Race::ScannedMoving, Race::Completed]);
    let because = "what was owed is in no file";
    fails_bounded(SOME, Fault::ScanSkipsMoved, because, snapshot_vs_migration_model);
}
