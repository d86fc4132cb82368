//! The cap on buckets: ids with overrides beside it, and the parts of limits.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use tollgate::limits::{LimitOptions, OverrideOptions};
use tollgate::options::{AtCap, Engine};
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, full_size, hourly, limiter_with, limits, seconds, sweep_all};

const POLICIES: [AtCap; 3] = [AtCap::Share, AtCap::Deny, AtCap::Allow];

pub(crate) fn options(engine: Engine, max_keys: usize) -> LimiterOptions {
    LimiterOptions::default().engine(engine).max_keys(max_keys)
}

/// Admits `burst` units at once, and one an hour.
fn slow(burst: u64) -> Limit {
    Limit::new(burst, 1, seconds(3_600)).unwrap()
}

/// Spends 1 of `ids` new ids of a limit.
fn fill(handle: &KeyedLimit, from: u64, ids: u64) {
    for id in from..from + ids {
        let _ = handle.spend(id.to_string().as_str(), 1).unwrap();
    }
}

/// Spends all units of `ids` new ids, each of which must have its own bucket: `burst` units, and not one more.
fn assert_own_buckets(handle: &KeyedLimit, name: &str, ids: u64, burst: u64, why: &str) {
    for id in 0..ids {
        let id = format!("{name}{id}");
        for left in (0..burst).rev() {
            let checked = handle.check(id.as_str(), 1).unwrap();
            let spent = handle.spend(id.as_str(), 1).unwrap();
            assert!(spent.allowed() && spent.remaining() == Some(left), "{why}: {id}, {spent:?}");
            assert_eq!(spent, checked, "{why}: {id}");
        }
        let denied = handle.spend(id.as_str(), 1).unwrap();
        assert!(!denied.allowed(), "{why}: {id}, {denied:?}");
    }
}

/// "A" has a default of 10 an hour, and 50 for `vips` ids.
fn with_vips(vips: u64) -> Limits {
    let builder = Limits::builder().limit("A", IdFormat::String, hourly(10)).unwrap();
    let add = |builder: tollgate::limits::LimitsBuilder, id| {
        builder.override_id("A", format!("vip{id}").as_str(), hourly(50)).unwrap()
    };
    (0..vips).fold(builder, add).build()
}

#[test]
fn ids_with_overrides_get_buckets_beside_the_cap() {
    for engine in ENGINES {
        for policy in POLICIES {
            let why = format!("{engine:?} {policy:?}");
            let (limiter, _) = limiter_with(with_vips(5), options(engine, 10).at_cap(policy));
            let a = limiter.limit("A").unwrap();
            fill(&a, 0, 20);
            assert_eq!(limiter.stats().cells, 10, "{why}");
            assert_own_buckets(&a, "vip", 5, 50, &why);
            assert_eq!(limiter.stats().cells, 15, "{why}");
        }
    }
}

#[test]
fn invented_keys_leave_addresses_buckets_of_their_own() {
    for engine in ENGINES {
        for policy in POLICIES {
            let why = format!("{engine:?} {policy:?}");
            let both = limits(&[("PerKey", hourly(10)), ("PerClient", hourly(5))]);
            let (limiter, _) = limiter_with(both, options(engine, 1_000).at_cap(policy));
            fill(&limiter.limit("PerKey").unwrap(), 0, 1_200);
            assert_eq!(limiter.stats().cells, 750, "{why}: its quarter, and the common half");
            assert_own_buckets(&limiter.limit("PerClient").unwrap(), "c", 250, 5, &why);
            assert_eq!(limiter.stats().cells, 1_000, "{why}");
        }
    }
}

#[test]
fn a_limit_alone_has_all_buckets() {
    for engine in ENGINES {
        for max_keys in [0, 1, 2, 3, 7, 1_000] {
            let (limiter, _) =
                limiter_with(limits(&[("A", hourly(10))]), options(engine, max_keys));
            fill(&limiter.limit("A").unwrap(), 0, 2 * max_keys as u64);
            assert_eq!(limiter.stats().cells, max_keys, "{engine:?}");
        }
    }
}

pub(crate) fn with_own(own: &[(&str, Option<usize>)]) -> Limits {
    let mut builder = Limits::builder();
    for (name, keys) in own {
        let options = LimitOptions::default();
        let options = keys.map_or(options.clone(), |keys| options.max_keys(keys));
        builder = builder.limit_with(name, IdFormat::String, hourly(10), options).unwrap();
    }
    builder.build()
}

