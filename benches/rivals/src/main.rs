//! Tollgate beside governor 0.10.4 and rate-net 2, in one run on one machine.
//!
//! Each row is the median of interleaved rounds: in a round every limiter makes the same calls with
//! the same keys in the same order, and which one begins changes from round to round. Every answer is
//! checked. What counts is the ratio: the times move with the machine's other load.

mod limiters;
mod rounds;

use std::path::PathBuf;

use clap::Parser;
use serde::Serialize;

use crate::limiters::{Contender, governor_ahash, governor_default, rate_net, tollgate};
use crate::rounds::{Keys, Work, median_ns};

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
    /// Only rows with at most so many keys.
    #[arg(long, default_value_t = 4_000_000)]
    most_keys: usize,
}

/// One row of the table. `governor_ns` is the better of its two hashers.
#[derive(Serialize)]
struct Row {
    work: &'static str,
    threads: usize,
    keys: usize,
    tollgate_ns: f64,
    governor_ns: f64,
    rate_net_ns: f64,
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let mut rows = Vec::new();
    for work in [Work::SpendString, Work::SpendU64] {
        for keys in [1, 100_000, 4_000_000] {
            if keys > args.most_keys {
                continue;
            }
            let row_keys = Keys::new(keys, args.calls);
            let mut contenders: [Box<dyn Contender>; 4] =
                [tollgate(work), governor_default(work), governor_ahash(work), rate_net(work)];
            for threads in [1, 2] {
                let ns = median_ns(&mut contenders, &row_keys, work, threads, args.rounds);
                let [tollgate_ns, default_ns, ahash_ns, rate_net_ns] = ns;
                let governor_ns = default_ns.min(ahash_ns);
                let work = work.name();
                eprintln!("{work}, {keys} keys, {threads} threads: governor {default_ns:.1} (default hasher), {ahash_ns:.1} (ahash)");
                rows.push(Row { work, threads, keys, tollgate_ns, governor_ns, rate_net_ns });
            }
        }
    }
    print_table(&rows);
    if let Some(path) = args.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(())
}

fn print_table(rows: &[Row]) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["work", "keys", "threads", "tollgate", "governor", "rate-net", "of governor", "of rate-net"]);
    for row in rows {
        table.add_row([
            row.work.to_string(),
            row.keys.to_string(),
            row.threads.to_string(),
            format!("{:.1}", row.tollgate_ns),
            format!("{:.1}", row.governor_ns),
            format!("{:.1}", row.rate_net_ns),
            format!("{:.2}", row.tollgate_ns / row.governor_ns),
            format!("{:.2}", row.tollgate_ns / row.rate_net_ns),
        ]);
    }
    println!("{table}");
}
