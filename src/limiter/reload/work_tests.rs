//! Tests that calls do a bounded amount of work for the table after a reload, or after an override's end.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::clock::{Clock, ManualClock};
use crate::full_size::full_size;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limiter::reload::options::ReloadOptions;
use crate::limits::{IdFormat, Limits, OverrideOptions};
use crate::own_process::in_own_process;
use crate::util::sync::{Ordering, Switch};
use crate::util::work::take_cells;

const NAME: &str = "CertificatesPerDomainPerAccount";

fn ids() -> u64 {
    full_size(100_000, 1_000_000)
}

/// The most cells of other keys that a call may move.
const MAX_CELLS: u64 = 64;

fn of(burst: u64) -> Limit {
    Limit::new(burst, burst, Duration::from_secs(36_000_000)).unwrap()
}

/// A default, and an override for account 7 that expires.
fn limits(account: Option<(Limit, SystemTime)>) -> Limits {
    let builder = Limits::builder().limit(NAME, IdFormat::RegIdDomainOrCidr, of(10)).unwrap();
    match account {
        Some((limit, end)) => {
            let ending = OverrideOptions::default().expires(end);
            builder.override_with(NAME, "7", limit, ending).unwrap().build()
        }
        None => builder.build(),
    }
}

fn limiter() -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    (Limiter::with_options(limits(None), LimiterOptions::default().clock(clock)).unwrap(), hand)
}

/// The work of the calls of one pass over all ids of the account.
#[derive(Debug, Default)]
struct Pass {
    most_cells: u64,
    cells: u64,
    migrations: u64,
    /// The most bytes that the table grew by.
    bytes: usize,
}

fn spend_each(limiter: &Limiter) -> Pass {
    let handle = limiter.limit(NAME).unwrap();
    let before = limiter.stats();
    let mut pass = Pass::default();
    let _ = take_cells();
    let ids = ids();
    for nth in 0..ids {
        // In another order than that of the first pass.
        let at = nth * 7919 % ids;
        let _ = handle.spend((7, format!("d{at}.com").as_str()), 1).unwrap();
        let cells = take_cells();
        pass.most_cells = pass.most_cells.max(cells);
        pass.cells += cells;
        if nth % 1024 == 0 {
            pass.bytes = pass.bytes.max(limiter.stats().bytes.saturating_sub(before.bytes));
        }
    }
    pass.migrations = limiter.stats().migrations - before.migrations;
    pass
}

/// A million ids of one account, whose override starts, is used, and ends.
#[test]
fn calls_after_a_reload_do_a_bounded_work() {
    in_own_process(|| {
        let (limiter, hand) = limiter();
        let grown = spend_each(&limiter);
        assert!(grown.most_cells <= MAX_CELLS && grown.migrations > 0, "{grown:?}");
        let bytes = limiter.stats().bytes;

        let end = SystemTime::now() + Duration::from_secs(3600);
        let reloaded =
            limiter.reload_with(limits(Some((of(1000), end))), CarryOver::Units).unwrap();
        assert!(reloaded.changed);
        assert!(2 * limiter.stats().bytes <= 3 * bytes, "{:?}", limiter.stats());
        let after = spend_each(&limiter);
        assert_eq!((after.most_cells, after.migrations, after.bytes), (0, 0, 0), "{after:?}");

        hand.advance(Duration::from_secs(3601));
        let ended = spend_each(&limiter);
        assert!(ended.most_cells <= MAX_CELLS, "{ended:?}");
        assert!(ended.cells >= ids(), "each id's word moves: {ended:?}");
        // If all shards migrated at the same time, the table would take 1.36 to 1.45 times the bytes.
        assert!(3 * ended.bytes <= bytes, "{ended:?}, {bytes} bytes before");
        assert_eq!(limiter.stats().cells, ids() as usize);
    });
}

