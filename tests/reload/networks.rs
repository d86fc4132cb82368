//! Reloads that bring, change and remove overrides of networks.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use tollgate::limits::{LimitsBuilder, OverrideOptions};
use tollgate::options::{AtCap, Engine};
use tollgate::reload::{CarryOver, ReloadOptions};
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, hourly, limiter, limiter_with, seconds, sweep_all};

/// Ids with the units of their overrides; 0 units lift the limit.
type Overrides = &'static [(&'static str, u64)];

pub(super) fn with_default(default: Option<Limit>, overrides: &[(&str, u64)]) -> Limits {
    let builder = Limits::builder().limit("A", IdFormat::IpAddress, default).unwrap();
    let add = |builder: LimitsBuilder, &(id, burst): &(&str, u64)| {
        builder.override_id("A", id, (burst > 0).then(|| hourly(burst))).unwrap()
    };
    overrides.iter().fold(builder, add).build()
}

/// A default of 10 units, and overrides.
pub(super) fn with(overrides: &[(&str, u64)]) -> Limits {
    with_default(Some(hourly(10)), overrides)
}

pub(super) const IDS: [&str; 4] = ["10.1.2.3", "10.1.2.4", "10.2.0.1", "9.9.9.9"];

fn left(handle: &KeyedLimit) -> [Option<u64>; 4] {
    IDS.map(|id| handle.check(id, 0).unwrap().remaining())
}

fn half_used(limits: Limits, engine: Engine) -> (Limiter, KeyedLimit) {
    let (limiter, _hand) = limiter(limits, engine);
    let handle = limiter.limit("A").unwrap();
    for id in IDS {
        let burst = handle.limit_for(id).unwrap().expect("a limit").burst();
        assert!(handle.spend(id, burst / 2).unwrap().allowed());
    }
    (limiter, handle)
}

/// Sets of overrides, each with the units that are left of buckets which were half used at first.
const STEPS: &[(Overrides, [u64; 4])] = &[
    // A network begins with full buckets.
    (&[("10.0.0.0/8", 100)], [100, 100, 100, 5]),
    (&[("10.0.0.0/8", 1000)], [1000, 1000, 1000, 5]),
    (&[("10.0.0.0/8", 1000), ("10.1.0.0/16", 200)], [200, 200, 1000, 5]),
    // The bucket under the default counts again, by the numbers of the address.
    (&[("10.0.0.0/8", 1000), ("10.1.0.0/16", 200), ("10.1.2.3", 60)], [30, 200, 1000, 5]),
    (&[("10.0.0.0/8", 1000)], [1000, 1000, 1000, 5]),
    (&[("9.0.0.0/8", 30)], [5, 5, 5, 30]),
    (&[("0.0.0.0/0", 80)], [80, 80, 80, 80]),
    (&[], [5, 5, 5, 5]),
];

#[test]
fn an_address_has_another_bucket_in_each_network() {
    for engine in ENGINES {
        for is_swept in [false, true] {
            let (limiter, handle) = half_used(with(&[]), engine);
            for (overrides, wanted) in STEPS {
                limiter.reload(with(overrides)).unwrap();
                if is_swept {
                    sweep_all(&limiter);
                }
                let context = format!("{engine:?} {is_swept} {overrides:?}");
                assert_eq!(left(&handle), wanted.map(Some), "{context}");
                // A spend of a known key comes to the same bucket, and the bucket under the default stays as it is.
                for id in IDS {
                    for _ in 0..2 {
                        assert!(handle.spend(id, 2).unwrap().allowed(), "{context}");
                    }
                }
                assert_eq!(left(&handle), wanted.map(|left| Some(left - 4)), "{context}");
                for id in IDS {
                    assert!(handle.refund(id, 4).unwrap().allowed(), "{context}");
                }
            }
        }
    }
}

