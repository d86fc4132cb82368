//! Measures a spend with counters beside a spend without.

use clap::Parser;
use rivals::keys::Keys;
use rivals::limiters::{self, TEXT, handle};
use rivals::random::Random;
use rivals::rule::Rule;
use rivals::turns::{Turns, round_ns};
use rivals::verdict::print_at_most;
use tollgate::LimiterOptions;

/// Nanoseconds per spend, with counters and without.
#[derive(Parser)]
struct Args {
    /// Sets of limiters.
    #[arg(long, default_value_t = 5)]
    sets: usize,
    /// Rounds of each set.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Calls a round.
    #[arg(long, default_value_t = 1_000_000)]
    calls: usize,
}

const AT_MOST: f64 = 1.1;

fn main() {
    let args = Args::parse();
    for count in [1, 100_000] {
        let keys = Keys::new(count);
        let rule = Rule::ample(args.calls * args.rounds + 1);
        let order = Random::new(0).order(args.calls, count);
        let all: Vec<u32> = (0..count as u32).collect();
        let mut turns = Turns::default();
        for set in 0..args.sets {
            let made =
                |counting| limiters::tollgate(rule, LimiterOptions::default().counting(counting));
            // The limiter that is made first alternates, because the place of a table in memory changes a ratio.
            let limiters = if set.is_multiple_of(2) {
                [made(false), made(true)]
            } else {
                let counting = made(true);
                [made(false), counting]
            };
            let handles = limiters.each_ref().map(|limiter| handle(limiter, TEXT));
            for handle in &handles {
                round_ns(handle, &keys, &all);
            }
            turns.measure(&handles, &keys, &order, args.rounds);
            let counted = &limiters[1].counters().limits[0];
            assert_eq!(counted.allowed, (args.calls * args.rounds + count) as u64);
        }
        let [without, with] = turns.medians();
        println!("{count} keys: {without:.1} ns not counted, {with:.1} ns counted");
        print_at_most(
            &format!("{count} keys, counted, of not counted"),
            with / without,
            AT_MOST,
            "",
        );
    }
}
