//! Measures the longest calls while a table grows from empty, and while a sweep drops all of its cells; and the same for
//! a table whose memory is reserved at the start.
//!
//! The figure is the processor time of the calling thread, so that other threads and processes do not count. Interrupts
//! of the kernel and the host of a virtual machine still may. The first two rows are loops without a limiter, of the
//! same length: their long calls are the machine's.
//!
//! Times are reduced by the cost of the fresh pages that a call touched. "Unfaulted" calls touched none; "raw" times
//! are not reduced.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Parser;
use governor::clock::FakeRelativeClock;
use rivals::keys::Keys;
use rivals::limiters::{self, Governor, TEXT, TableArgs};
use rivals::meter::{FaultCost, Figures, Meter};
use rivals::random::Random;
use rivals::rule::Rule;
use rivals::verdict::print_at_most;
use tollgate::{Clock, Limiter, LimiterOptions};

/// Measures the longest calls while a table grows and while it is swept, beside governor's.
#[derive(Parser)]
struct Args {
    /// The number of keys that are inserted and swept.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Runs of Tollgate. A pause of Tollgate comes in each run; a pause of the machine does not.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Leaves governor out.
    #[arg(long)]
    alone: bool,
    #[command(flatten)]
    table: TableArgs,
}

/// The threads that spend while another thread sweeps.
const SPENDERS: u64 = 2;
/// The fewest calls of each spending thread, however soon the sweep ends.
const MIN_CALLS: usize = 10_000;
/// The time for which spends are measured without a sweep.
const CALM: Duration = Duration::from_secs(2);
/// The cells of one sweep step.
const SWEEP_CELLS: usize = 4_096;
/// The iterations of a loop about as long as an insert: interrupts come by time, not by call.
const COUNTED: u32 = 1_500;
/// The uncached cache lines of a loop of about that length.
const LINES: usize = 5;
const LINE_BYTES: usize = 64;
/// The bytes of the array per key: about those of a table.
const LINE_BYTES_PER_KEY: usize = 64;
/// A prime, so that the loop reaches all lines.
const STRIDE: usize = 1_000_003;
/// Sweep passes: a table may need one to decide and one to free memory.
const PASSES: usize = 3;
/// About the memory that a run touches per key; it is touched once before, so that the host has it ready.
const BYTES_PER_KEY: usize = 300;

const MAX_US: f64 = Figures::LONG_NS as f64 / 1e3;
const P9999_US: f64 = 10.0;
/// The most that 999 of 1,000 inserts into a reserved table may take.
const RESERVED_P999_US: f64 = 3.0;
/// The most by which the 99.99th percentile of inserts into a reserved table may be above that of doing nothing.
const RESERVED_P9999_RATIO: f64 = 1.1;
/// The most by which the 99.99th percentile of spends may rise beside a sweep.
const P9999_RATIO: f64 = 1.3;

const HEADER: [&str; 12] = [
    "microseconds",
    "calls",
    "p50",
    "p99.9",
    "p99.99",
    "max",
    "> 200",
    "unfaulted p99.99",
    "unfaulted max",
    "unfaulted > 200",
    "raw max",
    "faults",
];

/// governor with ahash, its faster hasher.
type AhashGovernor = Governor<String, ahash::RandomState, FakeRelativeClock>;

