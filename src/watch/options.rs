//! When a watcher looks, and what it does with what it finds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::reloads::Reloaded;
use crate::error::Error;
use crate::limit::carry_over::CarryOver;
use crate::limits::YamlLoader;

/// Who is told of each attempt.
type OnReload = Arc<dyn Fn(&Result<Reloaded, Error>) + Send + Sync>;

/// When a [`Watcher`](crate::watch::Watcher) looks at its files, and what becomes of what buckets owe.
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
///     .debt(CarryOver::Units)
///     .on_reload(|reloaded| match reloaded {
///         Ok(reloaded) => println!("limits of generation {}", reloaded.generation),
///         Err(error) => eprintln!("the old limits stay: {error}"),
///     });
/// assert_eq!(options.settle, Duration::from_millis(100));
/// ```
#[derive(Clone)]
#[must_use]
#[non_exhaustive]
pub struct WatchOptions {
    /// The time from the end of one look at the files to the next, whatever the system tells of them.
    /// Less than 1 ms counts as that. Default: 4 s, so that a change is taken within five.
    pub poll: Duration,
    /// For how long the files have to be the same before they are taken; also the time between two looks
    /// at least. Default: 100 ms.
    pub settle: Duration,
    /// By which rule buckets keep what they owe. Default: [`CarryOver::Share`].
    pub debt: CarryOver,
    /// Whether the system is asked to tell of changes. Off where it cannot, as for files that others
    /// write on a network's file system: then only the poll looks. Default: on.
    pub events: bool,
    /// How the files are read. Default: without options.
    pub loader: YamlLoader,
    on_reload: Option<OnReload>,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            poll: Duration::from_secs(4),
            settle: Duration::from_millis(100),
            debt: CarryOver::default(),
            events: true,
            loader: YamlLoader::new(),
            on_reload: None,
        }
    }
}

impl WatchOptions {
    /// The same with another time between polls.
    pub fn poll(self, poll: Duration) -> WatchOptions {
        WatchOptions { poll, ..self }
    }

    /// The same with another time for which the files have to be the same.
    pub fn settle(self, settle: Duration) -> WatchOptions {
        WatchOptions { settle, ..self }
    }

    /// The same with another rule for what buckets owe.
    pub fn debt(self, debt: CarryOver) -> WatchOptions {
        WatchOptions { debt, ..self }
    }

    /// The same with the system's events, or without.
    pub fn events(self, events: bool) -> WatchOptions {
        WatchOptions { events, ..self }
    }

    /// The same with another way to read the files.
    pub fn loader(self, loader: YamlLoader) -> WatchOptions {
        WatchOptions { loader, ..self }
    }

    /// The same with a function that is told, on the watcher's thread, what became of each attempt to
    /// take the files: to log it. The status is up to date by then. A panic of it is counted.
    pub fn on_reload(
        self,
        on_reload: impl Fn(&Result<Reloaded, Error>) + Send + Sync + 'static,
    ) -> WatchOptions {
        WatchOptions { on_reload: Some(Arc::new(on_reload)), ..self }
    }

    /// Not 0, by which the thread would never rest.
    pub(super) fn poll_at_least_a_moment(&self) -> Duration {
        self.poll.max(Duration::from_millis(1))
    }

    pub(super) fn tell(&self, attempt: &Result<Reloaded, Error>) {
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
            .field("debt", &self.debt)
            .field("events", &self.events)
            .field("loader", &self.loader)
            .field("on_reload", &self.on_reload.is_some())
            .finish()
    }
}
