//! Measures Tollgate beside governor 0.10.4, rate-net 2, tower_governor, others and the floor, in one run on one machine.
//!
//! Each row is the median of interleaved rounds. In a round every contender makes the same calls with the same keys in
//! the same order; the one that begins changes from round to round. Every answer is checked. The ratios count, because
//! the times change with the machine's load.

mod cases;
mod rounds;
mod table;
mod targets;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Parser;
use rivals::limiters::TableArgs;
use rivals::machine;
use rivals::random::Random;
use rivals::work::{Outcome, Setup};
use serde::Serialize;

use crate::cases::Case;
use crate::table::{Row, print_table};

/// Tollgate beside governor and rate-net: nanoseconds a call.
#[derive(Parser)]
struct Args {
    /// Measures all rows, which takes hours.
    #[arg(long)]
    all: bool,
    /// Measures one key that all threads call, and 1,000,000 keys, for 1, 2, 4 and more threads, as many as the machine has.
    #[arg(long, conflicts_with = "all")]
    curves: bool,
    /// Checks the answers of all rows with few keys and calls; the times mean nothing.
    #[arg(long)]
    quick: bool,
    /// Also writes the machine and the rows as JSON to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Interleaved rounds of each row; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Calls a round, over all threads.
    #[arg(long, default_value_t = 500_000)]
    calls: usize,
    /// Only rows with at most this number of keys.
    #[arg(long, default_value_t = 10_000_000)]
    most_keys: usize,
    /// Only rows whose name has this in it, such as `denied`.
    #[arg(long, default_value = "")]
    only: String,
    /// Only rows with this number of keys.
    #[arg(long)]
    only_keys: Option<usize>,
    /// Makes the floor read the clock after the cell's word. A processor that completes earlier loads before it reads
    /// the clock then waits for the key and the cell in sequence. No target uses this.
    #[arg(long)]
    late_clock: bool,
    #[command(flatten)]
    table: TableArgs,
}

/// The keys, calls and rounds of a quick run.
const QUICK: (usize, usize, usize) = (10_000, 20_000, 1);

/// What `--json` writes.
#[derive(Serialize)]
struct Report {
    machine: String,
    rows: Vec<Row>,
}

fn main() -> std::io::Result<()> {
    let mut args = Args::parse();
    let mut cases = match (args.all, args.curves) {
        (true, _) => cases::all(),
        (_, true) => cases::curves(),
        _ => cases::common(),
    };
    cases.retain(|case| {
        let has_keys = case.keys <= args.most_keys && args.only_keys.is_none_or(|n| n == case.keys);
        has_keys && case.name().contains(&args.only)
    });
    if args.quick {
        (_, args.calls, args.rounds) = QUICK;
        cases = cases.into_iter().map(|case| case.with_at_most(QUICK.0)).collect();
        let mut seen = HashSet::new();
        cases.retain(|case| seen.insert((case.name(), case.keys, case.rows.clone())));
    }
    let machine = machine::description();
    println!("{machine}\n");
    let mut rows = Vec::new();
    for (done, case) in cases.iter().enumerate() {
        eprintln!("{} of {}: {}, {} keys", done + 1, cases.len(), case.name(), case.keys);
        rows.extend(measure(&args, case));
    }
    if args.quick {
        rows.iter_mut().for_each(|row| row.at_most = None);
    }
    print_table(&rows);
    if let Some(path) = args.json {
        std::fs::write(path, serde_json::to_string_pretty(&Report { machine, rows })?)?;
    }
    Ok(())
}

/// Measures the rows of a case, on the same tables.
fn measure(args: &Args, case: &Case) -> Vec<Row> {
    let setup = Setup {
        work: case.work,
        outcome: case.outcome,
        keys: case.keys,
        // A key may get all calls of all rows, and one call before them.
        most_calls: args.calls * args.rounds * case.rows.len() + 1,
        late_clock: args.late_clock,
        table: args.table,
    };
    let make = setup.contenders();
    let contenders = if case.outcome == Outcome::New { Vec::new() } else { make() };
    rounds::fill(&contenders, setup);
    let mut rows = Vec::new();
    for &(spread, threads) in &case.rows {
        let medians = if case.outcome == Outcome::New {
            rounds::of_new(&make, setup, args.rounds)
        } else {
            let order = Random::new(0).order_with(spread, args.calls, case.keys);
            rounds::of_known(&contenders, setup, &order, threads, args.rounds)
        };
        rows.push(Row::new(case, (spread, threads), &medians, &rows));
    }
    rows
}
