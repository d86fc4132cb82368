//! The buckets that a snapshot writes, and those that a restore finds.

use std::time::Duration;

use tollgate::Limiter;
use tollgate::options::{AtCap, Engine};

use super::{ENGINES, limiter, limits, options, slow, used};

#[test]
fn buckets_follow_limit_names_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let old = limits(&[("A", slow(10)), ("B", slow(20)), ("Gone", slow(30)), ("C", slow(40))]);
        let (old, _manual) = limiter(old, engine);
        for (name, cost) in [("A", 4), ("B", 5), ("Gone", 6), ("C", 7)] {
            for id in ["x", "an id of some length, and then some"] {
                assert!(old.limit(name).unwrap().spend(id, cost).unwrap().allowed());
            }
        }
        assert_eq!(old.snapshot(&path).unwrap().buckets, 8);
        let new = [("New", slow(9)), ("C", slow(40)), ("B", slow(40)), ("A", slow(10))];
        let (options, _manual) = options(engine);
        let (limiter, restored) = Limiter::restore(limits(&new), options, &path).unwrap();
        assert_eq!((restored.buckets, restored.dropped), (6, 2), "{engine:?}");
        assert_eq!(restored.gone, ["Gone"]);
        for id in ["x", "an id of some length, and then some"] {
            assert_eq!(used(&limiter, "A", id, 10), 4);
            assert_eq!(used(&limiter, "B", id, 40), 10, "the same share of twice as much");
            assert_eq!(used(&limiter, "C", id, 40), 7);
            assert_eq!(used(&limiter, "New", id, 9), 0);
        }
        assert!(limiter.limit("Gone").is_err());
        // A second restore, with a reload.
        limiter.snapshot(&path).unwrap();
        let (options, _manual) = super::options(engine);
        let (again, _) = Limiter::restore(limits(&[("C", slow(40))]), options, &path).unwrap();
        again.reload(limits(&[("Z", slow(1)), ("C", slow(80))])).unwrap();
        assert_eq!(used(&again, "C", "x", 80), 14);
        assert_eq!(used(&again, "Z", "x", 1), 0);
    }
}

#[test]
fn full_buckets_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let day = Duration::from_secs(86_400);
    for engine in ENGINES {
        let (old, manual) = limiter(limits(&[("A", slow(100))]), engine);
        let a = old.limit("A").unwrap();
        assert!(a.spend("full", 7).unwrap().allowed());
        manual.advance(day);
        assert!(a.spend("not full", 7).unwrap().allowed());
        assert_eq!(old.stats().cells, 2);
        assert_eq!(old.snapshot(&path).unwrap().buckets, 1, "{engine:?}");
    }
}

#[test]
#[cfg(feature = "exact")]
fn snapshot_with_ids_restores_into_either_engine() {
    use tollgate::{IdFormat, Limits};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let builder = Limits::builder().limit("A", IdFormat::RegId, slow(10)).unwrap();
    let of_ids = builder.limit("B", IdFormat::String, slow(10)).unwrap().build();
    let (old, _manual) = limiter(of_ids.clone(), Engine::Exact);
    let long = "x".repeat(1024);
    assert!(old.limit("A").unwrap().spend(1_u64 << 40, 3).unwrap().allowed());
    assert!(old.limit("B").unwrap().spend(&long, 4).unwrap().allowed());
    old.snapshot(&path).unwrap();
    for engine in ENGINES {
        let (options, _manual) = options(engine);
        let (limiter, _) = Limiter::restore(of_ids.clone(), options, &path).unwrap();
        let left = limiter.limit("A").unwrap().check(1_u64 << 40, 0).unwrap().remaining();
        assert_eq!((left, used(&limiter, "B", &long, 10)), (Some(7), 4));
        let ids = limiter.limit("B").unwrap().ids();
        assert_eq!(ids, (engine == Engine::Exact).then(|| vec![long.clone()]));
    }
}

/// Another cap gives another number of shards.
#[test]
fn many_buckets_restore_into_tables_of_other_shapes() {
    const KEYS: u64 = 50_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let (old, _manual) = limiter(limits(&[("A", slow(100))]), Engine::LockFree);
    let a = old.limit("A").unwrap();
    for id in 0..KEYS {
        assert!(a.spend(format!("{id}").as_str(), 1 + id % 50).unwrap().allowed());
    }
    let written = old.snapshot(&path).unwrap();
    assert_eq!(written.buckets, KEYS);
    assert!((written.bytes as usize) < 30 * KEYS as usize, "{written:?}");
    for max_keys in [KEYS as usize, 1 << 20, 1 << 26] {
        let (options, _manual) = options(Engine::LockFree);
        let options = options.max_keys(max_keys).at_cap(AtCap::Deny);
        let (limiter, restored) =
            Limiter::restore(limits(&[("A", slow(100))]), options, &path).unwrap();
        assert_eq!((restored.buckets, limiter.stats().cells as u64), (KEYS, KEYS));
        for id in 0..KEYS {
            assert_eq!(used(&limiter, "A", &format!("{id}"), 100), 1 + id % 50, "id {id}");
        }
        // The limiter works like any other.
        assert!(limiter.limit("A").unwrap().spend("1", 98).unwrap().allowed());
        assert!(limiter.limit("A").unwrap().reset("2").unwrap().allowed());
        // Spends near the cap may have moved the sweeper beyond the reset cell, so sweep twice.
        let dropped: usize = (0..2).map(|_| limiter.sweep(1 << 30).dropped).sum();
        assert!(dropped >= 1);
    }
}
