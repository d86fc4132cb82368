//! Files that are refused, so that the old limits stay.

use super::*;

fn quick() -> WatchOptions {
    WatchOptions::default().settle(millis(5)).poll(millis(5))
}

/// Checks that the file is refused with these words and the limits stay, and that a valid file is loaded afterwards.
fn is_refused<R>(wanted: &str, spoil: impl FnOnce(&Site) -> R) {
    let site = Site::new();
    let watcher = site.watch(quick());
    assert_eq!(watcher.status().failures, 0, "{:?}", watcher.status());
    let spent = site.limiter.limit("PerUser").unwrap().spend("bob", 1).unwrap();
    assert!(spent.allowed());
    let _held = spoil(&site);
    until(wanted, || watcher.status().last_error.is_some_and(|error| error.contains(wanted)));
    let refused = watcher.status();
    assert!(refused.last_attempt > refused.last_success, "{refused:?}");
    assert_eq!((refused.reloads, refused.generation), (0, 0));
    assert_eq!(burst(&site.limiter), Some(1));
    let bob = site.limiter.limit("PerUser").unwrap().check("bob", 2);
    assert!(bob.unwrap_err().is_cost_above_burst());

    let _ = fs::remove_dir(site.file()).or_else(|_| fs::remove_file(site.file()));
    fs::write(site.file(), text(7)).unwrap();
    site.until_burst(&watcher, 7);
    let taken = watcher.status();
    assert_eq!((taken.reloads, taken.generation), (1, 1));
    assert!(taken.failures >= refused.failures && refused.failures >= 1, "{taken:?}");
    assert_eq!(
        site.limiter.counters().reload_errors,
        taken.failures,
        "the limiter counts them, too"
    );
}

#[test]
fn faults() {
    is_refused("limits.yml:1: PerUser.burst: invalid burst 0: at least 1 is allowed", |site| {
        fs::write(site.file(), text(0)).unwrap();
    });
}

#[test]
fn nothing_at_all() {
    is_refused("limits.yml: the file is empty: at least one limit is wanted", |site| {
        fs::write(site.file(), "").unwrap();
    });
}

#[test]
fn nothing_but_comments() {
    is_refused("limits.yml: the file is empty: at least one limit is wanted", |site| {
        fs::write(site.file(), "# PerUser: {burst: 20}\n").unwrap();
    });
}

#[test]
fn no_limit_in_good_yaml() {
    is_refused("limits.yml:1: the file declares nothing: at least one limit is wanted", |site| {
        fs::write(site.file(), "{}\n").unwrap();
    });
}

#[test]
fn no_text() {
    is_refused("limits.yml:1: not a text: byte 0xff", |site| {
        fs::write(site.file(), b"\xff").unwrap();
    });
}

#[test]
fn no_file() {
    is_refused("limits.yml: cannot be read: no such file", |site| {
        fs::remove_file(site.file()).unwrap();
    });
}

#[test]
fn a_folder() {
    is_refused("limits.yml: cannot be read: it is a directory", |site| {
        fs::remove_file(site.file()).unwrap();
        fs::create_dir(site.file()).unwrap();
    });
}

/// A device without an end is not read.
#[cfg(unix)]
#[test]
fn a_device() {
    is_refused("limits.yml: cannot be read: it is neither a file nor a link to one", |site| {
        fs::remove_file(site.file()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", site.file()).unwrap();
    });
}

#[cfg(unix)]
#[test]
fn a_pipe() {
    is_refused("limits.yml: cannot be read: it is neither a file nor a link to one", |site| {
        fs::remove_file(site.file()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(site.file()).status().unwrap();
        assert!(made.success());
    });
}

#[cfg(unix)]
#[test]
fn a_socket() {
    is_refused("limits.yml: cannot be read: it is neither a file nor a link to one", |site| {
        fs::remove_file(site.file()).unwrap();
        std::os::unix::net::UnixListener::bind(site.file()).unwrap();
    });
}

#[test]
fn limits_that_cannot_follow_those_before() {
    is_refused("the ids of PerUser are", |site| {
        let text = "PerUser: {burst: 9, count: 1, period: 1s, id: ipAddress}\n";
        fs::write(site.file(), text).unwrap();
        site.limiter.limit("PerUser").unwrap()
    });
}

/// The same content is refused once. Further polls are no failures.
#[test]
fn are_counted_once() {
    let site = Site::new();
    let watcher = site.watch(quick());
    let bad = site.path("bad.yml");
    fs::write(&bad, text(0)).unwrap();
    fs::rename(&bad, site.file()).unwrap();
    until("a failure", || watcher.status().failures == 1);
    for _ in 0..20 {
        watcher.check_now();
        thread::sleep(millis(2));
    }
    // Another text with the same fault is a new attempt. All the earlier checks are over after it.
    fs::write(&bad, text(0) + "\n").unwrap();
    fs::rename(&bad, site.file()).unwrap();
    until("another failure", || watcher.status().failures > 1);
    assert_eq!(watcher.status().failures, 2, "{:?}", watcher.status());
}

/// The folder and its file come after the watcher's start.
#[test]
fn a_missing_folder() {
    let site = Site::new();
    let file = site.path("later").join("limits.yml");
    let watcher = site.watch_file(&file, quick());
    assert_eq!(watcher.status().failures, 1);
    fs::create_dir(site.path("later")).unwrap();
    fs::write(&file, text(2)).unwrap();
    site.until_burst(&watcher, 2);
}
