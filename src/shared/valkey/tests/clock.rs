//! Steps of the server's clock while nodes run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::processes::{BURST, Nodes, pause, units_above_the_bound, unix_ns};
use super::server::{Server, left_out, with_each};
use super::wait_until;

/// Returns the library that changes the time of a program, if this machine has it.
fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.is_file())
}

/// Whether a server can run with the library: one that is linked to jemalloc may hang at its start.
fn runs_with(binary: &Path, library: &Path) -> bool {
    let mut command = Command::new(binary);
    command.arg("--version").env("LD_PRELOAD", library).env("FAKETIME", "+0");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, began) = (command.spawn().unwrap(), Instant::now());
    while began.elapsed() < Duration::from_secs(5) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        pause(10);
    }
    let _ = (child.kill(), child.wait());
    false
}

/// A server whose clock is the machine's and a number of seconds, which a file has.
struct Stepped {
    server: Server,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Stepped {
    fn start(binary: &Path, library: &Path) -> Stepped {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("step");
        std::fs::write(&file, "+0\n").unwrap();
        let shown = |path: &Path| path.to_str().unwrap().to_owned();
        let variables = vec![
            ("LD_PRELOAD".into(), shown(library)),
            ("FAKETIME_TIMESTAMP_FILE".into(), shown(&file)),
            ("FAKETIME_NO_CACHE".into(), "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC".into(), "1".into()),
        ];
        let server = Server::start_in(binary, &[], variables);
        Stepped { server, file, _folder: folder }
    }

    fn step(&self, seconds: i64) {
        // In one piece: the server reads the file at each look at its clock.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n")).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    fn unix_s(&self) -> i64 {
        let time: (i64, i64) = redis::cmd("TIME").query(&mut self.server.connection()).unwrap();
        time.0
    }
}

/// Lets nodes run while the server's clock makes a step. Returns the units above the bound, and those that were spent a
/// second and more after the step.
fn steps(binary: &Path, library: &Path, shared: &str, seconds: i64) -> (u64, u64) {
    let stepped = Stepped::start(binary, library);
    let nodes = Nodes::start_with(shared, &stepped.server.url(""));
    pause(1000);
    let before_s = stepped.unix_s();
    stepped.step(seconds);
    // A busy server looks at its clock once for several calls.
    wait_until("a step of the clock", || (stepped.unix_s() - before_s - seconds).abs() <= 5);
    let at_ns = unix_ns();
    pause(2200);
    let (uses, from_leases) = nodes.end();
    let later = uses.iter().filter(|(before_ns, ..)| *before_ns > at_ns + 1_000_000_000);
    let later = later.map(|(.., cost)| cost).sum();
    let above = units_above_the_bound(&uses);
    println!("{shared}, {seconds:+} s: {above} above, {later} later, {from_leases} from leases");
    assert!(uses.len() > 100, "the nodes have spent");
    (above, later)
}

#[test]
fn steps_of_the_clock_keep_their_bounds() {
    let Some(library) = faketime() else {
        left_out(
            "a test with steps of the server's clock: libfaketimeMT.so.1 of the package faketime is not found",
        );
        return;
    };
    with_each(|binary| {
        if !runs_with(binary, &library) {
            let name = binary.display();
            left_out(&format!(
                "a test with steps of the clock of {name}, which does not run with faketime"
            ));
            return;
        }
        for (shared, leases) in [("leased, lease: 300ms", BURST), ("exact", 0)] {
            // A full bucket, and the leases that ended early for the server.
            let (above, later) = steps(binary, &library, shared, 3600);
            assert!(above <= BURST + leases, "{above}");
            assert!(later > 100, "nodes go on: {later}");
            let (above, later) = steps(binary, &library, shared, -3600);
            assert_eq!((above, later), (0, 0), "denied for an hour");
        }
    });
}
