//! Runs random operations with all features on both engines, and compares each answer with an oracle in
//! plain integers.
//!
//! `PARITY_OPS=1000000 cargo test --all-features --test parity` runs that number of operations on each
//! engine. `PARITY_SEED` is the first run's seed, and `PARITY_ENGINE=Exact` selects one of the tests. A
//! failure prints its seed and a shortest list of operations that fails: put that list into `cases.rs`.
#![cfg(all(feature = "boulder", feature = "exact", feature = "snapshot", feature = "yaml"))]

mod answers;
mod bound;
mod cases;
mod generate;
mod ledger;
mod ops;
mod oracle;
mod rng;
mod run;
mod shrink;
mod spec;

use ops::Op;
use run::{Failure, On, Start};
use shrink::Run;

/// Operations on each engine if `PARITY_OPS` is not set.
const FEW_OPS: usize = 200_000;
/// Failures that are shrunk and printed before the test ends.
const MAX_FAILURES: usize = 1;

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn report(on: &str, seed: u64, (start, ops): (Start, Vec<Op>), run: Run<'_>) -> String {
    let (start, ops, failure) = shrink::shrunk(run, start, ops);
    let text = failure.as_ref().map_or("does not fail again", |failure| &failure.text);
    let mut list =
        format!("PARITY_SEED={seed} on {on}: {text}\nlet start = {start:?};\nlet ops = vec![\n");
    for op in &ops {
        list += &format!("    {op:?},\n");
    }
    list + "];\n"
}

/// Makes runs until they have the wanted number of operations. Panics with the failures, each as short as
/// possible.
fn all(on: &str, make: impl Fn(u64) -> (Start, Vec<Op>), run: Run<'_>) {
    if std::env::var("PARITY_ENGINE").is_ok_and(|wanted| wanted != on) {
        return;
    }
    let most_ops = number_of("PARITY_OPS").map_or(FEW_OPS, |ops| ops as usize);
    let most_failures = number_of("PARITY_FAILURES").map_or(MAX_FAILURES, |most| most as usize);
    let first = number_of("PARITY_SEED").unwrap_or(1);
    let mut failures = Vec::new();
    let (mut done, mut runs) = (0, 0);
    let began = std::time::Instant::now();
    while done < most_ops && failures.len() < most_failures {
        let seed = first + runs;
        let (start, ops) = make(seed);
        runs += 1;
        done += ops.len();
        if run(&start, &ops).is_some() {
            failures.push(report(on, seed, (start, ops), run));
        }
    }
    println!("{on}: {done} operations in {runs} runs, {:?}", began.elapsed());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn exact(on: On) {
    all(&format!("{on:?}"), generate::any, &|start, ops| run::run(on, start, ops).err());
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
    all("Bound", generate::any_bound, &often);
}
