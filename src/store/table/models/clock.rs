//! A model of the clock that a caller reads after it has seen a migrated word.

use super::super::Home;
use super::*;

/// Excluded: a caller that sees a migrated charge reads a clock from before that charge. It would
/// then roll back too much of its own charge.
fn clock_vs_migrated_charge_model(seen: &Tally) {
    let bench = Bench::with_spent(2, &[K]);
    let charger = spawn(&bench, |bench| {
        let guard = epoch::pin();
        let known = bench.table.home(&guard, K).and_then(Home::known);
        bench.advance_to(5);
        // No other thread charges the key, so the update fails only if the cell was frozen.
        known.is_some_and(|known| known.update(|word| Some(word + UNIT_NS)))
    });
    let carrier = spawn(&bench, |bench| {
        // Only the key's own chunk, so that nothing but the word publishes the charge.
        bench.start();
        bench.help();
    });
    let reader = spawn(&bench, |bench| (bench.word(K), bench.now_ns()));
    let (word, now_ns) = reader.join().unwrap();
    if word == 1 + 2 * UNIT_NS {
        seen.add();
        assert!(now_ns >= 5, "the clock is behind a charge that was seen: {now_ns}");
    }
    let _ = charger.join().unwrap();
    carrier.join().unwrap();
}

#[test]
fn clock_vs_migrated_charge() {
    let seen = Tally::default();
    let in_seen = seen.clone();
    explore_bounded(PREEMPTIONS_2, move || clock_vs_migrated_charge_model(&in_seen));
    assert!(seen.get() > 0, "the charge was never seen");
    fails_bounded(PREEMPTIONS_2, Fault::WordRelaxed, "the clock is behind a charge", || {
        clock_vs_migrated_charge_model(&Tally::default());
    });
}
