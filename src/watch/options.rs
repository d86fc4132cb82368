//! Configures when a watcher reads its files, and how it applies them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::reloads::Reloaded;
use crate::error::Error;
use crate::limit::carry_over::CarryOver;
use crate::limiter::reload::options::ReloadOptions;
use crate::limits::Loader;

/// The shortest interval between polls. With 0 the thread would never rest.
const MIN_POLL: Duration = Duration::from_millis(1);

type OnReload = Arc<dyn Fn(&Result<Reloaded, Error>) + Send + Sync>;

/// Options of a [`Watcher`](crate::watch::Watcher).
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::reload::CarryOver;
/// use tollgate::watch::WatchOptions;
///
/// let options = WatchOptions::default()
///     .poll(Duration::from_secs(1))
///     .carry_over(CarryOver::Units)
///     .on_reload(|reloaded| match reloaded {
///         Ok(reloaded) => println!("limits of generation {}", reloaded.generation),
///         Err(error) => eprintln!("the old limits stay: {error}"),
///     });
/// ```
#[derive(Clone)]
#[must_use]
pub struct WatchOptions {
    pub(super) poll: Duration,
    pub(super) settle: Duration,
    pub(super) reload: ReloadOptions,
    pub(super) events: bool,
    pub(super) loader: Loader,
    on_reload: Option<OnReload>,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            poll: Duration::from_secs(4),
            settle: Duration::from_millis(100),
            reload: ReloadOptions::default(),
            events: true,
            loader: Loader::new(),
            on_reload: None,
        }
    }
}

impl WatchOptions {
    /// Sets the time from the end of one check of the files to the next, independent of the system's events. At least
    /// 1 ms; by default 4 s, so that a change applies within five.
    pub fn poll(self, poll: Duration) -> WatchOptions {
        WatchOptions { poll: poll.max(MIN_POLL), ..self }
    }

    /// Sets how long the files must stay the same before they are loaded. It is also the shortest time between two
    /// checks. By default 100 ms.
    pub fn settle(self, settle: Duration) -> WatchOptions {
        WatchOptions { settle, ..self }
    }

    /// Sets how buckets carry their debt over to changed limits. By default [`CarryOver::Share`].
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::reload::CarryOver;
    /// # use tollgate::watch::WatchOptions;
    /// # use tollgate::{Limiter, Limits};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.yml");
    /// # std::fs::write(&path, "PerUser: {burst: 20, count: 1, period: 60s, id: string}")?;
    /// # let limiter = Limiter::new(Limits::from_yaml_files(&path, None)?);
    /// let users = limiter.limit("PerUser")?;
    /// assert!(users.spend("alice", 15)?.allowed());
    /// let watcher = limiter.watch(&path, None, WatchOptions::default().carry_over(CarryOver::Units))?;
    /// std::fs::write(&path, "PerUser: {burst: 40, count: 1, period: 60s, id: string}")?;
    /// while watcher.status().generation == 0 {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(users.check("alice", 0)?.remaining(), Some(25));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn carry_over(self, carry_over: CarryOver) -> WatchOptions {
        WatchOptions { reload: self.reload.carry_over(carry_over), ..self }
    }

    /// Sets whether files take away the limits that they do not declare, although handles of them are alive. By default
    /// such files are refused, and the old limits stay: see
    /// [`Limiter::reload_with`](crate::Limiter::reload_with).
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::watch::WatchOptions;
    /// # use tollgate::{Limiter, Limits};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.yml");
    /// # std::fs::write(&path, "PerUser: {burst: 1, count: 1, period: 60s, id: string}")?;
    /// # let limiter = Limiter::new(Limits::from_yaml_files(&path, None)?);
    /// let users = limiter.limit("PerUser")?;
    /// let watcher = limiter.watch(&path, None, WatchOptions::default().remove_missing(true))?;
    /// std::fs::write(&path, "PerTeam: {burst: 1, count: 1, period: 60s, id: string}")?;
    /// while watcher.status().generation == 0 {
    ///     std::thread::yield_now();
    /// }
    /// assert_eq!(users.spend("alice", 9)?.remaining(), None, "no limit");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_missing(self, remove_missing: bool) -> WatchOptions {
        WatchOptions { reload: self.reload.remove_missing(remove_missing), ..self }
    }

    /// Sets whether the thread subscribes to the system's file events, by default yes. Without events it only polls.
    /// Switch them off where they do not come, such as for files on a network file system that other machines write.
    pub fn events(self, events: bool) -> WatchOptions {
        WatchOptions { events, ..self }
    }

    /// Sets how the files are read, and what code adds to them; by default [`Loader::new`].
    pub fn loader(self, loader: Loader) -> WatchOptions {
        WatchOptions { loader, ..self }
    }

    /// Sets a function that the watcher's thread calls with the result of each attempt to load the files, for a log.
    /// The [status](crate::watch::Watcher::status) is up to date by then. A panic in the function is counted.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::watch::WatchOptions;
    /// # use tollgate::{Limiter, Limits};
    /// # let folder = tempfile::tempdir()?;
    /// let (log, results) = std::sync::mpsc::channel();
    /// let options = WatchOptions::default().on_reload(move |result| {
    ///     let _ = log.send(result.is_ok());
    /// });
    /// let limiter = Limiter::new(Limits::builder().build());
    /// let _watcher = limiter.watch(folder.path().join("missing.yml"), None, options)?;
    /// assert!(!results.recv()?, "the file is missing");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_reload(
        self,
        on_reload: impl Fn(&Result<Reloaded, Error>) + Send + Sync + 'static,
    ) -> WatchOptions {
        WatchOptions { on_reload: Some(Arc::new(on_reload)), ..self }
    }

    pub(super) fn notify(&self, attempt: &Result<Reloaded, Error>) {
        if let Some(on_reload) = &self.on_reload {
            on_reload(attempt);
        }
    }
}

impl fmt::Debug for WatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions")
            .field("poll", &self.poll)
            .field("settle", &self.settle)
            .field("reload", &self.reload)
            .field("events", &self.events)
            .field("loader", &self.loader)
            .field("on_reload", &self.on_reload.is_some())
            .finish()
    }
}
