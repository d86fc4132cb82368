//! Writes the debt of buckets to a file while calls go on, and restores a limiter from it after a restart.

mod blocks;
mod budget;
mod file;
mod format;
mod frames;
mod old_limit;
mod read;
mod restore;
mod restorer;
mod times;
mod write;

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::file::Replacement;
use self::frames::ReadError;
use crate::error::{Error, ErrorKind};
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::Limits;

/// The result of [`Limiter::snapshot`], which has an example.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("buckets");
/// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
/// let written = limiter.snapshot(&path)?;
/// assert_eq!((written.buckets, written.blocks), (1, 0));
/// assert_eq!(written.bytes, std::fs::metadata(&path)?.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The number of buckets in the file: all that are not full.
    pub buckets: u64,
    /// The number of blocks in the file: all that have not ended.
    pub blocks: u64,
    /// The size of the file.
    pub bytes: u64,
}

/// The result of [`Limiter::restore`]. [`Limiter::snapshot`] has an example.
///
/// # Example
///
/// ```
/// # use tollgate::LimiterOptions;
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("buckets");
/// assert!(limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
/// limiter.snapshot(&path)?;
/// let none = Limits::builder().build(); // without PerUser
/// let (_, restored) = Limiter::restore(none, LimiterOptions::default(), &path)?;
/// assert_eq!((restored.buckets, restored.dropped), (0, 1));
/// assert_eq!(restored.gone, ["PerUser"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The number of buckets that were restored.
    pub buckets: u64,
    /// The number of buckets in the file that are full by now, and so were not restored.
    pub full: u64,
    /// The number of buckets whose debt has no meaning under the new limits: their limit is gone, no longer limits their
    /// id, cannot convert the debt (a custom algorithm), or [`CarryOver::Afresh`] applied.
    pub dropped: u64,
    /// The number of blocks that were restored: all that have not ended.
    pub blocks: u64,
    /// The names of limits in the file that are not among the new ones, if the file has their parameters.
    pub gone: Vec<String>,
    /// The time since the snapshot by the system's wall clock, in which buckets have refilled. 0 if that clock went back.
    pub elapsed: Duration,
}

