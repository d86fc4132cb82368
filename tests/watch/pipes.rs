//! A pipe takes the file's name at any moment. The watcher never blocks on it.

use std::process::Command;
use std::sync::mpsc;
use std::time::Instant;

use super::*;

/// How long the names are swapped. Each read of the files may meet a pipe.
const SWAPPED_FOR: Duration = Duration::from_secs(2);

/// Drops the watcher, which joins its thread.
fn ends(watcher: Watcher) {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        drop(watcher);
        let _ = done.send(());
    });
    let ended = is_done.recv_timeout(Duration::from_secs(30));
    assert!(ended.is_ok(), "the watcher's thread is blocked");
}

/// Opening a pipe for reading would block until a writer opens it.
#[test]
fn pipe_renamed_over_file_between_two_steps() {
    let site = Site::new();
    let made = Command::new("mkfifo").arg(site.path("pipe")).status().unwrap();
    assert!(made.success());
    fs::write(site.path("good"), text(2)).unwrap();
    let options = WatchOptions::default().settle(Duration::ZERO).poll(millis(1)).events(false);
    let watcher = site.watch(options);
    let begun = Instant::now();
    let mut swaps = 0;
    while begun.elapsed() < SWAPPED_FOR {
        for name in ["pipe", "good"] {
            fs::hard_link(site.path(name), site.path("next")).unwrap();
            fs::rename(site.path("next"), site.file()).unwrap();
        }
        swaps += 1;
    }
    fs::write(site.path("last"), text(7)).unwrap();
    fs::rename(site.path("last"), site.file()).unwrap();
    let begun = Instant::now();
    while burst(&site.limiter) != Some(7) && begun.elapsed() < Duration::from_secs(20) {
        thread::sleep(millis(1));
    }
    println!("{swaps} swaps, {:?}", watcher.status());
    ends(watcher);
    assert_eq!(burst(&site.limiter), Some(7), "the file after the last swap was not loaded");
}
