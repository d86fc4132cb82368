//! Checks the files again and again, and loads them when they have changed.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::core::reloads::Reloaded;
use crate::core::state::LimiterState;
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::limits::Identity;
use crate::util::background::Stop;

use super::files::{Files, FilesCopy, Version};
use super::folders::Folders;
use super::options::WatchOptions;
use super::status::StatusRecord;

/// The number of reads after which files that keep changing count as a failure.
const MAX_READS: u32 = 50;

pub(super) struct Monitor {
    limiter: Weak<LimiterState>,
    files: Files,
    options: WatchOptions,
    record: Arc<StatusRecord>,
    /// `None` if the system has no file events, or before the first tick.
    folders: Option<Folders>,
    /// The version that was last loaded or refused.
    seen: Option<Version>,
    /// When the files were last read.
    read_at: Option<Instant>,
    /// Whether the current series of changes was already reported as a failure.
    reported_changing: bool,
}

impl Monitor {
    pub(super) fn new(
        limiter: Weak<LimiterState>,
        files: Files,
        options: WatchOptions,
        record: Arc<StatusRecord>,
    ) -> Monitor {
        Monitor {
            limiter,
            files,
            options,
            record,
            folders: None,
            seen: None,
            read_at: None,
            reported_changing: false,
        }
    }

    /// Checks the files once. Breaks if the limiter is gone.
    pub(super) fn tick(&mut self, stop: &Stop) -> ControlFlow<()> {
        if self.limiter.strong_count() == 0 {
            return ControlFlow::Break(());
        }
        // Subscribe before reading: a change after it causes an event, and a change before it is read.
        self.follow_folders(stop);
        if let Some(copy) = self.changed(stop) {
            // Set before the attempt, so that content which makes it panic is not tried again.
            self.seen = Some(copy.version.clone());
            self.reported_changing = false;
            self.load(copy)?;
        }
        // Another folder may have taken the name of a watched one meanwhile. The next tick reads the files that came into it
        // before its subscription began.
        if self.follow_folders(stop) {
            stop.hasten();
        }
        // Bounds the rate of checks in a folder where other files change often.
        stop.rest(self.options.settle);
        ControlFlow::Continue(())
    }

    /// Returns whether a subscription has begun.
    fn follow_folders(&mut self, stop: &Stop) -> bool {
        if !self.options.events {
            return false;
        }
        if self.folders.is_none() {
            match Folders::new(stop.clone()) {
                Ok(folders) => self.folders = Some(folders),
                Err(error) => self.record.note_events(Some(error.to_string())),
            }
        }
        let Some(folders) = &mut self.folders else { return false };
        let (has_begun, failed) = folders.follow(self.files.paths());
        self.record.note_events(failed);
        has_begun
    }

    /// Returns the files if their content is new and has stayed the same for `settle`.
    fn changed(&mut self, stop: &Stop) -> Option<FilesCopy> {
        let is_poll_due = self.read_at.is_none_or(|at| at.elapsed() >= self.options.poll);
        let is_unchanged = self.seen.as_ref().is_some_and(|seen| {
            // Between polls, identities that are the same and old prove that the event concerned other files.
            let is_old = |file: &Option<Identity>| file.as_ref().is_some_and(Identity::is_old);
            !is_poll_due
                && seen.identities.iter().all(is_old)
                && seen.identities == self.files.identities()
        });
        if is_unchanged {
            return None;
        }
        let mut version = self.read().version;
        for _ in 0..MAX_READS {
            if let Some(seen) = &mut self.seen
                && seen.content == version.content
            {
                seen.identities = version.identities;
                return None;
            }
            if stop.rest(self.options.settle) {
                return None;
            }
            let again = self.read();
            if again.version == version && version.is_steady {
                return Some(again);
            }
            version = again.version;
        }
        self.report_changing();
        stop.hasten();
        None
    }

    fn read(&mut self) -> FilesCopy {
        let copy = self.files.read();
        self.read_at = Some(Instant::now());
        copy
    }

    /// Reports once that the files keep changing. The thread still waits until they stop.
    fn report_changing(&mut self) {
        if !self.reported_changing {
            self.reported_changing = true;
            let text = format!(
                "{}: in {MAX_READS} reads the files were never the same for {:?}",
                self.files.names(),
                self.options.settle
            );
            let attempt = Err(Error::new(ErrorKind::Io, text));
            if let Some(inner) = self.limiter.upgrade() {
                inner.reloads.record(&attempt);
            }
            self.report(&attempt);
        }
    }

    /// Loads the files' limits into the limiter, unless they have a fault.
    fn load(&self, copy: FilesCopy) -> ControlFlow<()> {
        let limits = copy.parse(&self.options.loader);
        // Free the text before the reload.
        drop(copy);
        let Some(inner) = self.limiter.upgrade() else { return ControlFlow::Break(()) };
        let limiter = Limiter { inner };
        let attempt = match limits {
            Ok(limits) => limiter.reload_with(limits, self.options.reload.clone()),
            Err(error) => {
                let refused = Err(error);
                limiter.inner.reloads.record(&refused);
                refused
            }
        };
        drop(limiter);
        self.report(&attempt);
        ControlFlow::Continue(())
    }

    fn report(&self, attempt: &Result<Reloaded, Error>) {
        self.record.note_attempt(attempt);
        self.options.notify(attempt);
    }
}
