//! Records a watcher's loads and failures.

use std::any::Any;
use std::time::SystemTime;

use crate::core::reloads::Reloaded;
use crate::error::Error;
use crate::util::escape::Escaped;
use crate::util::lock::Mutex;

/// The counts and the last results of a [`Watcher`](crate::watch::Watcher).
///
/// See [`Limiter::watch`](crate::Limiter::watch) for an example.
///
/// # Example
///
/// ```
/// # use tollgate::watch::WatchOptions;
/// # use tollgate::{Limiter, Limits};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("limits.yml");
/// # std::fs::write(&path, "PerUser: {burst: 20, count: 10, period: 1s, id: string}")?;
/// let limiter = Limiter::new(Limits::from_yaml_files(&path, None)?);
/// let watcher = limiter.watch(&path, None, WatchOptions::default())?;
/// std::fs::write(&path, "PerUser: {burst: 40}")?;
/// while watcher.status().failures == 0 {
///     std::thread::yield_now();
/// }
/// let status = watcher.status();
/// assert_eq!((status.generation, status.panics), (0, 0));
/// assert!(status.last_error.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchStatus {
    /// The [generation](Reloaded::generation) of the limits that were last loaded; 0 before the first load.
    pub generation: u64,
    /// The number of loads that changed the limits.
    pub reloads: u64,
    /// The number of failed attempts to load the files, including panics.
    pub failures: u64,
    /// The number of failures that were panics of the callback, of a custom clock or of a custom algorithm.
    pub panics: u64,
    /// Why the last attempt failed: every fault with its file and line. `None` if it succeeded.
    pub last_error: Option<String>,
    /// When the files were last loaded, whether or not the limits changed.
    pub last_success: Option<SystemTime>,
    /// When the last attempt to load the files was.
    pub last_attempt: Option<SystemTime>,
    /// Why the system sends no events for one of the files' folders, for example because its limit of watches is reached.
    /// The thread polls in any case. `None` without an error, and if events are [off](crate::watch::WatchOptions::events).
    pub events_error: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct StatusRecord(Mutex<WatchStatus>);

impl StatusRecord {
    pub(super) fn status(&self) -> WatchStatus {
        self.0.lock().clone()
    }

    pub(super) fn note_attempt(&self, attempt: &Result<Reloaded, Error>) {
        let mut status = self.0.lock();
        let now = SystemTime::now();
        status.last_attempt = Some(now);
        match attempt {
            Ok(reloaded) => {
                status.generation = reloaded.generation;
                status.reloads += u64::from(reloaded.changed);
                status.last_success = Some(now);
                status.last_error = None;
            }
            Err(error) => {
                status.failures += 1;
                status.last_error = Some(error.to_string());
            }
        }
    }

    pub(super) fn note_panic(&self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(|text| &**text));
        let mut status = self.0.lock();
        status.failures += 1;
        status.panics += 1;
        status.last_attempt = Some(SystemTime::now());
        let text = Escaped(text.unwrap_or("without a text"));
        status.last_error = Some(format!("a panic: {text}"));
    }

    pub(super) fn note_events(&self, error: Option<String>) {
        self.0.lock().events_error = error;
    }
}
