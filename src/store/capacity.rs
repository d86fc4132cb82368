//! Holds the cap on keys exactly: a call reserves a place before it inserts a key.

use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicUsize, Ordering};

/// Counts the places of keys that have a cell or are about to get one, up to a maximum.
pub(crate) struct Reservations {
    taken: AtomicUsize,
    max: usize,
}

/// A place for one key. Dropping it releases the place.
#[must_use]
pub(crate) struct Reservation<'t>(Option<&'t Reservations>);

impl Reservations {
    pub(crate) fn new(max: usize) -> Reservations {
        Reservations { taken: AtomicUsize::new(0), max }
    }

    /// Reserves a place if there is one. Repeats only if another reservation or release came in between.
    pub(crate) fn reserve(&self) -> Option<Reservation<'_>> {
        if fault::active(Fault::CapUnreserved) {
            let taken = self.taken.load(Ordering::Relaxed);
            self.taken.store(taken + 1, Ordering::Relaxed);
            return (taken < self.max).then_some(Reservation(Some(self)));
        }
        // Relaxed: the number publishes nothing.
        let reserved = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < self.max).then_some(taken + 1)
        });
        reserved.ok().map(|_| Reservation(Some(self)))
    }

    /// Reserves a second place for a key while its cell moves, even if there is no room.
    pub(crate) fn reserve_another(&self) -> Reservation<'_> {
        // Relaxed: as in `reserve`.
        self.taken.fetch_add(1, Ordering::Relaxed);
        Reservation(Some(self))
    }

    /// Releases the place of a dead cell. Only the call that ended the cell may call this.
    pub(crate) fn release(&self) {
        // Relaxed: as in `reserve`.
        let before = self.taken.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a place was released twice");
    }

    /// Returns whether three quarters of the places are taken.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.taken() >= self.max - self.max / 4
    }

    pub(crate) fn taken(&self) -> usize {
        // Relaxed: as in `reserve`.
        self.taken.load(Ordering::Relaxed)
    }
}

impl Reservation<'_> {
    /// Passes the place on to a cell: the call that ends the cell releases it.
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
