//! A client that obeys `retry_in`, on a clock that has gone back: it comes when there is a unit.

use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::{KeyedLimit, Limit, Limiter, LimiterOptions};

use super::support::{ENGINES, limiter_with, limits, limits_of_all, ms, seconds, sweep_all};

const BURST: u64 = 3;
/// The time before the clock goes back.
const LATEST: Duration = Duration::from_millis(100_000);

/// The state of the limiter when the clock goes back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scene {
    /// The id's bucket was charged at a later time.
    Bucket,
    /// A sweep at a later time has dropped a bucket, and the id has none.
    Sweep,
    /// As `Sweep`, and the table is full: the id uses the overflow bucket.
    Cap,
}

struct World {
    limiter: Limiter,
    handle: KeyedLimit,
    hand: ManualClock,
}

fn world(limit: &Limit, engine: Engine, scene: Scene) -> World {
    let named =
        limits(&[("A", limit.clone()), ("Slow", Limit::new(1, 1, seconds(86_400)).unwrap())]);
    let options = LimiterOptions::default().engine(engine).max_keys(1);
    let (limiter, hand) = limiter_with(named, options);
    let handle = limiter.limit("A").unwrap();
    match scene {
        Scene::Bucket => {
            hand.set(LATEST);
            assert!(handle.spend("id", BURST).unwrap().allowed());
        }
        Scene::Sweep | Scene::Cap => {
            assert!(handle.spend("other", 1).unwrap().allowed());
            hand.set(LATEST);
            sweep_all(&limiter);
            assert_eq!(limiter.stats().cells, 0);
            if scene == Scene::Cap {
                assert!(limiter.limit("Slow").unwrap().spend("other", 1).unwrap().allowed());
            }
        }
    }
    World { limiter, handle, hand }
}

fn for_each_world(test: impl Fn(World, &Limit, Duration, &str)) {
    for engine in ENGINES {
        for limit in limits_of_all(BURST, ms(1_000)) {
            for scene in [Scene::Bucket, Scene::Sweep, Scene::Cap] {
                for back in [ms(1), ms(333), ms(10_000), ms(50_000)] {
                    let named = format!("{engine:?} {} {scene:?} {back:?} back", limit.algorithm());
                    let world = world(&limit, engine, scene);
                    let now = LATEST - back - Duration::from_nanos(7);
                    world.hand.set(now);
                    test(world, &limit, now, &named);
                }
            }
        }
    }
}

#[test]
fn obedient_client_comes_when_there_is_a_unit() {
    for_each_world(|World { handle, hand, .. }, limit, mut now, named| {
        // Spends until it is denied, waits as long as it is told to, and is allowed.
        for cost in [1, 1, BURST, 2, 1] {
            let spend = || {
                let checked = handle.check("id", cost).unwrap();
                let spent = handle.spend("id", cost).unwrap();
                assert_eq!(spent, checked, "{named}: {cost}");
                spent
            };
            let asked = (0..=BURST).map(|_| spend()).find(|asked| !asked.allowed());
            let asked = asked.unwrap_or_else(|| panic!("{named}: more than the burst"));
            let tick = if limit.algorithm() == "gcra" { Duration::from_nanos(1) } else { ms(1) };
            hand.set(now + asked.retry_in() - tick);
            assert!(!handle.check("id", cost).unwrap().allowed(), "{named}: {cost}, early");
            now += asked.retry_in();
            hand.set(now);
            let again = handle.spend("id", cost).unwrap();
            assert!(again.allowed(), "{named}: {cost}, {asked:?}, then {again:?}");
        }
    });
}

#[test]
fn the_wait_after_an_allowed_call_is_enough() {
    for cost in 1..=BURST {
        for_each_world(|World { handle, hand, .. }, _, now, named| {
            let asked = handle.spend("id", cost).unwrap();
            let is_at_once = handle.check("id", cost).unwrap().allowed();
            assert_eq!(asked.retry_in().is_zero(), is_at_once, "{named}: {asked:?}");
            hand.set(now + asked.retry_in());
            assert!(handle.spend("id", cost).unwrap().allowed(), "{named}: {asked:?}");
        });
    }
}

#[test]
fn a_bucket_is_full_after_reset_in() {
    for_each_world(|World { limiter, handle, hand }, limit, now, named| {
        // What a call could spend now is what remains.
        let looked = handle.check("id", 0).unwrap().remaining();
        let most = (0..=BURST).rfind(|cost| handle.check("id", *cost).unwrap().allowed());
        // The others count units of the window that come later.
        assert!(limit.algorithm() != "gcra" || looked == most.or(Some(0)), "{named}: {looked:?}");
        let first = handle.spend("id", 1).unwrap();
        let batch = limiter.batch(&[handle.member("id")]).check().unwrap();
        for asked in [first, handle.check("id", 0).unwrap(), batch, handle.refund("id", 1).unwrap()]
        {
            hand.set(now + asked.reset_in());
            let full = handle.check("id", BURST).unwrap();
            assert!(full.allowed(), "{named}: {asked:?}, then {full:?}");
            hand.set(now);
        }
    });
}

/// The most that a caller waits counts from its own reading of the clock, also for a place in the overflow bucket.
#[test]
fn reservation_at_cap_waits_no_longer_than_asked() {
    for engine in ENGINES {
        let limit = Limit::new(BURST, BURST, seconds(3)).unwrap();
        let World { handle, hand, .. } = world(&limit, engine, Scene::Cap);
        hand.set(LATEST - seconds(50));
        assert!(handle.spend("id", BURST).unwrap().allowed());
        // The unit is there after 51 seconds.
        assert!(handle.reserve("id", 1, seconds(50)).is_err(), "{engine:?}");
        assert!(handle.reserve("id", 1, seconds(51)).is_ok(), "{engine:?}");
    }
}
