//! Pins: the only module that uses crossbeam-epoch.
//!
//! The crate has its own collector, so that pins of other users of crossbeam-epoch do not delay its
//! frees. Retired values wait in lists of this crate ([`retired`](super::retired)). The collector
//! only tells when the pins of a time have ended.

#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
pub(super) use super::retired::Retired;
#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
pub(super) use real::{Alive, Pins, active_readers};
#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
pub(crate) use real::{Guard, pin, pin_briefly, prepare, read};

#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
pub(super) use modelled::{Alive, Pins, Retired, active_readers};
#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
pub(crate) use modelled::{Guard, pin, pin_briefly, prepare, read};

#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
mod real {
    use std::sync::{Arc, OnceLock};

    use crossbeam_epoch::{Collector, LocalHandle};

    #[cfg(not(tollgate_loom))]
    use crate::store::table::readers;
    use crate::store::table::readers::ActiveReaders;
    #[cfg(not(tollgate_loom))]
    use crate::store::table::readers::Reading;
    use crate::util::sync::{AtomicUsize, FigureUsize, Ordering};

    /// While a guard lives, no value is freed that could be reached when the guard was made.
    pub(crate) enum Guard {
        Pinned(crossbeam_epoch::Guard),
        #[cfg(not(tollgate_loom))]
        Reading(#[expect(dead_code, reason = "only its drop does something")] Reading),
    }

    thread_local! {
        static OWN: Own = Own { handle: collector().register(), _end: End };
    }

    /// A thread's handle of the collector. The fields are dropped in this order.
    struct Own {
        handle: LocalHandle,
        _end: End,
    }

    /// Frees the thread's record in the collector when the thread ends after the last limiter: no
    /// later call would free it.
    struct End;

    impl Drop for End {
        fn drop(&mut self) {
            // Relaxed: only a count.
            if ALIVE.load(Ordering::Relaxed) == 0 {
                clear();
            }
        }
    }

    fn collector() -> &'static Collector {
        static COLLECTOR: OnceLock<Collector> = OnceLock::new();
        COLLECTOR.get_or_init(Collector::new)
    }

    /// Pins this thread without a lock. A nested pin costs no fence.
    #[inline(always)]
    pub(crate) fn pin() -> Guard {
        Guard::Pinned(pin_anew())
    }

    #[inline(always)]
    fn pin_anew() -> crossbeam_epoch::Guard {
        // Fails in the destructors of a thread that ends.
        let pinned = OWN.try_with(|own| own.handle.pin());
        pinned.unwrap_or_else(|_| collector().register().pin())
    }

    /// Like [`pin`], but without a fence on systems with readers. For calls of a few nanoseconds
    /// that wait for nothing.
    #[inline(always)]
    pub(crate) fn pin_briefly() -> Guard {
        read().unwrap_or_else(pin)
    }

    /// Marks this thread as a reader, for a call like that of [`pin_briefly`]. `None` in a thread's
    /// first call, within such a call, and on systems without readers: the caller pins.
    #[inline(always)]
    pub(crate) fn read() -> Option<Guard> {
        #[cfg(not(tollgate_loom))]
        return Reading::begin().map(Guard::Reading);
        #[cfg(tollgate_loom)]
        None
    }

    /// Prepares readers. This takes too long for a call of a limiter.
    pub(crate) fn prepare() {
        #[cfg(not(tollgate_loom))]
        readers::prepare();
    }

    /// Returns the readers that are in a call; `None` if the system refuses the fence.
    pub(in super::super) fn active_readers() -> Option<ActiveReaders> {
        #[cfg(not(tollgate_loom))]
        return readers::READERS.active();
        #[cfg(tollgate_loom)]
        Some(ActiveReaders::none())
    }

    /// The pins that existed at one time. The value is 1 once all have ended.
    pub(in super::super) struct Pins(Arc<AtomicUsize>);

    /// The number of marks that the collector has not set yet.
    static MARKS: FigureUsize = FigureUsize::new(0);

    impl Pins {
        /// Returns whether all of them have ended since.
        pub(in super::super) fn are_over(&self) -> bool {
            // Acquire: pairs with the mark: reads under those pins come before the free.
            self.0.load(Ordering::Acquire) == 1
        }
    }

    impl Guard {
        /// Returns the current pins, including this one. No other pin can reach a value that was
        /// unlinked before this call.
        pub(in super::super) fn pins(&self) -> Pins {
            let mark = Arc::new(AtomicUsize::new(0));
            let pins = Pins(mark.clone());
            // Relaxed: only a count.
            MARKS.fetch_add(1, Ordering::Relaxed);
            self.with_pin(|pinned| {
                pinned.defer(move || {
                    MARKS.fetch_sub(1, Ordering::Relaxed);
                    mark.store(1, Ordering::Release);
                });
            });
            pins
        }

