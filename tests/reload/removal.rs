//! Limits that a reload takes away: which are refused, and what is left of the others.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use tollgate::options::Engine;
use tollgate::reload::{CarryOver, ReloadOptions};
use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::support::rules::hooked;
use super::support::{ENGINES, hourly, limiter, limiter_with, limits, seconds};

fn removing() -> ReloadOptions {
    ReloadOptions::default().remove_missing(true)
}

fn ab() -> Limits {
    limits(&[("A", hourly(10)), ("B", hourly(20))])
}

fn only_b() -> Limits {
    limits(&[("B", hourly(20))])
}

fn by_address() -> Limits {
    Limits::builder().limit("A", IdFormat::IpAddress, hourly(5)).unwrap().build()
}

fn by_address_with_b() -> Limits {
    let builder = Limits::builder().limit("A", IdFormat::IpAddress, hourly(5)).unwrap();
    builder.limit("B", IdFormat::String, hourly(20)).unwrap().build()
}

fn left(limiter: &Limiter, name: &str, id: &str) -> Option<u64> {
    limiter.limit(name).unwrap().check(id, 0).unwrap().remaining()
}

#[test]
fn limit_of_a_live_handle_is_not_removed() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(ab(), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("x", 7).unwrap().allowed());
        let clone = a.clone();
        drop(a);
        let error = limiter.reload(only_b()).unwrap_err();
        assert!(error.is_invalid_limit(), "{error:?}");
        assert_eq!(
            error.to_string(),
            "the new limits lack A, of which handles, layers or batches are alive: declare each under its name, with `enabled: false` to switch it off, or remove them by ReloadOptions::remove_missing"
        );
        assert_eq!(clone.check("x", 0).unwrap().remaining(), Some(3), "nothing has changed");
        assert_eq!(limiter.counters().generation, 0);
        drop(clone);
        let reloaded = limiter.reload(only_b()).unwrap();
        assert_eq!((reloaded.generation, &*reloaded.removed), (1, &["A".to_owned()][..]));
    }
}

#[test]
fn error_names_the_new_name_most_like_it() {
    let old = [("PerIp", 1), ("PerIp6", 1), ("Login", 1), ("Uploads", 1)];
    let of = |names: &[(&str, u64)]| {
        limits(&names.iter().map(|&(name, burst)| (name, hourly(burst))).collect::<Vec<_>>())
    };
    let limiter = Limiter::new(of(&old));
    let handles: Vec<_> = old.iter().map(|(name, _)| limiter.limit(name).unwrap()).collect();
    let refused = |new: &[(&str, u64)]| limiter.reload(of(new)).unwrap_err().to_string();
    // Names that were there before are no other spelling of a missing one.
    let error = refused(&[("PerIP", 1), ("PerIp6", 1), ("Logins", 1), ("Uploads", 1)]);
    assert!(error.contains("lack PerIp (there is PerIP), Login (there is Logins), of"), "{error}");
    let error = refused(&[("PerIp6", 1), ("Downloaded", 1), ("Login", 1), ("Uploads", 1)]);
    assert!(error.contains("lack PerIp, of"), "{error}");
    let many: Vec<_> = (0..20).map(|at| format!("Many{at}")).collect();
    let many: Vec<_> = many.iter().map(|name| (&**name, hourly(1))).collect();
    let limiter = Limiter::new(limits(&many));
    let all: Vec<_> = many.iter().map(|(name, _)| limiter.limit(name).unwrap()).collect();
    let error = limiter.reload(only_b()).unwrap_err().to_string();
    assert!(error.contains("Many7 and 12 more, of which"), "{error}");
    drop((handles, all));
}

#[test]
fn option_removes_limits_of_live_handles() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(ab(), engine);
        let a = limiter.limit("A").unwrap();
        for i in 0..1000 {
            assert!(a.spend(format!("id {i}").as_str(), 10).unwrap().allowed());
        }
        assert!(limiter.limit("B").unwrap().spend("kept", 1).unwrap().allowed());
        let reloaded = limiter.reload_with(only_b(), removing()).unwrap();
        assert_eq!(reloaded.removed, ["A"]);
        assert_eq!(limiter.stats().cells, 1, "{engine:?}: that of B");
        assert_eq!(a.spend("id 1", 10).unwrap().remaining(), None, "no limit");
        assert_eq!(limiter.limits().names().collect::<Vec<_>>(), ["B"]);
        assert_eq!(left(&limiter, "A", "id 1"), None, "known while a handle is alive");
        assert!(!limiter.reload(only_b()).unwrap().changed);
        limiter.reload(ab()).unwrap();
        assert_eq!(a.check("id 1", 0).unwrap().remaining(), Some(10), "it starts full");
        assert_eq!(left(&limiter, "B", "kept"), Some(19));
        assert_eq!(limiter.counters().limits_removed, 1);
    }
}