/// Networks that a reload takes away and the next one brings again have the buckets that they had.
#[test]
fn drained_buckets_outlast_two_reloads() {
    const NETWORKS: Overrides = &[("10.0.0.0/8", 100), ("10.1.0.0/16", 50), ("9.9.9.9", 40)];
    for engine in ENGINES {
        for between in [&[][..], &[("10.0.0.0/8", 0)], &[("10.1.2.0/24", 7)], &[("10.1.2.3", 3)]] {
            for rounds in 1..4 {
                let (limiter, handle) = half_used(with(NETWORKS), engine);
                for burst in 0..rounds {
                    limiter.reload(with(between)).unwrap();
                    sweep_all(&limiter);
                    let others = [between, &[("8.8.8.8", burst + 1)]].concat();
                    limiter.reload(with(&others)).unwrap();
                }
                limiter.reload(with(NETWORKS)).unwrap();
                let wanted = [25, 25, 50, 20].map(Some);
                assert_eq!(left(&handle), wanted, "{engine:?} {between:?} {rounds}");
            }
        }
    }
}

#[test]
fn changed_numbers_of_a_network_convert_its_debts() {
    for engine in ENGINES {
        let (limiter, handle) = half_used(with(&[("10.0.0.0/8", 100)]), engine);
        limiter.reload(with(&[("10.0.0.0/8", 1000)])).unwrap();
        assert_eq!(left(&handle), [500, 500, 500, 5].map(Some), "{engine:?}");
        limiter.reload_with(with(&[("10.0.0.0/8", 2000)]), CarryOver::Units).unwrap();
        assert_eq!(left(&handle), [1500, 1500, 1500, 5].map(Some), "{engine:?}");
        // Also those of a network that was away, by the numbers with which it went.
        limiter.reload(with(&[])).unwrap();
        limiter.reload(with(&[("10.0.0.0/8", 20)])).unwrap();
        assert_eq!(left(&handle), [15, 15, 15, 5].map(Some), "{engine:?}");
        // Another reload changes nothing.
        for rule in [CarryOver::Share, CarryOver::Units, CarryOver::Time] {
            limiter.reload_with(with(&[("10.0.0.0/8", 20), ("8.8.8.8", 3)]), rule).unwrap();
            limiter.reload_with(with(&[("10.0.0.0/8", 20)]), rule).unwrap();
            assert_eq!(left(&handle), [15, 15, 15, 5].map(Some), "{engine:?} {rule:?}");
        }
    }
}

#[test]
fn lifted_networks_charge_nothing() {
    for engine in ENGINES {
        let (limiter, handle) = half_used(with(&[("10.0.0.0/8", 100)]), engine);
        limiter.reload(with(&[("10.0.0.0/8", 0), ("10.2.0.0/16", 50)])).unwrap();
        assert_eq!(left(&handle), [None, None, Some(50), Some(5)], "{engine:?}");
        assert!(handle.spend("10.1.2.3", 999).unwrap().allowed());
        assert!(handle.block("10.1.2.3", seconds(9)).unwrap_err().is_invalid_block());
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        assert_eq!(left(&handle), [Some(50), Some(50), Some(50), Some(5)], "{engine:?}");
    }
}

#[test]
fn a_limit_without_a_default_has_networks() {
    for engine in ENGINES {
        let limits = |overrides: Overrides| with_default(None, overrides);
        let (limiter, _hand) = limiter(limits(&[("10.1.0.0/16", 20)]), engine);
        let handle = limiter.limit("A").unwrap();
        assert!(handle.spend("10.1.2.3", 15).unwrap().allowed());
        assert_eq!(left(&handle), [Some(5), Some(20), None, None], "{engine:?}");
        limiter.reload(limits(&[("10.2.0.0/16", 20)])).unwrap();
        assert_eq!(left(&handle), [None, None, Some(20), None], "{engine:?}");
        limiter.reload(limits(&[("10.1.0.0/16", 20)])).unwrap();
        assert_eq!(left(&handle), [Some(5), Some(20), None, None], "{engine:?}");
    }
}

