//! The memory that a restore takes beside the limiter's table.
#![cfg(all(feature = "exact", feature = "snapshot"))]

#[path = "snapshot/forged.rs"]
mod forged;

#[path = "support/full_size.rs"]
mod full_size;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allocation_counter::measure;
use forged::{File, FrameKind};
use full_size::full_size;
use tollgate::options::Engine;
use tollgate::snapshot::Restored;
use tollgate::{Error, IdFormat, Limit, Limiter, LimiterOptions, Limits};

fn limits() -> Limits {
    let limit = Limit::new(1000, 1, Duration::from_secs(86_400)).unwrap();
    Limits::builder().limit("A", IdFormat::String, limit).unwrap().build()
}

/// Returns the maximum bytes of the heap, the table's bytes, and the result of the restore.
fn restored(engine: Engine, path: &Path) -> (u64, u64, Result<Restored, Error>) {
    restored_with(LimiterOptions::default().engine(engine), path)
}

fn restored_with(options: LimiterOptions, path: &Path) -> (u64, u64, Result<Restored, Error>) {
    let (mut table, mut out) = (0, None);
    let limits = limits();
    let heap = measure(|| {
        let made = Limiter::restore(limits, options, path);
        out = Some(made.map(|(limiter, restored)| {
            table = limiter.stats().bytes as u64;
            restored
        }));
    });
    (heap.bytes_max, table, out.unwrap())
}

const MIB: u64 = 1 << 20;

/// Checks that a restore takes at most the file's size and 4 MiB beside the table, also if it refuses the file.
fn assert_bounded(engine: Engine, path: &Path) -> Result<Restored, Error> {
    let (heap, _, made) = restored(engine, path);
    let bytes = fs::metadata(path).unwrap().len();
    // The exact engine's table is on the heap.
    let table = made
        .as_ref()
        .map_or(0, |made| if engine == Engine::Exact { 100 * made.buckets } else { 0 });
    assert!(heap <= bytes + table + 4 * MIB, "{heap} bytes for a file of {bytes}: {made:?}");
    made
}

/// Names of limits that the limiter does not have, each with its id format.
fn unknown_limits(count: usize) -> impl Iterator<Item = (String, &'static str)> {
    (0..count).map(|at| (format!("n{at}"), "string"))
}

fn put(forge: impl FnOnce(&mut File)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let mut file = File::begin();
    forge(&mut file);
    fs::write(&path, file.bytes()).unwrap();
    (folder, path)
}

/// Returns the error of a refused file, without its path.
#[track_caller]
fn refused(forge: impl FnOnce(&mut File)) -> String {
    let (_folder, path) = put(forge);
    let error = assert_bounded(Engine::LockFree, &path).expect_err("refused");
    assert!(error.is_invalid_snapshot(), "{error}");
    let text = error.to_string();
    text.strip_prefix(&format!("{}: at byte ", path.display())).unwrap().to_owned()
}

#[test]
fn files_of_a_limiter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let cases = [
        (Engine::LockFree, full_size(145_000, 290_000), 8),
        (Engine::Exact, 20_000, 1000),
        (Engine::LockFree, 200_000, 8),
        (Engine::Exact, 200_000, 8),
    ];
    for &(engine, keys, digits) in full_size(&cases[..2], &cases) {
        let limiter =
            Limiter::with_options(limits(), LimiterOptions::default().engine(engine)).unwrap();
        let a = limiter.limit("A").unwrap();
        for id in 0..keys {
            assert!(a.spend(format!("{id:0digits$}").as_str(), 1).unwrap().allowed());
        }
        let bytes = limiter.snapshot(&path).unwrap().bytes;
        for into in [Engine::LockFree, engine] {
            let (heap, table, made) = restored(into, &path);
            assert_eq!(made.unwrap().buckets, keys);
            println!(
                "{keys} of {engine:?} into {into:?}: {bytes} bytes, heap {heap}, table {table}"
            );
            let beside = if into == Engine::Exact { heap - table } else { heap };
            assert!(beside < bytes / 4 + 4 * MIB, "{beside} bytes beside the table");
            // The table takes as much as for the same number of buckets that calls have made.
            let a_bucket = if into == Engine::Exact { 96 + digits as u64 } else { 96 };
            assert!(table <= a_bucket * keys + MIB, "a table of {table} bytes for {keys} buckets");
        }
    }
}

#[test]
fn empty_and_repeated_limit_names_are_damage() {
    let damaged = "72: the file is damaged from here on";
    let nothing = |file: &mut File| {
        file.limits((0..full_size(200_000, 2_000_000)).map(|_| (String::new(), "")));
        file.end(0);
    };
    assert_eq!(refused(nothing), damaged);
    for names in [["", "B"], ["B", "B"], ["A", "A"], ["a name", "B"]] {
        let forge = |file: &mut File| {
            file.limits(names.iter().map(|name| ((*name).to_owned(), "string")));
            file.end(0);
        };
        assert_eq!(refused(forge), damaged, "{names:?}");
    }
    for format in ["", &"x".repeat(65)] {
        let forge = |file: &mut File| {
            file.limits([("B".to_owned(), format)].into_iter());
            file.end(0);
        };
        assert_eq!(refused(forge), damaged, "{format:?}");
    }
    // A repeated name of a known limit.
    let again = |file: &mut File| {
        file.limits((0..full_size(300_000, 1_000_000)).map(|_| ("A".to_owned(), "string")));
        file.end(0);
    };
    assert_eq!(refused(again), damaged);
}

