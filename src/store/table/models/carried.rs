//! What is seen along with a word that was carried.

use super::super::Home;
use super::*;

/// Excluded: who sees a charge that was carried to another segment reads a clock from before it, and so
/// would take too much back from beneath it.
fn clock_vs_carried_charge_model(seen: &Tally) {
    let bench = Bench::with_spent(2, &[K]);
    let charger = spawn(&bench, |bench| {
        let guard = epoch::pin();
        let known = bench.table.home(&guard, K).and_then(Home::known);
        bench.advance_to(5);
        // Nobody else charges it: all that can have happened to it is that it went.
        known.is_some_and(|known| known.update(|word| Some(word + UNIT_NS)))
    });
    let carrier = spawn(&bench, |bench| {
        // No further than the key's own chunk: nothing else publishes what was carried.
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
fn clock_vs_carried_charge() {
    let seen = Tally::default();
    let in_seen = seen.clone();
    explore_bounded(SOME, move || clock_vs_carried_charge_model(&in_seen));
    assert!(seen.get() > 0, "the charge was never seen");
    fails_bounded(SOME, Fault::WordRelaxed, "the clock is behind a charge", || {
        clock_vs_carried_charge_model(&Tally::default());
    });
}