/// A reload has work for each name that it knows: those that went, and are used by nothing, are not among them.
#[test]
fn names_that_went_cost_a_reload_nothing() {
    const HELD: usize = 5;
    let limiter = Limiter::new(limits(None));
    let known = || limiter.limits().count();
    let (first, mut most) = (known(), 0);
    let mut handles = VecDeque::new();
    for at in 0..300 {
        let name = format!("Tenant{at}");
        let with_name = Limits::builder().limit(NAME, IdFormat::RegIdDomainOrCidr, of(10)).unwrap();
        let with_name = with_name.limit(&name, IdFormat::String, of(10)).unwrap().build();
        let options = ReloadOptions::default().remove_missing(true);
        let reloaded = limiter.reload_with(with_name, options).unwrap();
        assert!(reloaded.changed && reloaded.removed.len() == usize::from(at > 0));
        let handle = limiter.limit(&name).unwrap();
        assert!(handle.spend("id", 1).unwrap().allowed());
        handles.push_back(handle);
        handles.truncate(if at < 150 { HELD } else { 0 });
        handles.rotate_left(usize::from(handles.len() == HELD));
        most = most.max(known());
    }
    // Beside the held names: the new one, the one before it, and one whose handle has just been dropped.
    assert!(most <= first + HELD + 3, "{most} names, {first} at first");
    assert!(known() <= first + HELD + 3 && limiter.stats().cells <= 1);
}

/// A reload that takes a network away keeps its index while the network has buckets, and another one forgets it.
#[test]
fn networks_that_went_cost_a_reload_nothing() {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock);
    let with = |network: &str| {
        let builder = Limits::builder().limit("A", IdFormat::IpAddress, of(10)).unwrap();
        builder.override_id("A", network, of(20)).unwrap().build()
    };
    let limiter = Limiter::with_options(with("9.0.0.0/8"), options).unwrap();
    let handle = limiter.limit("A").unwrap();
    let known = || limiter.limits().count();
    let first = known();
    for at in 0..200 {
        assert!(limiter.reload(with(&format!("10.{at}.0.0/16"))).unwrap().changed);
        let is_charged = at < 5;
        if is_charged {
            let id = std::net::Ipv4Addr::new(10, at, 0, 1);
            assert!(handle.spend(id, 1).unwrap().allowed());
        }
        // The five networks with a bucket, the new one, the one before, and one whose index is free again.
        assert!(known() <= first + 5 + 3, "{} limits, {first} at first", known());
    }
    assert_eq!(limiter.stats().cells, 5);
    hand.advance(Duration::from_secs(36_000_000));
    while !limiter.sweep(1 << 20).finished {}
    assert_eq!(limiter.stats().cells, 0);
    for at in 0..10 {
        limiter.reload(with(&format!("11.{at}.0.0/16"))).unwrap();
    }
    assert!(known() <= first + 5 + 3, "the indices are used again");
}

/// Calls for one bucket migrate no cells for a concurrent reload.
#[test]
fn calls_beside_reloads_do_a_bounded_work() {
    in_own_process(|| {
        let (limiter, _hand) = limiter();
        spend_each(&limiter);
        let stop = Switch::new(false);
        let most_cells = thread::scope(|scope| {
            let spender = scope.spawn(|| {
                let mut most_cells = 0;
                while !stop.load(Ordering::Relaxed) {
                    most_cells = most_cells.max(spend_each_until(&limiter, &stop));
                }
                most_cells
            });
            let end = SystemTime::now() + Duration::from_secs(3600);
            for round in 0..6 {
                let account = (round % 2 == 0).then_some((of(1000), end));
                assert!(limiter.reload_with(limits(account), CarryOver::Units).unwrap().changed);
            }
            stop.store(true, Ordering::Relaxed);
            spender.join().unwrap()
        });
        // A chunk under the old limits, one under the new ones, and the call's own cell.
        assert!(most_cells <= MAX_CELLS + 1, "{most_cells} cells");
    });
}

fn spend_each_until(limiter: &Limiter, stop: &Switch) -> u64 {
    let handle = limiter.limit(NAME).unwrap();
    let mut most_cells = 0;
    for at in (0..ids()).take_while(|_| !stop.load(Ordering::Relaxed)) {
        let _ = handle.spend((7, format!("d{at}.com").as_str()), 1).unwrap();
        most_cells = most_cells.max(take_cells());
    }
    most_cells
}