#[test]
fn a_name_without_handle_is_forgotten() {
    for engine in ENGINES {
        let options = LimiterOptions::default().counting(true).top_denied(5).engine(engine);
        let (limiter, _hand) = limiter_with(ab(), options);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("x", 10).unwrap().allowed() && !a.spend("x", 10).unwrap().allowed());
        assert_eq!(limiter.top_denied().len(), 1);
        drop(a);
        limiter.reload(only_b()).unwrap();
        let error = limiter.limit("A").unwrap_err();
        assert!(error.is_invalid_name(), "{error}");
        assert_eq!(limiter.top_denied(), []);
        // It may return with another format, and knows nothing of before.
        let new = Limits::builder().limit("A", IdFormat::IpAddress, hourly(5)).unwrap();
        limiter.reload(new.limit("B", IdFormat::String, hourly(20)).unwrap().build()).unwrap();
        assert_eq!(left(&limiter, "A", "192.0.2.1"), Some(5));
        assert!(limiter.counters().limits.iter().all(|limit| limit.allowed + limit.denied == 0));
    }
}

#[test]
fn id_format_changes_only_without_handle() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(limits(&[("A", hourly(10))]), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("192.0.2.1", 10).unwrap().allowed());
        for options in [ReloadOptions::default(), removing()] {
            let error = limiter.reload_with(by_address(), options).unwrap_err();
            assert!(error.is_invalid_limit(), "{error}");
            assert_eq!(
                error.to_string(),
                "the ids of A are string and cannot become ipAddress while handles, layers or batches of it are alive: give the limit another name"
            );
        }
        assert_eq!(a.check("192.0.2.1", 0).unwrap().remaining(), Some(0));
        drop(a);
        let reloaded = limiter.reload(by_address()).unwrap();
        assert!(reloaded.changed && reloaded.removed.is_empty());
        assert_eq!(limiter.stats().cells, 0, "the buckets of texts are gone");
        assert_eq!(left(&limiter, "A", "192.0.2.1"), Some(5));
    }
}

#[test]
fn a_rename_beside_a_new_limit() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(ab(), engine);
        assert!(limiter.limit("A").unwrap().spend("x", 4).unwrap().allowed());
        let renamed = || limits(&[("C", hourly(10)), ("D", hourly(10)), ("B", hourly(20))]);
        let a = limiter.limit("A").unwrap();
        assert!(limiter.reload(renamed()).unwrap_err().is_invalid_limit());
        drop(a);
        assert_eq!(limiter.reload(renamed()).unwrap().removed, ["A"]);
        for name in ["C", "D"] {
            assert_eq!(left(&limiter, name, "x"), Some(10), "no bucket follows another name");
        }
        // The index of A is free by now.
        let b = limiter.limit("B").unwrap();
        assert!(b.spend("x", 5).unwrap().allowed());
        let more = [("C", hourly(10)), ("D", hourly(10)), ("B", hourly(20)), ("E", hourly(10))];
        limiter.reload(limits(&more)).unwrap();
        assert_eq!((left(&limiter, "E", "x"), left(&limiter, "B", "x")), (Some(10), Some(15)));
    }
}

#[test]
fn options_keep_one_another() {
    let both = ReloadOptions::default().carry_over(CarryOver::Units).remove_missing(true);
    assert_eq!(removing().carry_over(CarryOver::Units), both);
    assert_eq!(removing().remove_missing(false), ReloadOptions::default());
}

#[test]
fn each_removed_limit_is_counted() {
    let (limiter, _hand) = limiter(
        limits(&[("A", hourly(10)), ("B", hourly(20)), ("C", hourly(1))]),
        Engine::LockFree,
    );
    assert_eq!(limiter.reload(only_b()).unwrap().removed, ["A", "C"]);
    assert_eq!(limiter.counters().limits_removed, 2);
}

