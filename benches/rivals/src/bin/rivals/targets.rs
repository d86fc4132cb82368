//! Compares the rows with their targets.

use rivals::verdict::{print_at_least, print_at_most};

use crate::table::Row;
use crate::work::Work;

/// The largest allowed share of another limiter's time.
struct Target {
    work: Work,
    keys: usize,
    threads: usize,
    of_governor: f64,
    of_rate_net: Option<f64>,
}

const fn target(work: Work, keys: usize, threads: usize, of: (f64, Option<f64>)) -> Target {
    Target { work, keys, threads, of_governor: of.0, of_rate_net: of.1 }
}

const TARGETS: [Target; 8] = [
    target(Work::SpendString, 1, 1, (0.66, Some(0.40))),
    target(Work::SpendString, 100_000, 1, (0.52, Some(0.30))),
    target(Work::SpendString, 4_000_000, 1, (0.28, Some(0.36))),
    target(Work::SpendString, 4_000_000, 2, (0.35, Some(0.40))),
    target(Work::SpendU64, 10_000_000, 1, (0.50, None)),
    target(Work::Many16String, 4_000_000, 1, (0.12, Some(0.16))),
    target(Work::DeniedString, 1, 2, (0.20, None)),
    target(Work::DeniedString, 4_000_000, 2, (0.30, None)),
];

/// The largest allowed share of the floor's time: (keys, share).
const OF_FLOOR: [(usize, f64); 2] = [(1, 1.7), (4_000_000, 1.35)];
/// The least scaling of one key's denials, as a share of the floor's scaling.
const SCALING: f64 = 0.95;

/// Prints a line for each target whose rows were measured.
pub(crate) fn print_targets(rows: &[Row]) {
    println!();
    for target in &TARGETS {
        let Some(row) = find(rows, target.work, target.keys, target.threads) else {
            continue;
        };
        let name = name(row);
        print_at_most(&format!("{name}, of governor"), row.of_governor(), target.of_governor, "");
        if let Some(of_rate_net) = target.of_rate_net {
            print_at_most(&format!("{name}, of rate-net"), row.of_rate_net(), of_rate_net, "");
        }
    }
    for (keys, share) in OF_FLOOR {
        for row in rows.iter().filter(|row| row.keys == keys) {
            print_at_most(&format!("{}, of floor", name(row)), row.of_floor(), share, "");
        }
    }
    print_scaling(rows);
}

/// Computes the scaling of one key's denials from one thread to two, as a share of the floor's.
fn print_scaling(rows: &[Row]) {
    let row = |threads| find(rows, Work::DeniedString, 1, threads);
    let (Some(one), Some(two)) = (row(1), row(2)) else {
        return;
    };
    // Times are divided by the calls of all threads: half the time is twice the calls in the same time.
    let tollgate = one.tollgate_ns / two.tollgate_ns;
    let floor = one.floor_ns / two.floor_ns;
    println!(
        "denied string, 1 keys, one thread to two: tollgate x{tollgate:.2}, floor x{floor:.2}"
    );
    print_at_least("scaling of denials, of the floor's", tollgate / floor, SCALING, "");
}

fn find(rows: &[Row], work: Work, keys: usize, threads: usize) -> Option<&Row> {
    let is_it = |row: &&Row| (row.work, row.keys, row.threads) == (work.name(), keys, threads);
    rows.iter().find(is_it)
}

fn name(row: &Row) -> String {
    format!("{}, {} keys, {} threads", row.work, row.keys, row.threads)
}
