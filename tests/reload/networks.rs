//! Overrides of networks that come, change and go while addresses in them have buckets. The lock-free table stores no
//! addresses, and must still tell which are in a network.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tollgate::limits::{LimitsBuilder, OverrideOptions};
use tollgate::options::{AtCap, Engine};
use tollgate::reload::CarryOver;
use tollgate::{IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, full_size, hourly, limiter, limiter_with, seconds, sweep_all};

/// A default of 10 units, and overrides of addresses and networks; 0 units stand for no limit.
fn with(overrides: &[(&str, u64)]) -> Limits {
    let builder = Limits::builder().limit("A", IdFormat::IpAddress, hourly(10)).unwrap();
    let add = |builder: LimitsBuilder, &(id, burst): &(&str, u64)| {
        builder.override_id("A", id, (burst > 0).then(|| hourly(burst))).unwrap()
    };
    overrides.iter().fold(builder, add).build()
}

const IDS: [&str; 4] = ["10.1.2.3", "10.1.2.4", "10.2.0.1", "9.9.9.9"];

fn left(handle: &KeyedLimit) -> [Option<u64>; 4] {
    IDS.map(|id| handle.check(id, 0).unwrap().remaining())
}

/// Charges and refunds one unit, so that each word is under the limit that applies.
fn touch(handle: &KeyedLimit) {
    for id in IDS {
        assert!(handle.spend(id, 1).unwrap().allowed());
        assert!(handle.refund(id, 1).unwrap().allowed());
    }
}

fn half_used(
    limits: Limits,
    engine: Engine,
) -> (Limiter, KeyedLimit, tollgate::clock::ManualClock) {
    let (limiter, hand) = limiter(limits, engine);
    let handle = limiter.limit("A").unwrap();
    for id in IDS {
        let burst = handle.limit_for(id).unwrap().expect("a limit").burst();
        assert!(handle.spend(id, burst / 2).unwrap().allowed());
    }
    (limiter, handle, hand)
}

/// Ids with the units of their overrides.
type Overrides = &'static [(&'static str, u64)];

/// Sets of overrides, each with the units that are left of half-used buckets.
const STEPS: &[(Overrides, [u64; 4])] = &[
    (&[("10.0.0.0/8", 100)], [50, 50, 50, 5]),
    (&[("10.0.0.0/8", 1000)], [500, 500, 500, 5]),
    (&[("10.0.0.0/8", 1000), ("10.1.0.0/16", 200)], [100, 100, 500, 5]),
    (&[("10.0.0.0/8", 1000), ("10.1.0.0/16", 200), ("10.1.2.3", 60)], [30, 100, 500, 5]),
    // The override of one address goes, and its network's applies.
    (&[("10.0.0.0/8", 1000), ("10.1.0.0/16", 200)], [100, 100, 500, 5]),
    (&[("10.0.0.0/8", 1000)], [500, 500, 500, 5]),
    (&[("10.1.2.0/24", 40), ("9.0.0.0/8", 30)], [20, 20, 5, 15]),
    (&[("10.1.2.4", 60)], [5, 30, 5, 5]),
    (&[("0.0.0.0/0", 80)], [40, 40, 40, 40]),
    (&[], [5, 5, 5, 5]),
];

#[test]
fn a_networks_override_comes_changes_and_goes() {
    for engine in ENGINES {
        for is_touched in [false, true] {
            for is_swept in [false, true] {
                let (limiter, handle, _hand) = half_used(with(&[]), engine);
                for (overrides, wanted) in STEPS {
                    limiter.reload(with(overrides)).unwrap();
                    if is_swept {
                        sweep_all(&limiter);
                    }
                    let context = format!("{engine:?} {is_touched} {is_swept} {overrides:?}");
                    assert_eq!(left(&handle), wanted.map(Some), "{context}");
                    if is_touched {
                        touch(&handle);
                        assert_eq!(left(&handle), wanted.map(Some), "{context}, after a call");
                    }
                }
                assert_eq!(limiter.stats().cells, 4, "{engine:?}");
            }
        }
    }
}