/// The number of unknown limits is bounded, also with a known limit after them.
#[test]
fn limits_that_are_not_among_the_new_ones() {
    for &last in full_size(&[Some("A")][..], &[None, Some("A")]) {
        let with = |unknown: usize| {
            move |file: &mut File| {
                let last = last.map(|name| (name.to_owned(), "string"));
                file.limits(unknown_limits(unknown).chain(last));
                file.end(0);
            }
        };
        let (_folder, path) = put(with(4096));
        assert_eq!(assert_bounded(Engine::LockFree, &path).unwrap().buckets, 0);
        // Each limit has counters.
        let (heap, ..) = restored_with(LimiterOptions::default().counting(true), &path);
        assert!(heap < 16 * MIB, "{heap}");
        for (unknown, max) in [(4097, 4096), (1_000_000, 6077)] {
            let text = refused(with(unknown));
            let wanted = format!("more than {max} limits that are not among the new ones");
            assert!(text.contains(&wanted), "{text}");
        }
    }
}

#[test]
fn parameters_without_buckets() {
    let parameters = || {
        let mut numbers = [0; 47];
        // The first limit, gcra with a burst of 10 and one unit a second.
        (numbers[4], numbers[21]) = (1, 10);
        numbers[29] = 1;
        numbers[37..45].copy_from_slice(&1_000_000_000_u64.to_le_bytes());
        numbers.to_vec()
    };
    let forge = |file: &mut File| {
        file.limits([("A".to_owned(), "string")].into_iter());
        file.frames(FrameKind::Parameters, (0..full_size(100_000, 400_000)).map(|_| parameters()));
    };
    let (_folder, path) = put(|file| {
        forge(file);
        file.end(0);
    });
    let (heap, _, made) = restored(Engine::LockFree, &path);
    let bytes = fs::metadata(&path).unwrap().len();
    assert_eq!(made.unwrap().buckets, 0);
    assert!(heap < 2 * bytes, "{heap} bytes for a file of {bytes}");
    // The file has no room for this number of buckets beside the parameters, and none at all for 2^60 buckets.
    let text = refused(|file| {
        forge(file);
        file.end(full_size(125_000, 500_000));
    });
    assert!(text.ends_with(": the file is damaged from here on"), "{text}");
    let text = refused(|file| {
        forge(file);
        file.end(1 << 60);
    });
    let wanted = "the file is too short for the 1152921504606846976 buckets that it declares";
    assert!(text.ends_with(wanted), "{text}");
}

/// A restored limiter has indices without a limit, which its own snapshot must contain.
#[test]
fn free_limit_indices_survive_the_next_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let named = |names: &[&str]| {
        let limit = Limit::new(10, 1, Duration::from_secs(86_400)).unwrap();
        let add = |builder: tollgate::limits::LimitsBuilder, name: &&str| {
            builder.limit(name, IdFormat::String, limit.clone()).unwrap()
        };
        names.iter().fold(Limits::builder(), add).build()
    };
    let old = Limiter::new(named(&["gone", "also", "A", "last"]));
    assert!(old.limit("A").unwrap().spend("x", 4).unwrap().allowed());
    assert!(old.limit("gone").unwrap().spend("x", 4).unwrap().allowed());
    old.snapshot(&path).unwrap();
    let mut made = Limiter::restore(named(&["A"]), LimiterOptions::default(), &path).unwrap();
    assert_eq!(
        (made.1.buckets, &*made.1.gone),
        (1, &["gone", "also", "last"].map(String::from)[..])
    );
    for (names, gone) in [(&["A"][..], 0), (&["A", "new"], 0), (&["A"], 1), (&["A"], 0)] {
        made.0.snapshot(&path).unwrap();
        made = Limiter::restore(named(names), LimiterOptions::default(), &path).unwrap();
        assert_eq!((made.1.buckets, made.1.gone.len()), (1, gone), "{names:?}");
        let a = made.0.limit("A").unwrap();
        assert_eq!(a.check("x", 0).unwrap().remaining(), Some(6), "{names:?}");
        assert!(made.0.limit("gone").is_err() && made.0.limits().names().count() == names.len());
    }
}

const PATH: &str = "RESTORE_FROM";

/// Checks the memory of a process that only restores, including tables, as Linux counts it.
#[cfg(target_os = "linux")]
#[test]
fn a_large_file_in_its_own_process() {
    let buckets: u64 = full_size::full_size(500_000, 2_000_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let limiter = Limiter::new(limits());
    let a = limiter.limit("A").unwrap();
    for id in 0..buckets {
        assert!(a.spend(format!("{id}").as_str(), 1).unwrap().allowed());
    }
    let bytes = limiter.snapshot(&path).unwrap().bytes;
    let kib = |restores: bool| -> u64 {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "restores_and_prints_its_memory", "--ignored", "--nocapture"]);
        if restores {
            command.env(PATH, &path);
        }
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let text = String::from_utf8(ran.stderr).unwrap();
        let (_, took) = text.split_once("VmHWM:").expect("the memory");
        took.trim_start().split_once(" kB").expect("in KiB").0.parse().unwrap()
    };
    let took = (kib(true) - kib(false)) * 1024;
    println!("{bytes} bytes in the file took {took}: {:.2} times", took as f64 / bytes as f64);
    // A table that has just grown is emptiest. It takes 3.3 times the file.
    assert!(took < bytes * 34 / 10, "{took} bytes for a file of {bytes}");
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "run by the test above, in a process of its own"]
fn restores_and_prints_its_memory() {
    let made = std::env::var_os(PATH)
        .map(|path| Limiter::restore(limits(), LimiterOptions::default(), path).unwrap());
    let status = fs::read_to_string("/proc/self/status").unwrap();
    drop(made);
    let took = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux says so");
    eprintln!("{took}");
}
