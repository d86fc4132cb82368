//! Makes random runs, and prints the first that fails.

use super::ops::Op;
use super::run::Start;
use super::shrink::{self, Run};

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

/// Makes runs until they have the wanted number of operations, `few` if `PARITY_OPS` is not set. Panics with the failures, each as short as
/// possible.
pub(crate) fn all((on, few): (&str, usize), make: impl Fn(u64) -> (Start, Vec<Op>), run: Run<'_>) {
    if std::env::var("PARITY_ENGINE").is_ok_and(|wanted| wanted != on) {
        return;
    }
    let most_ops = number_of("PARITY_OPS").map_or(few, |ops| ops as usize);
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