/// An unrelated reload leaves a network's buckets as they are, also by a rule under which the default would lose debt.
#[test]
fn other_reloads_keep_debts_within_a_network() {
    for engine in ENGINES {
        for rule in [CarryOver::Share, CarryOver::Units, CarryOver::Time] {
            let (limiter, handle, _hand) = half_used(with(&[("10.0.0.0/8", 1000)]), engine);
            for burst in 1..6 {
                let limits = with(&[("10.0.0.0/8", 1000), ("8.8.8.8", burst)]);
                limiter.reload_with(limits, rule).unwrap();
                let wanted = [500, 500, 500, 5].map(Some);
                assert_eq!(left(&handle), wanted, "{engine:?} {rule:?}");
            }
        }
    }
}

#[test]
fn a_sweep_keeps_debts_under_a_new_network() {
    let slow = || Limit::new(10, 10, seconds(100 * 24 * 3600)).unwrap();
    let quick = || Limit::new(10, 10, seconds(10)).unwrap();
    for engine in ENGINES {
        let builder = || Limits::builder().limit("A", IdFormat::IpAddress, quick()).unwrap();
        let (limiter, hand) = limiter(builder().build(), engine);
        let handle = limiter.limit("A").unwrap();
        for id in ["10.0.0.1", "9.9.9.9"] {
            assert!(handle.spend(id, 10).unwrap().allowed());
        }
        limiter.reload(builder().override_id("A", "10.0.0.0/8", slow()).unwrap().build()).unwrap();
        hand.advance(seconds(60));
        sweep_all(&limiter);
        let left = |id| handle.check(id, 0).unwrap().remaining();
        assert_eq!((left("10.0.0.1"), left("9.9.9.9")), (Some(0), Some(10)), "{engine:?}");
        hand.advance(seconds(101 * 24 * 3600));
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
    }
}

#[test]
fn a_lifted_networks_addresses_begin_anew() {
    for engine in ENGINES {
        let (limiter, handle, _hand) = half_used(with(&[("10.0.0.0/8", 100)]), engine);
        limiter.reload(with(&[("10.0.0.0/8", 0)])).unwrap();
        assert_eq!(left(&handle), [None, None, None, Some(5)], "{engine:?}");
        assert!(handle.spend("10.1.2.3", 999).unwrap().allowed());
        assert_eq!(limiter.stats().cells, 1, "{engine:?}");
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        assert_eq!(left(&handle), [Some(100), Some(100), Some(100), Some(5)], "{engine:?}");
    }
}

#[test]
fn untracked_debt_stays_when_a_network_comes() {
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).max_keys(1).at_cap(AtCap::Share);
        let (limiter, _hand) = limiter_with(with(&[]), options);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("9.9.9.9", 10).unwrap().allowed());
        assert_eq!(a.spend("10.0.0.1", 4).unwrap().remaining(), Some(6), "{engine:?}");
        for (burst, wanted) in [(100, 60), (50, 30), (1000, 600)] {
            limiter.reload(with(&[("10.0.0.0/8", burst)])).unwrap();
            let left = a.check("10.0.0.1", 0).unwrap().remaining();
            assert_eq!(left, Some(wanted), "{engine:?}");
        }
        assert!(a.reset("9.9.9.9").unwrap().allowed());
        sweep_all(&limiter);
        assert_eq!(a.spend("10.0.0.1", 1).unwrap().remaining(), Some(599), "{engine:?}");
    }
}

#[test]
fn each_address_moves_to_its_network() {
    let (limiter, _hand) = limiter(with(&[]), Engine::LockFree);
    let handle = limiter.limit("A").unwrap();
    let ids: Vec<String> =
        (0..4000).map(|i| format!("10.{}.{}.{}", i % 3, i / 256, i % 256)).collect();
    for id in &ids {
        assert!(handle.spend(id.as_str(), 5).unwrap().allowed());
    }
    limiter.reload(with(&[("10.1.0.0/16", 100), ("10.2.0.0/16", 20)])).unwrap();
    for spent in 1..4 {
        for id in &ids {
            let wanted = match &id[..5] {
                "10.1." => 50,
                "10.2." => 10,
                _ => 5,
            };
            let decision = handle.spend(id.as_str(), 1).unwrap();
            assert_eq!(decision.remaining(), Some(wanted - spent), "{id}");
        }
    }
    assert_eq!(limiter.stats().cells, ids.len());
}