#[test]
fn a_limit_with_max_keys_has_no_others() {
    for engine in ENGINES {
        let own = with_own(&[("A", Some(30)), ("B", None), ("C", None)]);
        let (limiter, _) = limiter_with(own, options(engine, 100));
        let [a, b, c] = ["A", "B", "C"].map(|name| limiter.limit(name).unwrap());
        fill(&a, 0, 100);
        assert_eq!(limiter.stats().cells, 30, "{engine:?}");
        fill(&b, 0, 100);
        assert_eq!(limiter.stats().cells, 30 + 53, "{engine:?}: 17 of 70, and 36 common");
        fill(&c, 0, 100);
        assert_eq!(limiter.stats().cells, 100, "{engine:?}");
    }
}

#[test]
fn more_max_keys_than_there_are_is_error() {
    let text = "max_keys of the limits (A 60, C 41) are 101 in all, shadows included: at most 100, the limiter's \
                max_keys, is allowed";
    let too_many = || with_own(&[("A", Some(60)), ("B", None), ("C", Some(41))]);
    for engine in ENGINES {
        let error = Limiter::with_options(too_many(), options(engine, 100)).unwrap_err();
        assert!(error.is_invalid_limit());
        assert_eq!(error.to_string(), text);
        for (named, shown) in [
            (&["A", "B", "C"][..], "(A 50, B 50, C 50)"),
            (&["A", "B", "C", "D"], "(A 50, B 50, C 50, ...)"),
        ] {
            let own: Vec<_> = named.iter().map(|name| (*name, Some(50))).collect();
            let error = Limiter::with_options(with_own(&own), options(engine, 100));
            assert!(error.unwrap_err().to_string().contains(shown), "{shown}");
        }
        // Every call of B would lack room, for good.
        let none_left = with_own(&[("A", Some(60)), ("B", None), ("C", Some(40))]);
        let error = Limiter::with_options(none_left, options(engine, 100)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "max_keys of the limits (A 60, C 40) are 100 in all, shadows included: at most 99, the limiter's max_keys, less \
             1 for B, which has none, is allowed"
        );
        let fits = with_own(&[("A", Some(60)), ("B", None), ("C", Some(39))]);
        let (limiter, _) = limiter_with(fits, options(engine, 100));
        assert_eq!(limiter.reload(too_many()).unwrap_err().to_string(), text);
        let b = limiter.limit("B").unwrap();
        fill(&b, 0, 10);
        assert_eq!(limiter.stats().cells, 1, "one place is left for B");
    }
}

#[test]
fn shadow_has_as_many_buckets_as_its_limit() {
    for engine in ENGINES {
        let options_of_a = LimitOptions::default().max_keys(10).shadow(hourly(5));
        let builder = Limits::builder().limit_with("A", IdFormat::String, hourly(10), options_of_a);
        let named = builder.unwrap().limit("B", IdFormat::String, hourly(5)).unwrap().build();
        let (limiter, _) = limiter_with(named, options(engine, 100));
        fill(&limiter.limit("A").unwrap(), 0, 100);
        assert_eq!(limiter.stats().cells, 20, "{engine:?}");
        assert_own_buckets(&limiter.limit("B").unwrap(), "b", 80, 5, "the rest");
    }
}

/// An override gives a bucket beside the cap, and its end or a reload without it brings the bucket back under the cap.
#[test]
fn a_bucket_is_counted_where_its_override_says() {
    for engine in ENGINES {
        let why = format!("{engine:?}");
        let options = options(engine, 10).at_cap(AtCap::Deny);
        let (limiter, hand) = limiter_with(with_vips(0), options);
        let a = limiter.limit("A").unwrap();
        for id in 0..5 {
            assert!(a.spend(format!("vip{id}").as_str(), 1).unwrap().allowed());
        }
        fill(&a, 0, 20);
        assert_eq!(limiter.stats().cells, 10, "{why}");
        // Each of the five gives its place under the cap to another id.
        limiter.reload(with_vips(5)).unwrap();
        fill(&a, 20, 20);
        assert_eq!(limiter.stats().cells, 15, "{why}");
        limiter.reload(with_vips(3)).unwrap();
        assert_eq!(limiter.stats().cells, 15, "{why}: no bucket is lost");
        fill(&a, 40, 20);
        assert_eq!(limiter.stats().cells, 15, "{why}: and none gets in");
        hand.advance(seconds(3_600));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{why}");
        fill(&a, 60, 20);
        assert_own_buckets(&a, "vip", 3, 50, &why);
        assert_eq!(limiter.stats().cells, 13, "{why}");
    }
}

