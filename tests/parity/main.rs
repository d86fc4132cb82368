//! All features at once: random operations on both engines, beside an oracle in plain integers.
//!
//! `PARITY_OPS=1000000 cargo test --all-features --test parity` runs as many operations on each engine;
//! `PARITY_SEED` is the first run's seed, `PARITY_ENGINE=Exact` one of [`ALL`]. A failure prints its seed and a shortest list of operations that
//! fails, to be put into `cases.rs`.
#![cfg(all(feature = "snapshot", feature = "boulder"))]

mod cases;
mod generate;
mod known;
mod ops;
mod oracle;
mod rng;
mod run;
mod shrink;
mod spec;

use run::{ALL, On, Start, run};

/// Operations of a run of the whole suite, on each engine.
const FEW_OPS: usize = 30_000;
/// Failures that are made short and printed, before a run ends.
const MOST_FAILURES: usize = 1;

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Panics with a list that fails, as short as it can be made.
fn report(on: On, seed: u64, start: Start, ops: Vec<ops::Op>, first: &run::Failure) -> String {
    let (at, text) = (first.at, &first.text);
    let (start, ops, failure) = shrink::shrunk(on, start, ops);
    let short = failure.as_ref().map_or("does not fail again", |failure| &failure.text);
    let mut list =
        format!("PARITY_SEED={seed} on {on:?}: operation {at}: {text}\nshortest list: {short}\n");
    list += &format!("let start = {start:?};\nlet ops = vec![\n");
    for op in &ops {
        list += &format!("    {op:?},\n");
    }
    list + "];\n"
}

#[test]
fn engines_and_oracle_agree_over_random_operations() {
    let most_ops = number_of("PARITY_OPS").map_or(FEW_OPS, |ops| ops as usize);
    let most_failures = number_of("PARITY_FAILURES").map_or(MOST_FAILURES, |most| most as usize);
    let first = number_of("PARITY_SEED").unwrap_or(1);
    let mut failures = Vec::new();
    let wanted = std::env::var("PARITY_ENGINE").ok();
    for on in ALL.into_iter().filter(|on| wanted.as_ref().is_none_or(|it| *it == format!("{on:?}")))
    {
        let (mut done, mut runs) = (0, 0);
        let began = std::time::Instant::now();
        while done < most_ops && failures.len() < most_failures {
            let seed = first + runs;
            let (start, ops) = generate::any(seed);
            runs += 1;
            done += ops.len();
            if let Err(failure) = run(on, &start, &ops) {
                failures.push(report(on, seed, start, ops, &failure));
            }
        }
        println!("{on:?}: {done} operations in {runs} runs, {:?}", began.elapsed());
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
