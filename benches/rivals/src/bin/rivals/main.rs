//! Measures Tollgate beside governor 0.10.4, rate-net 2 and the floor, in one run on one machine.
//!
//! Each row is the median of interleaved rounds. In a round every contender makes the same calls with the same keys in
//! the same order; the one that begins changes from round to round. Every answer is checked. The ratios count, because
//! the times change with the machine's load.

mod contenders;
mod floor;
mod rounds;
mod table;
mod targets;
mod work;

use std::path::PathBuf;

use clap::Parser;
use rivals::keys::Keys;
use rivals::limiters::TableArgs;
use rivals::random::Random;
use rivals::rule::Rule;

use crate::contenders::Contender;
use crate::rounds::Rounds;
use crate::table::{Row, print_table};
use crate::targets::print_targets;
use crate::work::Work;

/// Tollgate beside governor and rate-net: nanoseconds a call.
#[derive(Parser)]
struct Args {
    /// Also writes the table as JSON to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Interleaved rounds of each row; the median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Calls a round, over all threads.
    #[arg(long, default_value_t = 2_000_000)]
    calls: usize,
    /// Only rows with at most this number of keys.
    #[arg(long, default_value_t = 10_000_000)]
    most_keys: usize,
    /// Only rows whose work has this in its name, such as `denied`.
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

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let mut rows = Vec::new();
    for work in Work::ALL.into_iter().filter(|work| work.name().contains(&args.only)) {
        for &keys in work.key_counts() {
            if keys <= args.most_keys && args.only_keys.is_none_or(|only| only == keys) {
                rows.extend(measure(&args, work, keys));
            }
        }
    }
    print_table(&rows);
    print_targets(&rows);
    if let Some(path) = args.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(())
}

/// Measures the rows of one work over a number of keys: one row for each number of threads, on the same tables.
fn measure(args: &Args, work: Work, count: usize) -> Vec<Row> {
    let keys = Keys::new(count);
    let order = Random::new(0).order(args.calls, count);
    // A key may get all calls of all rows, and one call before them.
    let calls_in_all = args.calls * args.rounds * work.threads().len() + 1;
    let rule = if work.is_denied() { Rule::scarce() } else { Rule::ample(calls_in_all) };
    let contenders: [Box<dyn Contender>; 5] = [
        contenders::tollgate(work, rule, args.table.options()),
        contenders::governor::<std::hash::RandomState>(work, rule),
        contenders::governor::<ahash::RandomState>(work, rule),
        contenders::rate_net(work, rule),
        floor::floor(work, count, args.late_clock),
    ];
    let rounds = Rounds { keys: &keys, order: &order, wanted: work.wanted(), count: args.rounds };
    rounds.fill(&contenders);
    let row = |&threads: &usize| {
        let ns = rounds.median_ns(&contenders, threads);
        let [tollgate_ns, default_ns, ahash_ns, rate_net_ns, floor_ns] = ns;
        let work = work.name();
        eprintln!(
            "{work}, {count} keys, {threads} threads: tollgate {tollgate_ns:.1}, governor \
             {default_ns:.1} (default hasher) {ahash_ns:.1} (ahash), rate-net {rate_net_ns:.1}, \
             floor {floor_ns:.1}"
        );
        let governor_ns = default_ns.min(ahash_ns);
        Row { work, threads, keys: count, tollgate_ns, governor_ns, rate_net_ns, floor_ns }
    };
    work.threads().iter().map(row).collect()
}