#[test]
fn bucket_counts_after_its_overrides_end() {
    for engine in ENGINES {
        let end = OverrideOptions::default().expires(SystemTime::now() + seconds(3_600));
        let named = Limits::builder().limit("A", IdFormat::String, slow(10)).unwrap();
        let named = named.override_with("A", "vip", slow(50), end).unwrap().build();
        let (limiter, hand) = limiter_with(named, options(engine, 4).at_cap(AtCap::Deny));
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("vip", 50).unwrap().allowed());
        fill(&a, 0, 10);
        assert_eq!(limiter.stats().cells, 5, "{engine:?}");
        hand.advance(seconds(7_200));
        // Its debt is the used share: the whole bucket of 10.
        assert!(!a.spend("vip", 10).unwrap().allowed(), "{engine:?}");
        assert_eq!(limiter.stats().cells, 5, "{engine:?}");
        assert!(a.spend("vip", 1).unwrap().allowed(), "{engine:?}: an hour has passed since");
        // The others are full, and give their places to three, because the fourth is the bucket's.
        sweep_all(&limiter);
        fill(&a, 20, 10);
        assert_eq!(limiter.stats().cells, 4, "{engine:?}");
        hand.advance(seconds(86_400));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
        fill(&a, 40, 10);
        assert_eq!(limiter.stats().cells, 4, "{engine:?}: no place is lost");
    }
}

#[test]
fn parts_follow_a_reload() {
    for engine in ENGINES {
        let one = || limits(&[("A", slow(10))]);
        let two = || limits(&[("A", slow(10)), ("B", slow(5))]);
        let (limiter, hand) = limiter_with(one(), options(engine, 100).at_cap(AtCap::Deny));
        let a = limiter.limit("A").unwrap();
        fill(&a, 0, 40);
        hand.advance(seconds(1_800));
        fill(&a, 40, 100);
        assert_eq!(limiter.stats().cells, 100, "{engine:?}");
        limiter.reload(two()).unwrap();
        let b = limiter.limit("B").unwrap();
        assert!(b.check("0", 1).unwrap().out_of_room(), "{engine:?}");
        fill(&b, 0, 40);
        assert_eq!(limiter.stats().cells, 100, "{engine:?}: the cap holds");
        hand.advance(seconds(1_800));
        // 40 buckets of A are full. A keeps 60, which are fewer than its quarter and the common half.
        sweep_all(&limiter);
        fill(&b, 0, 25);
        fill(&a, 1_000, 40);
        assert_eq!(limiter.stats().cells, 100, "{engine:?}: 25 are B's, 75 are A's");
        assert!(b.check("0", 4).unwrap().allowed() && b.check("24", 4).unwrap().allowed());
        assert!(b.check("new", 1).unwrap().out_of_room(), "{engine:?}");
        assert!(a.spend("new", 1).unwrap().out_of_room(), "{engine:?}");
        drop(b);
        limiter.reload(one()).unwrap();
        fill(&a, 2_000, 200);
        assert_eq!(limiter.stats().cells, 100, "{engine:?}: A is alone again");
    }
}

#[test]
fn batch_is_denied_for_member_without_room() {
    for engine in ENGINES {
        let named = with_own(&[("A", Some(1)), ("B", Some(10))]);
        let (limiter, hand) = limiter_with(named, options(engine, 20).at_cap(AtCap::Deny));
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        assert!(a.spend("x", 5).unwrap().allowed());
        let members = [b.member("new"), a.member("new")];
        let checked = limiter.batch(&members).check().unwrap();
        let denied = limiter.batch(&members).spend().unwrap();
        assert_eq!(denied, checked, "{engine:?}");
        assert!(denied.out_of_room() && denied.denied_by() == Some(1), "{engine:?}: {denied:?}");
        assert_eq!(b.check("new", 0).unwrap().remaining(), Some(10), "{engine:?}");
        assert_eq!(denied.retry_in(), seconds(1_800), "{engine:?}");
        hand.advance(denied.retry_in());
        assert!(limiter.batch(&members).spend().unwrap().allowed(), "{engine:?}");
    }
}

