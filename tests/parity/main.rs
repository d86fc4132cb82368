//! Runs random operations with all features on both engines, and compares each answer with an oracle in
//! plain integers.
//!
//! `PARITY_OPS=1000000 cargo test --all-features --test parity` runs that number of operations on each
//! engine. `PARITY_SEED` is the first run's seed, and `PARITY_ENGINE=Exact` selects one of the tests. A
//! failure prints its seed and a shortest list of operations that fails: put that list into `cases.rs`.
#![cfg(all(feature = "boulder", feature = "exact", feature = "snapshot", feature = "yaml"))]

mod answers;
mod bound;
mod call;
mod cases;
mod ends;
mod generate;
mod harness;
mod ledger;
mod ops;
mod oracle;
#[path = "../support/random.rs"]
mod random;
mod run;
mod shrink;
mod spec;
mod worlds;

use harness::all;
use ops::Op;
use run::{Failure, On, Start};

/// Operations on each engine if `PARITY_OPS` is not set.
const FEW_OPS: usize = 200_000;

fn exact(on: On) {
    all((&format!("{on:?}"), FEW_OPS), generate::any, &|start, ops| run::run(on, start, ops).err());
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

/// Answers depend on hashes where buckets share a slot for their rollbacks, so a list counts as failing
/// only if it fails in several tables.
#[test]
fn both_tables_keep_bound_and_answer_alike() {
    let once = |start: &Start, ops: &[Op]| {
        let both = [On::LockFree, On::Exact].map(|on| bound::run(on, start, ops));
        match both {
            [Err(failure), _] | [_, Err(failure)] => Some(failure),
            [Ok((free, _)), Ok((exact, _))] => {
                let is_alike =
                    start.cap.is_some() || generate::has_ends(start, ops) || free == exact;
                if is_alike {
                    return None;
                }
                let at = free.iter().zip(&exact).position(|(free, exact)| free != exact);
                let at = at.unwrap_or(0);
                let text = format!("answer {at}: {}\n    exact: {}", free[at], exact[at]);
                Some(Failure { at: ops.len(), text })
            }
        }
    };
    let again = |start: &Start, ops: &[Op]| (0..3).fold(None, |_, _: i32| once(start, ops));
    let often = |start: &Start, ops: &[Op]| once(start, ops).and_then(|_| again(start, ops));
    all(("Bound", FEW_OPS), generate::any_bound, &often);
}
