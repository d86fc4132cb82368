//! Many changes in a row.

use allocation_counter::measure;

use super::support::in_own_process;
use super::*;

#[test]
fn are_few_reloads_and_the_last_one_counts() {
    in_own_process(|| {
        write_1000_times();
    });
}

fn write_1000_times() {
    const WRITES: u64 = 1000;
    let site = Site::new();
    let handle = site.limiter.limit("PerUser").unwrap();
    for user in 0..1000 {
        assert!(handle.spend(format!("user {user}").as_str(), 1).unwrap().allowed());
    }
    let before = site.limiter.stats();
    let watcher = site.watch(WatchOptions::default().settle(millis(30)).poll(NEVER));
    for burst in 2..WRITES + 2 {
        fs::write(site.file(), text(burst)).unwrap();
        // Bursts of writes give the watcher little time between two of them.
        thread::sleep(millis(2));
    }
    site.until_burst(&watcher, WRITES + 1);
    let status = watcher.status();
    assert!((1..WRITES / 4).contains(&status.reloads), "{status:?}");
    assert_eq!(status.generation, status.reloads);
    let after = site.limiter.stats();
    assert!(after.bytes <= 2 * before.bytes, "{before:?}, {after:?}");
}

/// Files that keep changing are not loaded, which is reported once.
#[test]
fn without_an_end_are_a_failure() {
    let site = Site::new();
    let watcher = site.watch(WatchOptions::default().settle(millis(40)).poll(millis(1)));
    let begun = Instant::now();
    let mut burst = 2;
    while watcher.status().failures == 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", watcher.status());
        fs::write(site.path("new"), text(burst)).unwrap();
        fs::rename(site.path("new"), site.file()).unwrap();
        burst += 1;
        thread::sleep(millis(1));
    }
    let error = watcher.status().last_error.unwrap();
    assert!(error.ends_with("in 50 reads the files were never the same for 40ms"), "{error}");
    site.until_burst(&watcher, burst - 1);
    assert_eq!(watcher.status().failures, 1);
}

/// A reload frees its memory: many reloads, at full size a thousand, leave no more allocated than a few. (Memory is counted by
/// thread, so the test has its own process.)
#[test]
fn leave_no_memory_behind() {
    in_own_process(|| {
        reload_often();
    });
}

fn reload_often() {
    let reloads = support::full_size(100, 1_000);
    let site = Site::new();
    let overrides: String = (0..200)
        .map(|user| format!("PerUser:{user}: {{burst: {}, count: 1, period: 1s}}\n", user + 1))
        .collect();
    let reload = |burst: u64| {
        let limits = Limits::from_yaml(&(text(burst) + &overrides)).unwrap();
        assert!(site.limiter.reload(limits).unwrap().changed);
    };
    let one = measure(|| drop(Limits::from_yaml(&(text(1) + &overrides)))).bytes_max;
    (2..300).for_each(reload);
    let left = measure(|| (300..300 + reloads).for_each(reload)).bytes_current;
    assert!(left.unsigned_abs() < reloads * 3 / 10 * one, "{left} bytes left, {one} each");
}
