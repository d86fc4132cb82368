//! Reloads beside calls.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::{Clock, IdFormat, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, full_size, hourly, in_own_process, limits};

/// While the clock stands still, no id is admitted more than the largest of the bursts, whatever is
/// reloaded, and each id keeps the units that were not spent.
#[test]
fn nothing_is_lost_or_won_beside_traffic() {
    const KEYS: usize = 300;
    const MOST: u64 = 40;
    let rounds = full_size(60, 200);
    for engine in ENGINES {
        let (clock, _hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(limits(&[("A", hourly(MOST))]), options).unwrap();
        let admitted: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let stop = AtomicBool::new(false);
        let reloads = thread::scope(|scope| {
            for seed in 0..2_u64 {
                let (limiter, admitted, stop) = (&limiter, &admitted, &stop);
                scope.spawn(move || {
                    let handle = limiter.limit("A").unwrap();
                    let mut state = seed + 1;
                    while !stop.load(Ordering::Relaxed) {
                        state = state
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let key = (state >> 33) as usize % KEYS;
                        let id = format!("id {key}");
                        if handle.spend(id.as_str(), 1).unwrap().allowed() {
                            admitted[key].fetch_add(1, Ordering::Relaxed);
                        }
                        if state >> 60 == 0 {
                            limiter.sweep(64);
                        }
                    }
                });
            }
            let mut reloads = 0;
            for round in 0..rounds {
                // 40 units stay 40: each takes as long as before, ten times as long, or a tenth.
                let period = [3600, 36_000, 360][round % 3];
                let limit =
                    tollgate::Limit::new(MOST, MOST, super::support::seconds(period)).unwrap();
                reloads += u64::from(limiter.reload(limits(&[("A", limit)])).unwrap().changed);
            }
            stop.store(true, Ordering::Relaxed);
            reloads
        });
        assert_eq!(reloads, rounds as u64 - 1, "the first says what was");
        let handle = limiter.limit("A").unwrap();
        for (key, admitted) in admitted.iter().enumerate() {
            let left = handle.check(format!("id {key}").as_str(), 0).unwrap().remaining().unwrap();
            assert_eq!(left + admitted.load(Ordering::Relaxed), MOST, "{engine:?}: id {key}");
        }
    }
}

/// A batch is charged under one generation of limits or under the next, and rolled back across both.
#[test]
fn batches_beside_reloads_are_all_or_nothing() {
    for engine in ENGINES {
        let (clock, _hand) = Clock::manual();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let of = |seconds| {
            let limit = |burst| {
                tollgate::Limit::new(burst, burst, super::support::seconds(seconds)).unwrap()
            };
            let with = |builder: tollgate::limits::LimitsBuilder, name, burst| {
                builder.limit(name, IdFormat::String, limit(burst)).unwrap()
            };
            let builder = with(Limits::builder(), "Wide", 1_000_000);
            with(builder, "Narrow", 1_000).build()
        };
        let limiter = Limiter::with_options(of(10_000_000), options).unwrap();
        let (wide, narrow) = (limiter.limit("Wide").unwrap(), limiter.limit("Narrow").unwrap());
        let stop = AtomicBool::new(false);
        // The number of batches that each of two threads has made.
        let made = [const { AtomicU64::new(0) }; 2];
        let admitted = thread::scope(|scope| {
            let (wide, narrow, limiter, stop) = (&wide, &narrow, &limiter, &stop);
            let spend = move |made: &AtomicU64| {
                let mut admitted = 0;
                while !stop.load(Ordering::Relaxed) {
                    let members = [wide.member("w"), narrow.member("n")];
                    admitted += u64::from(limiter.batch(&members).spend().unwrap().allowed());
                    made.fetch_add(1, Ordering::Relaxed);
                }
                admitted
            };
            let spenders: Vec<_> =
                made.iter().map(|made| scope.spawn(move || spend(made))).collect();
            for round in 0..full_size(40, 100) {
                let seconds = [5_000_000, 10_000_000][round % 2];
                limiter.reload_with(of(seconds), CarryOver::Units).unwrap();
                // A batch that lasts over two reloads is not rolled back (docs/internals/reload.md).
                for (made, spender) in made.iter().zip(&spenders) {
                    let before = made.load(Ordering::Relaxed);
                    while made.load(Ordering::Relaxed) == before && !spender.is_finished() {
                        thread::yield_now();
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            spenders.into_iter().map(|it| it.join().unwrap()).sum::<u64>()
        });
        assert!(admitted <= 1_000);
        let left =
            |handle: &tollgate::KeyedLimit, id| handle.check(id, 0).unwrap().remaining().unwrap();
        // Of each thread, a reload may find one batch with a charge under the limit before, which stays.
        for (handle, id, burst) in [(&wide, "w", 1_000_000), (&narrow, "n", 1_000)] {
            let (spent, left) = (burst - left(handle, id), left(handle, id));
            assert!((admitted..=admitted + 200).contains(&spent), "{engine:?}: {left} of {burst}");
        }
    }
}

/// Four threads charge the same two buckets, whose limits stay, while another limit's change. A batch that
/// meets the reload rolls its charges back, and other batches have rolled back meanwhile.
#[test]
fn batches_of_many_threads_beside_reloads_charge_once() {
    for engine in ENGINES {
        let of = |other| limits(&[("A", lasting()), ("B", lasting()), ("Other", hourly(other))]);
        let (limiter, _hand) = super::support::limiter(of(5), engine);
        let stop = AtomicBool::new(false);
        let made = [const { AtomicU64::new(0) }; 4];
        thread::scope(|scope| {
            let mut spenders = Vec::new();
            for made in &made {
                let (limiter, stop) = (&limiter, &stop);
                spenders.push(scope.spawn(move || {
                    let [a, b] = ["A", "B"].map(|name| limiter.limit(name).unwrap());
                    while !stop.load(Ordering::Relaxed) {
                        let batch = [a.member("x"), b.member("x")];
                        assert!(limiter.batch(&batch).spend().unwrap().allowed());
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                }));
            }
            for round in 0..full_size(20, 80) {
                limiter.reload(of(6 + round % 7)).unwrap();
                // No batch lasts over two reloads, as above.
                for (made, spender) in made.iter().zip(&spenders) {
                    let before = made.load(Ordering::Relaxed);
                    while made.load(Ordering::Relaxed) == before && !spender.is_finished() {
                        thread::yield_now();
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let made = made.iter().map(|made| made.load(Ordering::Relaxed)).sum::<u64>();
        for name in ["A", "B"] {
            let left = limiter.limit(name).unwrap().check("x", 0).unwrap().remaining().unwrap();
            assert_eq!(LASTING - left, made, "{engine:?}: {name}");
        }
    }
}

const LASTING: u64 = 1 << 40;

/// Units for any number of calls; none comes back while the clock stands still.
fn lasting() -> tollgate::Limit {
    tollgate::Limit::new(LASTING, 1, super::support::ms(1)).unwrap()
}

/// Each reload moves the whole table. With known keys only and without a sweeper, only the reload itself
/// can free the old segments.
#[test]
fn reloads_leave_no_memory_behind() {
    in_own_process(|| {
        reload_beside_known_keys();
    });
}

fn reload_beside_known_keys() {
    let keys: u64 = full_size(20_000, 100_000);
    /// More threads than processors: some stall in a call while a reload runs.
    const SPENDERS: u64 = 8;
    let rounds: usize = full_size(9, 20);
    let (limiter, _hand) =
        super::support::limiter(limits(&[("A", hourly(1000))]), Engine::LockFree);
    let handle = limiter.limit("A").unwrap();
    let spend = |key: u64| assert!(handle.spend(key.to_string().as_str(), 1).unwrap().allowed());
    (0..keys).for_each(spend);
    let grown = limiter.stats();
    let (stop, most) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let mut peaks = Vec::new();
    thread::scope(|scope| {
        for first in 0..SPENDERS {
            let (limiter, handle) = (&limiter, &handle);
            scope.spawn(move || {
                for key in (first..).step_by(17).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let _ = handle.spend((key % keys).to_string().as_str(), 1);
                    if key % 16 == 0 {
                        most.fetch_max(limiter.stats().bytes, Ordering::Relaxed);
                    }
                }
            });
        }
        for round in 0..rounds {
            let limit = hourly([2000, 1000][round % 2]);
            assert!(limiter.reload(limits(&[("A", limit)])).unwrap().changed);
            peaks.push(most.swap(0, Ordering::Relaxed).max(limiter.stats().bytes));
        }
        stop.store(true, Ordering::Relaxed);
    });
    // What threads that stalled have held back goes with the next calls.
    (0..keys).for_each(spend);
    let reloaded = limiter.stats();
    assert_eq!(reloaded.cells, keys as usize);
    assert!(reloaded.migrations > grown.migrations + 100 * rounds as u64, "{reloaded:?}");
    // A reload does not wait for ever for a thread that the machine keeps from running. So the median counts.
    peaks.sort_unstable();
    assert!(4 * peaks[rounds / 2] <= 5 * grown.bytes, "{grown:?}, {peaks:?} bytes beside reloads");
    assert!(2 * reloaded.bytes <= 3 * grown.bytes, "{grown:?}, then {reloaded:?}");
}