fn main() {
    let args = Args::parse();
    let keys = &Keys::new(args.keys as usize);
    let fault = FaultCost::calibrate(keys.count() * BYTES_PER_KEY);
    println!(
        "a fresh page costs {:.2} us of processor time (median; p99.99 {:.2}, max {:.2})",
        us(fault.median_ns),
        us(fault.p9999_ns),
        us(fault.max_ns)
    );

    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(HEADER);
    let mut add = |name: &str, meters: Vec<Meter>| {
        let figures = Meter::figures(meters, fault);
        table.add_row(cells(name, &figures));
        eprintln!("{name}: max {:.1} us", us(figures.max_ns));
        figures
    };

    let nothing_p9999_ns = add("nothing, as often", vec![nothing(keys, 0)]).p9999_ns;
    add("counting, as long", vec![nothing(keys, COUNTED)]);
    add("reading memory, as long", vec![reading(keys)]);
    let mut run = |name, options: LimiterOptions| {
        let runs: Vec<Run> =
            (0..args.runs).map(|_| run_tollgate(keys, name, options.clone(), &mut add)).collect();
        runs
    };
    let runs = run("tollgate", args.table.options());
    let reserved = run("reserved", args.table.options().reserve(keys.count()));
    if !args.alone {
        run_governor(keys, &mut add);
    }
    println!("{table}\n");
    println!("Each figure is the median of {} runs:", args.runs);
    print_verdicts("insert", runs.iter().map(|run| &run.inserts));
    print_verdicts("spend beside a sweep", runs.iter().map(|run| &run.spends));
    let ratio = |run: &Run| f64::from(run.spends.p9999_ns) / f64::from(run.calm.p9999_ns);
    let mut ratios: Vec<f64> = runs.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    print_at_most("p99.99 beside a sweep", median, P9999_RATIO, " times that without");
    let inserts: Vec<&Figures> = reserved.iter().map(|run| &run.inserts).collect();
    let faults = inserts.iter().map(|figures| figures.faults).max().unwrap_or(0);
    print_at_most("reserved: faults of all inserts, in the worst run", faults as f64, 0.0, "");
    let p999_us = median_us(&inserts, |figures| figures.p999_ns);
    print_at_most("reserved: insert, p99.9", p999_us, RESERVED_P999_US, " us");
    let ratio = median_us(&inserts, |figures| figures.p9999_ns) / us(nothing_p9999_ns);
    print_at_most("reserved: insert, p99.99", ratio, RESERVED_P9999_RATIO, " times nothing's");
}

fn median_us(runs: &[&Figures], figure: fn(&Figures) -> u32) -> f64 {
    let mut figures: Vec<u32> = runs.iter().map(|run| figure(run)).collect();
    figures.sort_unstable();
    us(figures[figures.len() / 2])
}

fn print_verdicts<'a>(what: &str, runs: impl Iterator<Item = &'a Figures>) {
    let runs: Vec<&Figures> = runs.collect();
    let median_us = |figure| median_us(&runs, figure);
    let max_us = median_us(|figures| figures.max_ns);
    print_at_most(&format!("{what}, max"), max_us, MAX_US, " us");
    let max_us = median_us(|figures| figures.unfaulted_max_ns);
    print_at_most(&format!("{what}, max of calls without a fault"), max_us, MAX_US, " us");
    let p9999_us = median_us(|figures| figures.p9999_ns);
    print_at_most(&format!("{what}, p99.99"), p9999_us, P9999_US, " us");
    let p9999_us = median_us(|figures| figures.unfaulted_p9999_ns);
    print_at_most(&format!("{what}, p99.99 of calls without a fault"), p9999_us, P9999_US, " us");
}

/// The figures of one run that have targets.
struct Run {
    inserts: Figures,
    /// Without a sweep.
    calm: Figures,
    spends: Figures,
}

/// Adds a row and returns its figures.
type Add<'a> = &'a mut dyn FnMut(&str, Vec<Meter>) -> Figures;

/// Measures loops that count to `counted` in registers: long ones are the machine's.
fn nothing(keys: &Keys, counted: u32) -> Meter {
    let mut meter = Meter::with_room(keys.count());
    for i in keys.all() {
        meter.time(|| {
            (0..counted).for_each(|n| _ = black_box(n));
            black_box(i)
        });
    }
    meter
}

/// Measures loops that read [`LINES`] scattered lines of a large array: an interrupt then finds the caches as cold as
/// while a table is in use.
fn reading(keys: &Keys) -> Meter {
    let count = keys.count() * LINE_BYTES_PER_KEY / LINE_BYTES;
    let lines = vec![[1_u64; LINE_BYTES / size_of::<u64>()]; count];
    let mut meter = Meter::with_room(keys.count());
    let mut at = 0;
    for _ in keys.all() {
        meter.time(|| {
            for _ in 0..LINES {
                // The value of one line decides the next, so the reads come one after the other.
                at = (at + lines[at][0] as usize * STRIDE) % count;
            }
            black_box(at)
        });
    }
    meter
}

