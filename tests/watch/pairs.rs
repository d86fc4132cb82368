//! The limits file and the overrides file as one unit.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn overrides(burst: u64) -> String {
    format!("PerUser:alice: {{burst: {burst}, count: 10, period: 1s}}\n")
}

/// Returns the default burst and alice's burst.
fn bursts(limiter: &Limiter) -> (u64, u64) {
    let limits = limiter.limits();
    let burst = |id| limits.limit_for("PerUser", id).unwrap().unwrap().burst();
    (burst("bob"), burst("alice"))
}

#[test]
fn are_taken_together_or_not_at_all() {
    let site = Site::new();
    let other = site.path("overrides.yml");
    fs::write(&other, overrides(1)).unwrap();
    let options = WatchOptions::default().settle(millis(5)).poll(millis(5));
    let watcher = site.limiter.watch(site.file(), Some(&other), options).unwrap();
    let until_bursts = |wanted| until("bursts", || bursts(&site.limiter) == wanted);
    until("a first look", || watcher.status().last_success.is_some());

    fs::write(&other, overrides(2)).unwrap();
    until_bursts((1, 2));
    // A fault in one file prevents the load of both.
    fs::write(&other, "PerUser:alice: {}\n").unwrap();
    until("a failure", || {
        watcher.status().last_error.is_some_and(|text| text.contains("no burst"))
    });
    let failures = watcher.status().failures;
    fs::write(site.file(), text(3)).unwrap();
    until("another", || watcher.status().failures > failures);
    assert_eq!(bursts(&site.limiter), (1, 2));
    fs::write(&other, overrides(3)).unwrap();
    until_bursts((3, 3));
    // A missing overrides file is a failure. `{}` in it means no overrides.
    fs::remove_file(&other).unwrap();
    until("a failure", || {
        watcher
            .status()
            .last_error
            .is_some_and(|text| text.contains("overrides.yml: cannot be read"))
    });
    assert_eq!(bursts(&site.limiter), (3, 3));
    fs::write(&other, "{}\n").unwrap();
    until_bursts((3, 3));
    until("alice has no override", || site.limiter.limits().overrides() == 0);
}

/// A symbolic link moves from one folder to the next while the thread reads both files through it. The loaded files are
/// always of one folder.
#[cfg(unix)]
#[test]
fn are_never_mixed() {
    use std::os::unix::fs::symlink;

    let site = Site::new();
    let swap = |round: u64| {
        let folder = format!("..{}", round % 8);
        let _ = fs::create_dir(site.path(&folder));
        fs::write(site.path(&folder).join("limits.yml"), text(round)).unwrap();
        fs::write(site.path(&folder).join("overrides.yml"), overrides(round)).unwrap();
        symlink(&folder, site.path("..data_tmp")).unwrap();
        fs::rename(site.path("..data_tmp"), site.path("..data")).unwrap();
    };
    swap(1);
    let (limits, other) = (site.path("..data/limits.yml"), site.path("..data/overrides.yml"));
    // Without rests, the thread reads all the time.
    let options = WatchOptions::default().settle(Duration::ZERO).poll(millis(1));
    let watcher = site.limiter.watch(limits, Some(&other), options).unwrap();
    until("a first look", || watcher.status().last_attempt.is_some());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 2..3000 {
                swap(round);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            let (all, alice) = bursts(&site.limiter);
            assert_eq!(all, alice, "{:?}", watcher.status());
        }
    });
    until("the last", || bursts(&site.limiter) == (2999, 2999));
    let status = watcher.status();
    assert!(status.reloads > 20, "{status:?}");
    assert_eq!(status.failures, 0, "{status:?}");
}

/// The error is about the empty file, not about unknown overrides.
#[test]
fn an_emptied_file_of_limits_is_one_fault() {
    let site = Site::new();
    let other = site.path("overrides.yml");
    fs::write(&other, overrides(2)).unwrap();
    let options = WatchOptions::default().settle(millis(5)).poll(millis(5));
    let watcher = site.limiter.watch(site.file(), Some(&other), options).unwrap();
    until("a first look", || watcher.status().last_success.is_some());
    for emptied in ["", "# nothing\n", "null\n", "{}\n"] {
        let failures = watcher.status().failures;
        fs::write(site.file(), emptied).unwrap();
        until("a failure", || watcher.status().failures > failures);
        let error = watcher.status().last_error.unwrap();
        assert_eq!(error.lines().count(), 1, "{emptied:?}: {error}");
        assert!(error.ends_with(": at least one limit is wanted"), "{emptied:?}: {error}");
    }
    assert_eq!(bursts(&site.limiter), (1, 2));
}

#[test]
fn are_read_as_the_options_say() {
    let site = Site::new();
    let other = site.path("overrides.yml");
    fs::write(&other, "NewRegistrationsPerIPAddress:10.0.0.2: {burst: 9, count: 1, period: 1s}\n")
        .unwrap();
    let options = WatchOptions::default().settle(millis(5)).poll(millis(5));
    let refused = site.limiter.watch(site.file(), Some(&other), options.clone()).unwrap();
    until("a failure", || {
        refused.status().last_error.is_some_and(|text| text.contains("reserved address block"))
    });
    drop(refused);
    let options = options.loader(Loader::new().allow_reserved(true));
    let watcher = site.limiter.watch(site.file(), Some(&other), options).unwrap();
    until("a success", || watcher.status().last_success.is_some());
    assert_eq!(site.limiter.limits().overrides(), 1);
}

/// The limits that a loader adds to the files are there after each reload.
#[test]
fn limits_of_code_stay_in_every_reload() {
    let site = Site::new();
    let limit = || Limit::new(7, 1, millis(1000)).unwrap();
    let own = Limits::builder().limit("Own", IdFormat::String, limit()).unwrap().build();
    let loader = Loader::new()
        .before(own)
        .after(move |limits| limits.override_id("PerUser", "alice", limit()));
    let options = WatchOptions::default().settle(millis(5)).poll(millis(5)).loader(loader);
    let watcher = site.limiter.watch(site.file(), None, options).unwrap();
    for default in [2, 3] {
        fs::write(site.file(), text(default)).unwrap();
        until("a reload", || bursts(&site.limiter) == (default, 7));
        // The new limits are visible before the reload has moved every bucket; until then the old ones, which may lack
        // "Own", decide.
        let own = site.limiter.limit("Own").unwrap();
        until("a bucket of Own", || own.check("bob", 0).unwrap().remaining() == Some(7));
    }
    // A file that takes a limit away for which code has an override is refused, and nothing changes.
    fs::write(site.file(), "Other: {burst: 1, count: 1, period: 1s, id: string}").unwrap();
    until("a failure", || {
        watcher.status().last_error.is_some_and(|text| text.contains("unknown limit \"PerUser\""))
    });
    assert_eq!(bursts(&site.limiter), (3, 7));
}