/// Random reloads, calls, sweeps and ends: the table, which keeps no addresses, agrees with the engine that keeps them.
#[cfg(feature = "exact")]
#[test]
fn both_engines_agree_on_networks() {
    const POOL: [&str; 9] = [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.2.0/24",
        "10.2.0.0/15",
        "9.0.0.0/8",
        "10.1.2.3",
        "10.2.0.1",
        "9.9.9.9",
    ];
    let mut seed = 1_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for case in 0..full_size(60, 2_000) {
        let made = ENGINES.map(|engine| limiter(with(&[]), engine));
        let handles = [0, 1].map(|at| made[at].0.limit("A").unwrap());
        for step in 0..12 {
            let mut builder =
                Limits::builder().limit("A", IdFormat::IpAddress, hourly(1_000)).unwrap();
            for id in POOL {
                let ends = OverrideOptions::default().expires(SystemTime::now() + seconds(600));
                let options = if random(4) == 0 { ends } else { OverrideOptions::default() };
                // The table cannot drop the bucket of an address in a network that is lifted anew.
                let lifts = !id.contains('/') && random(4) == 0;
                let limit = (!lifts).then(|| hourly([10_000, 2_000, 5_000][random(3) as usize]));
                if random(3) == 0 {
                    builder = builder.override_with("A", id, limit, options).unwrap();
                }
            }
            let limits = builder.build();
            for (limiter, _) in &made {
                limiter.reload(limits.clone()).unwrap();
                if random(2) == 0 {
                    sweep_all(limiter);
                }
            }
            for round in 0..2 {
                let cost = random(900);
                for id in IDS {
                    let [exact, table] = [1, 0].map(|at| {
                        let told = handles[at].spend(id, cost).unwrap();
                        (told.allowed(), told.remaining())
                    });
                    let near = match (exact.1, table.1) {
                        (Some(exact), Some(table)) => exact.abs_diff(table) <= 2,
                        (exact, table) => exact == table,
                    };
                    assert!(
                        near,
                        "case {case}, step {step}, round {round}, {id}: {exact:?} {table:?}"
                    );
                    if exact.0 != table.0 {
                        let spender = &handles[usize::from(table.0)];
                        let _ = spender.refund(id, cost).unwrap();
                    }
                }
                // Not to within the time in which the ends of both limiters may differ.
                let jump = [1, 100, 500][random(3) as usize];
                for (limiter, hand) in &made {
                    hand.advance(seconds(jump));
                    if random(2) == 0 {
                        sweep_all(limiter);
                    }
                }
            }
        }
    }
}

/// The count of cells is exact after any calls while networks come and go.
#[test]
fn networks_free_each_place_once() {
    const IDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 60_000 };
    let options = LimiterOptions::default().at_cap(AtCap::Deny);
    let (limiter, hand) = limiter_with(with(&[]), options);
    let handle = limiter.limit("A").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (handle, done) = (&handle, &done);
            scope.spawn(move || {
                for at in (0..).map(|step| (thread * IDS / 3 + step) % IDS) {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let id = Ipv4Addr::new(10, (at % 3) as u8, (at >> 8) as u8, at as u8);
                    let _ = handle.spend(id, 1).unwrap();
                }
            });
        }
        let sets: [&[(&str, u64)]; 4] = [
            &[("10.0.0.0/8", 100)],
            &[("10.1.0.0/16", 50), ("10.2.0.0/16", 0)],
            &[],
            &[("10.1.0.0/16", 70)],
        ];
        for set in sets.iter().cycle().take(12) {
            limiter.reload(with(set)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(limiter.stats().cells <= IDS as usize, "{:?}", limiter.stats());
    hand.advance(seconds(2 * 3600));
    sweep_all(&limiter);
    sweep_all(&limiter);
    assert_eq!(limiter.stats().cells, 0, "all was swept");
    assert!(handle.spend("10.1.0.1", 1).unwrap().allowed());
    assert_eq!(limiter.stats().cells, 1);
}
