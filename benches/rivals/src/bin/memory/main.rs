//! Measures the bytes per key while a table grows from empty, and the bytes that are left after all buckets are full
//! and swept.
//!
//! Live bytes are those of this program's allocator and those that Tollgate maps directly.

mod counting;

use std::hash::BuildHasher;

use clap::Parser;
use governor::clock::FakeRelativeClock;
use rivals::keys::Keys;
use rivals::limiters::{self, Governor, TEXT, TableArgs};
use rivals::rule::Rule;
use rivals::verdict::print_at_most;
use tollgate::{Clock, Limiter};

use crate::counting::{Counting, live_bytes};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measures live bytes per string key, beside governor's.
#[derive(Parser)]
struct Args {
    /// The number of keys. A step is a sixth of them, the comparison is at two thirds, and the maximum is searched in
    /// the second half.
    #[arg(long, default_value_t = 6_000_000, value_parser = clap::value_parser!(u32).range(6..))]
    keys: u32,
    #[command(flatten)]
    table: TableArgs,
}

/// The bytes per key after each sixth of the keys, and the maximum after any insert of the second half.
struct Growth {
    steps: [f64; STEPS],
    worst: f64,
    worst_at: usize,
    peak_bytes: usize,
}

const STEPS: usize = 6;
/// The step at which the limiters are compared: four of six million.
const COMPARED: usize = 3;
/// The cells of one sweep step.
const SWEEP_CELLS: usize = 16_384;
/// Sweep passes: each may free memory that an earlier one retired.
const PASSES: usize = 4;

fn main() {
    let args = Args::parse();
    let keys = &Keys::new(args.keys as usize);
    let before = live_bytes();
    let (clock, hand) = Clock::manual();
    let limiter = limiters::tollgate(Rule::refilling(), args.table.options().clock(clock));
    let handle = limiters::handle(&limiter, TEXT);
    let mapped = || limiter.stats().mapped_bytes;
    let ours = grow(
        "tollgate",
        keys,
        || live_bytes() + mapped() - before,
        |key| {
            assert!(handle.spend(key, 1).is_ok_and(|decision| decision.allowed()), "a new key");
        },
    );
    let default = grow_governor::<std::hash::RandomState>("governor (default hasher)", keys);
    let ahash = grow_governor::<ahash::RandomState>("governor (ahash)", keys);
    print_growth(keys.count(), [&ours, &default, &ahash]);

    let governor = default.steps[COMPARED].min(ahash.steps[COMPARED]);
    let at = compared_at(keys.count());
    let bytes = ours.steps[COMPARED];
    print_at_most(&format!("bytes a key at {at}"), bytes, 72.0, "");
    print_at_most(&format!("of governor's at {at}"), bytes / governor, 0.75, "");
    let what = format!("bytes a key at the worst, at {} keys", ours.worst_at);
    print_at_most(&what, ours.worst, 96.0, "");

    assert_eq!(limiter.stats().cells, keys.count(), "each key has a cell");
    hand.advance(Rule::REFILLED);
    sweep(&limiter, before, ours.peak_bytes);
}

fn compared_at(keys: usize) -> usize {
    keys * (COMPARED + 1) / STEPS
}

/// Inserts all keys; `bytes` returns the limiter's live bytes.
fn grow(
    name: &str,
    keys: &Keys,
    bytes: impl Fn() -> usize,
    mut insert: impl FnMut(&str),
) -> Growth {
    eprintln!("{name}: {} inserts", keys.count());
    let mut growth = Growth { steps: [0.0; STEPS], worst: 0.0, worst_at: 0, peak_bytes: 0 };
    for i in keys.all() {
        insert(keys.text(i));
        let inserted = i as usize + 1;
        let bytes = bytes();
        growth.peak_bytes = growth.peak_bytes.max(bytes);
        let bytes_per_key = bytes as f64 / inserted as f64;
        if let Some(step) = (0..STEPS).find(|step| keys.count() * (step + 1) / STEPS == inserted) {
            growth.steps[step] = bytes_per_key;
        }
        if inserted >= keys.count() / 2 && bytes_per_key > growth.worst {
            growth.worst = bytes_per_key;
            growth.worst_at = inserted;
        }
    }
    growth
}

fn grow_governor<S: BuildHasher + Default + Clone>(name: &str, keys: &Keys) -> Growth {
    let mut key = String::with_capacity(32);
    let before = live_bytes();
    let limiter: Governor<String, S, _> =
        limiters::governor(Rule::refilling(), FakeRelativeClock::default());
    let growth = grow(
        name,
        keys,
        || live_bytes() - before,
        |text| {
            key.clear();
            key.push_str(text);
            assert!(limiter.check_key(&key).is_ok(), "a new key");
        },
    );
    assert_eq!(limiter.len(), keys.count(), "each key has an entry");
    growth
}

fn print_growth(keys: usize, [ours, default, ahash]: [&Growth; 3]) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["keys", "tollgate", "governor (default)", "governor (ahash)"]);
    let row = |name: String, figure: &dyn Fn(&Growth) -> f64| {
        let cell = |growth| format!("{:.1}", figure(growth));
        [name, cell(ours), cell(default), cell(ahash)]
    };
    for step in 0..STEPS {
        let name = (keys * (step + 1) / STEPS).to_string();
        table.add_row(row(name, &|growth| growth.steps[step]));
    }
    let worst = format!("worst, {} to {keys}", keys / 2);
    table.add_row(row(worst, &|growth| growth.worst));
    table.add_row(row("peak, MB in all".into(), &|growth| growth.peak_bytes as f64 / 1e6));
    println!("Live bytes a key, all told, grown from empty:\n{table}\n");
}

/// Sweeps a limiter whose buckets are all full, and prints the bytes that are left as a share of the peak.
fn sweep(limiter: &Limiter, before: usize, peak_bytes: usize) {
    let bytes = || live_bytes() + limiter.stats().mapped_bytes - before;
    let share = || bytes() as f64 * 100.0 / peak_bytes as f64;
    let mut swept = share();
    for pass in 1..=PASSES {
        // Bounded by the cells of the table: each step visits some or ends the pass.
        while !limiter.sweep(SWEEP_CELLS).finished {}
        swept = share();
        println!("after pass {pass} of the sweep: {swept:.2} % of the peak is live");
    }
    let stats = limiter.stats();
    println!("cells left: {}, bytes by the limiter's own count: {}", stats.cells, stats.bytes);
    assert_eq!(stats.cells, 0, "all cells were full");
    print_at_most("live after the sweep, of the peak", swept, 5.0, " %");
}
