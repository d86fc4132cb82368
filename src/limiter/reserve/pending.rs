//! Defines the place of a caller that waits.

use std::hash::{BuildHasher, RandomState};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::limiter::reserve::claim::Claim;
use crate::limiter::reserve::receipt::Receipt;
use crate::limiter::reserve::reservation::Reservation;
use crate::util::time::share_of;

/// The next step of a waiting caller.
#[allow(clippy::large_enum_variant, reason = "it is matched at once")]
pub(crate) enum Next {
    Sleep(Duration),
    Allowed(Receipt),
}

/// A reservation that a caller waits for. Dropping it cancels the reservation.
#[derive(Default)]
pub(crate) struct PendingPlace {
    /// `None` once it is a receipt.
    place: Option<Reservation>,
    /// The time by which the first sleep is longer than the wait.
    jitter: Duration,
}

impl PendingPlace {
    /// The first sleep is up to `jitter` longer than the wait, if there is one, and takes at most `at_most` in all.
    pub(crate) fn new(place: Reservation, jitter: Duration, at_most: Duration) -> PendingPlace {
        // Made first: it cancels the reservation if a custom clock panics below.
        let mut pending = PendingPlace { place: Some(place), jitter };
        let wait = pending.wait();
        let spare = if wait.is_zero() { wait } else { at_most.saturating_sub(wait) };
        pending.jitter = random_below(jitter.min(spare));
        pending
    }

    /// Adds the place of another member of a batch.
    pub(crate) fn push(&mut self, place: Reservation) {
        match &mut self.place {
            Some(first) => first.others.push(place),
            none => *none = Some(place),
        }
    }

    /// The claims of all members.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        let places = self.place.iter().flat_map(|first| iter::once(first).chain(&first.others));
        places.filter_map(|place| place.charged.as_ref().map(|(_, claim)| claim))
    }

    /// Returns the place, which is not cancelled any more.
    pub(crate) fn take(&mut self) -> Option<Reservation> {
        self.place.take()
    }

    pub(crate) fn wait(&self) -> Duration {
        self.place.as_ref().map_or(Duration::ZERO, Reservation::wait)
    }

    /// Returns how long to sleep before asking again, or the receipt once the reservation is granted. A second sleep is needed
    /// only if the timer was early, or if the limiter's clock is slower than the timer's.
    pub(crate) fn next(&mut self) -> Next {
        let wait = self.wait();
        if !wait.is_zero() {
            return Next::Sleep(wait.saturating_add(std::mem::take(&mut self.jitter)));
        }
        let receipt = self.place.take().map(Reservation::into_receipt);
        Next::Allowed(receipt.unwrap_or_else(Receipt::of_nothing))
    }
}

impl Drop for PendingPlace {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        if std::thread::panicking() {
            // A custom clock may panic again. A second panic would abort the process; the place then stays charged.
            let _ = catch_unwind(AssertUnwindSafe(|| place.cancel()));
        } else {
            place.cancel();
        }
    }
}

/// Draws a time below `max`, evenly distributed; 0 if `max` is 0.
pub(crate) fn random_below(max: Duration) -> Duration {
    // Each state has new random seeds.
    share_of(max, RandomState::new().hash_one(0_u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_times_are_below_the_bound_and_differ() {
        let max = Duration::from_millis(100);
        let drawn: Vec<Duration> = (0..1000).map(|_| random_below(max)).collect();
        assert!(drawn.iter().all(|&time| time < max));
        let late = drawn.iter().filter(|&&time| time >= max / 2).count();
        assert!((300..700).contains(&late), "{late} of 1000 in the later half");
        assert_eq!(random_below(Duration::ZERO), Duration::ZERO);
    }
}
