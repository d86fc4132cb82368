//! Snapshots of shadow limits, and of overrides that end.

use std::time::SystemTime;

use tollgate::clock::ManualClock;
use tollgate::limits::LimitOptions;
use tollgate::limits::OverrideOptions;
use tollgate::options::Engine;
use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::{ENGINES, limiter, options, seconds, slow};

#[test]
fn shadow_buckets_are_saved_with_their_limits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let of = |shadow: Option<u64>| {
        let beside = LimitOptions::default();
        let beside = shadow.map_or(beside.clone(), |burst| beside.shadow(slow(burst)));
        Limits::builder().limit_with("A", IdFormat::String, slow(10), beside).unwrap().build()
    };
    let counting = |engine: Engine| -> (LimiterOptions, ManualClock) {
        let (options, manual) = options(engine);
        (options.counting(true), manual)
    };
    for engine in ENGINES {
        let (old, _manual) = limiter(of(Some(4)), engine);
        assert!(old.limit("A").unwrap().spend("x", 3).unwrap().allowed());
        assert_eq!(old.snapshot(&path).unwrap().buckets, 2, "{engine:?}");
        let (options, _manual) = counting(engine);
        let (new, restored) = Limiter::restore(of(Some(4)), options, &path).unwrap();
        assert_eq!((restored.buckets, restored.dropped), (2, 0), "{engine:?}");
        for (would_deny, so_far) in [(false, 0), (true, 1)] {
            assert!(new.limit("A").unwrap().spend("x", 1).unwrap().allowed());
            assert_eq!(new.counters().limits[0].shadow_denied, so_far, "{would_deny}");
        }
        let (options, _manual) = counting(engine);
        let (_, restored) = Limiter::restore(of(None), options, &path).unwrap();
        assert_eq!((restored.buckets, restored.dropped), (1, 1), "{engine:?}");
        assert!(restored.gone.is_empty(), "callers do not see a shadow's name");
    }
}

/// A limit of 10 with a refill in a hundred days, and an override `own` for x that ends in `until` seconds.
fn ending(own: Limit, until: u64) -> Limits {
    let until = OverrideOptions::default().expires(SystemTime::now() + seconds(until));
    let default = Limit::new(10, 10, seconds(100 * 86_400)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, default).unwrap();
    limits.override_with("A", "x", own, until).unwrap().build()
}

#[test]
fn debt_of_ended_override_moves_to_default() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    // One unit comes back a second, so this bucket is full long before the default's.
    let own = Limit::new(1000, 1, seconds(1)).unwrap();
    let (old, manual) = limiter(ending(own, 100), Engine::LockFree);
    assert!(old.limit("A").unwrap().spend("x", 490).unwrap().allowed());
    manual.advance(seconds(5000));
    assert_eq!(old.snapshot(&path).unwrap().buckets, 1, "full by the override, which has ended");
    let default = Limit::new(10, 10, seconds(100 * 86_400)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::String, default).unwrap().build();
    let (options, _manual) = options(Engine::LockFree);
    let (new, restored) = Limiter::restore(limits, options, &path).unwrap();
    assert_eq!((restored.buckets, restored.full, restored.dropped), (1, 0, 0));
    // The override ended after 99 to 100 seconds, because an end is a whole second. At that time 390 or 391 of 1,000
    // units were used. That is 4 of 10, rounded up, and almost nothing has come back since.
    for limiter in [&old, &new] {
        assert_eq!(limiter.limit("A").unwrap().check("x", 0).unwrap().remaining(), Some(6));
    }
}
