//! Eight threads on one limiter while its sweeper runs: they are admitted exactly what the limits allow.
//! The tests move the time; nothing waits for the wall clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::sweep::{SweepOptions, Sweeper};
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

use super::support::{ENGINES, full_size};

const THREADS: usize = 8;
fn rounds() -> usize {
    full_size(100, 200)
}
const BURST: u64 = 20;
/// The time in which one unit comes back: far longer than any test moves the clock by accident.
const INTERVAL: Duration = Duration::from_secs(3600);
const FULL_AGAIN: Duration = Duration::from_secs(20 * 3600);

/// The engine: this file is the module `exact` and the module `lock_free`.
fn engine() -> Engine {
    ENGINES[usize::from(module_path!().ends_with("::exact"))]
}

/// Limits with these bursts, each with one more every [`INTERVAL`].
fn limits(limits: &[(&str, u64)]) -> Limits {
    let mut builder = Limits::builder();
    for &(name, burst) in limits {
        let limit = Limit::new(burst, 1, INTERVAL).unwrap();
        builder = builder.limit(name, IdFormat::String, limit).unwrap();
    }
    builder.build()
}

fn with_clock(limits: Limits, clock: Clock) -> Limiter {
    Limiter::with_options(limits, LimiterOptions::default().clock(clock).engine(engine())).unwrap()
}

/// Builds a limiter with these limits and starts a sweeper that never pauses.
fn limiter(of: &[(&str, u64)]) -> (Limiter, ManualClock, Sweeper) {
    let (clock, hand) = Clock::manual();
    let limiter = with_clock(limits(of), clock);
    let options = SweepOptions::default().interval(Duration::from_nanos(1)).step(64);
    let sweeper = limiter.start_sweeper(options).unwrap();
    (limiter, hand, sweeper)
}

