//! The cap on keys: a place is reserved before a key is inserted, so that it holds exactly.

use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicUsize, Ordering};

/// How many keys there are, or are about to be.
pub(crate) struct Reservations {
    taken: AtomicUsize,
    most: usize,
}

/// A place for one key. Dropped, it is given back.
#[must_use]
pub(crate) struct Reservation<'t>(Option<&'t Reservations>);

impl Reservations {
    pub(crate) fn new(most: usize) -> Reservations {
        Reservations { taken: AtomicUsize::new(0), most }
    }

    /// Reserves a place if there is one. Repeats only when another's reservation or release came
    /// between.
    pub(crate) fn reserve(&self) -> Option<Reservation<'_>> {
        if fault::active(Fault::CapUnreserved) {
            let taken = self.taken.load(Ordering::Relaxed);
            self.taken.store(taken + 1, Ordering::Relaxed);
            return (taken < self.most).then_some(Reservation(Some(self)));
        }
        // Relaxed: a number that publishes nothing.
        let reserved = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < self.most).then_some(taken + 1)
        });
        reserved.ok().map(|_| Reservation(Some(self)))
    }

    /// Reserves a second place for a key that has one, whether or not there is room: for the time in which its
    /// cell moves.
    pub(crate) fn reserve_another(&self) -> Reservation<'_> {
        // Relaxed: as in `reserve`.
        self.taken.fetch_add(1, Ordering::Relaxed);
        Reservation(Some(self))
    }

    /// Gives back the place of a cell that is gone. For whoever made it go, and nobody else.
    pub(crate) fn release(&self) {
        // Relaxed: as in `reserve`.
        let before = self.taken.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a place was given back twice");
    }

    /// Whether three of four places are taken.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.taken() >= self.most - self.most / 4
    }

    pub(crate) fn taken(&self) -> usize {
        // Relaxed: as in `reserve`.
        self.taken.load(Ordering::Relaxed)
    }
}

impl Reservation<'_> {
    /// The place is a cell's now: whoever makes that go gives it back.
    pub(crate) fn hand_over(mut self) {
        self.0 = None;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(reservations) = self.0 {
            reservations.release();
        }
    }
}
