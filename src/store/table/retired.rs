//! Lists of retired values: each waits until all pins and readers from before its removal have
//! ended.
//!
//! Each part of a limiter that retires values has its own list. When a limiter is dropped, none of
//! its calls is under way, so that the whole list is freed at once, whatever calls of other
//! limiters hold.

use super::epoch::{Guard, Pins};
use super::readers::ActiveReaders;
use super::stack::Stack;
use crate::util::fault::{self, Fault};
use crate::util::sync::{FigureUsize, Ordering, TryLock};

/// A list of retired values. Dropping a value frees it, which only callers of
/// [`collect`](Retired::collect) and the drop of the list do.
pub(super) struct Retired<T: Send> {
    /// Values that are in no batch yet.
    pushed: Stack<(usize, T)>,
    /// No thread waits for the lock: a thread that finds it taken leaves the work to the next.
    batches: TryLock<Batches<T>>,
    /// The number of values in the list.
    count: FigureUsize,
}

struct Batches<T> {
    /// Values for whose pins and readers no thread has looked yet.
    fresh: Vec<T>,
    fresh_bytes: usize,
    /// The values that wait for known pins and readers.
    waiting: Option<WaitingBatch<T>>,
}

struct WaitingBatch<T> {
    pins: Pins,
    readers: ActiveReaders,
    values: Vec<T>,
}

/// A look for readers interrupts all processors for some microseconds. `When::Many` looks for this
/// number of values, or for this number of bytes.
const ENOUGH: usize = if cfg!(tollgate_loom) { 3 } else { 64 };
const ENOUGH_BYTES: usize = 1 << 20;

/// When [`Retired::collect`] looks for the pins and readers of new values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// When there are many.
    Many,
    /// When there is one.
    Any,
}

impl<T> Default for Batches<T> {
    fn default() -> Batches<T> {
        Batches { fresh: Vec::new(), fresh_bytes: 0, waiting: None }
    }
}

impl<T: Send> Default for Retired<T> {
    fn default() -> Retired<T> {
        let batches = TryLock::new(Batches::default());
        Retired { pushed: Stack::new(), batches, count: FigureUsize::new(0) }
    }
}

impl<T: Send> Retired<T> {
    /// Takes a value of about `bytes` bytes that no call that begins from now on can reach.
    pub(super) fn push(&self, bytes: usize, value: T) {
        // Relaxed, here and below: a count, for callers that ask whether the list has values.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.pushed.push((bytes, value));
    }

    #[cfg_attr(tollgate_loom, allow(dead_code, reason = "models do not ask"))]
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns values that no thread can read any more, and looks for the pins and readers of
    /// others. If `look` cannot tell the readers, the others stay. The call that looks for a batch
    /// does not return it: a call after at least two pins does.
    pub(super) fn collect(
        &self,
        guard: &Guard,
        when: When,
        look: impl FnOnce() -> Option<ActiveReaders>,
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
        look: impl FnOnce() -> Option<ActiveReaders>,
    ) -> Vec<T> {
        let mut look = Some(look);
        let early = if fault::active(Fault::LooksTooEarly) {
            look.take().and_then(|look| look())
        } else {
            None
        };
        let Batches { fresh, fresh_bytes, waiting } = batches;
        if !self.pushed.is_empty() {
            for (bytes, value) in self.pushed.take_all() {
                *fresh_bytes = fresh_bytes.saturating_add(bytes);
                fresh.push(value);
            }
        }
        let mut done = Vec::new();
        if waiting.is_some() {
            guard.advance();
        }
        if let Some(mut over) = waiting.take_if(|waiting| waiting.is_over()) {
            done.append(&mut over.values);
        }
        let is_much = fresh.len() >= ENOUGH || *fresh_bytes >= ENOUGH_BYTES;
        if waiting.is_none() && !fresh.is_empty() && (is_much || when == When::Any) {
            // After the values were taken from the stack, and so after all of them were unlinked.
            let Some(readers) = early.or_else(|| look?()) else { return done };
            let values = std::mem::take(fresh);
            *fresh_bytes = 0;
            *waiting = Some(WaitingBatch { pins: guard.pins(), readers, values });
            guard.advance();
            // Without pins, as in models of readers, a batch may be over at once.
            if let Some(mut over) = waiting.take_if(|waiting| waiting.is_over()) {
                done.append(&mut over.values);
            }
        }
        done
    }
}

impl<T> WaitingBatch<T> {
    fn is_over(&mut self) -> bool {
        self.pins.are_over() && self.readers.are_over()
    }
}