/// Runs `work` on all threads, which start together. Returns the units that each thread was admitted, by
/// its number.
fn together(work: impl Fn(usize) -> u64 + Sync) -> Vec<u64> {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        let work = |me| {
            start.wait();
            work(me)
        };
        let threads: Vec<_> = (0..THREADS).map(|me| scope.spawn(move || work(me))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Spends one unit `tries` times. Returns the number of admitted spends.
fn spend(limit: &KeyedLimit, id: &str, tries: usize) -> u64 {
    (0..tries).map(|_| u64::from(limit.spend(id, 1).unwrap().allowed())).sum()
}

/// Spends until a denial while the caller's time stands still. Returns the number of admitted spends.
fn drain(limit: &KeyedLimit, id: &str) -> u64 {
    // The burst bounds the loop: the threads together cannot spend more at one time.
    (0..=BURST).take_while(|_| limit.spend(id, 1).unwrap().allowed()).count() as u64
}

/// Sweeps every part of the table. The number of steps is bounded because the sweeper runs beside them; a
/// step takes at least one part.
fn sweep_every_part(limiter: &Limiter) {
    (0..1000).for_each(|_| _ = limiter.sweep(1));
}

#[test]
fn one_key_admits_exactly_its_burst() {
    let (limiter, _hand, _sweeper) = limiter(&[("PerKey", BURST)]);
    let limit = limiter.limit("PerKey").unwrap();
    for round in 0..rounds() {
        let id = format!("key {round}");
        let admitted = together(|_| spend(&limit, &id, 2 * BURST as usize));
        assert_eq!(admitted.iter().sum::<u64>(), BURST, "round {round}: {admitted:?}");
        let left = limit.check(&id, 1).unwrap();
        assert_eq!((left.remaining(), left.retry_in()), (Some(0), INTERVAL), "round {round}");
    }
}

#[test]
fn swept_full_key_admits_exactly_its_burst() {
    let (limiter, hand, _sweeper) = limiter(&[("PerKey", BURST)]);
    let limit = limiter.limit("PerKey").unwrap();
    for round in 0..rounds() {
        let admitted = together(|_| spend(&limit, "key", 2 * BURST as usize));
        assert_eq!(admitted.iter().sum::<u64>(), BURST, "round {round}: {admitted:?}");
        hand.advance(FULL_AGAIN);
    }
    sweep_every_part(&limiter);
    assert_eq!(limiter.stats().cells, 0, "all is full and gone");
}

#[test]
fn many_keys_each_admit_exactly_their_burst() {
    const KEYS: usize = 64;
    const TRIES: usize = 6;
    let (limiter, hand, _sweeper) = limiter(&[("PerKey", BURST)]);
    let limit = limiter.limit("PerKey").unwrap();
    let ids: Vec<String> = (0..KEYS).map(|key| format!("key {key}")).collect();
    for round in 0..rounds() {
        // The threads visit the keys from different starts, half of them backwards. Each visits every key
        // often enough that together they ask for more than twice the burst.
        let admitted = together(|me| {
            let at =
                |step: usize| if me.is_multiple_of(2) { step } else { KEYS * TRIES - 1 - step };
            let key = |step: usize| (at(step) + me * KEYS / THREADS) % KEYS;
            (0..KEYS * TRIES).map(|step| spend(&limit, &ids[key(step)], 1)).sum()
        });
        assert_eq!(
            admitted.iter().sum::<u64>(),
            BURST * KEYS as u64,
            "round {round}: {admitted:?}"
        );
        for id in &ids {
            // The sum is right and each key is empty, so no key admitted less.
            assert_eq!(limit.check(id, 1).unwrap().remaining(), Some(0), "round {round}, {id}");
        }
        // Go on with the same keys, which are full, and swept or about to be.
        hand.advance(FULL_AGAIN);
    }
}

#[test]
fn moving_time_admits_exactly_burst_plus_refill() {
    const STEP: Duration = Duration::from_secs(7 * 3600 + 1234);
    let steps: u32 = full_size(15_000, 40_000);
    let (limiter, hand, _sweeper) = limiter(&[("PerKey", BURST)]);
    let limit = limiter.limit("PerKey").unwrap();
    // Thread 0 takes the remaining units, then moves the clock by less than a burst's time. So the bucket
    // is never full and no part of an interval is lost. The other threads keep spending, often with an
    // older time.
    let admitted = together(|me| match me {
        0 => (0..steps)
            .map(|_| {
                let admitted = drain(&limit, "key");
                hand.advance(STEP);
                admitted
            })
            .sum(),
        _ => spend(&limit, "key", 10 * steps as usize),
    });
    let admitted = admitted.iter().sum::<u64>();
    let refilled = u64::try_from((STEP * steps).as_nanos() / INTERVAL.as_nanos()).unwrap();
    assert!(admitted <= BURST + refilled, "{admitted} of {BURST} + {refilled}");
    assert_eq!(admitted + drain(&limit, "key"), BURST + refilled);
}

#[test]
fn sweep_gives_older_clock_nothing() {
    let steps: u64 = full_size(500, 20_000);
    // A clock that lets other threads run after it was read, so that a caller often has an old time.
    let time_ns = Arc::new(AtomicU64::new(0));
    let read = time_ns.clone();
    let clock = Clock::custom(move || {
        let now = Duration::from_nanos(read.load(Ordering::Relaxed));
        thread::yield_now();
        now
    });
    let limiter = with_clock(limits(&[("PerKey", BURST)]), clock);
    let limit = limiter.limit("PerKey").unwrap();
    let member = [limit.member("key")];
    // Thread 0 takes the remaining units and moves the clock until the bucket is full, so exactly one burst
    // is admitted at each time. It sweeps the full cell at once, while the batches of the other threads,
    // which read the clock before they charge, are under way.
    let admitted = together(|me| match me {
        0 => (0..steps)
            .map(|_| {
                let admitted = drain(&limit, "key");
                time_ns.fetch_add(FULL_AGAIN.as_nanos() as u64, Ordering::Relaxed);
                let _ = limiter.sweep(1);
                admitted
            })
            .sum(),
        _ => (0..3 * steps)
            .map(|_| u64::from(limiter.batch(&member).spend().unwrap().allowed()))
            .sum(),
    });
    assert_eq!(admitted.iter().sum::<u64>() + drain(&limit, "key"), BURST * (steps + 1));
}

#[test]
fn batches_in_opposite_orders_charge_all_or_nothing() {
    let (limiter, _hand, _sweeper) = limiter(&[("PerAccount", BURST), ("PerAddress", 33)]);
    let accounts = limiter.limit("PerAccount").unwrap();
    let addresses = limiter.limit("PerAddress").unwrap();
    for round in 0..rounds() {
        let id = format!("id {round}");
        let account = accounts.member(&id);
        let address = addresses.member(&id).cost(2);
        let batch = |me: usize| {
            let order = if me.is_multiple_of(2) { [account, address] } else { [address, account] };
            u64::from(limiter.batch(&order).spend().unwrap().allowed())
        };
        // Thread 0 spends beside the batches, on the bucket that they share.
        let admitted = together(|me| match me {
            0 => spend(&accounts, &id, 3),
            _ => (0..8).map(|_| batch(me)).sum(),
        });
        let (alone, mut batches) = (admitted[0], admitted[1..].iter().sum::<u64>());
        let at_rest = |batches: u64| {
            for (limit, burst, charged) in
                [(&accounts, BURST, alone + batches), (&addresses, 33, 2 * batches)]
            {
                let now = limit.check(&id, 0).unwrap();
                let context = format!("round {round}, {}: {admitted:?}", limit.name());
                assert!(charged <= burst, "{charged} of {burst}: {context}");
                assert_eq!(now.remaining(), Some(burst - charged), "{context}");
                assert_eq!(now.reset_in(), INTERVAL * u32::try_from(charged).unwrap(), "{context}");
            }
        };
        at_rest(batches);
        // Units that concurrent batches denied each other are still there.
        while batch(round) == 1 {
            batches += 1;
        }
        at_rest(batches);
        assert_eq!(batches, (BURST - alone).min(33 / 2), "round {round}");
    }
}

#[test]
fn batches_while_time_moves_stay_below_every_bound() {
    const STEP: Duration = Duration::from_secs(911);
    const STEPS: u32 = 400_000;
    let (limiter, hand, _sweeper) = limiter(&[("PerAccount", BURST), ("PerAddress", 7)]);
    let accounts = limiter.limit("PerAccount").unwrap();
    let addresses = limiter.limit("PerAddress").unwrap();
    let (account, address) = (accounts.member("id"), addresses.member("id"));
    // Thread 0 moves the clock. Thread 1 spends beside the batches, on the bucket that denies most.
    let admitted = together(|me| match me {
        0 => {
            (0..STEPS).for_each(|_| hand.advance(STEP));
            0
        }
        1 => spend(&addresses, "id", 100_000),
        _ => {
            let order = if me.is_multiple_of(2) { [account, address] } else { [address, account] };
            (0..50_000).map(|_| u64::from(limiter.batch(&order).spend().unwrap().allowed())).sum()
        }
    });
    let (alone, batches) = (admitted[1], admitted[2..].iter().sum::<u64>());
    let refilled = u64::try_from((STEP * STEPS).as_nanos() / INTERVAL.as_nanos()).unwrap();
    assert!(batches <= BURST + refilled, "{batches} batches of {BURST} + {refilled}");
    assert!(alone + batches <= 7 + refilled, "{alone} and {batches} of 7 + {refilled}");
}
