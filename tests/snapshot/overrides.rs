//! Snapshots of limits whose overrides change until the restore.

use std::time::Duration;

use tollgate::options::Engine;
use tollgate::{IdFormat, Limiter, Limits};

use super::{ENGINES, options, slow};

/// Restores limits from a snapshot that `limiter` writes.
fn restored(limiter: &Limiter, limits: Limits, engine: Engine) -> Limiter {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    limiter.snapshot(&path).unwrap();
    Limiter::restore(limits, options(engine).0, &path).unwrap().0
}

fn left(limiter: &Limiter, name: &str, id: &str) -> Option<u64> {
    limiter.limit(name).unwrap().check(id, 0).unwrap().remaining()
}

#[test]
fn an_unlimited_id_has_no_bucket() {
    for engine in ENGINES {
        let limits = |is_lifted: bool| {
            let builder = Limits::builder().limit("A", IdFormat::String, slow(10)).unwrap();
            match is_lifted {
                true => builder.override_id("A", "ops", None).unwrap().build(),
                false => builder.build(),
            }
        };
        let (options, _hand) = options(engine);
        let before = Limiter::with_options(limits(false), options).unwrap();
        for id in ["ops", "user"] {
            assert!(before.limit("A").unwrap().spend(id, 7).unwrap().allowed());
        }
        // Lifted at the restore, and before the snapshot.
        let lifted = restored(&before, limits(true), engine);
        assert_eq!((left(&lifted, "A", "ops"), left(&lifted, "A", "user")), (None, Some(3)));
        assert_eq!(lifted.stats().cells, 1, "{engine:?}");
        assert!(lifted.limit("A").unwrap().spend("ops", 50).unwrap().allowed());
        let after = restored(&lifted, limits(false), engine);
        assert_eq!((left(&after, "A", "ops"), left(&after, "A", "user")), (Some(10), Some(3)));
    }
}

/// A snapshot has the buckets of networks by the limit's name and the network.
#[test]
fn addresses_in_networks_keep_their_debts() {
    const IDS: [&str; 4] = ["10.1.2.3", "10.2.0.1", "9.9.9.9", "2001:db8::1"];
    let with = |overrides: &[(&str, u64)]| {
        let mut builder = Limits::builder().limit("A", IdFormat::IpAddress, slow(10)).unwrap();
        for &(id, burst) in overrides {
            builder = builder.override_id("A", id, (burst > 0).then(|| slow(burst))).unwrap();
        }
        builder.build()
    };
    let before: &[(&str, u64)] = &[("10.0.0.0/8", 100), ("10.1.2.3", 50), ("2001:db8::/32", 200)];
    for engine in ENGINES {
        // Networks that are gone have no buckets, and new ones begin with full ones.
        for (after, wanted) in [
            (before, [Some(25), Some(50), Some(5), Some(100)]),
            (
                &[("10.0.0.0/8", 1000), ("9.0.0.0/8", 40)],
                [Some(1000), Some(500), Some(40), Some(10)],
            ),
            (&[("10.2.0.0/16", 60), ("10.0.0.0/8", 0)], [None, Some(60), Some(5), Some(10)]),
            (&[], [Some(5), Some(10), Some(5), Some(10)]),
        ] {
            let (options, _hand) = options(engine);
            let first = Limiter::with_options(with(before), options).unwrap();
            let a = first.limit("A").unwrap();
            for id in IDS {
                let burst = a.limit_for(id).unwrap().expect("a limit").burst();
                assert!(a.spend(id, burst / 2).unwrap().allowed());
            }
            a.block("10.2.0.9", Duration::from_secs(60)).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("buckets");
            first.snapshot(&path).unwrap();
            let (second, restored_by) =
                Limiter::restore(with(after), super::options(engine).0, &path).unwrap();
            assert!(restored_by.gone.is_empty(), "{restored_by:?}");
            let third = restored(&second, with(after), engine);
            for limiter in [&second, &third] {
                let left = IDS.map(|id| left(limiter, "A", id));
                assert_eq!(left, wanted, "{engine:?} {after:?}");
                assert!(limiter.blocks().iter().all(|it| it.limit == "A" && it.id == "10.2.0.9"));
                let a = limiter.limit("A").unwrap();
                let is_blocked = a.spend("10.2.0.9", 1).unwrap().blocked();
                assert!(is_blocked, "{engine:?} {after:?}");
            }
            // A known bucket under the default is not charged for an address in a network.
            let a = third.limit("A").unwrap();
            for (id, wanted) in IDS.iter().zip(wanted) {
                for spent in 1..3 {
                    let left = a.spend(*id, 1).unwrap().remaining();
                    assert_eq!(left, wanted.map(|wanted| wanted - spent), "{id}");
                }
            }
        }
    }
}

/// A file without networks is restored into limits with them.
#[test]
fn new_networks_begin_full_after_a_restore() {
    for engine in ENGINES {
        let limits = |has_network| {
            let builder = Limits::builder().limit("A", IdFormat::IpAddress, slow(10)).unwrap();
            match has_network {
                true => builder.override_id("A", "10.0.0.0/8", slow(100)).unwrap().build(),
                false => builder.build(),
            }
        };
        let (options, _hand) = options(engine);
        let first = Limiter::with_options(limits(false), options).unwrap();
        for id in ["10.1.2.3", "9.9.9.9"] {
            assert!(first.limit("A").unwrap().spend(id, 7).unwrap().allowed());
        }
        let second = restored(&first, limits(true), engine);
        assert_eq!(
            (left(&second, "A", "10.1.2.3"), left(&second, "A", "9.9.9.9")),
            (Some(100), Some(3))
        );
        assert!(second.limit("A").unwrap().spend("10.1.2.3", 60).unwrap().allowed());
        let third = restored(&second, limits(false), engine);
        assert_eq!(
            (left(&third, "A", "10.1.2.3"), left(&third, "A", "9.9.9.9")),
            (Some(3), Some(3))
        );
    }
}
