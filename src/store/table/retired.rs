//! What was unlinked and may still be read: it waits until every pin and every reader of that time is over.
//!
//! The list belongs to the part of a limiter that retires, and not to the process: no call of a limiter is
//! under way when it is dropped, so that all of the list can go then, whatever other threads hold.

use super::epoch::{Guard, Pins};
use super::readers::InCalls;
use super::stack::Stack;
use crate::util::fault::{self, Fault};
use crate::util::sync::{FigureUsize, Ordering, TryLock};

/// Things of one kind that wait. Dropping one frees it; only [`collect`](Retired::collect) and the end of the
/// list do.
pub(super) struct Retired<T: Send> {
    /// Pushed, and in no batch yet.
    pushed: Stack<(usize, T)>,
    /// No thread waits for the lock: a thread that finds it taken leaves the work to the next.
    batches: TryLock<Batches<T>>,
    /// How many things wait.
    count: FigureUsize,
}

struct Batches<T> {
    /// No thread has looked for their pins and readers yet.
    fresh: Vec<T>,
    fresh_bytes: usize,
    /// They wait for these pins and readers.
    asked: Option<Asked<T>>,
}

struct Asked<T> {
    pins: Pins,
    readers: InCalls,
    things: Vec<T>,
}

/// A look for readers interrupts all processors, some microseconds each: it is worth that many things, or
/// that many bytes.
const ENOUGH: usize = if cfg!(tollgate_loom) { 3 } else { 64 };
const ENOUGH_BYTES: usize = 1 << 20;

/// When [`Retired::collect`] looks for the pins and readers of things that no thread has looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// When many wait.
    Many,
    /// When any waits.
    Any,
}

impl<T> Default for Batches<T> {
    fn default() -> Batches<T> {
        Batches { fresh: Vec::new(), fresh_bytes: 0, asked: None }
    }
}

impl<T: Send> Default for Retired<T> {
    fn default() -> Retired<T> {
        let batches = TryLock::new(Batches::default());
        Retired { pushed: Stack::new(), batches, count: FigureUsize::new(0) }
    }
}

impl<T: Send> Retired<T> {
    /// Takes a thing of about that many bytes, which no call that begins from now on can reach.
    pub(super) fn push(&self, bytes: usize, thing: T) {
        // Relaxed, here and below: a figure, for callers that look whether any thing waits.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.pushed.push((bytes, thing));
    }

    #[cfg_attr(tollgate_loom, allow(dead_code, reason = "asked by limits, not by models"))]
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns things that no thread can read any more, and looks for the pins and readers of others, as far
    /// as `look` can say which readers there are. A batch is returned by a later call than the one that
    /// looked: at the earliest two pins later.
    pub(super) fn collect(
        &self,
        guard: &Guard,
        when: When,
        look: impl FnOnce() -> Option<InCalls>,
    ) -> Vec<T> {
        let done = self.batches.try_with(|batches| self.collect_locked(batches, guard, when, look));
        let done = done.unwrap_or_default();
        self.count.fetch_sub(done.len(), Ordering::Relaxed);
        done
    }

    fn collect_locked(
        &self,
        batches: &mut Batches<T>,
        guard: &Guard,
        when: When,
        look: impl FnOnce() -> Option<InCalls>,
    ) -> Vec<T> {
        let mut look = Some(look);
        let early = if fault::active(Fault::LooksTooEarly) {
            look.take().and_then(|look| look())
        } else {
            None
        };
        let Batches { fresh, fresh_bytes, asked } = batches;
        if !self.pushed.is_empty() {
            for (bytes, thing) in self.pushed.take_all() {
                *fresh_bytes = fresh_bytes.saturating_add(bytes);
                fresh.push(thing);
            }
        }
        let mut done = Vec::new();
        if asked.is_some() {
            guard.advance();
        }
        if let Some(mut over) = asked.take_if(|asked| asked.is_over()) {
            done.append(&mut over.things);
        }
        let is_much = fresh.len() >= ENOUGH || *fresh_bytes >= ENOUGH_BYTES;
        if asked.is_none() && !fresh.is_empty() && (is_much || when == When::Any) {
            // After the things were taken from the stack, and so after all of them were unlinked.
            let Some(readers) = early.or_else(|| look?()) else { return done };
            let things = std::mem::take(fresh);
            *fresh_bytes = 0;
            *asked = Some(Asked { pins: guard.pins(), readers, things });
            guard.advance();
            // Where there are no pins, as in models of readers.
            if let Some(mut over) = asked.take_if(|asked| asked.is_over()) {
                done.append(&mut over.things);
            }
        }
        done
    }
}

impl<T> Asked<T> {
    fn is_over(&mut self) -> bool {
        self.pins.are_over() && self.readers.are_over()
    }
}

impl<T: Send> Drop for Retired<T> {
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // As in the table: a model that has failed is not to fail once more.
            std::mem::forget(self.pushed.take_all());
            self.batches.try_with(|batches| std::mem::forget(std::mem::take(batches)));
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::sync::Arc;