impl<T: Send> Drop for Retired<T> {
    fn drop(&mut self) {
        if cfg!(tollgate_loom) && std::thread::panicking() {
            // A model has failed. The destructors of its threads must not fail once more.
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

    /// Enough calls for pins that have ended, because each test has a process of its own in which
    /// no other thread pins.
    const ROUNDS: usize = 4;

    /// A list of values that are counted, and the readers that they wait for.
    struct Counted {
        retired: Retired<Arc<()>>,
        readers: Readers,
        value: Arc<()>,
    }

    impl Counted {
        fn new() -> Counted {
            prepare();
            let (retired, readers) = (Retired::default(), Readers::new());
            Counted { retired, readers, value: Arc::new(()) }
        }

        fn push(&self, bytes: usize) {
            self.retired.push(bytes, self.value.clone());
        }

        fn look(&self) -> Option<ActiveReaders> {
            self.readers.active()
        }

        /// Calls `collect` often enough for pins that have ended. Returns the number of values that
        /// are left.
        fn collect(&self, when: When) -> usize {
            for _ in 0..ROUNDS {
                drop(self.retired.collect(&pin(), when, || self.look()));
            }
            self.left()
        }

        fn left(&self) -> usize {
            let left = Arc::strong_count(&self.value) - 1;
            assert_eq!(self.retired.is_any(), left > 0);
            left
        }
    }

    #[test]
    fn value_stays_while_earlier_reader_is_in_call() {
        in_own_process(|| {
            let values = Counted::new();
            let reader = values.readers.join();
            assert!(reader.enter());
            values.push(1);
            assert!(!reader.enter(), "a nested call pins");
            assert_eq!(values.collect(When::Any), 1);
            reader.leave();
            // The next call began after the value was unlinked.
            assert!(reader.enter());
            assert_eq!(values.collect(When::Any), 0);
            values.push(1);
            assert_eq!(values.collect(When::Any), 1, "this one waits for it");
            reader.leave();
            assert_eq!(values.collect(When::Any), 0);
        });
    }

    #[test]
    fn value_stays_while_earlier_pin_lives() {
        in_own_process(|| {
            let values = Counted::new();
            let (pinned, is_pinned) = std::sync::mpsc::channel();
            let (let_go, end) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                let guard = pin();
                pinned.send(()).unwrap();
                let _ = end.recv();
                drop(guard);
            });
            is_pinned.recv().unwrap();
            values.push(1);
            assert_eq!(values.collect(When::Any), 1);
            drop(let_go);
            thread.join().unwrap();
            assert_eq!(values.collect(When::Any), 0);
        });
    }

    #[test]
    fn readers_are_looked_for_once_for_many() {
        in_own_process(|| {
            let values = Counted::new();
            for many in 1..ENOUGH {
                values.push(1);
                assert_eq!(values.collect(When::Many), many);
            }
            values.push(1);
            assert_eq!(values.collect(When::Many), 0);
            values.push(ENOUGH_BYTES);
            assert_eq!(values.collect(When::Many), 0, "one that is large");
        });
    }

    #[test]
    fn dropping_the_list_frees_everything() {
        in_own_process(|| {
            let values = Counted::new();
            let _pinned = pin();
            let reader = values.readers.join();
            assert!(reader.enter());
            (0..3).for_each(|_| values.push(1));
            assert_eq!(values.collect(When::Any), 3, "waiting for");
            (0..3).for_each(|_| values.push(1));
            assert_eq!(values.collect(When::Any), 6, "and three that are in none");
            values.push(1);
            let Counted { retired, value, .. } = values;
            drop(retired);
            assert_eq!(Arc::strong_count(&value), 1);
            reader.leave();
        });
    }

    #[test]
    fn a_panic_in_drop_frees_the_others() {
        in_own_process(|| {
            struct Panics(Option<Arc<()>>);
            impl Drop for Panics {
                fn drop(&mut self) {
                    assert!(self.0.is_some(), "a rule of the user");
                }
            }
            let (retired, value) = (Retired::default(), Arc::new(()));
            for is_good in [true, false, true] {
                retired.push(1, Panics(is_good.then(|| value.clone())));
            }
            let freeing = std::panic::AssertUnwindSafe(|| {
                for _ in 0..ROUNDS {
                    drop(retired.collect(&pin(), When::Any, || Some(ActiveReaders::none())));
                }
            });
            assert!(std::panic::catch_unwind(freeing).is_err());
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }

    #[test]
    fn taken_lock_leaves_work_to_the_next() {
        in_own_process(|| {
            let values = Counted::new();
            values.retired.batches.try_with(|_| {
                values.push(1);
                assert_eq!(values.collect(When::Any), 1);
            });
            assert_eq!(values.collect(When::Any), 0);
        });
    }
}
