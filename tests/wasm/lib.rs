//! Runs a limiter on wasm32-unknown-unknown, which has no clock, no threads and no files. Each function panics, which ends
//! the program, if something is not as the guide says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::options::Engine;
use tollgate::sweep::SweepOptions;
use tollgate::{Bucket, Clock, Limit, Limiter, LimiterOptions, Limits};

const LIMITS: &str = "
PerUser: {burst: 20, count: 10, period: 1s, id: string}
PerUser:alice: {burst: 2, count: 1, period: 1s}
PerTeam: {algorithm: leaky_bucket, size: 3, drip_rate: 1s, drip_size: 1, id: string}
";

/// A clock that shows the returned number of nanoseconds.
fn clock() -> (Clock, Arc<AtomicU64>) {
    let shown = Arc::new(AtomicU64::new(0));
    let read = shown.clone();
    (Clock::custom(move || Duration::from_nanos(read.load(Ordering::Relaxed))), shown)
}

/// Spends, denies, refills, sweeps and reloads on both engines; returns the number of decisions.
#[unsafe(no_mangle)]
pub extern "C" fn limits_calls() -> u32 {
    let mut decisions = 0;
    for engine in [Engine::LockFree, Engine::Exact] {
        let (clock, shown) = clock();
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(Limits::from_yaml(LIMITS).unwrap(), options).unwrap();
        let (users, teams) = (limiter.limit("PerUser").unwrap(), limiter.limit("PerTeam").unwrap());
        for second in 0..50 {
            shown.store(second * 1_000_000_000, Ordering::Relaxed);
            let allowed = (0..5).filter(|_| users.spend("alice", 1).unwrap().allowed()).count();
            assert_eq!(allowed, if second == 0 { 2 } else { 1 });
            let batch = [users.member("bob"), teams.member("red")];
            let allowed =
                (0..5).filter(|_| limiter.batch(&batch).spend().unwrap().allowed()).count();
            assert_eq!(allowed, if second == 0 { 3 } else { 1 });
            decisions += 10;
        }
        let changed = LIMITS.replace("burst: 20", "burst: 30");
        assert!(limiter.reload(Limits::from_yaml(&changed).unwrap()).unwrap().changed);
        for id in 0..10_000_u64 {
            assert!(users.spend(id, 1).unwrap().allowed());
            decisions += 1;
        }
        shown.store(1_000_000_000_000, Ordering::Relaxed);
        while !limiter.sweep(1 << 16).finished {}
        assert_eq!(limiter.stats().cells, 0);
        assert!(limiter.start_sweeper(SweepOptions::default()).is_err(), "there are no threads");
    }
    let (clock, _) = clock();
    let bucket = Bucket::new(Limit::new(2, 1, Duration::from_secs(1)).unwrap(), clock);
    assert_eq!(bucket.spend(2).unwrap().remaining(), Some(0));
    assert!(!bucket.spend(1).unwrap().allowed());
    decisions + 2
}

/// Panics, because std has no clock here.
#[unsafe(no_mangle)]
pub extern "C" fn reads_the_system_clock() {
    let _ = Limiter::new(Limits::from_yaml(LIMITS).unwrap());
}