        /// Advances the collector by one bounded step, which sets the marks of pins that have
        /// ended.
        pub(in super::super) fn advance(&self) {
            self.with_pin(crossbeam_epoch::Guard::flush);
        }

        /// Pins a separate collector.
        #[cfg(all(test, tollgate_loom))]
        pub(crate) fn from_handle(handle: &crossbeam_epoch::LocalHandle) -> Guard {
            Guard::Pinned(handle.pin())
        }

        fn with_pin(&self, then: impl FnOnce(&crossbeam_epoch::Guard)) {
            match self {
                Guard::Pinned(pinned) => then(pinned),
                #[cfg(not(tollgate_loom))]
                Guard::Reading(_) => then(&pin_anew()),
            }
        }
    }

    /// The number of values of type [`Alive`] in the process.
    static ALIVE: FigureUsize = FigureUsize::new(0);

    /// Held by each part of a limiter that retires values, so that the last one to be dropped
    /// empties the collector.
    pub(in super::super) struct Alive(());

    impl Default for Alive {
        fn default() -> Alive {
            // Relaxed: only a count.
            ALIVE.fetch_add(1, Ordering::Relaxed);
            Alive(())
        }
    }

    impl Drop for Alive {
        fn drop(&mut self) {
            // Relaxed: only a count.
            if ALIVE.fetch_sub(1, Ordering::Relaxed) == 1 {
                clear();
            }
        }
    }

    /// Empties the collector of marks and of the records of ended threads. After the last limiter
    /// all pins have ended, except those of limiters that are made meanwhile.
    fn clear() {
        let cleared = OWN.try_with(|own| advance_often(&own.handle));
        // In the destructors of a thread that ends. A later `clear` frees this record.
        cleared.unwrap_or_else(|_| advance_often(&collector().register()));
    }

    fn advance_often(handle: &LocalHandle) {
        /// Rounds for records: find them, release them, and two more epochs.
        const ROUNDS: usize = 6;
        // A step sets eight marks.
        let rounds = ROUNDS + MARKS.load(Ordering::Relaxed) / 8;
        // Each round pins anew, because the epoch advances only once within one pin.
        (0..rounds).for_each(|_| handle.pin().flush());
    }
}

#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
mod modelled {
    use std::sync::Mutex;

    use super::super::retired::When;
    use crate::store::table::readers::ActiveReaders;

    /// A pin that frees nothing before the model ends. The models of the table show that each
    /// retired segment was unlinked before. The model in `reclaim_model.rs` shows with the real
    /// crossbeam-epoch that no segment is freed too early.
    pub(crate) struct Guard {
        holds: bool,
    }

    pub(crate) fn pin() -> Guard {
        Guard { holds: true }
    }

    pub(crate) fn pin_briefly() -> Guard {
        pin()
    }

    pub(crate) fn read() -> Option<Guard> {
        None
    }

    pub(crate) fn prepare() {}

    #[derive(Default)]
    pub(in super::super) struct Alive;

    pub(in super::super) struct Pins {
        hold: bool,
    }

    impl Pins {
        pub(in super::super) fn are_over(&self) -> bool {
            !self.hold
        }
    }

    impl Guard {
        /// No pin, for models in which values wait for readers only.
        #[cfg(test)]
        pub(crate) fn none() -> Guard {
            Guard { holds: false }
        }

        pub(in super::super) fn pins(&self) -> Pins {
            Pins { hold: self.holds }
        }

        pub(in super::super) fn advance(&self) {}
    }

    pub(in super::super) fn active_readers() -> Option<ActiveReaders> {
        None
    }

    /// Frees all values when it is dropped and none before, so that collecting adds no step to a
    /// model.
    pub(in super::super) struct Retired<T>(Mutex<Vec<T>>);

    impl<T> Default for Retired<T> {
        fn default() -> Retired<T> {
            Retired(Mutex::default())
        }
    }

    impl<T> Retired<T> {
        pub(in super::super) fn push(&self, _: usize, thing: T) {
            self.0.lock().unwrap().push(thing);
        }

        pub(in super::super) fn is_any(&self) -> bool {
            false
        }

        pub(in super::super) fn collect(
            &self,
            _: &Guard,
            _: When,
            _: impl FnOnce() -> Option<ActiveReaders>,
        ) -> Vec<T> {
            Vec::new()
        }
    }

    impl<T> Drop for Retired<T> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                // A model has failed. The destructors of its threads must not fail once more.
                std::mem::take(self.0.get_mut().unwrap()).into_iter().for_each(std::mem::forget);
            }
        }
    }
}
