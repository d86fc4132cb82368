//! Overrides of accounts whose ids have buckets already. The table stores no ids, and must still tell their
//! accounts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tollgate::limits::OverrideOptions;
use tollgate::options::{AtCap, Engine};
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, hourly, in_own_process, limiter, seconds, sweep_all};

const NAME: &str = "CertificatesPerDomainPerAccount";
const FORMAT: IdFormat = IdFormat::RegIdDomainOrCidr;

/// A default and an override of account 7, each if given.
fn limits(default: Option<Limit>, account: Option<Limit>) -> Limits {
    let builder = Limits::builder().limit(NAME, FORMAT, default).unwrap();
    match account {
        Some(limit) => builder.override_id(NAME, "7", limit).unwrap().build(),
        None => builder.build(),
    }
}

fn left(handle: &KeyedLimit, id: &str) -> Option<u64> {
    handle.check(id, 0).unwrap().remaining()
}

#[test]
fn debt_stays_when_override_replaces_default() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(limits(Some(hourly(10)), None), engine);
        let handle = limiter.limit(NAME).unwrap();
        assert!(handle.spend("7:a.com", 10).unwrap().allowed());
        limiter.reload_with(limits(None, Some(hourly(100))), CarryOver::Share).unwrap();
        assert_eq!(left(&handle, "7:a.com"), Some(0), "{engine:?}: all of it is used");
        assert_eq!(left(&handle, "8:a.com"), None, "{engine:?}: no limit");
    }
}

#[test]
fn sweep_keeps_an_accounts_debt_under_override() {
    for engine in ENGINES {
        let slow = Limit::new(10, 10, seconds(100 * 24 * 3600)).unwrap();
        let quick = Limit::new(10, 10, seconds(10)).unwrap();
        let (limiter, hand) = limiter(limits(Some(quick.clone()), None), engine);
        let handle = limiter.limit(NAME).unwrap();
        assert!(handle.spend("7:a.com", 10).unwrap().allowed());
        limiter.reload_with(limits(Some(quick), Some(slow)), CarryOver::Share).unwrap();
        hand.advance(seconds(60));
        sweep_all(&limiter);
        assert_eq!(left(&handle, "7:a.com"), Some(0), "{engine:?}");
    }
}

/// The count of cells is exact after any calls while limits come and go. A count below 0 would refuse all
/// new keys.
#[test]
fn places_are_freed_once_beside_reloads() {
    const IDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 60_000 };
    for (default_goes, debt) in [(true, CarryOver::Share), (false, CarryOver::Afresh)] {
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).at_cap(AtCap::Deny);
        let default = Limit::new(1_000, 1_000, seconds(3600)).unwrap();
        let other = Limit::new(100, 100, seconds(3600)).unwrap();
        let old = || limits(Some(default.clone()), None);
        let new = || limits((!default_goes).then(|| default.clone()), Some(other.clone()));
        let limiter = Limiter::with_options(old(), options).unwrap();
        let handle = limiter.limit(NAME).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (handle, done) = (&handle, &done);
                scope.spawn(move || {
                    for at in (0..).map(|step| (thread * IDS / 3 + step) % IDS) {
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        let id = (7, format!("d{at}.com"));
                        let _ = handle.spend((id.0, id.1.as_str()), 1).unwrap();
                    }
                });
            }
            for _ in 0..6 {
                limiter.reload_with(new(), debt).unwrap();
                limiter.reload_with(old(), debt).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(limiter.stats().cells <= IDS as usize, "{:?}", limiter.stats());
        hand.advance(seconds(2 * 3600));
        sweep_all(&limiter);
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{debt:?}: all was swept");
        assert!(handle.spend("7:new.com", 1).unwrap().allowed());
        assert_eq!(limiter.stats().cells, 1);
    }
}

/// Spends by each of many ids of one account. Returns the migrations that this made and the bytes that it
/// added.
fn spend_each(limiter: &Limiter, ids: u64) -> (u64, usize) {
    let handle = limiter.limit(NAME).unwrap();
    let (before, mut most) = (limiter.stats(), 0);
    for at in 0..ids {
        let domain = format!("d{at}.com");
        let _ = handle.spend((7, domain.as_str()), 1).unwrap();
        if at % 64 == 0 {
            most = most.max(limiter.stats().bytes);
        }
    }
    let after = limiter.stats();
    assert_eq!(after.cells, ids as usize, "no cell comes or goes");
    (after.migrations - before.migrations, most.saturating_sub(before.bytes))
}

const MANY: u64 = if cfg!(debug_assertions) { 30_000 } else { 200_000 };

/// A table in which many ids of account 7 have spent.
fn with_many(limits: Limits) -> (Limiter, tollgate::clock::ManualClock) {
    let (limiter, hand) = limiter(limits, Engine::LockFree);
    spend_each(&limiter, MANY);
    (limiter, hand)
}

#[test]
fn account_override_start_moves_no_other_cells() {
    in_own_process(|| {
        let (limiter, _hand) = with_many(limits(Some(hourly(10)), None));
        limiter.reload(limits(Some(hourly(10)), Some(hourly(1_000)))).unwrap();
        assert_eq!(spend_each(&limiter, MANY), (0, 0), "migrations, and bytes more");
        let handle = limiter.limit(NAME).unwrap();
        assert_eq!(left(&handle, "7:d0.com"), Some(1_000 - 100 - 1));
    });
}

#[test]
fn account_override_end_moves_one_cell_each() {
    in_own_process(|| {
        let end = SystemTime::now() + seconds(3600);
        let ending = OverrideOptions::default().expires(end);
        let default = Limit::new(10, 10, seconds(36_000_000)).unwrap();
        let of_account = Limit::new(1_000, 1_000, seconds(36_000_000)).unwrap();
        let builder = Limits::builder().limit(NAME, FORMAT, default).unwrap();
        let limits = builder.override_with(NAME, "7", of_account, ending).unwrap().build();
        let (limiter, hand) = with_many(limits);
        spend_each(&limiter, MANY);
        hand.advance(seconds(3602));
        let handle = limiter.limit(NAME).unwrap();
        assert_eq!(left(&handle, "7:d0.com"), Some(9), "2 of 1,000 are 1 of 10, rounded up");
        let bytes = limiter.stats().bytes;
        let (migrations, more) = spend_each(&limiter, MANY);
        // Each moved cell takes another slot until its shard migrates to a segment of the same size: once,
        // or a few times where the shard was nearly full.
        assert!(migrations <= 4 * 768, "{migrations} migrations");
        // A migrating shard has both segments; the shards take turns.
        assert!(2 * more <= bytes, "{more} bytes more than {bytes}");
        // Retired segments wait for two pins.
        for _ in 0..4 {
            sweep_all(&limiter);
        }
        let left_bytes = limiter.stats().bytes;
        assert!(left_bytes <= bytes + bytes / 8, "{left_bytes} after {bytes}");
        assert_eq!(left(&handle, "7:d0.com"), Some(8));
        // The second pass: the ids are known by then.
        assert_eq!(spend_each(&limiter, MANY).0, 0);
    });
}