/// A block is of the address, in whichever network it is.
#[test]
fn blocks_hold_in_every_network() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(&[("10.0.0.0/8", 100)]), engine);
        let handle = limiter.limit("A").unwrap();
        for id in ["10.1.2.3", "9.9.9.9"] {
            handle.block(id, seconds(60)).unwrap();
        }
        let sets: &[Overrides] = &[
            &[("10.0.0.0/8", 100)],
            &[],
            &[("10.1.0.0/16", 7)],
            &[("0.0.0.0/0", 7), ("9.9.9.9", 3)],
        ];
        for set in sets {
            limiter.reload(with(set)).unwrap();
            for id in ["10.1.2.3", "9.9.9.9"] {
                assert!(handle.spend(id, 1).unwrap().blocked(), "{engine:?} {set:?} {id}");
                assert!(
                    limiter.batch(&[handle.member(id)]).spend().unwrap().blocked(),
                    "{engine:?}"
                );
                assert!(handle.spend_estimate(id, 1).unwrap().0.blocked(), "{engine:?}");
                assert_eq!(handle.blocked_for(id).unwrap(), Some(seconds(60)), "{engine:?}");
            }
            assert!(handle.spend("10.1.2.4", 1).unwrap().allowed(), "{engine:?} {set:?}");
        }
        let listed: Vec<_> = limiter.blocks().into_iter().map(|it| (it.limit, it.id)).collect();
        assert!(
            listed.len() == 2 && listed.contains(&("A".into(), "10.1.2.3".into())),
            "{listed:?}"
        );
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        assert!(handle.unblock("10.1.2.3").unwrap() && handle.unblock("9.9.9.9").unwrap());
        assert_eq!(handle.spend("10.1.2.3", 1).unwrap().remaining(), Some(99), "{engine:?}");
    }
}

/// Permits go back to the bucket that has counted them, wherever the address is by then.
#[test]
fn permits_go_back_where_they_were_taken() {
    let limits = |overrides: &[(&str, u64)]| {
        let permits = |max| Limit::concurrency(max).unwrap();
        let builder = Limits::builder().limit("A", IdFormat::IpAddress, permits(2)).unwrap();
        let add = |builder: LimitsBuilder, &(id, max): &(&str, u64)| {
            builder.override_id("A", id, (max > 0).then(|| permits(max))).unwrap()
        };
        overrides.iter().fold(builder, add).build()
    };
    const ID: &str = "10.1.2.3";
    for engine in ENGINES {
        let (limiter, _hand) = limiter(limits(&[("10.0.0.0/8", 3)]), engine);
        let streams = limiter.concurrency("A").unwrap();
        let left = || streams.check(ID, 0).unwrap().remaining();
        let acquire = || streams.acquire(ID, 1).unwrap().1.expect("a permit is left");
        streams.set_max(1);
        assert_eq!(left(), Some(3), "{engine:?}: a maximum by hand is not for networks");
        let in_network = [acquire(), acquire()];
        assert_eq!((left(), streams.total_in_flight()), (Some(1), 2), "{engine:?}");

        limiter.reload(limits(&[])).unwrap();
        let [first, second] = in_network;
        let by_default = acquire();
        assert_eq!((left(), streams.total_in_flight()), (Some(0), 3), "{engine:?}");
        drop(first);
        assert_eq!((left(), streams.total_in_flight()), (Some(0), 2), "{engine:?}");
        sweep_all(&limiter);

        limiter.reload(limits(&[("10.0.0.0/8", 3), ("8.8.8.8", 1)])).unwrap();
        assert_eq!(left(), Some(2), "{engine:?}: the second permit is still out");
        drop(by_default);
        drop(second);
        assert_eq!((left(), streams.total_in_flight()), (Some(3), 0), "{engine:?}");

        // A network lifts the limit while permits of a larger one are out.
        let held = acquire();
        limiter.reload(limits(&[("10.0.0.0/8", 3), ("10.1.0.0/16", 0)])).unwrap();
        assert_eq!(left(), None, "{engine:?}");
        drop(acquire());
        limiter.reload(limits(&[("10.0.0.0/8", 3)])).unwrap();
        assert_eq!(left(), Some(2), "{engine:?}");
        limiter.reload(limits(&[("10.0.0.0/8", 0)])).unwrap();
        limiter.reload(limits(&[("10.0.0.0/8", 3)])).unwrap();
        assert_eq!(left(), Some(2), "{engine:?}");
        drop(held);
        assert_eq!((left(), streams.total_in_flight()), (Some(3), 0), "{engine:?}");
        streams.set_max(2);
        limiter.reload(limits(&[])).unwrap();
        assert_eq!(left(), Some(2), "{engine:?}");
        sweep_all(&limiter);
        assert_eq!(limiter.stats().cells, 0, "{engine:?}");
    }
}

