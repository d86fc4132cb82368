//! Runs random operations with all features on both engines, and compares each answer with an oracle in
//! plain integers.
//!
//! `PARITY_OPS=1000000 cargo test --all-features --test parity` runs that number of operations on each
//! engine. `PARITY_SEED` is the first run's seed, and `PARITY_ENGINE=Exact` selects one of the tests. A
//! failure prints its seed and a shortest list of operations that fails: put that list into `cases.rs`.
#![cfg(all(feature = "boulder", feature = "exact", feature = "snapshot", feature = "yaml"))]

mod answers;
mod batches;
mod blocks;
mod call;
mod cases;
mod ends;
mod generate;
mod harness;
mod held;
mod ledger;
mod ops;
mod oracle;
mod permits;
#[path = "../support/random.rs"]
mod random;
mod receipts;
mod returns;
mod run;
mod several;
mod shrink;
mod spec;
#[path = "../support/mod.rs"]
mod support;
mod worlds;

use harness::all;
use run::{Checks, On};

/// Operations on each engine if `PARITY_OPS` is not set.
const FEW_OPS: usize = 18_000;

fn exact(on: On) {
    let run = |start: &run::Start, ops: &[ops::Op]| run::run(on, Checks::All, start, ops).err();
    all((&format!("{on:?}"), FEW_OPS), generate::any, &run);
}

#[test]
fn the_lock_free_table_answers_as_the_oracle() {
    exact(On::LockFree);
}

#[test]
fn the_exact_table_answers_as_the_oracle() {
    exact(On::Exact);
}

#[test]
fn restored_table_answers_as_the_oracle() {
    exact(On::Both);
}

/// Answers depend on hashes, so a list counts as failing only if it fails in several tables.
#[test]
fn full_tables_keep_the_bound() {
    let once = |start: &run::Start, ops: &[ops::Op]| {
        let both = [On::LockFree, On::Exact];
        both.into_iter().find_map(|on| run::run(on, Checks::Bound, start, ops).err())
    };
    let often = |start: &run::Start, ops: &[ops::Op]| {
        once(start, ops).and_then(|_| (0..3).find_map(|_| once(start, ops)))
    };
    all(("Full", FEW_OPS), generate::any_full, &often);
}

/// The bound's own check, without the oracle's answers: it reports a limiter that returns one unit twice.
#[test]
fn bound_reports_unit_that_returns_twice() {
    for on in [On::LockFree, On::Exact] {
        let mut found = 0;
        let seeds = support::full_size(80, 400);
        for seed in 0..seeds {
            let (start, ops) = generate::any_of_rates(seed);
            let run = |checks| run::run(on, checks, &start, &ops);
            let planted = run(Checks::BoundOfPlantedFault);
            found += u64::from(planted.is_err_and(|failure| failure.text.contains("too many")));
        }
        assert!(found > seeds / 50, "{on:?}: {found} of {seeds} runs");
    }
}
