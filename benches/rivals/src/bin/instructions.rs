//! Makes calls of one known key for callgrind; `instructions.sh` runs it.
//!
//! Count the instructions inside `measured` for two numbers of calls. The difference of the counts over the difference
//! of the calls is the cost of one call.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::{Parser, ValueEnum};
use governor::clock::DefaultClock;
use http::StatusCode;
use rivals::layers;
use rivals::limiters::{self, ADDRESS, Governor, NUMBER, TEXT, TableArgs, handle};
use rivals::rule::Rule;
use tollgate::http::Style;

/// Makes calls of one known key; `instructions.sh` counts their instructions.
#[derive(Parser)]
struct Args {
    who: Who,
    outcome: Outcome,
    work: Work,
    #[arg(long, default_value_t = 1_000)]
    calls: usize,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Who {
    Tollgate,
    /// For a layer tower_governor's, which takes this hasher alone.
    GovernorDefault,
    GovernorAhash,
    /// The service without a layer.
    Bare,
}

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
enum Outcome {
    Allowed,
    Denied,
}

/// The ids: each in the type that a server has it in.
#[derive(Clone, Copy, ValueEnum)]
enum Work {
    /// A text of 12 bytes.
    Text,
    /// A UUID as text: 36 bytes.
    Uuid,
    U64,
    Ipv4,
    Ipv6,
    /// An account's number and a text of 11 bytes.
    Pair,
    /// A batch of a text and a u64, each under its own limit. With governor two checks.
    Batch,
    /// A request through the tower layer: one limit by the client's address, no fields.
    Layer,
    /// As `Layer`, with fields: `RateLimit`, or those of tower_governor.
    LayerFields,
}

const TEXT_KEY: &str = "6:3141592653";
const UUID_KEY: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";
const NUMBER_KEY: u64 = 3_141_592_653;
const IPV4_KEY: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 77));
const IPV6_KEY: IpAddr =
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x85a3, 0x42, 0x1000, 0x8a2e, 0x370, 0x7334));
const PAIR_KEY: (u64, &str) = (3_141_592_653, "example.com");

fn main() {
    let args = Args::parse();
    let is_allowed = args.outcome == Outcome::Allowed;
    let rule = if is_allowed { Rule::ample(args.calls + 1) } else { Rule::scarce() };
    let right = match (args.work, args.who) {
        (Work::Layer | Work::LayerFields, _) => layer(&args, is_allowed),
        (_, Who::Tollgate) => tollgate(&args, rule, is_allowed),
        (_, Who::GovernorDefault) => governor::<RandomState>(&args, rule, is_allowed),
        (_, Who::GovernorAhash) => governor::<ahash::RandomState>(&args, rule, is_allowed),
        (_, Who::Bare) => panic!("bare is for layers"),
    };
    assert_eq!(right, args.calls, "every call is answered as it has to be");
}

fn layer(args: &Args, allowed: bool) -> usize {
    let has_fields = matches!(args.work, Work::LayerFields);
    let burst = if allowed { 1 << 30 } else { 1 };
    let call = match args.who {
        Who::Tollgate => {
            let styles = if has_fields { vec![Style::Ietf] } else { Vec::new() };
            layers::tollgate(styles, 1, burst.into())
        }
        Who::GovernorDefault => layers::governor(has_fields, burst),
        Who::GovernorAhash => panic!("tower_governor has one hasher"),
        Who::Bare => layers::bare(),
    };
    let is_served = matches!(args.who, Who::Bare) || allowed;
    let call = RefCell::new(call);
    run(args.calls, 7, is_served, |client| {
        call.borrow_mut()(layers::request(client)) == StatusCode::OK
    })
}

fn tollgate(args: &Args, rule: Rule, allowed: bool) -> usize {
    let limiter = limiters::tollgate(rule, args.table.options());
    let [texts, numbers, addresses] = [TEXT, NUMBER, ADDRESS].map(|name| handle(&limiter, name));
    let is_allowed = |decision: Result<tollgate::Decision, _>| decision.unwrap().allowed();
    match args.work {
        Work::Text => run(args.calls, TEXT_KEY, allowed, |key| is_allowed(texts.spend(key, 1))),
        Work::Uuid => run(args.calls, UUID_KEY, allowed, |key| is_allowed(texts.spend(key, 1))),
        Work::Pair => run(args.calls, PAIR_KEY, allowed, |key| is_allowed(texts.spend(key, 1))),
        Work::U64 => run(args.calls, NUMBER_KEY, allowed, |key| is_allowed(numbers.spend(key, 1))),
        Work::Ipv4 => run(args.calls, IPV4_KEY, allowed, |key| is_allowed(addresses.spend(key, 1))),
        Work::Ipv6 => run(args.calls, IPV6_KEY, allowed, |key| is_allowed(addresses.spend(key, 1))),
        Work::Batch => run(args.calls, (TEXT_KEY, NUMBER_KEY), allowed, |(text, number)| {
            is_allowed(limiter.batch(&[texts.member(text), numbers.member(number)]).spend())
        }),
        Work::Layer | Work::LayerFields => unreachable!("`layer` makes these calls"),
    }
}

fn governor<S: BuildHasher + Default + Clone>(args: &Args, rule: Rule, allowed: bool) -> usize {
    match args.work {
        Work::Text => governor_by::<_, S>(args, rule, allowed, TEXT_KEY.to_string()),
        Work::Uuid => governor_by::<_, S>(args, rule, allowed, UUID_KEY.to_string()),
        Work::U64 => governor_by::<_, S>(args, rule, allowed, NUMBER_KEY),
        Work::Ipv4 => governor_by::<_, S>(args, rule, allowed, IPV4_KEY),
        Work::Ipv6 => governor_by::<_, S>(args, rule, allowed, IPV6_KEY),
        Work::Pair => {
            governor_by::<_, S>(args, rule, allowed, (PAIR_KEY.0, PAIR_KEY.1.to_string()))
        }
        Work::Batch => {
            let texts: Governor<String, S, _> = limiters::governor(rule, DefaultClock::default());
            let numbers: Governor<u64, S, _> = limiters::governor(rule, DefaultClock::default());
            let keys = (&TEXT_KEY.to_string(), &NUMBER_KEY);
            run(args.calls, keys, allowed, |(text, number)| {
                // Both checks, as a caller without batches makes them.
                let (first, second) = (texts.check_key(text), numbers.check_key(number));
                first.is_ok() && second.is_ok()
            })
        }
        Work::Layer | Work::LayerFields => unreachable!("`layer` makes these calls"),
    }
}

/// Checks one key of a type; governor takes it by reference.
fn governor_by<K, S>(args: &Args, rule: Rule, allowed: bool, key: K) -> usize
where
    K: Hash + Eq + Clone,
    S: BuildHasher + Default + Clone,
{
    let limiter: Governor<K, S, _> = limiters::governor(rule, DefaultClock::default());
    run(args.calls, &key, allowed, |key| limiter.check_key(key).is_ok())
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
