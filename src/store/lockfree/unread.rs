//! What is retired and pinned by nobody any more, until no reader reads it: then it is freed.

use parking_lot::{Mutex, MutexGuard};

use super::readers::{InCalls, Readers};

/// What frees something, on whichever thread comes by.
pub(super) struct Free {
    bytes: usize,
    free: Box<dyn FnOnce()>,
}

// SAFETY: the contract of `new`.
#[expect(unsafe_code, reason = "whoever frees takes it along")]
unsafe impl Send for Free {}

impl Free {
    /// `free` frees about so many bytes.
    ///
    /// # Safety
    ///
    /// - `free` may run on any thread.
    #[expect(unsafe_code, reason = "what `Send` needs")]
    pub(super) unsafe fn new(bytes: usize, free: impl FnOnce() + 'static) -> Free {
        Free { bytes, free: Box::new(free) }
    }
}

/// Things that wait for readers. Nobody waits for the lock: who finds it taken leaves the work to the next.
pub(super) struct Unread {
    readers: Readers,
    waiting: Mutex<Waiting>,
}

struct Waiting {
    /// Nobody has looked for their readers yet.
    fresh: Vec<Free>,
    fresh_bytes: usize,
    /// These wait for those readers.
    asked: Option<(InCalls, Vec<Free>)>,
}

/// A look for readers interrupts all processors, some microseconds each: it is worth so many things, or so
/// many bytes.
const ENOUGH: usize = 64;
const ENOUGH_BYTES: usize = 1 << 20;

impl Unread {
    #[cfg(not(tollgate_loom))]
    pub(super) const fn new() -> Unread {
        let waiting = Waiting { fresh: Vec::new(), fresh_bytes: 0, asked: None };
        Unread { readers: Readers::new(), waiting: Mutex::new(waiting) }
    }

    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Takes what nobody is pinned for. Returns it if the lock is taken.
    pub(super) fn push(&self, free: Free) -> Result<(), Free> {
        let Some(mut waiting) = self.waiting.try_lock() else { return Err(free) };
        waiting.fresh_bytes = waiting.fresh_bytes.saturating_add(free.bytes);
        waiting.fresh.push(free);
        let is_enough = waiting.fresh.len() >= ENOUGH || waiting.fresh_bytes >= ENOUGH_BYTES;
        if is_enough || waiting.asked.is_some() {
            self.free(waiting, is_enough);
        }
        Ok(())
    }

    /// Frees what can be freed now.
    pub(super) fn free_all(&self) {
        if let Some(waiting) = self.waiting.try_lock() {
            self.free(waiting, true);
        }
    }

    /// Frees what nobody reads any more, and looks for the readers of the rest if `looks`.
    fn free(&self, mut waiting: MutexGuard<'_, Waiting>, looks: bool) {
        let mut freed = Vec::new();
        if let Some((in_calls, _)) = &mut waiting.asked
            && in_calls.are_over()
        {
            freed = waiting.asked.take().map_or(freed, |(_, things)| things);
        }
        if looks
            && waiting.asked.is_none()
            && !waiting.fresh.is_empty()
            && let Some(mut in_calls) = self.readers.in_calls()
        {
            waiting.fresh_bytes = 0;
            let mut things = std::mem::take(&mut waiting.fresh);
            if in_calls.are_over() {
                freed.append(&mut things);
            } else {
                waiting.asked = Some((in_calls, things));
            }
        }
        drop(waiting);
        freed.into_iter().for_each(|thing| (thing.free)());
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    fn counted(bytes: usize, freed: &Rc<Cell<usize>>) -> Free {
        let freed = freed.clone();
        // SAFETY: this test has one thread.
        #[expect(unsafe_code, reason = "as the table does")]
        unsafe {
            Free::new(bytes, move || freed.set(freed.get() + 1))
        }
    }

    #[test]
    fn nothing_is_freed_before_those_have_come_out_who_were_in_a_call() {
        super::super::readers::prepare();
        let unread = Unread::new();
        let freed = Rc::default();
        let reader = unread.readers().join();
        reader.enter();
        assert!(unread.push(counted(1, &freed)).is_ok());
        unread.free_all();
        // A call within the call makes no difference.
        reader.enter();
        reader.leave();
        unread.free_all();
        assert_eq!(freed.get(), 0);
        reader.leave();
        // The next call may have begun: it was not there when the first was unlinked.
        reader.enter();
        assert!(unread.push(counted(1, &freed)).is_ok());
        assert_eq!(freed.get(), 1);
        unread.free_all();
        assert_eq!(freed.get(), 1, "the second waits for this call");
        reader.leave();
        unread.free_all();
        assert_eq!(freed.get(), 2);
    }

    #[test]
    fn readers_are_looked_for_once_for_many() {
        super::super::readers::prepare();
        let (unread, freed) = (Unread::new(), Rc::default());
        for many in 1..ENOUGH {
            assert!(unread.push(counted(1, &freed)).is_ok());
            assert_eq!(freed.get(), 0, "after {many}");
        }
        assert!(unread.push(counted(1, &freed)).is_ok());
        assert_eq!(freed.get(), ENOUGH);
        assert!(unread.push(counted(ENOUGH_BYTES, &freed)).is_ok());
        assert_eq!(freed.get(), ENOUGH + 1, "one that is large");
    }

    #[test]
    fn who_finds_the_lock_taken_keeps_what_it_has() {
        let (unread, freed) = (Unread::new(), Rc::default());
        let taken = unread.waiting.lock();
        assert!(unread.push(counted(1, &freed)).is_err());
        unread.free_all();
        drop(taken);
        assert_eq!(freed.get(), 0);
    }
}
