//! Pins: the one place that knows crossbeam-epoch.
//!
//! The collector is this crate's own, so that no pin of another user of crossbeam-epoch holds its memory. What
//! is retired waits in lists of this crate ([`retired`](super::retired)); the collector only says when the
//! pins of a time are over.

#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
pub(super) use super::retired::Retired;
#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
pub(super) use real::{Alive, Pins, readers_in_calls};
#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
pub(crate) use real::{Guard, pin, pin_briefly, prepare};

#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
pub(super) use modelled::{Alive, Pins, Retired, readers_in_calls};
#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
pub(crate) use modelled::{Guard, pin, pin_briefly, prepare};

#[cfg(not(all(tollgate_loom, not(crossbeam_loom))))]
mod real {
    use std::sync::{Arc, OnceLock};

    use crossbeam_epoch::{Collector, LocalHandle};

    #[cfg(not(tollgate_loom))]
    use crate::store::table::readers;
    use crate::store::table::readers::InCalls;
    #[cfg(not(tollgate_loom))]
    use crate::store::table::readers::Reading;
    use crate::util::sync::{AtomicUsize, FigureUsize, Ordering};

    /// While it lives, nothing that could be reached when it was made is freed.
    pub(crate) enum Guard {
        Pinned(crossbeam_epoch::Guard),
        #[cfg(not(tollgate_loom))]
        Reading(#[expect(dead_code, reason = "what it does when it goes is all")] Reading),
    }

    thread_local! {
        static OWN: Own = Own { handle: collector().register(), _end: End };
    }

    /// A thread's record in the collector. Its fields are dropped in this order.
    struct Own {
        handle: LocalHandle,
        _end: End,
    }

    /// The end of a thread, after which no call may come that has the collector free its record.
    struct End;

    impl Drop for End {
        fn drop(&mut self) {
            // Relaxed: a figure.
            if ALIVE.load(Ordering::Relaxed) == 0 {
                clear();
            }
        }
    }

    fn collector() -> &'static Collector {
        static COLLECTOR: OnceLock<Collector> = OnceLock::new();
        COLLECTOR.get_or_init(Collector::new)
    }

    /// Pins this thread. Free of locks; within another pin it costs no fence.
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

    /// As [`pin`], without a fence where that can be: for a few nanoseconds, in which nothing is waited for.
    #[inline(always)]
    pub(crate) fn pin_briefly() -> Guard {
        #[cfg(not(tollgate_loom))]
        if let Some(reading) = Reading::begin() {
            return Guard::Reading(reading);
        }
        pin()
    }

    /// What takes too long for the way of a call, and is to be done before.
    pub(crate) fn prepare() {
        #[cfg(not(tollgate_loom))]
        readers::prepare();
    }

    /// The readers that are in a call; `None` if that cannot be said.
    pub(in super::super) fn readers_in_calls() -> Option<InCalls> {
        #[cfg(not(tollgate_loom))]
        return readers::READERS.in_calls();
        #[cfg(tollgate_loom)]
        Some(InCalls::none())
    }

    /// The pins that there were at one time.
    pub(in super::super) struct Pins(Arc<AtomicUsize>);

    /// Marks that the collector has and that are not set yet.
    static MARKS: FigureUsize = FigureUsize::new(0);

    impl Pins {
        /// Whether all of them have ended since.
        pub(in super::super) fn are_over(&self) -> bool {
            // Acquire: pairs with the mark: what was read under those pins comes before it is freed.
            self.0.load(Ordering::Acquire) == 1
        }
    }

    impl Guard {
        /// The pins that there are, this one among them. What was unlinked before this call can be reached
        /// by no other.
        pub(in super::super) fn pins(&self) -> Pins {
            let mark = Arc::new(AtomicUsize::new(0));
            let pins = Pins(mark.clone());
            // Relaxed: a figure.
            MARKS.fetch_add(1, Ordering::Relaxed);
            self.with_pin(|pinned| {
                pinned.defer(move || {
                    MARKS.fetch_sub(1, Ordering::Relaxed);
                    mark.store(1, Ordering::Release);
                });
            });
            pins
        }

        /// Has the collector go on, by a bounded step: it sets the marks of pins that are over.
        pub(in super::super) fn advance(&self) {
            self.with_pin(crossbeam_epoch::Guard::flush);
        }

        /// A pin of a collector of its own.
        #[cfg(all(test, tollgate_loom))]
        pub(crate) fn of(handle: &crossbeam_epoch::LocalHandle) -> Guard {
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

    /// What retires and is not dropped yet, in the process.
    static ALIVE: FigureUsize = FigureUsize::new(0);

    /// A part of a limiter that retires.
    pub(in super::super) struct Alive(());

    impl Default for Alive {
        fn default() -> Alive {
            // Relaxed: a figure.
            ALIVE.fetch_add(1, Ordering::Relaxed);
            Alive(())
        }
    }

    impl Drop for Alive {
        fn drop(&mut self) {
            // Relaxed: a figure.
            if ALIVE.fetch_sub(1, Ordering::Relaxed) == 1 {
                clear();
            }
        }
    }

    /// Empties the collector of marks, and of its records of threads that have ended. With the last limiter
    /// all pins have ended, but for those of limiters that begin meanwhile: they end later.
    fn clear() {
        let cleared = OWN.try_with(|own| advance_often(&own.handle));
        // In the destructors of a thread that ends: the next one finds this record.
        cleared.unwrap_or_else(|_| advance_often(&collector().register()));
    }

    fn advance_often(handle: &LocalHandle) {
        /// For records: found, let go, and two epochs more.
        const ROUNDS: usize = 6;
        // A step frees eight.
        let rounds = ROUNDS + MARKS.load(Ordering::Relaxed) / 8;
        // Each with a pin of its own: within one pin the epoch advances once.
        (0..rounds).for_each(|_| handle.pin().flush());
    }
}

#[cfg(all(tollgate_loom, not(crossbeam_loom)))]
mod modelled {
    use std::sync::Mutex;

    use super::super::retired::When;
    use crate::store::table::readers::InCalls;

    /// A pin under which nothing is freed before the model ends: what models of the table show is that
    /// whatever is retired was unlinked before. That nothing is freed too early is `reclaim`'s, with the real
    /// one.
    pub(crate) struct Guard {
        holds: bool,
    }

    pub(crate) fn pin() -> Guard {
        Guard { holds: true }
    }

    pub(crate) fn pin_briefly() -> Guard {
        pin()
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
        /// No pin, for models of what waits for readers alone.
        #[cfg(test)]
        pub(crate) fn none() -> Guard {
            Guard { holds: false }
        }

        pub(in super::super) fn pins(&self) -> Pins {
            Pins { hold: self.holds }
        }

        pub(in super::super) fn advance(&self) {}
    }

    pub(in super::super) fn readers_in_calls() -> Option<InCalls> {
        None
    }

    /// Frees all when it goes, and nothing before: no step of a model.
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
            _: impl FnOnce() -> Option<InCalls>,
        ) -> Vec<T> {
            Vec::new()
        }
    }

    impl<T> Drop for Retired<T> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                // A model that has failed is not to fail once more.
                std::mem::take(self.0.get_mut().unwrap()).into_iter().for_each(std::mem::forget);
            }
        }
    }
}