/// An override alone does not declare its limit, but keeps its name and the buckets of its ids.
#[cfg(feature = "boulder")]
#[test]
fn limit_of_overrides_alone_is_removed_and_known() {
    let name = "NewOrdersPerAccount";
    for engine in ENGINES {
        let overrides = || Limits::builder().override_id(name, 7, hourly(50)).unwrap();
        let all = overrides().limit(name, IdFormat::RegId, hourly(10)).unwrap().build();
        let (limiter, _hand) = limiter(all, engine);
        let orders = limiter.limit(name).unwrap();
        assert!(orders.spend(7, 5).unwrap().allowed());
        let error = limiter.reload(overrides().build()).unwrap_err().to_string();
        assert!(error.contains("lack NewOrdersPerAccount"), "{error}");
        drop(orders);
        assert_eq!(limiter.reload(overrides().build()).unwrap().removed, [name]);
        let orders = limiter.limit(name).unwrap();
        assert_eq!(orders.check(7, 0).unwrap().remaining(), Some(45), "{engine:?}");
        assert_eq!(orders.check(8, 0).unwrap().remaining(), None, "{engine:?}");
    }
}

/// Neither change alone can be missed: a limit without a default comes as another one goes.
#[test]
fn a_limit_without_default_replaces_another() {
    let (limiter, _hand) = limiter(ab(), Engine::LockFree);
    limiter.reload_with(only_b(), removing()).unwrap();
    let a = limiter.limit("B").unwrap();
    let none = || Limits::builder().limit("A", IdFormat::String, None::<Limit>).unwrap().build();
    let known = limits(&[("A", hourly(1)), ("B", hourly(20))]);
    limiter.reload(known).unwrap();
    let held = limiter.limit("A").unwrap();
    limiter.reload_with(only_b(), removing()).unwrap();
    let reloaded = limiter.reload_with(none(), removing()).unwrap();
    assert!(reloaded.changed && reloaded.removed == ["B"], "{reloaded:?}");
    assert_eq!(a.spend("x", 99).unwrap().remaining(), None);
    drop(held);
}

/// A batch has handles, and a member whose limit was removed limits nothing.
#[test]
fn batch_with_a_member_of_a_removed_limit() {
    let (limiter, _hand) = limiter(ab(), Engine::LockFree);
    let (a, b) = (limiter.limit("A").unwrap(), limiter.limit("B").unwrap());
    let members = [a.member("x").cost(10), b.member("x").cost(10)];
    let batch = limiter.batch(&members);
    assert!(limiter.reload(only_b()).is_err());
    assert!(batch.spend().unwrap().allowed());
    assert!(!batch.spend().unwrap().allowed());
    limiter.reload_with(only_b(), removing()).unwrap();
    assert!(batch.spend().unwrap().allowed(), "B has 10 left");
    assert!(!batch.spend().unwrap().allowed(), "by B");
}

#[test]
fn a_switched_off_limit_charges_nothing() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(ab(), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("x", 10).unwrap().allowed());
        let (_, receipt) = a.spend_estimate("y", 10).unwrap();
        let off = || {
            let builder = Limits::builder().limit("A", IdFormat::String, hourly(10)).unwrap();
            let builder = builder.limit("B", IdFormat::String, hourly(20)).unwrap();
            builder.disable("A").unwrap().build()
        };
        let reloaded = limiter.reload(off()).unwrap();
        assert!(reloaded.changed && reloaded.removed.is_empty());
        for _ in 0..100 {
            assert_eq!(a.spend("x", 10).unwrap().remaining(), None);
        }
        assert_eq!(limiter.stats().cells, 0);
        limiter.reload(ab()).unwrap();
        assert_eq!(a.spend("x", 10).unwrap().remaining(), Some(0), "it starts full");
        assert_eq!(a.spend("y", 10).unwrap().remaining(), Some(0));
        let settled = receipt.unwrap().settle(0).remaining();
        assert_eq!(settled, Some(10), "the limit is the same as before");
        // What is off can go beside a live handle.
        limiter.reload(off()).unwrap();
        assert_eq!(limiter.reload(only_b()).unwrap().removed, ["A"]);
        assert_eq!(a.spend("x", 99).unwrap().remaining(), None);
    }
}

