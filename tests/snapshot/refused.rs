//! Files that do not fit the program, the limits or the options, and paths that cannot be written.

use std::error::Error as _;
use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::limits::LimitOptions;
use tollgate::options::Engine;
use tollgate::reload::CarryOver;
use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};

use super::{ENGINES, limiter, limits, options, slow, used};

fn restored(limits: Limits, options: LimiterOptions, path: &std::path::Path) -> String {
    let error = Limiter::restore(limits, options, path).expect_err("refused");
    assert!(error.is_invalid_snapshot(), "{error}");
    let text = error.to_string();
    text.strip_prefix(&format!("{}: at byte ", path.display())).unwrap().to_owned()
}

#[test]
fn mismatched_snapshots_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let (old, _manual) = limiter(limits(&[("A", slow(10))]), engine);
        for id in ["x", "y", "z"] {
            assert!(old.limit("A").unwrap().spend(id, 4).unwrap().allowed());
        }
        for id in 0..1_000 {
            assert!(old.limit("A").unwrap().spend(id.to_string().as_str(), 4).unwrap().allowed());
        }
        old.snapshot(&path).unwrap();
        let options = || options(engine).0;
        let other = Limits::builder().limit("A", IdFormat::IpAddress, slow(10)).unwrap().build();
        let text = restored(other, options(), &path);
        assert!(text.ends_with("the ids of A are string there, not ipAddress"), "{text}");
        let text = restored(limits(&[("A", slow(10))]), options().max_keys(2), &path);
        assert!(text.ends_with("it has more buckets than the 1002 that max_keys allows"), "{text}");
        let whole = fs::read(&path).unwrap();
        let mut other = whole.clone();
        other[8] = 2;
        fs::write(&path, &other).unwrap();
        let text = restored(limits(&[("A", slow(10))]), options(), &path);
        assert_eq!(text, "8: version 2: 3 is allowed");
        fs::write(
            &path,
            "RequestsPerUser: {burst: 20, count: 10, period: 1s, id: string}\n".repeat(9),
        )
        .unwrap();
        let text = restored(limits(&[]), options(), &path);
        assert_eq!(text, "0: this is not a snapshot of buckets");
    }
}

/// Such limits made a good file a damaged one, which a program may pass over.
#[test]
fn fault_of_the_limits_is_not_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    limiter(limits(&[("A", slow(10))]), ENGINES[0]).0.snapshot(&path).unwrap();
    let own = LimitOptions::default().max_keys(11);
    let limits = Limits::builder().limit_with("A", IdFormat::String, slow(10), own).unwrap();
    let options = options(ENGINES[0]).0.max_keys(10);
    let error = Limiter::restore(limits.build(), options, &path).unwrap_err();
    assert!(error.is_invalid_limit() && !error.is_invalid_snapshot(), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("max_keys of the limits (A 11) are 11 in all"), "{text}");
}

#[test]
#[cfg(feature = "exact")]
fn exact_engine_refuses_a_snapshot_of_fingerprints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let (old, _manual) = limiter(limits(&[("A", slow(10))]), Engine::LockFree);
    old.snapshot(&path).unwrap();
    let text = restored(limits(&[("A", slow(10))]), options(Engine::Exact).0, &path);
    assert_eq!(text, "12: the file has fingerprints, not ids: Engine::LockFree is allowed");
}

/// A rule that allows one unit, then none for an hour. The word is the end of that hour.
#[derive(Debug)]
struct Rest(&'static str);

const REST_NS: u64 = 3_600_000_000_000;

impl Algorithm for Rest {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let left = Duration::from_nanos(word.saturating_sub(now_ns));
        let there = u64::from(left.is_zero());
        let is_charged = cost > 0 && there > 0;
        let decision =
            tollgate::Decision::for_spend(cost <= there, there - cost.min(there), left, left);
        Outcome { word: is_charged.then_some(now_ns + REST_NS), decision }
    }

    fn refund(&self, word: u64, now_ns: u64, _: u64) -> Outcome {
        let left = Duration::from_nanos(word.saturating_sub(now_ns));
        Outcome { word: None, decision: tollgate::Decision::for_refund(false, 0, left) }
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        word <= now_ns
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        1
    }

    fn name(&self) -> &'static str {
        self.0
    }
}

