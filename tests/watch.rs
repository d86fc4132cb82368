//! Limits files that are loaded again when they change.
#![cfg(feature = "watch")]

#[path = "watch/lives.rs"]
mod lives;
#[path = "watch/lost.rs"]
mod lost;
#[path = "watch/mutated.rs"]
mod mutated;
#[path = "watch/pairs.rs"]
mod pairs;
#[cfg(unix)]
#[path = "watch/pipes.rs"]
mod pipes;
#[path = "watch/refusals.rs"]
mod refusals;
#[path = "watch/saves.rs"]
mod saves;
#[path = "watch/storms.rs"]
mod storms;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use support::ms as millis;
use tempfile::TempDir;
use tollgate::limits::Loader;
use tollgate::watch::{WatchOptions, Watcher};
use tollgate::{IdFormat, Limit, Limiter, Limits};

/// An interval between polls that no test lasts.
const NEVER: Duration = Duration::from_secs(3600);

/// Waits for what is bound to come; how long that takes is not what is tested.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}: not within 30 s");
        thread::sleep(millis(1));
    }
}

fn text(burst: u64) -> String {
    format!("PerUser: {{burst: {burst}, count: 10, period: 1s, id: string}}\n")
}

fn burst(limiter: &Limiter) -> Option<u64> {
    let limits = limiter.limits();
    limits.limit_for("PerUser", "alice").unwrap().map(|limit| limit.burst())
}

/// A folder with a limits file with a burst of 1, and a limiter that has loaded it.
struct Site {
    folder: TempDir,
    limiter: Limiter,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("limits.yml"), text(1)).unwrap();
        let limits = Limits::from_yaml(&text(1)).unwrap();
        Site { folder, limiter: Limiter::new(limits) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("limits.yml")
    }

    fn watch(&self, options: WatchOptions) -> Watcher {
        self.watch_file(&self.file(), options)
    }

    /// Starts a watcher, and returns after its first load.
    fn watch_file(&self, file: &Path, options: WatchOptions) -> Watcher {
        let watcher = self.limiter.watch(file, None, options).unwrap();
        until("a first look", || watcher.status().last_attempt.is_some());
        watcher
    }

    fn until_burst(&self, watcher: &Watcher, wanted: u64) {
        until(&format!("a burst of {wanted}: {:?}", watcher.status()), || {
            burst(&self.limiter) == Some(wanted) && watcher.status().last_error.is_none()
        });
    }
}
