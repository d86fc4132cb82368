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