/// The hidden limits of networks keep no reload from removing or switching off their limit.
#[test]
fn networks_keep_no_limit_from_going() {
    for engine in ENGINES {
        let (limiter, handle) = half_used(with(&[("10.0.0.0/8", 100)]), engine);
        let none = || Limits::builder().limit("B", IdFormat::String, hourly(1)).unwrap().build();
        let error = limiter.reload(none()).unwrap_err().to_string();
        assert!(
            error.starts_with("the new limits lack A,") && !error.contains("network"),
            "{error}"
        );
        let (_, receipt) = handle.spend_estimate("10.1.2.3", 10).unwrap();
        drop(handle);
        let removed = limiter.reload(none()).unwrap().removed;
        assert_eq!(removed, ["A"]);
        // The receipt is of a limit that is gone.
        let _ = receipt.unwrap().settle(0);
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        let handle = limiter.limit("A").unwrap();
        assert_eq!(left(&handle), [100, 100, 100, 10].map(Some), "{engine:?}: a new limit");
        // The ids may become another format's, and another algorithm may have the name of a network.
        drop(handle);
        let of_strings = Limits::builder().limit("A", IdFormat::String, hourly(1)).unwrap().build();
        limiter.reload(of_strings).unwrap();
        let permits = Limits::builder().limit("A", IdFormat::IpAddress, None).unwrap();
        let permits =
            permits.override_id("A", "10.0.0.0/8", Limit::concurrency(2).unwrap()).unwrap();
        let refused = limiter.reload(permits.clone().build());
        assert!(refused.is_ok(), "{engine:?} {refused:?}");
        // A limit that is removed on purpose begins anew.
        let options = || ReloadOptions::default().remove_missing(true);
        limiter.reload_with(Limits::builder().build(), options()).unwrap();
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        let handle = limiter.limit("A").unwrap();
        assert!(handle.spend("10.1.2.3", 60).unwrap().allowed());
        limiter.reload_with(Limits::builder().build(), options()).unwrap();
        assert_eq!(handle.spend("10.1.2.3", 600).unwrap().remaining(), None, "{engine:?}");
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        assert_eq!(left(&handle)[0], Some(100), "{engine:?}");
    }
}

/// A receipt returns its units where they were charged.
#[test]
fn receipts_are_settled_in_their_bucket() {
    for engine in ENGINES {
        let (limiter, _hand) = limiter(with(&[("10.0.0.0/8", 100)]), engine);
        let handle = limiter.limit("A").unwrap();
        let estimate = |units| handle.spend_estimate("10.1.2.3", units).unwrap().1.unwrap();
        let in_network = estimate(80);
        limiter.reload(with(&[])).unwrap();
        let by_default = estimate(8);
        let _ = in_network.settle(30);
        assert_eq!(left(&handle)[0], Some(2), "{engine:?}");
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        assert_eq!(left(&handle)[0], Some(70), "{engine:?}");
        let _ = by_default.settle(1);
        assert_eq!(left(&handle)[0], Some(70), "{engine:?}");
        let place = handle.reserve("10.1.2.3", 90, seconds(3600)).unwrap();
        limiter.reload(with(&[])).unwrap();
        assert_eq!(left(&handle)[0], Some(9), "{engine:?}");
        place.cancel();
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        assert_eq!(left(&handle)[0], Some(70), "{engine:?}");
    }
}

/// An address without a bucket of its own shares one with those of its network.
#[test]
fn untracked_debt_stays_with_its_network() {
    for engine in ENGINES {
        let options = LimiterOptions::default().engine(engine).max_keys(1).at_cap(AtCap::Share);
        let (limiter, _hand) = limiter_with(with(&[("10.0.0.0/8", 100)]), options);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("9.9.9.9", 10).unwrap().allowed());
        assert_eq!(a.spend("10.0.0.1", 40).unwrap().remaining(), Some(60), "{engine:?}");
        limiter.reload(with(&[])).unwrap();
        limiter.reload(with(&[("8.8.8.8", 3)])).unwrap();
        limiter.reload(with(&[("10.0.0.0/8", 100)])).unwrap();
        assert_eq!(a.check("10.0.0.2", 0).unwrap().remaining(), Some(60), "{engine:?}");
        assert!(a.reset("9.9.9.9").unwrap().allowed());
        sweep_all(&limiter);
        assert_eq!(a.spend("10.0.0.1", 1).unwrap().remaining(), Some(59), "{engine:?}");
    }
}

