//! Untracked keys that share a bucket in a full table, beside ids with an override.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tollgate::clock::ManualClock;
use tollgate::limits::OverrideOptions;
use tollgate::options::{AtCap, Engine};
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::hooked;
use super::support::{ENGINES, hourly, seconds, sweep_all};

const NAME: &str = "A";

/// A default, and an override of "vip", if given, that may end.
fn limits(default: Limit, vip: Option<Limit>, end: Option<SystemTime>) -> Limits {
    let builder = Limits::builder().limit(NAME, IdFormat::String, default).unwrap();
    let Some(vip) = vip else { return builder.build() };
    let options = OverrideOptions::default();
    let options = end.map_or(options.clone(), |end| options.clone().expires(end));
    builder.override_with(NAME, "vip", vip, options).unwrap().build()
}

/// Builds a limiter with room for one id, which is taken.
fn full(limits: Limits, engine: Engine) -> (Limiter, ManualClock) {
    let (clock, hand) = Clock::manual();
    let options = LimiterOptions::default().clock(clock).engine(engine);
    let limiter = Limiter::with_options(limits, options.max_keys(1).at_cap(AtCap::Share)).unwrap();
    assert!(limiter.limit(NAME).unwrap().spend("inside", 10).unwrap().allowed());
    (limiter, hand)
}

/// Makes room for another id.
fn make_room(limiter: &Limiter) {
    assert!(limiter.limit(NAME).unwrap().reset("inside").unwrap().allowed());
    sweep_all(limiter);
    assert_eq!(limiter.stats().cells, 0);
}

fn left(limiter: &Limiter, id: &str) -> Option<u64> {
    limiter.limit(NAME).unwrap().check(id, 0).unwrap().remaining()
}

#[test]
fn an_id_with_an_override_shares_no_bucket() {
    for engine in ENGINES {
        let (limiter, _hand) = full(limits(hourly(10), Some(hourly(5)), None), engine);
        let a = limiter.limit(NAME).unwrap();
        assert_eq!(a.spend("one", 4).unwrap().remaining(), Some(6), "{engine:?}");
        assert_eq!(a.spend("vip", 1).unwrap().remaining(), Some(4), "{engine:?}: its own");
        assert_eq!(a.spend("other", 1).unwrap().remaining(), Some(5), "{engine:?}");
        let stats = limiter.stats();
        assert_eq!((stats.overflowed, stats.denied_at_cap), (2, 0), "{engine:?}");
        assert_eq!(stats.cells, 2, "{engine:?}: one beside the cap");
    }
}