#[cfg(feature = "boulder")]
#[test]
fn accounts_override_gives_no_room_beside_the_cap() {
    let name = "CertificatesPerDomainPerAccount";
    for engine in ENGINES {
        let limits = Limits::builder()
            .limit(name, IdFormat::RegIdDomainOrCidr, hourly(10))
            .unwrap()
            .override_id(name, "7", hourly(50))
            .unwrap()
            .override_id(name, "7:own.com", hourly(60))
            .unwrap();
        let (limiter, hand) = limiter_with(limits.build(), options(engine, 3));
        let certificates = limiter.limit(name).unwrap();
        for id in ["7:a.com", "7:b.com", "8:a.com", "8:b.com"] {
            assert!(certificates.spend(id, 5).unwrap().allowed(), "{engine:?} {id}");
        }
        let denied = certificates.spend("7:c.com", 1).unwrap();
        assert!(denied.out_of_room() && denied.retry_in() == seconds(360), "{engine:?} {denied:?}");
        assert_eq!(certificates.spend("7:own.com", 1).unwrap().remaining(), Some(59));
        assert_eq!(limiter.stats().cells, 4, "{engine:?}");
        hand.advance(denied.retry_in());
        assert!(certificates.spend("7:c.com", 1).unwrap().allowed(), "{engine:?}");
    }
}

/// A bucket under the limit of the account tells no wait for one under the default.
#[cfg(feature = "boulder")]
#[test]
fn wait_of_account_without_bucket_is_the_defaults() {
    let name = "CertificatesPerDomainPerAccount";
    for engine in ENGINES {
        let named = Limits::builder().limit(name, IdFormat::RegIdDomainOrCidr, hourly(10)).unwrap();
        let named = named.override_id(name, "7", slow(50)).unwrap().build();
        let (limiter, _) = limiter_with(named, options(engine, 0).at_cap(AtCap::Deny));
        let denied = limiter.limit(name).unwrap().spend("7:a.com", 1).unwrap();
        assert!(denied.out_of_room() && denied.retry_in() == seconds(3_600), "{denied:?}");
    }
}

#[cfg(feature = "boulder")]
#[test]
fn new_override_of_account_leaves_buckets_capped() {
    let name = "CertificatesPerDomainPerAccount";
    for engine in ENGINES {
        let before = || Limits::builder().limit(name, IdFormat::RegIdDomainOrCidr, hourly(10));
        let options = options(engine, 3).at_cap(AtCap::Deny);
        let (limiter, _) = limiter_with(before().unwrap().build(), options);
        let certificates = limiter.limit(name).unwrap();
        for id in ["7:a.com", "7:b.com", "8:a.com"] {
            assert!(certificates.spend(id, 5).unwrap().allowed(), "{engine:?} {id}");
        }
        limiter
            .reload(before().unwrap().override_id(name, "7", hourly(50)).unwrap().build())
            .unwrap();
        for id in ["7:c.com", "8:b.com"] {
            assert!(certificates.spend(id, 1).unwrap().out_of_room(), "{engine:?} {id}");
        }
        assert_eq!(limiter.stats().cells, 3, "{engine:?}");
    }
}

#[cfg(feature = "snapshot")]
#[test]
fn a_restored_bucket_is_counted_where_it_belongs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let why = format!("{engine:?}");
        let (limiter, _) = limiter_with(with_vips(3), options(engine, 10));
        let a = limiter.limit("A").unwrap();
        fill(&a, 0, 20);
        for id in 0..3 {
            assert!(a.spend(format!("vip{id}").as_str(), 1).unwrap().allowed());
        }
        limiter.snapshot(&path).unwrap();
        // A limit more, of which A's part is smaller than its buckets are.
        let builder = Limits::builder().limit("A", IdFormat::String, hourly(10)).unwrap();
        let builder = builder.override_id("A", "vip0", hourly(50)).unwrap();
        let named = builder.limit("B", IdFormat::String, hourly(10)).unwrap().build();
        let (clock, hand) = Clock::manual();
        let max_keys = options(engine, 12).clock(clock);
        let (limiter, restored) = Limiter::restore(named, max_keys, &path).unwrap();
        assert_eq!((restored.buckets, limiter.stats().cells), (13, 13), "{why}");
        let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
        fill(&a, 100, 20);
        fill(&b, 100, 20);
        assert_eq!(limiter.stats().cells, 13, "{why}: 12 and one beside");
        hand.advance(seconds(36_000));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{why}");
        fill(&a, 200, 20);
        fill(&b, 200, 20);
        assert_own_buckets(&a, "vip", 1, 50, &why);
        assert_eq!(limiter.stats().cells, 13, "{why}");
    }
}

