//! What is retired and pinned by nobody any more, until no reader reads it: then it is freed.

use super::readers::{InCalls, Readers};
use crate::probe::{Fault, broken};
use crate::sync::{FigureUsize, Ordering, Tried};

/// What frees something when it is dropped, on whichever thread comes by: all of many, though one panics.
pub(super) struct Free {
    bytes: usize,
    free: Option<Box<dyn FnOnce()>>,
}

impl Drop for Free {
    fn drop(&mut self) {
        self.free.take().into_iter().for_each(|free| free());
    }
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
        Free { bytes, free: Some(Box::new(free)) }
    }
}

/// Things that wait for readers. Nobody waits for the lock: who finds it taken leaves the work to the next.
pub(super) struct Unread {
    readers: Readers,
    waiting: Tried<Waiting>,
    /// How many wait. For those who look whether any do.
    count: FigureUsize,
}

#[derive(Default)]
struct Waiting {
    /// Nobody has looked for their readers yet.
    fresh: Vec<Free>,
    fresh_bytes: usize,
    /// These wait for those readers.
    asked: Option<(InCalls, Vec<Free>)>,
    /// Nobody reads these any more.
    ready: Vec<Free>,
}

/// A look for readers interrupts all processors, some microseconds each: it is worth so many things, or so
/// many bytes. And so many things are freed by one call.
const ENOUGH: usize = if cfg!(tollgate_loom) { 3 } else { 64 };
const ENOUGH_BYTES: usize = 1 << 20;

impl Waiting {
    fn push(&mut self, free: Free) {
        self.fresh_bytes = self.fresh_bytes.saturating_add(free.bytes);
        self.fresh.push(free);
    }

    fn is_much(&self) -> bool {
        self.fresh.len() >= ENOUGH || self.fresh_bytes >= ENOUGH_BYTES
    }
}

impl Unread {
    #[cfg(not(tollgate_loom))]
    pub(super) const fn new() -> Unread {
        let waiting = Waiting { fresh: Vec::new(), fresh_bytes: 0, asked: None, ready: Vec::new() };
        Unread { readers: Readers::new(), waiting: Tried::new(waiting), count: FigureUsize::new(0) }
    }

    #[cfg(tollgate_loom)]
    pub(super) fn new() -> Unread {
        let waiting = Tried::default();
        Unread { readers: Readers::new(), waiting, count: FigureUsize::new(0) }
    }

    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Takes what nobody is pinned for. Returns it if the lock is taken.
    pub(super) fn push(&self, free: Free) -> Result<(), Free> {
        let mut free = Some(free);
        let unread = self.waiting.try_with(|waiting| {
            free.take().into_iter().for_each(|free| waiting.push(free));
            let is_much = waiting.is_much();
            self.take_unread(waiting, || if is_much { self.readers.in_calls() } else { None })
        });
        drop(unread);
        free.map_or(Ok(()), Err)
    }

    /// Whether anything waits.
    pub(super) fn is_any(&self) -> bool {
        // Relaxed: who misses the last finds it the next time.
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Frees some of what can be freed now.
    pub(super) fn free_some(&self) {
        let early = if broken(Fault::LooksTooEarly) { self.readers.in_calls() } else { None };
        let look = || early.or_else(|| self.readers.in_calls());
        drop(self.waiting.try_with(|waiting| self.take_unread(waiting, look)));
    }

    /// As [`free_some`](Unread::free_some), but looks for readers only if much waits for a look.
    #[cfg_attr(tollgate_loom, expect(dead_code, reason = "`free_some` is what models call"))]
    pub(super) fn free_if_much(&self) {
        let unread = self.waiting.try_with(|waiting| {
            let is_much = waiting.is_much();
            self.take_unread(waiting, || if is_much { self.readers.in_calls() } else { None })
        });
        drop(unread);
    }

    /// Takes some of what nobody reads any more, to be dropped without the lock: that may take long. `look`
    /// looks for the readers of the rest, if at all. It sees those of what was unlinked before it, so that it
    /// comes with the lock, by which nothing is added meanwhile.
    fn take_unread(
        &self,
        waiting: &mut Waiting,
        look: impl FnOnce() -> Option<InCalls>,
    ) -> Vec<Free> {
        let Waiting { fresh, fresh_bytes, asked, ready } = waiting;
        if let Some((in_calls, _)) = asked
            && in_calls.are_over()
        {
            ready.extend(asked.take().into_iter().flat_map(|(_, things)| things));
        }
        if asked.is_none()
            && !fresh.is_empty()
            && let Some(mut in_calls) = look()
        {
            *fresh_bytes = 0;
            if in_calls.are_over() {
                ready.append(fresh);
            } else {
                *asked = Some((in_calls, std::mem::take(fresh)));
            }
        }
        let unread = ready.split_off(ready.len().saturating_sub(ENOUGH));
        let asked = asked.as_ref().map_or(0, |(_, things)| things.len());
        self.count.store(fresh.len() + asked + ready.len(), Ordering::Relaxed);
        unread
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
        unread.free_some();
        // A call within the call makes no difference.
        reader.enter();
        reader.leave();
        unread.free_some();
        assert_eq!(freed.get(), 0);
        reader.leave();
        // The next call may have begun: it was not there when the first was unlinked.
        reader.enter();
        assert!(unread.push(counted(1, &freed)).is_ok());
        assert_eq!(freed.get(), 1);
        unread.free_some();
        assert_eq!(freed.get(), 1, "the second waits for this call");
        reader.leave();
        unread.free_some();
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
        assert!(!unread.is_any());
    }

    #[test]
    fn what_has_gathered_is_freed_a_part_at_a_time() {
        super::super::readers::prepare();
        let (unread, freed) = (Unread::new(), Rc::default());
        let reader = unread.readers().join();
        reader.enter();
        for _ in 0..3 * ENOUGH {
            assert!(unread.push(counted(1, &freed)).is_ok());
        }
        assert_eq!(freed.get(), 0);
        reader.leave();
        for parts in 1..=3 {
            assert!(unread.is_any());
            unread.free_some();
            assert_eq!(freed.get(), parts * ENOUGH);
        }
        assert!(!unread.is_any());
    }

    #[test]
    fn one_that_panics_leaves_none_of_the_others() {
        let (unread, freed) = (Unread::new(), Rc::default());
        // SAFETY: this test has one thread.
        #[expect(unsafe_code, reason = "as the table does")]
        let panics = unsafe { Free::new(1, || panic!("a rule of the user's")) };
        for thing in [counted(1, &freed), panics, counted(1, &freed)] {
            assert!(unread.push(thing).is_ok());
        }
        let freeing = std::panic::AssertUnwindSafe(|| unread.free_some());
        assert!(std::panic::catch_unwind(freeing).is_err());
        assert_eq!(freed.get(), 2);
    }

    #[test]
    fn who_finds_the_lock_taken_keeps_what_it_has() {
        let (unread, freed) = (Unread::new(), Rc::default());
        let kept = unread.waiting.try_with(|_| {
            let kept = unread.push(counted(1, &freed));
            unread.free_some();
            kept
        });
        assert!(kept.as_ref().is_some_and(Result::is_err));
        assert_eq!(freed.get(), 0);
    }
}
