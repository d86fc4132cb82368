//! Files that are taken again when they change: a thread, and what it did.

mod files;
mod folders;
mod lookout;
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
use lookout::Lookout;
use status::Record;

pub use options::WatchOptions;
pub use status::WatchStatus;

/// The thread that takes a limiter's files again when they change. Dropping it wakes and joins the
/// thread.
///
/// The thread keeps no limiter alive: it ends when it sees that the last one is gone, one
/// [`poll`](WatchOptions::poll) later at most.
///
/// See [`Limiter::watch`].
#[derive(Debug)]
#[must_use = "dropping the watcher stops it"]
pub struct Watcher {
    record: Arc<Record>,
    ticker: Ticker,
}

impl Watcher {
    /// What the watcher has done so far.
    pub fn status(&self) -> WatchStatus {
        self.record.status()
    }

    /// Has the thread look at the files now rather than at the next event or poll: for a signal, or a
    /// button. Does not wait for it.
    pub fn look(&self) {
        self.ticker.hasten();
    }
}

impl Limiter {
    /// Starts a thread, `tollgate-watch`, that takes the limits of `limits`, and of `overrides` if there is
    /// one, whenever what is in them changes, and puts them in the place of those that apply: as
    /// [`Limits::from_yaml_files`](crate::Limits::from_yaml_files) and then
    /// [`reload_with`](Limiter::reload_with).
    ///
    /// The files are taken whole and together, or not at all. One that cannot be read, is empty, declares
    /// nothing or has a fault, or what is no file (a pipe, a device, a socket) and is not waited for, is
    /// refused with its pair: the limits stay as they are, and
    /// [`status`](Watcher::status) counts the failure and says why. What was refused or taken once is not
    /// tried again until it changes; limits that were put in place by hand meanwhile stay until then.
    ///
    /// The thread looks at once, when the system tells of a change in the files' folders, and every
    /// [`poll`](WatchOptions::poll), whatever the system tells. It tells files by what is in them, so that
    /// every way to save one is seen: in place, by another one that takes its name, or by a link that leads
    /// elsewhere. What has changed is taken once it has been the same for [`settle`](WatchOptions::settle):
    /// a hundred changes in a row are one, and so are both files, if they are written within that time. A
    /// file that is written more slowly, with longer rests, is better put in place by renaming.
    ///
    /// A poll reads both files. The system's events come through a thread of their own; where there are
    /// none ([`events_error`](WatchStatus::events_error)), the poll does without.
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] when the system gives no thread. What is wrong with the files is no error here, but
    /// a failure that is counted.
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
        let record = Arc::new(Record::default());
        let files = Files::new(limits.as_ref(), overrides);
        let poll = options.poll_at_least_a_moment();
        let limiter = Arc::downgrade(&self.inner);
        let mut lookout = Lookout::new(limiter, files, options, record.clone());
        let tick = {
            let record = record.clone();
            move |stop: &Stop| {
                // A panic can come from the callback, or from a clock or a rule of the caller's own.
                match catch_unwind(AssertUnwindSafe(|| lookout.tick(stop))) {
                    Ok(flow) => flow,
                    Err(panic) => {
                        record.panicked(&*panic);
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