/// Overrides that are there no more had their buckets beside the cap, which has fewer places than the file has buckets.
#[cfg(feature = "snapshot")]
#[test]
fn restored_buckets_may_be_more_than_the_cap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let (limiter, _) = limiter_with(with_vips(3), options(engine, 10).at_cap(AtCap::Deny));
        let a = limiter.limit("A").unwrap();
        fill(&a, 0, 20);
        for id in 0..3 {
            assert!(a.spend(format!("vip{id}").as_str(), 1).unwrap().allowed());
        }
        limiter.snapshot(&path).unwrap();
        let (clock, hand) = Clock::manual();
        let options = options(engine, 10).clock(clock).at_cap(AtCap::Deny);
        let (limiter, restored) = Limiter::restore(with_vips(0), options, &path).unwrap();
        assert_eq!((restored.buckets, limiter.stats().cells), (13, 13), "{engine:?}");
        let a = limiter.limit("A").unwrap();
        let denied = a.spend("new", 1).unwrap();
        assert!(denied.out_of_room(), "{engine:?}: {denied:?}");
        hand.advance(seconds(36_000));
        sweep_all(&limiter);
        fill(&a, 100, 20);
        assert_eq!(limiter.stats().cells, 10, "{engine:?}");
    }
}

/// Threads insert ids of three limits and of overrides while sweeps and reloads go on. The cap is never exceeded, and no
/// place is lost.
#[test]
fn the_cap_holds_under_threads_sweeps_and_reloads() {
    const MAX_KEYS: usize = 300;
    const VIPS: usize = 20;
    let named = |parts: bool| {
        let mut builder = Limits::builder();
        let short = Limit::new(5, 5, Duration::from_micros(50)).unwrap();
        for (name, own) in [("A", None), ("B", Some(40)), ("C", None)] {
            let options = LimitOptions::default();
            let own = own.filter(|_| parts);
            let options = own.map_or(options.clone(), |own| options.max_keys(own));
            builder = builder.limit_with(name, IdFormat::String, short.clone(), options).unwrap();
        }
        for id in 0..VIPS {
            builder = builder.override_id("A", format!("vip{id}").as_str(), hourly(50)).unwrap();
        }
        builder.build()
    };
    for engine in ENGINES {
        let (clock, hand) = Clock::manual();
        let options = options(engine, MAX_KEYS).clock(clock);
        let limiter = Limiter::with_options(named(false), options).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut spenders = Vec::new();
            for thread in 0..3_u64 {
                let handles = ["A", "B", "C"].map(|name| limiter.limit(name).unwrap());
                let (limiter, hand) = (&limiter, &hand);
                spenders.push(scope.spawn(move || {
                    for round in 0..full_size(10_000, 30_000_u64) {
                        let id = round * 7 + thread;
                        let handle = &handles[(id % 3) as usize];
                        if id % 16 == 0 {
                            let vip = format!("vip{}", id as usize / 16 % VIPS);
                            let _ = handles[0].spend(vip.as_str(), 1).unwrap();
                        } else {
                            let _ = handle.spend(id.to_string().as_str(), 1).unwrap();
                        }
                        hand.advance(Duration::from_nanos(50));
                        let cells = limiter.stats().cells;
                        assert!(cells <= MAX_KEYS + VIPS, "{engine:?}: {cells} cells");
                    }
                }));
            }
            let (stop, limiter) = (&stop, &limiter);
            let helpers = [
                scope.spawn(move || {
                    while !stop.load(SeqCst) {
                        limiter.sweep(64);
                    }
                }),
                scope.spawn(move || {
                    let mut parts = true;
                    while !stop.load(SeqCst) {
                        limiter.reload(named(parts)).unwrap();
                        parts = !parts;
                    }
                }),
            ];
            let ended: Vec<_> = spenders.into_iter().map(|spender| spender.join()).collect();
            stop.store(true, SeqCst);
            assert!(ended.iter().all(Result::is_ok));
            assert!(helpers.into_iter().all(|helper| helper.join().is_ok()));
        });
        limiter.reload(named(true)).unwrap();
        hand.advance(seconds(7_200));
        sweep_all(&limiter);
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
        // 65 of each for A and C, 130 common, 40 for B.
        let [a, b, c] = ["A", "B", "C"].map(|name| limiter.limit(name).unwrap());
        fill(&a, 0, 1_000);
        assert_eq!(limiter.stats().cells, 195, "{engine:?}");
        fill(&b, 0, 1_000);
        fill(&c, 0, 1_000);
        for id in 0..VIPS {
            assert!(a.spend(format!("vip{id}").as_str(), 1).unwrap().allowed());
        }
        assert_eq!(limiter.stats().cells, MAX_KEYS + VIPS, "{engine:?}");
    }
}