/// A receipt does not keep its limit. The limit that has its index afterwards gets nothing back.
#[test]
fn receipt_of_a_forgotten_limit_returns_nothing() {
    for engine in ENGINES {
        for shadow in [false, true] {
            let with_shadow = |names: &[&str]| {
                let options = tollgate::limits::LimitOptions::default();
                let options = if shadow { options.shadow(hourly(10)) } else { options };
                let add = |builder: tollgate::limits::LimitsBuilder, name: &&str| {
                    let options = options.clone();
                    builder.limit_with(name, IdFormat::String, hourly(10), options).unwrap()
                };
                names.iter().fold(Limits::builder(), add).build()
            };
            let (limiter, _hand) = limiter(with_shadow(&["A", "B"]), engine);
            let a = limiter.limit("A").unwrap();
            let receipts: Vec<_> =
                (0..4).map(|_| a.spend_estimate("x", 2).unwrap().1.unwrap()).collect();
            let place = a.reserve("x", 6, seconds(7200)).unwrap();
            drop(a);
            limiter.reload(with_shadow(&["B"])).unwrap();
            limiter.reload(with_shadow(&["B", "C", "D"])).unwrap();
            let (c, d) = (limiter.limit("C").unwrap(), limiter.limit("D").unwrap());
            for new in [&c, &d] {
                assert!(new.spend("x", 10).unwrap().allowed());
            }
            place.cancel();
            for (at, receipt) in receipts.into_iter().enumerate() {
                let _ = receipt.settle(at as u64);
            }
            for new in [&c, &d] {
                assert_eq!(new.check("x", 0).unwrap().remaining(), Some(0), "{engine:?}");
            }
        }
    }
}

/// A block stays with its limit's name, and the name with the block.
#[test]
fn blocks_keep_their_limits_name() {
    for engine in ENGINES {
        let (limiter, hand) = limiter(ab(), engine);
        assert_eq!(limiter.limit("A").unwrap().block("x", seconds(100)).unwrap(), seconds(100));
        assert_eq!(limiter.reload(only_b()).unwrap().removed, ["A"]);
        assert_eq!(left(&limiter, "A", "x"), None, "known, and limits nothing");
        assert_eq!(limiter.blocks()[0].limit, "A");
        let error = limiter.reload(by_address()).unwrap_err().to_string();
        assert!(error.contains("cannot become ipAddress while ids of it are blocked"), "{error}");
        limiter.reload(limits(&[("C", hourly(1)), ("A", hourly(10)), ("B", hourly(20))])).unwrap();
        assert!(!limiter.limit("A").unwrap().spend("x", 1).unwrap().allowed());
        hand.advance(seconds(101));
        assert!(limiter.reload(by_address()).unwrap().changed);
        assert_eq!(limiter.blocks(), []);
    }
}

/// The indices of a snapshot's limits that are gone, or that a reload removes before or after, mix up no buckets.
#[cfg(feature = "snapshot")]
#[test]
fn a_restored_limiter_forgets_names_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let of =
        |names: &[&str]| limits(&names.iter().map(|&name| (name, hourly(10))).collect::<Vec<_>>());
    for engine in ENGINES {
        let path = folder.path().join("buckets");
        let (old, _hand) = limiter(of(&["Gone", "A", "B"]), engine);
        old.reload(of(&["A", "B", "C"])).unwrap();
        for (name, units) in [("A", 1), ("B", 2), ("C", 3)] {
            assert!(old.limit(name).unwrap().spend("x", units).unwrap().allowed());
        }
        old.snapshot(&path).unwrap();
        let (clock, _hand) = tollgate::Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let (new, restored) = Limiter::restore(of(&["C", "D", "B"]), options, &path).unwrap();
        assert_eq!((restored.buckets, &*restored.gone), (2, &["A".to_owned()][..]));
        let b = new.limit("B").unwrap();
        assert_eq!(new.reload(of(&["B", "C", "E"])).unwrap().removed, ["D"]);
        assert_eq!(new.reload(of(&["B", "C", "E", "F", "A", "D"])).unwrap().removed, [""; 0]);
        assert!(new.reload(of(&["C"])).is_err(), "B is in use");
        assert_eq!(
            (left(&new, "C", "x"), b.check("x", 0).unwrap().remaining()),
            (Some(7), Some(8))
        );
        for name in ["A", "D", "E", "F"] {
            assert_eq!(left(&new, name, "x"), Some(10), "{engine:?} {name}");
        }
        new.snapshot(&path).unwrap();
        let options = LimiterOptions::default().engine(engine);
        let (_, restored) = Limiter::restore(of(&["B", "C"]), options, &path).unwrap();
        assert_eq!(restored.buckets, 2, "{engine:?}");
    }
}