    use super::super::epoch::pin;
    use super::super::readers::{Readers, prepare};
    use super::*;
    use crate::own_process::in_own_process;

    /// Enough for pins that are over, where no other thread pins: each of these tests is alone.
    const ROUNDS: usize = 4;

    /// Things, of which each says when it is freed, and the readers that they wait for.
    struct Things {
        retired: Retired<Arc<()>>,
        readers: Readers,
        thing: Arc<()>,
    }

    impl Things {
        fn new() -> Things {
            prepare();
            let (retired, readers) = (Retired::default(), Readers::new());
            Things { retired, readers, thing: Arc::new(()) }
        }

        fn push(&self, bytes: usize) {
            self.retired.push(bytes, self.thing.clone());
        }

        fn look(&self) -> Option<InCalls> {
            self.readers.in_calls()
        }

        /// Calls often enough for pins that are over; returns how many are left.
        fn collect(&self, when: When) -> usize {
            for _ in 0..ROUNDS {
                drop(self.retired.collect(&pin(), when, || self.look()));
            }
            self.left()
        }

        fn left(&self) -> usize {
            let left = Arc::strong_count(&self.thing) - 1;
            assert_eq!(self.retired.is_any(), left > 0);
            left
        }
    }

    #[test]
    fn a_thing_stays_while_a_reader_from_before_is_in_its_call() {
        in_own_process(|| {
            let things = Things::new();
            let reader = things.readers.join();
            reader.enter();
            things.push(1);
            // A call within the call makes no difference.
            reader.enter();
            reader.leave();
            assert_eq!(things.collect(When::Any), 1);
            reader.leave();
            // The next call was not there when the thing was unlinked.
            reader.enter();
            assert_eq!(things.collect(When::Any), 0);
            things.push(1);
            assert_eq!(things.collect(When::Any), 1, "this one waits for it");
            reader.leave();
            assert_eq!(things.collect(When::Any), 0);
        });
    }

    #[test]
    fn a_thing_stays_while_a_pin_from_before_lives() {
        in_own_process(|| {
            let things = Things::new();
            let (pinned, is_pinned) = std::sync::mpsc::channel();
            let (let_go, end) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                let guard = pin();
                pinned.send(()).unwrap();
                let _ = end.recv();
                drop(guard);
            });
            is_pinned.recv().unwrap();
            things.push(1);
            assert_eq!(things.collect(When::Any), 1);
            drop(let_go);
            thread.join().unwrap();
            assert_eq!(things.collect(When::Any), 0);
        });
    }

    #[test]
    fn readers_are_looked_for_once_for_many() {
        in_own_process(|| {
            let things = Things::new();
            for many in 1..ENOUGH {
                things.push(1);
                assert_eq!(things.collect(When::Many), many);
            }
            things.push(1);
            assert_eq!(things.collect(When::Many), 0);
            things.push(ENOUGH_BYTES);
            assert_eq!(things.collect(When::Many), 0, "one that is large");
        });
    }

    #[test]
    fn the_list_frees_all_of_it_when_it_goes_whatever_is_held() {
        in_own_process(|| {
            let things = Things::new();
            let _pinned = pin();
            let reader = things.readers.join();
            reader.enter();
            (0..3).for_each(|_| things.push(1));
            assert_eq!(things.collect(When::Any), 3, "asked for");
            (0..3).for_each(|_| things.push(1));
            assert_eq!(things.collect(When::Any), 6, "and others, not");
            things.push(1);
            let Things { retired, thing, .. } = things;
            drop(retired);
            assert_eq!(Arc::strong_count(&thing), 1);
            reader.leave();
        });
    }

    #[test]
    fn a_thing_that_panics_leaves_none_of_the_others() {
        in_own_process(|| {
            struct Panics(Option<Arc<()>>);
            impl Drop for Panics {
                fn drop(&mut self) {
                    assert!(self.0.is_some(), "a rule of the user's");
                }
            }
            let (retired, thing) = (Retired::default(), Arc::new(()));
            for is_good in [true, false, true] {
                retired.push(1, Panics(is_good.then(|| thing.clone())));
            }
            let freeing = std::panic::AssertUnwindSafe(|| {
                for _ in 0..ROUNDS {
                    drop(retired.collect(&pin(), When::Any, || Some(InCalls::none())));
                }
            });
            assert!(std::panic::catch_unwind(freeing).is_err());
            assert_eq!(Arc::strong_count(&thing), 1);
        });
    }

    #[test]
    fn a_thread_that_finds_the_lock_taken_leaves_all_to_the_next() {
        in_own_process(|| {
            let things = Things::new();
            things.retired.batches.try_with(|_| {
                things.push(1);
                assert_eq!(things.collect(When::Any), 1);
            });
            assert_eq!(things.collect(When::Any), 0);
        });
    }
}