#[test]
fn custom_rules_are_matched_by_name() {
    let own = |name| Limit::custom(Arc::new(Rest(name))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    for engine in ENGINES {
        let (old, manual) = limiter(limits(&[("A", own("rest"))]), engine);
        manual.advance(Duration::from_secs(5));
        assert!(old.limit("A").unwrap().spend("x", 1).unwrap().allowed());
        old.snapshot(&path).unwrap();
        let options = || options(engine).0;
        let again = Limiter::restore(limits(&[("A", own("rest"))]), options(), &path);
        let (again, _) = again.unwrap();
        let denied = again.limit("A").unwrap().check("x", 1).unwrap();
        assert!(!denied.allowed() && denied.retry_in() > Duration::from_secs(3_500));
        let same = limits(&[("A", own("rest"))]);
        let (_, restored_afresh) =
            Limiter::restore_with(same, options(), &path, CarryOver::Afresh).unwrap();
        assert_eq!((restored_afresh.buckets, restored_afresh.dropped), (0, 1), "as on a reload");
        for (other, name) in [(own("pause"), "pause"), (slow(10), "gcra")] {
            let text = restored(limits(&[("A", other.clone())]), options(), &path);
            let expected = format!(
                "A: the debt of its buckets cannot be converted from rest to {name}: CarryOver::Afresh is allowed"
            );
            assert!(text.ends_with(&expected), "{text}");
            let other = limits(&[("A", other)]);
            let (_, restored) =
                Limiter::restore_with(other, options(), &path, CarryOver::Afresh).unwrap();
            assert_eq!((restored.buckets, restored.dropped), (0, 1));
        }
    }
}

#[test]
fn unreadable_or_unwritable_file_is_an_io_error() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("gone").join("buckets");
    let (old, _manual) = limiter(limits(&[("A", slow(10))]), Engine::LockFree);
    let error = old.snapshot(&nowhere).unwrap_err();
    assert!(error.is_io(), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("{}: cannot be written: ", nowhere.display())), "{text}");
    for path in [nowhere.as_path(), folder.path()] {
        let error = Limiter::restore(limits(&[]), options(Engine::LockFree).0, path).unwrap_err();
        assert!(error.is_io() && error.to_string().contains("cannot be read"), "{error}");
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        let is_missing = source.expect("the error of the system").kind() == ErrorKind::NotFound;
        assert_eq!(is_missing, path == nowhere, "{error}");
    }
    // The path is a folder.
    let error = old.snapshot(folder.path()).unwrap_err();
    assert!(error.is_io(), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

/// Runs the test `writes_a_file_that_is_too_long` in a process that may write 4 KiB to a file, after the shell command
/// `first`. Returns its output and the used units in the old file's bucket. Checks that no other file stays.
#[cfg(target_os = "linux")]
fn under_a_file_size_limit(first: &str) -> (std::process::Output, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let (old, _manual) = limiter(limits(&[("A", slow(10))]), Engine::LockFree);
    assert!(old.limit("A").unwrap().spend("x", 4).unwrap().allowed());
    old.snapshot(&path).unwrap();
    let test = std::env::current_exe().unwrap();
    let script = format!(
        "{first}; ulimit -c 0; ulimit -f 8; exec \"$0\" --exact refused::writes_a_file_that_is_too_long --ignored"
    );
    let mut command = std::process::Command::new("sh");
    let ran = command.args(["-c", &script]).arg(&test).env("SNAPSHOT_TO", &path).output().unwrap();
    let (limiter, _) =
        Limiter::restore(limits(&[("A", slow(10))]), options(Engine::LockFree).0, &path).unwrap();
    // The next writer removes the file of the killed one.
    old.snapshot(&path).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing beside the file");
    (ran, used(&limiter, "A", "x", 10))
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_keeps_the_old_file() {
    // Without the signal, so that the write itself fails.
    let (ran, used) = under_a_file_size_limit("trap '' XFSZ");
    assert!(ran.status.success(), "{ran:?}");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("1 passed"), "{ran:?}");
    assert_eq!(used, 4, "the old file");
}

/// The documentation of `Limiter::snapshot` describes this case.
#[cfg(target_os = "linux")]
#[test]
fn file_size_limit_kills_unless_signal_is_ignored() {
    use std::os::unix::process::ExitStatusExt as _;
    let (ran, used) = under_a_file_size_limit(":");
    assert_eq!(ran.status.signal(), Some(25), "SIGXFSZ: {ran:?}");
    assert_eq!(used, 4, "the old file");
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by the tests above, which limit the size of files"]
fn writes_a_file_that_is_too_long() {
    let path = std::env::var_os("SNAPSHOT_TO").expect("the path");
    let (limiter, _manual) = limiter(limits(&[("A", slow(10))]), Engine::LockFree);
    for id in 0..10_000 {
        assert!(limiter.limit("A").unwrap().spend(format!("{id}").as_str(), 1).unwrap().allowed());
    }
    let error = limiter.snapshot(path).unwrap_err();
    assert!(error.is_io() && error.to_string().contains("cannot be written"), "{error}");
}
