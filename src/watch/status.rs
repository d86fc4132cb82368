//! What a watcher has done so far.

use std::any::Any;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::core::reloads::Reloaded;
use crate::error::Error;
use crate::util::escape::Escaped;

/// What a [`Watcher`](crate::watch::Watcher) has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchStatus {
    /// The number of the limits that the files gave last ([`Reloaded::generation`]); 0 before.
    pub generation: u64,
    /// Times that the files were taken and the limits were others than before.
    pub reloads: u64,
    /// Times that what was in the files was refused, and panics.
    pub failures: u64,
    /// Of the failures, panics: of the callback, or of a clock or a rule of the caller's own.
    pub panics: u64,
    /// Why the last attempt failed: every fault, with its file and line. `None` once one succeeds.
    pub last_error: Option<String>,
    /// When the files were last taken, changed limits or the same.
    pub last_success: Option<SystemTime>,
    /// When taking the files was last tried.
    pub last_attempt: Option<SystemTime>,
    /// Why the system does not tell of changes in every folder that matters, as when its limit of watches
    /// is reached; the poll looks all the same. `None` where it tells, or was not asked.
    pub events_error: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Record(Mutex<WatchStatus>);

impl Record {
    pub(super) fn status(&self) -> WatchStatus {
        self.0.lock().clone()
    }

    pub(super) fn attempted(&self, attempt: &Result<Reloaded, Error>) {
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

    pub(super) fn panicked(&self, panic: &(dyn Any + Send)) {
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
