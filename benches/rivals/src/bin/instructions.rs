//! Makes calls of one known key for callgrind; `instructions.sh` runs it.
//!
//! Count the instructions inside `measured` for two numbers of calls. The difference of the counts over the difference
//! of the calls is the cost of one call.

use std::hash::{BuildHasher, RandomState};

use clap::{Parser, ValueEnum};
use governor::clock::DefaultClock;
use rivals::limiters::{self, Governor, NUMBER, TEXT, TableArgs, handle};
use rivals::rule::Rule;

/// Makes calls of one known key; `instructions.sh` counts their instructions.
#[derive(Parser)]
struct Args {
    who: Who,
    work: Work,
    #[arg(long, default_value_t = 1_000)]
    calls: usize,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Who {
    Tollgate,
    GovernorDefault,
    GovernorAhash,
}

#[derive(Clone, Copy, ValueEnum)]
enum Work {
    AllowedString,
    DeniedString,
    AllowedU64,
    DeniedU64,
}

const TEXT_KEY: &str = "6:3141592653";
const NUMBER_KEY: u64 = 3_141_592_653;

fn main() {
    let args = Args::parse();
    let allowed = matches!(args.work, Work::AllowedString | Work::AllowedU64);
    let rule = if allowed { Rule::ample(args.calls + 1) } else { Rule::scarce() };
    let right = match args.who {
        Who::Tollgate => tollgate(&args, rule, allowed),
        Who::GovernorDefault => governor::<RandomState>(&args, rule, allowed),
        Who::GovernorAhash => governor::<ahash::RandomState>(&args, rule, allowed),
    };
    assert_eq!(right, args.calls, "every call is answered as it has to be");
}

fn tollgate(args: &Args, rule: Rule, allowed: bool) -> usize {
    let limiter = limiters::tollgate(rule, args.table.options());
    let is_allowed = |decision: Result<tollgate::Decision, _>| decision.unwrap().allowed();
    match args.work {
        Work::AllowedString | Work::DeniedString => {
            let handle = handle(&limiter, TEXT);
            run(args.calls, TEXT_KEY, allowed, |key| is_allowed(handle.spend(key, 1)))
        }
        Work::AllowedU64 | Work::DeniedU64 => {
            let handle = handle(&limiter, NUMBER);
            run(args.calls, NUMBER_KEY, allowed, |key| is_allowed(handle.spend(key, 1)))
        }
    }
}

fn governor<S: BuildHasher + Default + Clone>(args: &Args, rule: Rule, allowed: bool) -> usize {
    let clock = DefaultClock::default();
    match args.work {
        Work::AllowedString | Work::DeniedString => {
            let limiter: Governor<String, S, _> = limiters::governor(rule, clock);
            let key = TEXT_KEY.to_string();
            run(args.calls, &key, allowed, |key| limiter.check_key(key).is_ok())
        }
        Work::AllowedU64 | Work::DeniedU64 => {
            let limiter: Governor<u64, S, _> = limiters::governor(rule, clock);
            run(args.calls, NUMBER_KEY, allowed, |key| limiter.check_key(&key).is_ok())
        }
    }
}

/// Makes the key known, then makes the calls; returns the number of expected answers.
fn run<K: Copy>(calls: usize, key: K, allowed: bool, call: impl Fn(K) -> bool) -> usize {
    assert!(call(key), "a new key is allowed");
    measured(calls, key, allowed, call)
}

/// The function that callgrind counts, with all functions that it calls.
#[inline(never)]
fn measured<K: Copy>(calls: usize, key: K, allowed: bool, call: impl Fn(K) -> bool) -> usize {
    (0..calls).filter(|_| call(std::hint::black_box(key)) == allowed).count()
}
