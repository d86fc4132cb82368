//! Loads limits files again when they change, on a thread.

mod files;
mod folders;
mod monitor;
mod options;
mod status;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::limiter::Limiter;
use crate::util::background::{Stop, Ticker};

use files::Files;
use monitor::Monitor;
use status::StatusRecord;

pub use options::WatchOptions;
pub use status::WatchStatus;

/// The handle of the thread that loads a limiter's files again when they change. Dropping it wakes and joins the thread.
///
/// The thread does not keep the limiter alive. It ends at most one [`poll`](WatchOptions::poll) after the last clone of
/// the limiter is dropped.
///
/// See [`Limiter::watch`] for an example.
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
/// assert_eq!(watcher.status().failures, 0);
/// drop(watcher); // the limits stay as they are from now on
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping the watcher stops it"]
pub struct Watcher {
    record: Arc<StatusRecord>,
    ticker: Ticker,
}

impl Watcher {
    /// Returns the counts and the last results.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::watch::WatchOptions;
    /// # use tollgate::{Limiter, Limits};
    /// # let folder = tempfile::tempdir()?;
    /// let missing = folder.path().join("missing.yml");
    /// let limiter = Limiter::new(Limits::builder().build());
    /// let watcher = limiter.watch(&missing, None, WatchOptions::default())?;
    /// while watcher.status().failures == 0 {
    ///     std::thread::yield_now();
    /// }
    /// assert!(watcher.status().last_error.is_some_and(|error| error.contains("missing.yml")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn status(&self) -> WatchStatus {
        self.record.status()
    }

    /// Makes the thread check the files now, for example on a signal. Does not wait for the check.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::watch::WatchOptions;
    /// # use tollgate::{Limiter, Limits};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.yml");
    /// # std::fs::write(&path, "PerUser: {burst: 20, count: 10, period: 1s, id: string}")?;
    /// # let limiter = Limiter::new(Limits::from_yaml_files(&path, None)?);
    /// let rarely = WatchOptions::default().poll(Duration::from_secs(86_400)).events(false);
    /// let watcher = limiter.watch(&path, None, rarely)?;
    /// std::fs::write(&path, "PerUser: {burst: 40, count: 10, period: 1s, id: string}")?;
    /// while watcher.status().generation == 0 {
    ///     watcher.check_now();
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(limiter.limit("PerUser")?.check("alice", 0)?.remaining(), Some(40));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_now(&self) {
        self.ticker.hasten();
    }
}

impl Limiter {
    /// Starts a thread, `tollgate-watch`, that loads the files `limits` and `overrides` whenever their content changes,
    /// as by [`Limits::from_yaml_files`](crate::Limits::from_yaml_files) and [`reload_with`](Limiter::reload_with).
    ///
    /// The files are loaded together, completely or not at all. If one of them cannot be read, is empty, declares no
    /// limit, has a fault, or is no regular file (a pipe, a device, a socket; none of them blocks the thread), or if
    /// they lack a [limit in use](Limiter::reload_with), the limits stay as they are, and [`status`](Watcher::status) has the failure and its reason. The thread does not try
    /// the same content twice, so limits that another call of [`reload`](Limiter::reload) puts in place stay until the
    /// files change.
    ///
    /// The thread checks the files at its start, after an event of the system in one of their folders, and after every
    /// [`poll`](WatchOptions::poll). It compares their content, so it notices every way to save a file: in place, by a
    /// rename, or by a symbolic link that is changed. It loads a change once the content has stayed the same for
    /// [`settle`](WatchOptions::settle). Several changes in a row are therefore one reload, and so is a change of both
    /// files within that time. If a file is written in place with longer pauses, the thread may load a part of it: put it
    /// in place by a rename.
    ///
    /// A poll reads both files. A second thread receives the system's events. Without events
    /// ([`events_error`](WatchStatus::events_error)) the thread only polls.
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] if the thread cannot be started. Faults of the files are not errors here; the status counts them.
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::{Limiter, Limits};
    /// use tollgate::watch::WatchOptions;
    ///
    /// let path = std::env::temp_dir().join(format!("tollgate-watch-{}.yml", std::process::id()));
    /// std::fs::write(&path, "PerUser: {burst: 20, count: 10, period: 1s, id: string}")?;
    /// let limiter = Limiter::new(Limits::from_yaml_files(&path, None)?);
    /// let watcher = limiter.watch(&path, None, WatchOptions::default())?;
    ///
    /// std::fs::write(&path, "PerUser: {burst: 40, count: 10, period: 1s, id: string}")?;
    /// while watcher.status().generation == 0 {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(limiter.limit("PerUser")?.check("alice", 0)?.remaining(), Some(40));
    /// drop(watcher); // joined at once
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(
        &self,
        limits: impl AsRef<Path>,
        overrides: Option<&Path>,
        options: WatchOptions,
    ) -> Result<Watcher, Error> {
        let record = Arc::new(StatusRecord::default());
        let files = Files::new(limits.as_ref(), overrides);
        let poll = options.poll;
        let limiter = Arc::downgrade(&self.inner);
        let mut monitor = Monitor::new(limiter, files, options, record.clone());
        let tick = {
            let record = record.clone();
            move |stop: &Stop| {
                // The callback, a custom clock or a custom algorithm may panic.
                match catch_unwind(AssertUnwindSafe(|| monitor.tick(stop))) {
                    Ok(flow) => flow,
                    Err(panic) => {
                        record.note_panic(&*panic);
                        ControlFlow::Continue(())
                    }
                }
            }
        };
        let ticker = Ticker::start("tollgate-watch", poll, tick)
            .map_err(|error| Error::from_io("cannot start the thread tollgate-watch", error))?;
        Ok(Watcher { record, ticker })
    }
}