/// The count of cells is exact after any calls while networks come and go.
#[test]
fn networks_free_each_place_once() {
    const IDS: u64 = if cfg!(debug_assertions) { 10_000 } else { 60_000 };
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
                    let id = std::net::Ipv4Addr::new(10, (at % 3) as u8, (at >> 8) as u8, at as u8);
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
    // An address has a bucket under the default, in 10/8 and in 10.1/16.
    assert!(limiter.stats().cells <= 3 * IDS as usize, "{:?}", limiter.stats());
    hand.advance(seconds(2 * 3600));
    sweep_all(&limiter);
    sweep_all(&limiter);
    assert_eq!(limiter.stats().cells, 0, "all was swept");
    assert!(handle.spend("10.1.0.1", 1).unwrap().allowed());
    assert_eq!(limiter.stats().cells, 1);
}

/// Ends and reloads together: each reload finds the ends again.
#[test]
fn a_network_with_an_end_can_come_again() {
    for engine in ENGINES {
        let ending = |after: Option<Duration>| {
            let builder = Limits::builder().limit("A", IdFormat::IpAddress, hourly(10)).unwrap();
            let end = after.map(|after| std::time::SystemTime::now() + after);
            let options = end
                .map_or(OverrideOptions::default(), |end| OverrideOptions::default().expires(end));
            builder.override_with("A", "10.0.0.0/8", hourly(100), options).unwrap().build()
        };
        let (limiter, hand) = limiter(ending(Some(seconds(60))), engine);
        let a = limiter.limit("A").unwrap();
        assert!(a.spend("10.1.2.3", 100).unwrap().allowed());
        hand.advance(seconds(72));
        assert_eq!(a.spend("10.1.2.3", 5).unwrap().remaining(), Some(5), "{engine:?}");
        limiter.reload(ending(None)).unwrap();
        assert_eq!(a.spend("10.1.2.3", 2).unwrap().remaining(), Some(0), "{engine:?}");
        limiter.reload(with(&[])).unwrap();
        assert_eq!(left(&a)[0], Some(5), "{engine:?}");
    }
}

thread_local! {
    /// The readings of the clock on this thread until the one at which another thread spends.
    static READINGS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A call may come at any moment of the reload that takes its network away: the network keeps what it has charged.
#[test]
fn calls_during_a_reload_stay_charged() {
    let network: Overrides = &[("10.0.0.0/8", 100)];
    for engine in ENGINES {
        let mut charges = 0;
        for at in 0..12 {
            let ((ask, asked), (answer, answered)) = (mpsc::channel(), mpsc::channel());
            let (of_clock, answered) = (ask.clone(), Mutex::new(answered));
            let clock = Clock::custom(move || {
                let left = READINGS_LEFT.take();
                READINGS_LEFT.set(left.and_then(|left| left.checked_sub(1)));
                if left == Some(0) {
                    of_clock.send(true).unwrap();
                    // The call may wait for the reload.
                    let _ = answered.lock().unwrap().recv_timeout(Duration::from_millis(100));
                }
                seconds(1)
            });
            let options = LimiterOptions::default().clock(clock).engine(engine);
            let limiter = Limiter::with_options(with(network), options).unwrap();
            let handle = limiter.limit("A").unwrap();
            let is_charged = std::thread::scope(|scope| {
                let spends = &handle;
                let spender = scope.spawn(move || {
                    let mut is_charged = false;
                    while asked.recv().unwrap() {
                        // It is above the burst of the default.
                        is_charged = spends.spend("10.1.2.3", 60).is_ok();
                        answer.send(()).unwrap();
                    }
                    is_charged
                });
                READINGS_LEFT.set(Some(at));
                limiter.reload(with(&[])).unwrap();
                READINGS_LEFT.set(None);
                ask.send(false).unwrap();
                spender.join().unwrap()
            });
            limiter.reload(with(&[("8.8.8.8", 3)])).unwrap();
            limiter.reload(with(network)).unwrap();
            let wanted = Some(if is_charged { 40 } else { 100 });
            assert_eq!(left(&handle)[0], wanted, "{engine:?} {at}");
            charges += u32::from(is_charged);
        }
        assert!(charges > 0, "{engine:?}");
    }
}
