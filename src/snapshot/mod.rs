//! Buckets that are kept over a restart: a file of what they owe, written while calls go on.

mod blocks;
mod file;
mod format;
mod frames;
mod read;
mod restore;
mod room;
mod write;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::file::Replacement;
use self::frames::Damage;
use crate::error::{Error, ErrorKind};
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::Limits;

/// What [`Limiter::snapshot`] has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Buckets that were written: those that are not full.
    pub buckets: u64,
    /// Blocks that were written: those that are not over.
    pub blocks: u64,
    /// The file's length.
    pub bytes: u64,
}

/// What [`Limiter::restore`] has read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Buckets that owe something and are there.
    pub buckets: u64,
    /// Buckets that have refilled since, and are not there because of that.
    pub full: u64,
    /// Buckets of which nothing is left under the limits as they are now: their limit is gone, or is no
    /// limit for them, or [`CarryOver::Afresh`] applied, or a rule of one's own could not tell them.
    pub dropped: u64,
    /// Blocks that are not over and are there.
    pub blocks: u64,
    /// The names of limits that had numbers in the file and are not among the new ones.
    pub gone: Vec<String>,
    /// The time since the file was written, by the system's wall clock: what buckets have refilled in. 0 if
    /// that clock went back.
    pub elapsed: Duration,
}

impl Limiter {
    /// Writes what every bucket owes to a file, while calls go on, for [`restore`](Limiter::restore).
    ///
    /// The file is written beside `path` under a name of its own, handed to the disk, and then put in the
    /// place of what is there, in one step: whoever opens `path`, whatever happens meanwhile, finds the old
    /// file or the new one, whole. If `path` is a symbolic link, the link is replaced. What writers that were
    /// killed have left beside it is removed.
    ///
    /// **No call waits** for it: the table is read as any caller reads it. A reload, or another snapshot of
    /// this limiter, waits for its end, and the other way round. With [`Engine::Exact`](crate::options::Engine::Exact)
    /// new ids of one part of the table, a 64th, wait while that part is copied.
    ///
    /// **Writers to one path**, of this process or others, do not disturb each other: the one that ends last
    /// leaves its file there.
    ///
    /// **A limit on the size of files** (`ulimit -f`, `RLIMIT_FSIZE`) is no error by itself: the system sends
    /// the process `SIGXFSZ`, which ends it. A program that ignores this signal gets an error as from a disk
    /// that is full. The file at `path` stays in both cases.
    ///
    /// **It is no instant.** Every bucket owes in the file at least what it owed when this was called, less
    /// what was given back since; of what was spent since, some is in it.
    ///
    /// **It is a secret.** Only its owner may read it (mode 0600, where there are modes). Whoever has it, and
    /// this program's memory is the same, can make ids that share a bucket: it has the seeds of the table's
    /// fingerprints. Of the ids, those that are [blocked](crate::KeyedLimit::block) are in it, with the reasons, and all with
    /// `Engine::Exact`. Sums find damage, not forgery.
    ///
    /// What is not in it: which engine, cap and clock the limiter has, the limits themselves but for the
    /// numbers that buckets are counted by, whether it is switched off, its figures.
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] when the file cannot be written; what was at `path` is still there then.
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
        let _all_of_one_generation = self.inner.reloads.hold_off();
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

    /// A limiter with the buckets that another has [written to a file](Limiter::snapshot); buckets keep the
    /// [share](CarryOver::Share) that is used of them where their numbers are others.
    ///
    /// See [`restore_with`](Limiter::restore_with).
    ///
    /// # Errors
    ///
    /// As [`restore_with`](Limiter::restore_with).
    pub fn restore(
        limits: Limits,
        options: LimiterOptions,
        path: impl AsRef<Path>,
    ) -> Result<(Limiter, Restored), Error> {
        Limiter::restore_with(limits, options, path, CarryOver::default())
    }

    /// A limiter with the buckets that another has [written to a file](Limiter::snapshot). What they owe is
    /// carried over by the rule `debt` where their numbers are others, as of the time of the file.
    ///
    /// **Limits** are found by their names, in any order. Buckets of a limit that is gone are dropped and
    /// counted; blocks of such a limit stay, for when it comes back. **Time** goes on: buckets have refilled for as long as the system's wall clock says that has
    /// passed, at most to full, and not at all if that clock went back. The limiter's clock is the one of
    /// `options`, going on from where the other one would be by now, so that nothing is rounded. (Beyond 2^56
    /// ns, 2.3 years, of all processes in turn, times are moved, by whole milliseconds. A window that began
    /// still longer ago then ends up to its length later, and a drip comes up to a drip's time late.)
    ///
    /// **Another engine** may take over: what [`Engine::Exact`](crate::options::Engine::Exact) wrote can be read into
    /// either. What [`Engine::LockFree`](crate::options::Engine::LockFree) wrote has no ids, and can be read into that
    /// engine alone, by a program in which ahash computes the same: other versions of it, and other kinds
    /// of processors, may not.
    ///
    /// **Memory**: the limiter's table takes what it takes for as many buckets in any limiter: with
    /// `Engine::LockFree` 43 to 92 bytes a bucket, 1.5 to 3.3 times the file; with `Engine::Exact` up to 100 bytes
    /// and the id. Reading takes less than the file's size and 4 MiB beside that, 16 MiB where calls are
    /// [counted](LimiterOptions::counting), whatever is in the file; 0.3 MiB for what a limiter has written. So a file is refused that has two limits of one name, more buckets and
    /// numbers than there is room for in it, or too many limits that are not among `limits`: more than
    /// 4,096, and more than one for each 4 KiB of the file.
    ///
    /// # Errors
    ///
    /// [`Error::is_io`] when the file cannot be read, or is no regular file;
    /// [`Error::is_invalid_snapshot`] when it is damaged
    /// anywhere, of another version, of another engine or program as above, when a limit's ids have
    /// another format, when it has too many limits that are not among `limits`, when there is no room for all buckets under
    /// [`max_keys`](LimiterOptions::max_keys) or for all blocks under
    /// [`max_blocks`](LimiterOptions::max_blocks), and when a rule of one's own has come or gone for a limit that
    /// has buckets in the file (unless with [`CarryOver::Afresh`]).
    ///
    /// # Example
    ///
    /// See [`snapshot`](Limiter::snapshot).
    pub fn restore_with(
        limits: Limits,
        options: LimiterOptions,
        path: impl AsRef<Path>,
        debt: CarryOver,
    ) -> Result<(Limiter, Restored), Error> {
        Limiter::restore_at(limits, options, path.as_ref(), debt, wall_ns())
    }

    pub(crate) fn restore_at(
        limits: Limits,
        options: LimiterOptions,
        path: &Path,
        debt: CarryOver,
        wall_ns: u64,
    ) -> Result<(Limiter, Restored), Error> {
        restore::restore(limits, options, path, debt, wall_ns).map_err(|damage| match damage {
            Damage::Io(error) => {
                Error::from_io(format_args!("{}: cannot be read", path.display()), error)
            }
            Damage::At(at, reason) => {
                let text = format!("{}: at byte {at}: {reason}", path.display());
                Error::new(ErrorKind::Snapshot, text)
            }
        })
    }
}

/// Nanoseconds since 1970, by the system's wall clock; 0 before that.
fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
