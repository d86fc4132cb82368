//! One look at the files after another.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::core::reloads::Reloaded;
use crate::core::state::SharedState;
use crate::error::{Error, ErrorKind};
use crate::limiter::Limiter;
use crate::limits::Identity;
use crate::util::background::Stop;

use super::files::{Copies, Files, Print};
use super::folders::Folders;
use super::options::WatchOptions;
use super::status::Record;

/// The looks at files that go on changing before that is called a failure.
const MAX_LOOKS: u32 = 50;

pub(super) struct Lookout {
    limiter: Weak<SharedState>,
    files: Files,
    options: WatchOptions,
    record: Arc<Record>,
    /// `None` where the system does not tell of changes, or has not been asked yet.
    folders: Option<Folders>,
    /// What was taken or refused last.
    seen: Option<Print>,
    /// When the files were last read.
    read_at: Option<Instant>,
    /// Whether it was said that the files go on changing.
    is_restless: bool,
}

impl Lookout {
    pub(super) fn new(
        limiter: Weak<SharedState>,
        files: Files,
        options: WatchOptions,
        record: Arc<Record>,
    ) -> Lookout {
        Lookout {
            limiter,
            files,
            options,
            record,
            folders: None,
            seen: None,
            read_at: None,
            is_restless: false,
        }
    }

    pub(super) fn tick(&mut self, stop: &Stop) -> ControlFlow<()> {
        if self.limiter.strong_count() == 0 {
            return ControlFlow::Break(());
        }
        // Before the look: what changes from here on is told, or seen by it.
        self.follow_folders(stop);
        if let Some(copies) = self.changed(stop) {
            // Noted first: what makes the attempt panic is not tried again either.
            self.seen = Some(copies.print.clone());
            self.is_restless = false;
            self.take(copies)?;
        }
        // Folders may be busy with files of others: this bounds the looks for their sake.
        stop.rest(self.options.settle);
        ControlFlow::Continue(())
    }

    fn follow_folders(&mut self, stop: &Stop) {
        if !self.options.events {
            return;
        }
        let followed = (|| {
            let folders = match &mut self.folders {
                Some(folders) => folders,
                none => none.insert(Folders::new(stop.clone()).map_err(|error| error.to_string())?),
            };
            folders.follow(self.files.paths())
        })();
        self.record.note_events(followed.err());
    }

    /// The files, if they are others than last time, once they have been the same for a while.
    fn changed(&mut self, stop: &Stop) -> Option<Copies> {
        let is_time = self.read_at.is_none_or(|at| at.elapsed() >= self.options.poll);
        let is_same = self.seen.as_ref().is_some_and(|seen| {
            // An event, but not of these files: between polls that is told without reading.
            let is_old = |file: &Option<Identity>| file.as_ref().is_some_and(Identity::is_old);
            !is_time
                && seen.identities.iter().all(is_old)
                && seen.identities == self.files.identities()
        });
        if is_same {
            return None;
        }
        let mut print = self.read().print;
        for _ in 0..MAX_LOOKS {
            if let Some(seen) = &mut self.seen
                && seen.content == print.content
            {
                seen.identities = print.identities;
                return None;
            }
            if stop.rest(self.options.settle) {
                return None;
            }
            let again = self.read();
            if again.print == print && print.is_steady {
                return Some(again);
            }
            print = again.print;
        }
        self.note_restless();
        stop.hasten();
        None
    }

    fn read(&mut self) -> Copies {
        let copies = self.files.read();
        self.read_at = Some(Instant::now());
        copies
    }

    /// Says once that the files go on changing: they are waited for all the same.
    fn note_restless(&mut self) {
        if !self.is_restless {
            self.is_restless = true;
            let text = format!(
                "{}: in {MAX_LOOKS} looks never the same for {:?}, as is wanted of files to be taken",
                self.files.names(),
                self.options.settle
            );
            let attempt = Err(Error::new(ErrorKind::Io, text));
            if let Some(inner) = self.limiter.upgrade() {
                inner.reloads.record(&attempt);
            }
            self.tell(&attempt);
        }
    }

    /// Puts the files' limits in place, if nothing is wrong with them.
    fn take(&self, copies: Copies) -> ControlFlow<()> {
        let limits = copies.limits(self.options.loader);
        // What is parsed is no longer needed as text.
        drop(copies);
        let Some(inner) = self.limiter.upgrade() else { return ControlFlow::Break(()) };
        let limiter = Limiter { inner };
        let attempt = match limits {
            Ok(limits) => limiter.reload_with(limits, self.options.debt),
            Err(error) => {
                let refused = Err(error);
                limiter.inner.reloads.record(&refused);
                refused
            }
        };
        drop(limiter);
        self.tell(&attempt);
        ControlFlow::Continue(())
    }

    fn tell(&self, attempt: &Result<Reloaded, Error>) {
        self.record.attempted(attempt);
        self.options.tell(attempt);
    }
}
