//! Snapshots of limits whose overrides change until the restore.

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

#[test]
fn addresses_in_networks_keep_their_debts() {
    const IDS: [&str; 4] = ["10.1.2.3", "10.2.0.1", "9.9.9.9", "2001:db8::1"];
    let with = |overrides: &[(&str, u64)]| {
        let mut builder = Limits::builder().limit("A", IdFormat::IpAddress, slow(10)).unwrap();
        for &(id, burst) in overrides {
            builder = builder.override_id("A", id, slow(burst)).unwrap();
        }
        builder.build()
    };
    let before: &[(&str, u64)] = &[("10.0.0.0/8", 100), ("10.1.2.3", 50), ("2001:db8::/32", 200)];
    for engine in ENGINES {
        for (after, wanted) in [
            (before, [25, 50, 5, 100]),
            (&[("10.0.0.0/8", 1000), ("9.0.0.0/8", 40)], [500, 500, 20, 5]),
            (&[("10.2.0.0/16", 60), ("10.0.0.0/8", 80)], [40, 30, 5, 5]),
            (&[], [5, 5, 5, 5]),
        ] {
            let (options, _hand) = options(engine);
            let first = Limiter::with_options(with(before), options).unwrap();
            let a = first.limit("A").unwrap();
            for id in IDS {
                let burst = a.limit_for(id).unwrap().expect("a limit").burst();
                assert!(a.spend(id, burst / 2).unwrap().allowed());
            }
            let second = restored(&first, with(after), engine);
            // Again, so that the file has buckets of which it is unsure.
            let third = restored(&second, with(after), engine);
            for limiter in [&second, &third] {
                let left = IDS.map(|id| left(limiter, "A", id));
                assert_eq!(left, wanted.map(Some), "{engine:?} {after:?}");
            }
            let a = third.limit("A").unwrap();
            for (id, wanted) in IDS.iter().zip(wanted) {
                for spent in 1..3 {
                    assert_eq!(a.spend(*id, 1).unwrap().remaining(), Some(wanted - spent), "{id}");
                }
            }
            assert_eq!(third.stats().cells, 4, "{engine:?} {after:?}");
        }
    }
}