/// Threads take handles of a limit that comes and goes.
#[test]
fn no_live_handle_loses_its_limit() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(ab(), engine);
        let stop = AtomicBool::new(false);
        let is_declared = || limiter.limits().names().any(|name| name == "A");
        let taken = AtomicU32::new(0);
        let take_handles = || {
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    // Unknown while it is gone.
                    let Ok(a) = limiter.limit("A") else { continue };
                    assert!(is_declared(), "a live handle keeps its limit");
                    let clone = a.clone();
                    drop(a);
                    assert!(clone.check("x", 0).is_ok() && is_declared(), "so does a clone");
                    taken.fetch_add(1, Ordering::Relaxed);
                }
                // Without a handle until a reload has removed the limit.
                let seen = limiter.counters().generation;
                while limiter.counters().generation == seen && !stop.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            }
        };
        thread::scope(|scope| {
            let threads = [scope.spawn(take_handles), scope.spawn(take_handles)];
            let is_running = || threads.iter().all(|thread| !thread.is_finished());
            let mut gone = 0;
            while (gone < 50 || taken.load(Ordering::Relaxed) < 1000) && is_running() {
                match limiter.reload_with(only_b(), CarryOver::Share) {
                    Ok(reloaded) => {
                        assert_eq!(reloaded.removed, ["A"]);
                        gone += 1;
                    }
                    Err(error) => assert!(error.is_invalid_limit(), "{error}"),
                }
                limiter.reload(ab()).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// Unrelated to handles: the parameters of a limit may change under them.
#[test]
fn a_live_handle_follows_other_parameters() {
    let (limiter, _hand) = limiter(ab(), Engine::LockFree);
    let a = limiter.limit("A").unwrap();
    limiter
        .reload(limits(&[("A", Limit::new(7, 1, seconds(9)).unwrap()), ("B", hourly(20))]))
        .unwrap();
    assert_eq!(a.check("x", 0).unwrap().remaining(), Some(7));
}

/// It was not declared by a default, so it went without an error, and its ids had no limit.
#[test]
#[cfg(all(feature = "boulder", feature = "yaml"))]
fn limit_of_overrides_alone_is_not_lost() {
    const OTHER: &str = "CertificatesPerDomain: {burst: 3, count: 3, period: 180m}\n";
    let account = "NewOrdersPerAccount:12345678: {burst: 3, count: 3, period: 180m}\n";
    let limiter = Limiter::new(Limits::from_yaml(&(account.to_owned() + OTHER)).unwrap());
    let orders = limiter.limit("NewOrdersPerAccount").unwrap();
    assert!(orders.spend(12_345_678_u64, 3).unwrap().allowed());
    let error = limiter.reload(Limits::from_yaml(OTHER).unwrap()).unwrap_err();
    assert!(error.to_string().contains("the new limits lack NewOrdersPerAccount, of"), "{error}");
    assert!(!orders.spend(12_345_678_u64, 1).unwrap().allowed());
    let removed =
        limiter.reload_with(Limits::from_yaml(OTHER).unwrap(), removing()).unwrap().removed;
    assert_eq!(removed, ["NewOrdersPerAccount"]);
}

/// A reload that another limit's handle refuses, or blocks of the limit, closed the limit for a moment.
#[test]
fn refused_reload_leaves_limits_known() {
    let (used, _hand) = limiter(ab(), ENGINES[0]);
    let _a = used.limit("A").unwrap();
    let (blocked, _hand) = limiter(ab(), ENGINES[0]);
    let _ = blocked.limit("A").unwrap().block("x", seconds(100)).unwrap();
    let none = || limits(&[]);
    for (limiter, name, new) in
        [(used, "B", &none as &(dyn Fn() -> Limits + Sync)), (blocked, "A", &by_address_with_b)]
    {
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    assert!(limiter.reload(new()).is_err(), "{name}");
                }
            });
            let lost = (0..100_000).filter(|_| limiter.limit(name).is_err()).count();
            ends.store(true, Ordering::Relaxed);
            assert_eq!(lost, 0, "of 100,000 calls for {name}");
        });
    }
}

/// Nothing is carried over to ids of another format, so another algorithm has nothing to read.
#[test]
fn custom_algorithm_does_not_outlive_its_ids() {
    for engine in ENGINES {
        let custom = hooked(hourly(5), |_| ());
        let by_text = Limits::builder().limit("A", IdFormat::String, custom).unwrap().build();
        let (limiter, _hand) = limiter(by_text.clone(), engine);
        let as_text = limiter.reload(limits(&[("A", hourly(5))])).unwrap_err();
        assert!(as_text.to_string().contains("cannot read the debts"), "{as_text}");
        limiter.reload(by_address()).unwrap();
        limiter.reload(by_text).unwrap();
    }
}