impl Limiter {
    /// Writes the debt of every bucket to a file, while calls go on, for [`restore`](Limiter::restore).
    ///
    /// The file is written beside `path` under another name, synced to disk, and then renamed to `path`. A reader
    /// therefore finds the old file or the new one, complete, even after a crash. If `path` is a symbolic link, the link
    /// is replaced. Files that killed writers left beside `path` are removed.
    ///
    /// **No call waits** for a snapshot, because it reads the table like any caller. A reload or another snapshot of the
    /// limiter waits until it ends, and it waits for them. With `Engine::Exact` new ids
    /// in one part of the table, 1/64 of it, wait while that part is copied.
    ///
    /// **Several writers to one path**, also in several processes, do not disturb each other. The file of the one that
    /// ends last stays.
    ///
    /// **A limit on the size of files** (`ulimit -f`, `RLIMIT_FSIZE`) does not give an error by itself: the system ends
    /// the process with the signal `SIGXFSZ`. A program that ignores the signal gets an error, as on a full disk. In
    /// both cases the old file at `path` stays.
    ///
    /// **The snapshot is not an instant.** Each bucket owes in the file at least what it owed at the call, less refunds
    /// since. Of the spends that were made while it was written, the file has some.
    ///
    /// **The file is secret.** Only its owner may read it (mode 0600, on Unix). It has the seeds of the table's
    /// fingerprints, with which an attacker can construct ids that share a bucket. It also has the
    /// [blocked](crate::KeyedLimit::block) ids with their reasons, and with `Engine::Exact` all ids. Checksums find
    /// damage, but not forgery.
    ///
    /// The file does not have: the engine's options, the cap, the clock, counters, whether the limiter is switched off,
    /// and the limits themselves, except for the parameters in which its words are counted.
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] if the file cannot be written. The old file at `path` stays.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// let limits = || -> Result<Limits, tollgate::Error> {
    ///     let limit = Limit::new(20, 10, Duration::from_secs(3600))?;
    ///     Ok(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build())
    /// };
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("buckets");
    /// let limiter = Limiter::new(limits()?);
    /// assert!(limiter.limit("PerUser")?.spend("alice", 20)?.allowed());
    /// assert_eq!(limiter.snapshot(&path)?.buckets, 1);
    ///
    /// // In the next process:
    /// let (limiter, restored) = Limiter::restore(limits()?, LimiterOptions::default(), &path)?;
    /// assert_eq!(restored.buckets, 1);
    /// assert!(!limiter.limit("PerUser")?.spend("alice", 1)?.allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, path: impl AsRef<Path>) -> Result<Snapshot, Error> {
        self.snapshot_at(path.as_ref(), wall_ns)
    }

    pub(crate) fn snapshot_at(
        &self,
        path: &Path,
        wall_ns: impl Fn() -> u64,
    ) -> Result<Snapshot, Error> {
        // No reload may come between: all words are of one generation.
        let _guard = self.inner.reloads.hold_off();
        let write = || {
            let replacement = Replacement::beside(path)?;
            let (replacement, snapshot) = write::write(&self.inner, replacement, wall_ns)?;
            replacement.put_in_place()?;
            Ok(snapshot)
        };
        write().map_err(|error| {
            Error::from_io(format_args!("{}: cannot be written", path.display()), error)
        })
    }

    /// Makes a limiter with the buckets of a [snapshot](Limiter::snapshot), like [`restore_with`](Limiter::restore_with)
    /// with [`CarryOver::Share`]. [`snapshot`](Limiter::snapshot) has an example.
    ///
    /// # Errors
    ///
    /// Those of [`restore_with`](Limiter::restore_with).
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::LimiterOptions;
    /// # use std::time::Duration;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("buckets");
    /// assert!(limiter.limit("PerUser")?.spend("alice", 5)?.allowed());
    /// limiter.snapshot(&path)?;
    /// let limits = (*limiter.limits()).clone();
    /// let (restored, _) = Limiter::restore(limits, LimiterOptions::default(), &path)?;
    /// assert!(!restored.limit("PerUser")?.spend("alice", 5)?.allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore(
        limits: Limits,
        options: LimiterOptions,
        path: impl AsRef<Path>,
    ) -> Result<(Limiter, Restored), Error> {
        Limiter::restore_with(limits, options, path, CarryOver::default())
    }

    /// Makes a limiter with the buckets of a [snapshot](Limiter::snapshot). If a limit has changed, `carry_over` converts
    /// the debt of its buckets, as of the time of the snapshot.
    ///
    /// **Limits** are found by their names, in any order. Buckets of a limit that is gone are dropped and counted. Its
    /// blocks stay for the time when the limit comes back.
    ///
    /// **Time** goes on: buckets have refilled by the time that the system's wall clock says has passed, at most to full,
    /// and not at all if that clock went back. The new limiter has the clock of `options`, set to the time that the old
    /// limiter's clock would show by now, so that nothing is rounded. (If that is more than 2^56 ns, 2.3 years, summed
    /// over all processes in turn, times are moved back by whole milliseconds. A window that began even longer ago then
    /// ends late by at most its length, and a drip comes late by at most its period.)
    ///
    /// **Engines**: a file of `Engine::Exact` can be restored into either engine. A file
    /// of [`Engine::LockFree`](crate::options::Engine::LockFree) has no ids. It can be restored into that engine only,
    /// on any kind of processor.
    ///
    /// **Memory**: the table takes as much as for the same number of buckets in any limiter: with `Engine::LockFree` 43 to
    /// 92 bytes a bucket, which is 1.5 to 3.3 times the file; with `Engine::Exact` up to 100 bytes and the id. A restore
    /// takes 0.3 MiB beside the table for a file that a limiter wrote, and for any content at most the file's size and
    /// 4 MiB, or 16 MiB with [counters](LimiterOptions::counting); for each override in `limits` 50 bytes more, or 250 if
    /// the file has debts of ids that the table had no room for. A file is therefore refused if it has two limits of one
    /// name, more buckets and parameters than its size has room for, or too many limits that are not among `limits`: more
    /// than 4,096, and more than one for each 4 KiB of the file.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::reload::CarryOver;
    /// use tollgate::{IdFormat, Limit, Limiter, LimiterOptions, Limits};
    ///
    /// let limits = |burst| -> Result<Limits, tollgate::Error> {
    ///     let limit = Limit::new(burst, 1, Duration::from_secs(3600))?;
    ///     Ok(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build())
    /// };
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("buckets");
    /// let limiter = Limiter::new(limits(20)?);
    /// assert!(limiter.limit("PerUser")?.spend("alice", 15)?.allowed());
    /// limiter.snapshot(&path)?;
    ///
    /// let options = LimiterOptions::default();
    /// let (limiter, _) = Limiter::restore_with(limits(40)?, options, &path, CarryOver::Units)?;
    /// assert_eq!(limiter.limit("PerUser")?.check("alice", 0)?.remaining(), Some(25));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] if the file cannot be read or is no regular file. [`Error::is_invalid_limit`] if
    /// the [`max_keys`](crate::limits::LimitOptions::max_keys) of `limits` are more in all than the limiter's.
    /// [`Error::is_invalid_snapshot`] if
    ///
    /// - the file is damaged anywhere, or of another version or engine as above;
    /// - it has limits of one name, too many buckets and parameters for its size, or too many limits that are not among
    ///   `limits`;
    /// - the ids of a limit have another format;
    /// - it has more than twice [`max_keys`](LimiterOptions::max_keys) buckets, and more than 1,000 above `max_keys`, not
    ///   counting those of ids with an override. Up to that number all are restored, because the limiter that wrote the file
    ///   can have had overrides that `limits` does not have. New ids get buckets once there are fewer than `max_keys`;
    /// - [`max_blocks`](LimiterOptions::max_blocks) is too low for its blocks;
    /// - a limit with buckets in the file has changed from or to a custom algorithm, unless `carry_over` is
    ///   [`CarryOver::Afresh`].
    pub fn restore_with(
        limits: Limits,
        options: LimiterOptions,
        path: impl AsRef<Path>,
        carry_over: CarryOver,
    ) -> Result<(Limiter, Restored), Error> {
        Limiter::restore_at(limits, options, path.as_ref(), carry_over, wall_ns())
    }

    pub(crate) fn restore_at(
        limits: Limits,
        options: LimiterOptions,
        path: &Path,
        carry_over: CarryOver,
        wall_ns: u64,
    ) -> Result<(Limiter, Restored), Error> {
        // A fault of the limits is no fault of the file.
        limits.parts(options.max_keys)?;
        restore::restore(limits, options, path, carry_over, wall_ns).map_err(|error| match error {
            ReadError::Io(error) => {
                Error::from_io(format_args!("{}: cannot be read", path.display()), error)
            }
            ReadError::At(at, reason) => {
                let text = format!("{}: at byte {at}: {reason}", path.display());
                Error::new(ErrorKind::Snapshot, text)
            }
        })
    }
}

/// Returns the wall clock's time in nanoseconds since 1970; 0 before that.
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
