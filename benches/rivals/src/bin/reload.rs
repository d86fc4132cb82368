//! Measures reloads of a table in use: the time of a reload, and the calls beside it and after it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rivals::keys::Keys;
use rivals::meter::{FaultCost, Meter};
use rivals::random::Random;
use rivals::verdict::print_at_most;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

/// Measures reloads beside a spending thread.
#[derive(Parser)]
struct Args {
    /// The number of keys with a bucket.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// The number of reloads.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    reloads: u32,
}

const NAME: &str = "PerUser";
const BURST: u64 = 1 << 20;
/// The most by which the 99.99th percentile of spends may rise beside reloads.
const P9999_RATIO: f64 = 1.5;
/// The number of calls without a reload beside them.
const CALLS_ALONE: usize = 2_000_000;

/// The same units, per year or per two years.
fn limits(years: u64) -> Limits {
    let period = Duration::from_secs(years * 31_536_000);
    let limit = Limit::new(BURST, BURST, period).expect("a limit");
    Limits::builder().limit(NAME, IdFormat::String, limit).expect("a name").build()
}

fn main() {
    let args = Args::parse();
    let keys = &Keys::new(args.keys as usize);
    let fault = FaultCost::calibrate(64 << 20);
    let (clock, _hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock);
    let limiter = &Limiter::with_options(limits(1), options).unwrap();
    let users = &limiter.limit(NAME).expect("it is there");
    for at in keys.all() {
        assert!(users.spend(keys.text(at), 1).expect("an id").allowed());
    }
    let at_rest = limiter.stats().bytes;

    let mut spent = keys.count() as u64;
    let mut alone = Meter::with_room(CALLS_ALONE);
    let mut random = Random::new(1);
    for _ in 0..CALLS_ALONE {
        let id = keys.text(random.below(keys.count()));
        spent += u64::from(alone.time(|| users.spend(black_box(id), 1)).expect("an id").allowed());
    }

    let stop = &AtomicBool::new(false);
    let mut took = Vec::new();
    let most = &AtomicUsize::new(at_rest);
    let (beside, spent_beside) = thread::scope(|scope| {
        let spender = scope.spawn(move || {
            let (mut meter, mut spent, mut random) = (Meter::default(), 0, Random::new(2));
            while !stop.load(Ordering::Relaxed) {
                if random.below(64) == 0 {
                    most.fetch_max(limiter.stats().bytes, Ordering::Relaxed);
                }
                let id = keys.text(random.below(keys.count()));
                let decision = meter.time(|| users.spend(black_box(id), 1)).expect("an id");
                spent += u64::from(decision.allowed());
            }
            (meter, spent)
        });
        for round in 0..args.reloads {
            let started = Instant::now();
            let years = if round % 2 == 0 { 2 } else { 1 };
            assert!(limiter.reload(limits(years)).expect("a reload").changed);
            took.push(started.elapsed());
        }
        stop.store(true, Ordering::Relaxed);
        spender.join().expect("the spender")
    });
    spent += spent_beside;

    let left: u64 = keys
        .all()
        .map(|at| users.check(keys.text(at), 0).expect("an id").remaining().expect("a limit"))
        .sum();
    assert_eq!(left + spent, BURST * keys.count() as u64, "nothing is lost and nothing won");

    took.sort_unstable();
    println!(
        "{} buckets: a reload took {:?} (median of {}; longest {:?}), {:.0} ns a bucket",
        keys.count(),
        took[took.len() / 2],
        took.len(),
        took[took.len() - 1],
        took[took.len() / 2].as_nanos() as f64 / keys.count() as f64,
    );
    let most = most.load(Ordering::Relaxed);
    println!(
        "{at_rest} bytes at rest, at most {most} beside reloads, {:.2} times",
        most as f64 / at_rest as f64
    );
    let [alone, beside] = [alone, beside].map(|meter| Meter::figures(vec![meter], fault));
    println!("spends without a reload: {alone}\nspends beside reloads: {beside}");
    let ratio = f64::from(beside.p9999_ns) / f64::from(alone.p9999_ns);
    print_at_most("p99.99 beside reloads", ratio, P9999_RATIO, " times that without");
    #[cfg(feature = "boulder")]
    account::after_an_override(args.keys, fault);
    #[cfg(not(feature = "boulder"))]
    println!("calls after an account's override were not timed: they need --features boulder");
}

/// The ids of one account, whose override is added and ends.
#[cfg(feature = "boulder")]
mod account {
    use std::time::SystemTime;

    use tollgate::limits::OverrideOptions;

    use super::*;

    const OF_ACCOUNT: &str = "CertificatesPerDomainPerAccount";

    /// A default and, if `account` is given, an override of account 7 that ends then.
    fn limits_of_account(account: Option<SystemTime>) -> Limits {
        let of =
            |burst| Limit::new(burst, burst, Duration::from_secs(31_536_000)).expect("a limit");
        let builder = Limits::builder().limit(OF_ACCOUNT, IdFormat::RegIdDomainOrCidr, of(1000));
        let builder = builder.expect("a name");
        match account {
            Some(end) => {
                let ending = OverrideOptions::default().expires(end);
                builder.override_with(OF_ACCOUNT, "7", of(100_000), ending).expect("an id").build()
            }
            None => builder.build(),
        }
    }

    /// Measures calls for each id of one account, in a different order each time: when the keys are known, after a
    /// reload that gives the account an override, and after the override has ended.
    pub(crate) fn after_an_override(ids: u32, fault: FaultCost) {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock);
        let limiter = Limiter::with_options(limits_of_account(None), options).unwrap();
        let handle = limiter.limit(OF_ACCOUNT).expect("it is there");
        let domains: Vec<String> = (0..ids).map(|at| format!("d{at}.com")).collect();
        let mut random = Random::new(3);
        let mut pass = |what: Option<&str>| {
            let before = (limiter.stats().bytes, resident_bytes());
            let mut most = before;
            let mut meter = Meter::with_room(domains.len());
            let mut order: Vec<usize> = (0..domains.len()).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, random.below(last + 1) as usize);
            }
            let held = (order.len() * size_of::<usize>() + domains.len() * 8) as u64;
            for (nth, at) in order.into_iter().enumerate() {
                let id = (7, domains[at].as_str());
                let decision = meter.time(|| handle.spend(black_box(id), 1)).expect("an id");
                assert!(decision.allowed());
                if nth % 1024 == 0 {
                    most.0 = most.0.max(limiter.stats().bytes);
                    most.1 = most.1.max(resident_bytes());
                }
            }
            let Some(what) = what else { return };
            let figures = Meter::figures(vec![meter], fault);
            println!(
                "{what}: {figures}; bytes of the table {:.2} times, resident {:.2} times",
                most.0 as f64 / before.0 as f64,
                most.1.saturating_sub(held) as f64 / before.1 as f64,
            );
        };
        pass(None);
        pass(Some("ids of one account, known"));
        let end = SystemTime::now() + Duration::from_secs(3600);
        let before = resident_bytes();
        limiter.reload(limits_of_account(Some(end))).expect("a reload");
        println!("after the reload: resident {:.2} times", resident_bytes() as f64 / before as f64);
        pass(Some("after an override of the account has come"));
        hand.advance(Duration::from_secs(3602));
        pass(Some("after it has ended"));
    }

    /// The memory of this process that is not swapped out; 0 if the system does not report it.
    fn resident_bytes() -> u64 {
        const PAGE_BYTES: u64 = 4096;
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or(0) * PAGE_BYTES
    }
}
