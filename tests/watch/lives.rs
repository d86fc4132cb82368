//! The lifetime of the thread, and of the values that it owns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn quick() -> WatchOptions {
    WatchOptions::default().settle(millis(5)).poll(millis(5))
}

/// Returns options whose callback owns a clone of the counter. The thread drops it at its end.
fn held_by_the_thread(options: WatchOptions) -> (WatchOptions, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let held = calls.clone();
    let options = options.on_reload(move |_| {
        held.fetch_add(1, Ordering::Relaxed);
    });
    (options, calls)
}

#[test]
fn dropping_the_watcher_joins_the_thread() {
    let site = Site::new();
    let (options, held) = held_by_the_thread(WatchOptions::default().poll(NEVER).settle(NEVER));
    // The thread is in the middle of a rest, or has not begun.
    let watcher = site.limiter.watch(site.file(), None, options).unwrap();
    drop(watcher);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn the_thread_ends_after_its_limiter() {
    let site = Site::new();
    let (options, held) = held_by_the_thread(quick());
    let watcher = site.watch(options);
    drop(site.limiter);
    until("the thread's end", || Arc::strong_count(&held) == 1);
    assert_eq!(watcher.status().failures, 0);
}

#[test]
fn the_callback_gets_each_attempt() {
    let site = Site::new();
    let (options, calls) = held_by_the_thread(quick());
    let watcher = site.watch(options);
    until("a call for what was the same", || calls.load(Ordering::Relaxed) == 1);
    assert_eq!(watcher.status().reloads, 0);
    fs::write(site.path("new"), text(2)).unwrap();
    fs::rename(site.path("new"), site.file()).unwrap();
    until("a call for what was not", || calls.load(Ordering::Relaxed) == 2);
    assert_eq!((watcher.status().reloads, burst(&site.limiter)), (1, Some(2)));
}

#[test]
fn callback_panic_is_counted_and_thread_continues() {
    let site = Site::new();
    let options = quick().on_reload(|reloaded| {
        if reloaded.as_ref().is_ok_and(|reloaded| reloaded.generation == 1) {
            panic!("as planned");
        }
    });
    let watcher = site.watch(options);
    fs::write(site.path("new"), text(2)).unwrap();
    fs::rename(site.path("new"), site.file()).unwrap();
    until("a panic", || watcher.status().panics == 1);
    let status = watcher.status();
    assert_eq!(status.last_error.as_deref(), Some("a panic: as planned"));
    assert_eq!((status.failures, burst(&site.limiter)), (1, Some(2)));
    fs::write(site.file(), text(3)).unwrap();
    site.until_burst(&watcher, 3);
}

/// Limits that the caller loads stay until the files change.
#[test]
fn manual_reloads_stay_until_the_file_changes() {
    let site = Site::new();
    let watcher = site.watch(quick());
    site.limiter.reload(Limits::from_yaml(&text(50)).unwrap()).unwrap();
    for _ in 0..20 {
        watcher.check_now();
        thread::sleep(millis(2));
    }
    assert_eq!(burst(&site.limiter), Some(50));
    fs::write(site.file(), text(3)).unwrap();
    site.until_burst(&watcher, 3);
}

#[test]
fn a_look_may_be_asked_for() {
    let site = Site::new();
    let options = WatchOptions::default().settle(millis(5)).events(false).poll(millis(20_000));
    let watcher = site.watch(options);
    // Two polls take longer than the test waits.
    fs::write(site.file(), text(2)).unwrap();
    until("a burst of 2", || {
        watcher.check_now();
        burst(&site.limiter) == Some(2)
    });
}