#[test]
fn new_override_keeps_its_untracked_ids_debt() {
    for engine in ENGINES {
        let (limiter, _hand) = full(limits(hourly(10), None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        assert!(a.spend("vip", 4).unwrap().allowed());
        limiter.reload_with(limits(hourly(10), Some(hourly(100)), None), CarryOver::Share).unwrap();
        assert_eq!(left(&limiter, "vip"), Some(60), "{engine:?}: 4 of 10 are 40 of 100");
        // Later spends of other ids do not count for this id.
        assert!(a.spend("other", 5).unwrap().allowed());
        assert_eq!(left(&limiter, "vip"), Some(60), "{engine:?}");
        limiter.reload_with(limits(hourly(20), Some(hourly(50)), None), CarryOver::Share).unwrap();
        assert_eq!(left(&limiter, "vip"), Some(30), "{engine:?}: 20 of 50");
        make_room(&limiter);
        assert_eq!(a.spend("vip", 1).unwrap().remaining(), Some(29), "{engine:?}");
    }
}

#[test]
fn ended_overrides_id_is_an_untracked_key() {
    for engine in ENGINES {
        let end = SystemTime::now() + seconds(3600);
        let default = Limit::new(10, 10, seconds(36_000_000)).unwrap();
        let (limiter, hand) = full(limits(default, Some(hourly(5)), Some(end)), engine);
        let a = limiter.limit(NAME).unwrap();
        assert!(a.spend("one", 4).unwrap().allowed());
        hand.advance(seconds(3602));
        assert_eq!(a.spend("vip", 1).unwrap().remaining(), Some(5), "{engine:?}");
    }
}

/// Under a factor a window's word means something else, and a reservation in an overflow bucket may be
/// another id's.
#[test]
fn untracked_key_with_factor_shares_no_bucket() {
    for engine in ENGINES {
        let drips = Limit::leaky_bucket(2, 1, seconds(3600)).unwrap();
        let builder = Limits::builder().limit(NAME, IdFormat::String, drips).unwrap();
        let (clock, _hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(1);
        let limiter = Limiter::with_options(builder.build(), options).unwrap();
        let a = limiter.limit(NAME).unwrap();
        assert!(a.spend("inside", 1).unwrap().allowed());
        assert!(a.spend("one", 1).unwrap().allowed());
        let half = "0.5".parse().unwrap();
        assert!(!a.scaled(half).spend("two", 1).unwrap().allowed(), "{engine:?}");
        assert_eq!(a.check("one", 0).unwrap().remaining(), Some(1), "{engine:?}");
    }
}

#[test]
fn refund_or_reset_of_untracked_key_tells_state() {
    for engine in ENGINES {
        let (limiter, _hand) = full(limits(hourly(10), None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        assert!(a.spend("one", 4).unwrap().allowed());
        let said = [a.refund("two", 1).unwrap(), a.reset("two").unwrap()];
        for said in said {
            assert!(!said.allowed(), "{engine:?}: nothing was given back");
            assert_eq!(said.remaining(), Some(6), "{engine:?}");
        }
        assert_eq!(left(&limiter, "two"), Some(6), "{engine:?}");
    }
}

#[test]
fn untracked_key_with_older_clock_spends_from_sweep() {
    for engine in ENGINES {
        // 5 at once, one more every 2 s.
        let default = Limit::new(5, 1, seconds(2)).unwrap();
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let options = options.max_keys(2).at_cap(AtCap::Share);
        let limiter = Limiter::with_options(limits(default, None, None), options).unwrap();
        let a = limiter.limit(NAME).unwrap();
        let spend = |id: &str| a.spend(id, 5).unwrap().allowed();
        hand.set(seconds(10));
        assert!(spend("late"));
        hand.set(seconds(20));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
        assert!(spend("one") && spend("two"), "they take the two places");
        hand.set(seconds(10));
        let by_the_older_clock = spend("late");
        hand.set(seconds(20));
        let again = spend("late");
        // From 10 s to 20 s at most 5 units are admitted at once, and 5 more in 10 s.
        assert!(!(by_the_older_clock && again), "{engine:?}: 15 in 10 s");
    }
}

#[test]
fn bucket_dropped_for_another_key_stays_spent() {
    for engine in ENGINES {
        // 5 at once, one more every 2 s.
        let default = Limit::new(5, 1, seconds(2)).unwrap();
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let options = options.max_keys(1).at_cap(AtCap::Share);
        let limiter = Limiter::with_options(limits(default, None, None), options).unwrap();
        let a = limiter.limit(NAME).unwrap();
        let spend = |id: &str| a.spend(id, 5).unwrap().allowed();
        hand.set(seconds(10));
        assert!(spend("late"));
        hand.set(seconds(20));
        assert!(spend("new"), "it takes the only place, without a sweep");
        assert_eq!((limiter.stats().cells, limiter.stats().swept), (1, 1), "{engine:?}");
        hand.set(seconds(10));
        let by_the_older_clock = spend("late");
        hand.set(seconds(20));
        let again = spend("late");
        assert!(!(by_the_older_clock && again), "{engine:?}: 15 in 10 s");
    }
}

type Hook = Arc<dyn Fn() + Send + Sync>;

#[test]
fn untracked_key_dropped_meanwhile_spends_from_sweep() {
    for (engine, due) in ENGINES.into_iter().flat_map(|engine| [(engine, 1), (engine, 2)]) {
        let meanwhile: Arc<Mutex<Option<Hook>>> = Arc::default();
        let (hook, calls) = (meanwhile.clone(), AtomicU64::new(0));
        // One at once, one more every 2 s.
        let rule = hooked(Limit::new(1, 1, seconds(2)).unwrap(), move |_| {
            let meanwhile = hook.lock().unwrap().clone();
            if let Some(meanwhile) = meanwhile
                && calls.fetch_add(1, Ordering::Relaxed) + 1 == due
            {
                meanwhile();
            }
        });
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let options = options.max_keys(1).at_cap(AtCap::Share);
        let limiter = Limiter::with_options(limits(rule, None, None), options).unwrap();
        let a = limiter.limit(NAME).unwrap();
        hand.set(seconds(10));
        assert!(a.spend("inside", 1).unwrap().allowed());
        // While a call of 10 s is decided, its key gets a bucket, which is charged, full and dropped.
        let (inner, own, inner_hand) = (limiter.clone(), a.clone(), hand.clone());
        *meanwhile.lock().unwrap() = Some(Arc::new(move || {
            make_room(&inner);
            assert!(own.spend("late", 1).unwrap().allowed());
            inner_hand.set(seconds(20));
            sweep_all(&inner);
            assert!(own.spend("inside", 1).unwrap().allowed());
        }));
        let by_the_older_clock = a.spend("late", 1).unwrap().allowed();
        let again = a.spend("late", 1).unwrap().allowed();
        assert!(!(by_the_older_clock && again), "{engine:?}, call {due}: 2 at once");
        // The limiter's rule has the limiter.
        *meanwhile.lock().unwrap() = None;
    }
}

/// An account's override keeps the debt that its ids have in common over more than one reload.
#[cfg(feature = "boulder")]
#[test]
fn an_accounts_untracked_debt_outlasts_reloads() {
    const PAIRS: &str = "CertificatesPerDomainPerAccount";
    for engine in ENGINES {
        let limits = |account: Option<u64>| {
            let format = IdFormat::RegIdDomainOrCidr;
            let builder = Limits::builder().limit(PAIRS, format, hourly(10)).unwrap();
            match account {
                Some(burst) => builder.override_id(PAIRS, 7, hourly(burst)).unwrap().build(),
                None => builder.build(),
            }
        };
        let options = LimiterOptions::default().clock(Clock::manual().0).engine(engine);
        let limiter = Limiter::with_options(limits(None), options.max_keys(1)).unwrap();
        let pairs = limiter.limit(PAIRS).unwrap();
        assert!(pairs.spend("8:a.com", 10).unwrap().allowed());
        assert_eq!(pairs.spend("7:a.com", 4).unwrap().remaining(), Some(6), "{engine:?}");
        for (burst, wanted) in [(100, 60), (50, 30), (1000, 600)] {
            limiter.reload(limits(Some(burst))).unwrap();
            let left = pairs.check("7:a.com", 0).unwrap().remaining();
            assert_eq!(left, Some(wanted), "{engine:?}");
        }
    }
}

fn a_second(burst: u64) -> Limit {
    Limit::new(burst, 1, seconds(1)).unwrap()
}

/// A new bucket begins with what its own id owes, and not with the debt of the crowd.
#[test]
fn new_bucket_owes_for_its_own_id() {
    for engine in ENGINES {
        let (limiter, hand) = full(limits(a_second(1_000), None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        for (id, cost) in [("one", 100), ("crowd", 700), ("one", 50)] {
            assert!(a.spend(id, cost).unwrap().allowed(), "{engine:?}");
        }
        let all = ["one", "crowd", "new"].map(|id| left(&limiter, id));
        assert_eq!(all, [Some(150); 3], "{engine:?}: a call would use the overflow bucket");
        make_room(&limiter);
        let all = || ["one", "crowd", "new"].map(|id| left(&limiter, id).unwrap());
        assert_eq!(all(), [850, 300, 1_000], "{engine:?}");
        hand.advance(seconds(150));
        assert_eq!(all(), [1_000, 450, 1_000], "{engine:?}");
        assert_eq!(a.spend("new", 1).unwrap().remaining(), Some(999), "{engine:?}");
    }
}

/// Under other algorithms a new bucket of an id that owes something begins with the whole debt.
#[test]
fn new_window_owes_what_all_owe() {
    for engine in ENGINES {
        let window = Limit::fixed_window(1_000, seconds(100)).unwrap();
        let (limiter, hand) = full(limits(window, None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        for (id, cost) in [("one", 100), ("crowd", 700)] {
            assert!(a.spend(id, cost).unwrap().allowed(), "{engine:?}");
        }
        make_room(&limiter);
        let all = || ["one", "crowd", "new"].map(|id| left(&limiter, id).unwrap());
        hand.advance(seconds(50));
        assert_eq!(all(), [200, 200, 1_000], "{engine:?}");
        hand.advance(seconds(50));
        assert_eq!(all(), [1_000; 3], "{engine:?}");
    }
}

/// The units of a place are used later than those of a spend.
#[test]
fn new_bucket_owes_for_its_places() {
    for engine in ENGINES {
        let (limiter, hand) = full(limits(a_second(10), None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        assert!(a.spend("crowd", 10).unwrap().allowed(), "{engine:?}");
        let place = a.reserve("one", 5, seconds(60)).unwrap();
        assert_eq!(place.wait(), seconds(5), "{engine:?}");
        hand.advance(seconds(4));
        make_room(&limiter);
        assert_eq!(left(&limiter, "one"), Some(0), "{engine:?}");
        hand.advance(seconds(3));
        assert_eq!(left(&limiter, "one"), Some(2), "{engine:?}");
        drop(place);
    }
}

/// The new limit refills more slowly, so a debt lasts longer. Until its new end each id owes all of it. Charges before that end
/// count from there.
#[test]
fn reload_makes_debts_of_untracked_keys_longer() {
    for engine in ENGINES {
        let (limiter, hand) = full(limits(a_second(10), None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        assert!(a.spend("one", 10).unwrap().allowed(), "{engine:?}");
        hand.advance(seconds(5));
        let slower = Limit::new(10, 1, seconds(100)).unwrap();
        limiter.reload(limits(slower, None, None)).unwrap();
        // Five units are owed until 505 s.
        hand.advance(seconds(15));
        assert!(a.spend("inside", 5).unwrap().allowed(), "{engine:?}");
        assert!(a.spend("one", 3).unwrap().allowed(), "{engine:?}");
        make_room(&limiter);
        assert_eq!(left(&limiter, "one"), Some(2), "{engine:?}");
        assert_eq!(left(&limiter, "new"), Some(2), "{engine:?}: it may be one of those that owe");
        hand.advance(seconds(500));
        assert_eq!(left(&limiter, "one"), Some(7), "{engine:?}: three units, until 805 s");
        assert_eq!(left(&limiter, "new"), Some(10), "{engine:?}");
    }
}

/// The place of a batch begins when its last member has one, also in a bucket that has the units now.
#[test]
fn new_bucket_owes_for_places_of_batches() {
    for engine in ENGINES {
        let limit = |burst, every| Limit::new(burst, 1, seconds(every)).unwrap();
        let limits = Limits::builder().limit("Slow", IdFormat::String, limit(1, 4)).unwrap();
        let limits = limits.limit(NAME, IdFormat::String, limit(10, 1)).unwrap();
        let (clock, hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine).max_keys(2);
        let limiter = Limiter::with_options(limits.build(), options).unwrap();
        let (slow, a) = (limiter.limit("Slow").unwrap(), limiter.limit(NAME).unwrap());
        assert!(slow.spend("one", 1).unwrap().allowed());
        assert!(a.spend("inside", 10).unwrap().allowed());
        assert!(a.spend("crowd", 5).unwrap().allowed());
        let members = [slow.member("one"), a.member("one").cost(3)];
        let place = limiter.batch(&members).reserve(seconds(10)).unwrap();
        assert_eq!(place.wait(), seconds(4), "{engine:?}");
        hand.advance(seconds(4));
        assert!(a.reset("inside").unwrap().allowed());
        sweep_all(&limiter);
        // The place is at the end of the crowd's debt: 8 s.
        assert_eq!(left(&limiter, "one"), Some(6), "{engine:?}");
        drop(place);
    }
}

/// A denied reservation charges nothing, so its id owes nothing.
#[test]
fn new_bucket_owes_no_denied_places() {
    for engine in ENGINES {
        let (limiter, _hand) = full(limits(a_second(10), None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        assert!(a.spend("crowd", 10).unwrap().allowed(), "{engine:?}");
        assert!(a.reserve("one", 5, seconds(1)).is_err(), "{engine:?}");
        make_room(&limiter);
        assert_eq!(left(&limiter, "one"), Some(10), "{engine:?}");
    }
}

/// The overflow bucket did not have the units of the settlement, so its id owes all of its debt.
#[test]
fn new_bucket_owes_for_settlements() {
    for engine in ENGINES {
        let (limiter, hand) = full(limits(a_second(10), None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        let (_, receipt) = a.spend_estimate("one", 1).unwrap();
        assert!(a.spend("crowd", 9).unwrap().allowed(), "{engine:?}");
        let _ = receipt.unwrap().settle(8);
        hand.advance(seconds(1));
        make_room(&limiter);
        assert_eq!(left(&limiter, "one"), Some(1), "{engine:?}");
        assert_eq!(left(&limiter, "crowd"), Some(2), "{engine:?}");
    }
}

/// The id's own debt ends before the overflow bucket's. While the table is full, a denial names the end of the latter.
#[test]
fn denied_untracked_key_waits_for_the_overflow() {
    for engine in ENGINES {
        let (limiter, hand) = full(limits(a_second(10), None, None), engine);
        let a = limiter.limit(NAME).unwrap();
        assert!(a.spend("one", 2).unwrap().allowed(), "{engine:?}");
        assert!(a.spend("crowd", 8).unwrap().allowed(), "{engine:?}");
        let (check, spend) = (a.check("one", 9).unwrap(), a.spend("one", 9).unwrap());
        assert_eq!(spend, check, "{engine:?}");
        assert_eq!((spend.remaining(), spend.retry_in()), (Some(0), seconds(9)), "{engine:?}");
        hand.advance(seconds(9));
        assert!(a.spend("one", 9).unwrap().allowed(), "{engine:?}");
    }
}