fn run_tollgate(keys: &Keys, name: &str, options: LimiterOptions, add: Add<'_>) -> Run {
    let (clock, hand) = Clock::manual();
    let limiter = limiters::tollgate(Rule::refilling(), options.clock(clock));
    let handle = limiters::handle(&limiter, TEXT);
    let spend = |key: &str| handle.spend(key, 1).is_ok_and(|decision| decision.allowed());
    let inserts = insert_all(keys, spend);
    assert_eq!(limiter.stats().cells, keys.count(), "each key has a cell");
    hand.advance(Rule::REFILLED);
    let (calm, _) = under_load(keys, || spend, |_| thread::sleep(CALM));
    hand.advance(Rule::REFILLED);
    let (spends, sweeper) = under_load(keys, || spend, |meter| sweep(&limiter, meter));
    let stats = limiter.stats();
    let spent = spends.iter().map(Meter::calls).sum::<usize>();
    println!(
        "{name}: {} cells were swept; {} are left, {spent} spends were made",
        stats.swept, stats.cells
    );
    let inserts = add(&format!("{name} insert"), vec![inserts]);
    let calm = add(&format!("{name} spend without a sweep"), calm);
    let spends = add(&format!("{name} spend beside a sweep"), spends);
    add(&format!("{name} step of the sweep"), vec![sweeper]);
    Run { inserts, calm, spends }
}

fn run_governor(keys: &Keys, add: Add<'_>) {
    let clock = FakeRelativeClock::default();
    let limiter: AhashGovernor = limiters::governor(Rule::refilling(), clock.clone());
    let limiter = &limiter;
    let check = || {
        let mut key = String::with_capacity(32);
        move |text: &str| {
            key.clear();
            key.push_str(text);
            limiter.check_key(&key).is_ok()
        }
    };
    let inserts = insert_all(keys, check());
    clock.advance(Rule::REFILLED);
    let (checks, sweeper) = under_load(keys, check, |meter| meter.time(|| limiter.retain_recent()));
    add("governor insert", vec![inserts]);
    add("governor check beside retain_recent", checks);
    add("governor retain_recent, one call", vec![sweeper]);
}

fn insert_all(keys: &Keys, mut insert: impl FnMut(&str) -> bool) -> Meter {
    let mut meter = Meter::with_room(keys.count());
    for i in keys.all() {
        let key = keys.text(i);
        assert!(meter.time(|| insert(key)), "a new key is allowed");
    }
    meter
}

/// Measures calls on random keys by several threads, while another thread sweeps.
fn under_load<C: FnMut(&str) -> bool>(
    keys: &Keys,
    call: impl Fn() -> C + Sync,
    sweep: impl FnOnce(&mut Meter) + Send,
) -> (Vec<Meter>, Meter) {
    let swept = &AtomicBool::new(false);
    let call = &call;
    thread::scope(|scope| {
        let spend = move |stream| {
            let mut call = call();
            let mut random = Random::new(stream);
            let mut meter = Meter::with_room(MIN_CALLS);
            // Relaxed: the flag publishes no other memory.
            while meter.calls() < MIN_CALLS || !swept.load(Ordering::Relaxed) {
                let key = keys.text(random.below(keys.count()));
                assert!(meter.time(|| call(key)), "a key that was full is allowed");
            }
            meter
        };
        let spenders: Vec<_> =
            (1..=SPENDERS).map(|stream| scope.spawn(move || spend(stream))).collect();
        let sweeper = scope.spawn(move || {
            let mut meter = Meter::default();
            sweep(&mut meter);
            // Relaxed: as above.
            swept.store(true, Ordering::Relaxed);
            meter
        });
        let sweeper = sweeper.join().unwrap();
        (spenders.into_iter().map(|spender| spender.join().unwrap()).collect(), sweeper)
    })
}

fn sweep(limiter: &Limiter, meter: &mut Meter) {
    for _ in 0..PASSES {
        // Bounded by the cells of the table: each step visits some or ends the pass.
        while !meter.time(|| limiter.sweep(SWEEP_CELLS)).finished {}
    }
}

fn cells(name: &str, figures: &Figures) -> [String; HEADER.len()] {
    let time = |ns| format!("{:.2}", us(ns));
    [
        name.to_string(),
        figures.calls.to_string(),
        time(figures.p50_ns),
        time(figures.p999_ns),
        time(figures.p9999_ns),
        time(figures.max_ns),
        figures.long.to_string(),
        time(figures.unfaulted_p9999_ns),
        time(figures.unfaulted_max_ns),
        figures.unfaulted_long.to_string(),
        time(figures.raw_max_ns),
        figures.faults.to_string(),
    ]
}

fn us(ns: u32) -> f64 {
    f64::from(ns) / 1e3
}
