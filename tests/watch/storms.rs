//! Many changes in a row.

use allocation_counter::measure;

use super::*;

#[test]
fn are_few_reloads_and_the_last_one_counts() {
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
        // In bursts of writes a watcher that takes each would hardly come to see it.
        thread::sleep(millis(2));
    }
    site.until_burst(&watcher, WRITES + 1);
    let status = watcher.status();
    assert!((1..WRITES / 4).contains(&status.reloads), "{status:?}");
    assert_eq!(status.generation, status.reloads);
    let after = site.limiter.stats();
    assert!(after.bytes <= 2 * before.bytes, "{before:?}, {after:?}");
}

/// Files that never rest are never taken, and that is said, once.
#[test]
fn without_an_end_are_a_failure() {
    let site = Site::new();
    // The file is never as old as that, nor is a look ever sooner.
    let watcher = site.watch(WatchOptions::default().settle(millis(4)).poll(millis(1)));
    let mut burst = 1;
    until("a failure", || {
        watcher.status().last_error.is_none() && {
            thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let begun = Instant::now();
                    let mut burst = 2;
                    while watcher.status().failures == 0 && begun.elapsed() < millis(5000) {
                        fs::write(site.path("new"), text(burst)).unwrap();
                        fs::rename(site.path("new"), site.file()).unwrap();
                        burst += 1;
                    }
                });
                writer.join().unwrap();
            });
            watcher.status().failures > 0
        }
    });
    burst += 1;
    let _ = burst;
}

/// What a reload takes is given back: a thousand leave no more behind than a hundred.
#[test]
fn leave_no_memory_behind() {
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
    let left = measure(|| (300..1300).for_each(reload)).bytes_current;
    assert!(left.unsigned_abs() < 300 * one, "{left} bytes left, {one} each");
}
