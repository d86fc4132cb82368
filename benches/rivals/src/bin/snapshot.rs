//! Measures snapshots of a table in use: the time to write and to read one, the length of the file, and the time of the
//! calls that another thread makes during the writes.

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rivals::keys::Keys;
use rivals::meter::{FaultCost, Meter};
use rivals::random::Random;
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};

/// Measures snapshots that are written while another thread spends, and restores of the last one.
#[derive(Parser)]
struct Args {
    /// The number of keys with a bucket.
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// The number of snapshots to write, and of restores.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    /// The folder for the files. Default: the system's folder for temporary files.
    #[arg(long)]
    folder: Option<PathBuf>,
}

const NAME: &str = "PerUser";
const BURST: u64 = 1 << 20;
/// The number of calls that are measured while no snapshot is written.
const CALLS_ALONE: usize = 2_000_000;

fn limits() -> Limits {
    let limit = Limit::new(BURST, BURST, Duration::from_secs(31_536_000)).expect("a limit");
    Limits::builder().limit(NAME, IdFormat::String, limit).expect("a name").build()
}

/// Returns the times to write `bytes` bytes and sync them to the disk, and to read them: what the machine needs without
/// Tollgate.
fn bare(path: &Path, bytes: usize) -> (Duration, Duration) {
    let content = vec![7; bytes];
    let started = Instant::now();
    let mut file = File::create(path).expect("a file");
    file.write_all(&content).and_then(|()| file.sync_all()).expect("written");
    let wrote = started.elapsed();
    let started = Instant::now();
    let read = File::open(path).and_then(|mut file| file.read_to_end(&mut Vec::new()));
    assert_eq!(black_box(read.expect("read")), bytes);
    (wrote, started.elapsed())
}

/// Returns the median and the longest time.
fn middle(mut took: Vec<Duration>) -> (Duration, Duration) {
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() - 1])
}

fn main() {
    let args = Args::parse();
    let keys = &Keys::new(args.keys as usize);
    let fault = FaultCost::calibrate(64 << 20);
    let options = || LimiterOptions::default().clock(Clock::manual().0);
    let limiter = &Limiter::with_options(limits(), options()).unwrap();
    let users = &limiter.limit(NAME).expect("a known name");
    for at in keys.all() {
        assert!(users.spend(keys.text(at), 1).expect("an id").allowed());
    }
    let live = limiter.stats().bytes;
    let folder = args.folder.unwrap_or_else(std::env::temp_dir);
    let path = folder.join(format!("tollgate-bench-{}", std::process::id()));

    let mut alone = Meter::with_room(CALLS_ALONE);
    let mut random = Random::new(1);
    for _ in 0..CALLS_ALONE {
        let id = keys.text(random.below(keys.count()));
        assert!(alone.time(|| users.spend(black_box(id), 1)).expect("an id").allowed());
    }

    let stop = &AtomicBool::new(false);
    let mut wrote = Vec::new();
    let mut bytes = 0;
    let beside = thread::scope(|scope| {
        let spender = scope.spawn(move || {
            let (mut meter, mut random) = (Meter::default(), Random::new(2));
            while !stop.load(Ordering::Relaxed) {
                let id = keys.text(random.below(keys.count()));
                let decision = meter.time(|| users.spend(black_box(id), 1)).expect("an id");
                assert!(decision.allowed());
            }
            meter
        });
        for _ in 0..args.files {
            let started = Instant::now();
            let kept = limiter.snapshot(&path).expect("a file");
            wrote.push(started.elapsed());
            assert_eq!(kept.buckets, keys.count() as u64, "the file has each bucket exactly once");
            bytes = kept.bytes;
        }
        stop.store(true, Ordering::Relaxed);
        spender.join().expect("the spender")
    });
    limiter.snapshot(&path).expect("a file");
    let mut read = Vec::new();
    for _ in 0..args.files {
        let started = Instant::now();
        let (again, restored) = Limiter::restore(limits(), options(), &path).expect("the file");
        read.push(started.elapsed());
        assert_eq!(restored.buckets, keys.count() as u64);
        let again = again.limit(NAME).expect("a known name");
        for at in keys.all() {
            let left = |users: &tollgate::KeyedLimit| {
                users.check(keys.text(at), 0).expect("an id").remaining()
            };
            assert_eq!(left(&again), left(users), "{}", keys.text(at));
        }
    }
    let (bare_wrote, bare_read) = bare(&path, bytes as usize);
    let _ = std::fs::remove_file(&path);

    let ((wrote, longest_wrote), (read, longest_read)) = (middle(wrote), middle(read));
    println!(
        "{} buckets: written in {wrote:?} (median of {}; longest {longest_wrote:?}), beside a thread that spends",
        keys.count(),
        args.files
    );
    println!("read in {read:?} (longest {longest_read:?})");
    println!("as many bytes, written and synced alone: {bare_wrote:?}; read: {bare_read:?}");
    println!("{bytes} bytes, {:.2} of the table's {live}", bytes as f64 / live as f64);
    for (what, meter) in [("without a snapshot", alone), ("beside snapshots", beside)] {
        println!("spends {what}: {}", Meter::figures(vec![meter], fault));
    }
}
