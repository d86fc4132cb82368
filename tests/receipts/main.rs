//! Batches with receipts beside a model: random limits, costs, modes, settlements, sweeps, and a clock that also goes back.
//!
//! `RECEIPT_BATCHES=10000000 cargo test --release --all-features --test receipts` makes that number of batches on each engine.
//! `RECEIPT_SEED` is the first run's seed.

mod model;
#[path = "../support/random.rs"]
mod random;
mod run;
#[path = "../support/mod.rs"]
mod support;

use std::time::Instant;

use tollgate::options::Engine;

/// Makes runs until they have the wanted number of batches.
fn runs(engine: Engine) {
    let batches = support::count_of("RECEIPT_BATCHES", 20_000);
    let first = support::count_of("RECEIPT_SEED", 1);
    let (began, mut seen) = (Instant::now(), run::Seen::default());
    for seed in first.. {
        if seen.batches >= batches {
            break;
        }
        run::run(engine, seed, &mut seen);
    }
    println!("{engine:?}: {seen:?}, {:?}", began.elapsed());
    seen.check();
}

#[test]
fn lock_free_receipts_settle_as_the_model() {
    runs(Engine::LockFree);
}

#[cfg(feature = "exact")]
#[test]
fn exact_receipts_settle_as_the_model() {
    runs(Engine::Exact);
}
