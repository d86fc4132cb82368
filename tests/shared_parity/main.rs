//! Runs random operations on several nodes that share limits through one store in memory, and compares each answer with an
//! oracle in plain integers. It has the limits, the bucket arithmetic, the ledger and the shrinking of `tests/parity`.
//!
//! `PARITY_OPS=1000000 cargo test --all-features --test shared_parity` runs that number of operations on each engine. The
//! other variables are those of `tests/parity`. A failure prints its seed and a shortest list of operations that fails: put
//! that list into `cases.rs`.
#![cfg(all(
    feature = "boulder",
    feature = "exact",
    feature = "snapshot",
    feature = "valkey",
    feature = "yaml"
))]

#[path = "../parity/answers.rs"]
mod answers;
mod batches;
mod bucket;
#[path = "../parity/call.rs"]
mod call;
mod calls;
mod cases;
mod checks;
#[path = "../parity/ends.rs"]
mod ends;
mod generate;
#[path = "../parity/harness.rs"]
mod harness;
#[path = "../parity/ledger.rs"]
mod ledger;
mod node;
mod ops;
#[path = "../parity/oracle/mod.rs"]
mod oracle;
mod places;
#[path = "../support/random.rs"]
mod random;
mod run;
#[path = "../parity/shrink.rs"]
mod shrink;
#[path = "../parity/spec.rs"]
mod spec;
mod units;
mod world;
#[path = "../parity/worlds.rs"]
mod worlds;

use harness::all;
use run::On;

/// Operations on each engine if `PARITY_OPS` is not set.
const FEW_OPS: usize = 8_000;

fn nodes_on(on: On) {
    all((&format!("{on:?}"), FEW_OPS), generate::any, &|start, ops| run::run(on, start, ops).err());
}

#[test]
fn nodes_on_lock_free_tables_match_the_oracle() {
    nodes_on(On::LockFree);
}

#[test]
fn nodes_on_exact_tables_match_the_oracle() {
    nodes_on(On::Exact);
}
