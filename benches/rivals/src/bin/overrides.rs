//! Measures a spend with many overrides loaded beside a spend with none, for keys with an override and for others.
//!
//! The two limiters of a set have the same limits, keys and order, and take turns. The place of a table in memory
//! changes a ratio by more than the effect to measure, so each set makes its limiters anew.

use clap::Parser;
use rivals::keys::Keys;
use rivals::limiters::{self, TEXT, TableArgs, handle};
use rivals::random::Random;
use rivals::rule::Rule;
use rivals::turns::{Turns, round_ns};
use rivals::verdict::print_at_most;
use tollgate::Limiter;

/// Nanoseconds per spend, with overrides loaded and without.
#[derive(Parser)]
struct Args {
    /// The number of overrides.
    #[arg(long, default_value_t = 100_000)]
    overrides: usize,
    /// Sets of limiters.
    #[arg(long, default_value_t = 5)]
    sets: usize,
    /// Rounds of each set.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Calls a round.
    #[arg(long, default_value_t = 1_000_000)]
    calls: usize,
    #[command(flatten)]
    table: TableArgs,
}

/// The number of keys without an override.
const WITHOUT: usize = 100_000;
/// The number of keys with an override.
const WITH: usize = 1_000;
const AT_MOST: f64 = 1.05;

/// Called keys, `count` of them from `first` on, and the time of a call in each round, without overrides and with them.
struct Called {
    name: &'static str,
    first: u32,
    count: usize,
    turns: Turns,
}

fn main() {
    let args = Args::parse();
    // The keys from `WITHOUT` on have overrides, if any are loaded.
    let keys = Keys::new(WITHOUT + args.overrides.max(WITH));
    let called = |name, first: usize, count| Called {
        name,
        first: first as u32,
        count,
        turns: Turns::default(),
    };
    let mut all = [
        called("keys without an override", 0, WITHOUT),
        called("keys with an override", WITHOUT, WITH.min(args.overrides)),
    ];
    for set in 0..args.sets {
        eprintln!("set {} of {}", set + 1, args.sets);
        for called in all.iter_mut().filter(|called| called.count > 0) {
            called.measure(&args, &keys, set);
        }
    }
    for called in all.into_iter().filter(|called| called.count > 0) {
        let (name, count) = (called.name, called.count);
        let [none, loaded] = called.turns.medians();
        println!(
            "{count} {name}: {none:.1} ns with none loaded, {loaded:.1} ns with {}",
            args.overrides
        );
        print_at_most(&format!("{name}, of none loaded"), loaded / none, AT_MOST, "");
    }
}

impl Called {
    fn measure(&mut self, args: &Args, keys: &Keys, set: usize) {
        let rule = Rule::ample(args.calls * args.rounds + 1);
        let overridden = (WITHOUT..WITHOUT + args.overrides).map(|i| keys.text(i as u32));
        let limits = limiters::limits_with_overrides(rule, overridden).build();
        assert_eq!(limits.overrides(), args.overrides, "they are all loaded");
        let with = || Limiter::with_options(limits.clone(), args.table.options()).unwrap();
        let without = || limiters::tollgate(rule, args.table.options());
        // The limiter that is made first alternates.
        let limiters = if set.is_multiple_of(2) {
            [without(), with()]
        } else {
            let with = with();
            [without(), with]
        };
        let handles = limiters.each_ref().map(|limiter| handle(limiter, TEXT));
        let own: Vec<u32> = (self.first..self.first + self.count as u32).collect();
        for handle in &handles {
            round_ns(handle, keys, &own);
        }
        let order: Vec<u32> = Random::new(0)
            .order(args.calls, self.count)
            .into_iter()
            .map(|i| self.first + i)
            .collect();
        self.turns.measure(&handles, keys, &order, args.rounds);
    }
}
