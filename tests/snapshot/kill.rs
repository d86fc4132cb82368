//! A writer that is killed at any moment leaves the old file or the new one, complete.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tollgate::Limiter;
use tollgate::options::Engine;

use super::{full_size, limiter, limits, options, slow, used};

const THREADS: usize = 2;
const KEYS: u64 = 3_000;
const BURST: u64 = 1 << 20;
/// The environment variables of the writer: the path, and the number of the last round.
const PATH: &str = "SNAPSHOT_TO";
const ROUND: &str = "SNAPSHOT_ROUND";

/// Writes one file after the other. In each of them every bucket has used as many units as the round's number. Prints a
/// line before and after each file.
#[test]
#[ignore = "run by the test below, which kills it"]
fn writes_until_it_is_killed() {
    let path = env::var_os(PATH).expect("the path");
    let round: u64 = env::var(ROUND).expect("the round").parse().unwrap();
    let (limiter, _manual) = limiter(limits(&[("A", slow(BURST))]), Engine::LockFree);
    let a = limiter.limit("A").unwrap();
    let ids: Vec<String> = (0..KEYS).map(|id| format!("id {id}")).collect();
    let spend = |cost: u64| {
        ids.iter().for_each(|id| assert!(a.spend(id, cost).unwrap().allowed()));
    };
    if round > 0 {
        spend(round);
    }
    // The parent kills this process before the last round.
    for round in round + 1..round + 10_000 {
        spend(1);
        say(&format!("begin {round}\n"));
        limiter.snapshot(&path).unwrap();
        say(&format!("done {round}\n"));
    }
}

/// Writes to stderr directly, because the test runner captures what is printed, and in one call, because a kill may come
/// between two.
fn say(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn writer(path: &Path, round: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "kill::writes_until_it_is_killed", "--ignored", "--nocapture"]);
    command.env(PATH, path).env(ROUND, round.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills a writer at the time `after` its first line. Returns the round that it was in, and the last one that it finished.
fn kill(mut writer: Child, after: Duration, done: u64) -> (u64, u64) {
    let mut lines = BufReader::new(writer.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|line| line.starts_with("begin "));
    assert!(first.is_some(), "the writer ended by itself");
    thread::sleep(after);
    writer.kill().unwrap();
    writer.wait().unwrap();
    let (mut begun, mut done) = (done + 1, done);
    for line in lines {
        let (what, round) = line.split_once(' ').expect("a word and a round");
        match (what, round.parse()) {
            ("begin", Ok(round)) => begun = round,
            ("done", Ok(round)) => done = round,
            _ => panic!("{line}"),
        }
    }
    (begun, done)
}

/// Kills writers to one path. Returns the number of those that were in the middle of a file.
fn kill_writers(kills: usize, seed: u64) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("buckets");
    let (mut in_the_middle, mut done, mut random) = (0, 0, seed);
    for _ in 0..kills {
        // A Weyl sequence, which visits all times equally.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let after = Duration::from_nanos(((random >> 40) * 3_000_000) >> 24);
        let (begun, now_done) = kill(writer(&path, done), after, done);
        let others = fs::read_dir(folder.path()).unwrap().count() - usize::from(path.exists());
        assert!(others <= 1, "each writer removes abandoned files: {others}");
        in_the_middle += others;
        if begun == 1 && !path.exists() {
            continue;
        }
        let limits = limits(&[("A", slow(BURST))]);
        let (limiter, restored) =
            Limiter::restore(limits, options(Engine::LockFree).0, &path).unwrap();
        assert_eq!(restored.buckets, KEYS);
        let round = used(&limiter, "A", "id 0", BURST);
        assert!((now_done..=begun).contains(&round), "{round} of {now_done} to {begun}");
        for id in 1..KEYS {
            assert_eq!(used(&limiter, "A", &format!("id {id}"), BURST), round, "id {id}");
        }
        done = round;
    }
    in_the_middle
}

#[test]
fn killed_writers_leave_old_or_new_file() {
    let kills = full_size(60, 1_000);
    let threads: Vec<_> = (0..THREADS as u64)
        .map(|seed| thread::spawn(move || kill_writers(kills / THREADS, seed)))
        .collect();
    let in_the_middle: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{in_the_middle} of {kills} writers were killed in the middle of a file");
    assert!(in_the_middle >= kills / 10, "{in_the_middle} were killed in the middle of a file");
}
