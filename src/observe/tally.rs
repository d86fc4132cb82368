//! Keeps the counters of each limit.

use std::ops::Deref;
use std::sync::Arc;

use super::shared::{OutcomeCounts, Outcomes};
use super::stripes::{Counted, Stripes};
use crate::limits::{AskedFloors, Entry, Limits};
use crate::store::key::LimitIndex;
use crate::util::sync::{Figure, Ordering};
use crate::util::user_count::UserCount;

/// The counters of one limit. A reload keeps them with the limit's name, until it forgets the name.
pub(crate) struct Tally {
    /// The counters that every spend writes; `None` unless the limiter counts.
    pub(crate) stripes: Option<Arc<Stripes>>,
    /// These are written rarely, and never on the fast path.
    shadow_denied: Figure,
    errors: Figure,
    /// The permits that are out.
    in_flight: Figure,
    /// The epochs that counts of permits have begun.
    epochs: Figure,
    /// The most permits of an id by default, if a caller has set it; else [`Tally::NOT_SET`].
    set_max: Figure,
    /// Spends that the limit's policy allowed and denied while its store did not answer.
    pub(crate) without_store: Outcomes,
    /// The number of the limit's handles. While a reload forgets the limit's name, it is closed.
    pub(crate) handles: UserCount,
    /// The floors for which handles have been asked.
    pub(crate) floors: AskedFloors,
}

/// A handle's part in its limit's tally. It counts as one of the limit's handles until it is dropped.
pub(crate) struct HandleTally(Arc<Tally>);

impl HandleTally {
    /// Returns `None` if a reload is forgetting the limit's name.
    pub(crate) fn new(tally: &Arc<Tally>) -> Option<HandleTally> {
        tally.handles.add().then(|| HandleTally(tally.clone()))
    }
}

impl Clone for HandleTally {
    fn clone(&self) -> HandleTally {
        self.0.handles.add_beside();
        HandleTally(self.0.clone())
    }
}

impl Drop for HandleTally {
    fn drop(&mut self) {
        self.0.handles.remove();
    }
}

impl Deref for HandleTally {
    type Target = Tally;

    #[inline(always)]
    fn deref(&self) -> &Tally {
        &self.0
    }
}

/// The counters of all limits.
#[derive(Clone)]
pub(crate) struct Tallies {
    each: Arc<[Arc<Tally>]>,
    is_counting: bool,
}

impl Tallies {
    pub(crate) fn new(limits: &Limits, is_counting: bool) -> Tallies {
        Tallies { each: Arc::new([]), is_counting }.following((limits, limits))
    }

    /// Returns the counters of `limits`: these, which are those of `before`, for the names that keep their index, and new
    /// ones for the others.
    pub(crate) fn following(&self, (before, limits): (&Limits, &Limits)) -> Tallies {
        let is_counting = self.is_counting;
        // The calls of a network's addresses count under the limit's public name.
        let new = |entry: &Entry| Arc::new(Tally::new(is_counting && !entry.is_of_network()));
        let each = limits.known_or_new((before, &self.each), new);
        Tallies { each, is_counting }
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.is_counting
    }

    pub(crate) fn of(&self, limit: LimitIndex) -> &Arc<Tally> {
        &self.each[limit.0 as usize]
    }
}

impl Tally {
    const NOT_SET: u64 = u64::MAX;

    /// Adds permits that were taken, or the negative number of those that went back.
    pub(crate) fn count_in_flight(&self, permits: u64) {
        self.in_flight.fetch_add(permits, Ordering::Relaxed);
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns an epoch that no count of the limit's permits has had.
    pub(crate) fn next_epoch(&self) -> u64 {
        // Relaxed: only that no two are the same matters.
        self.epochs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sets the most permits of an id by default; `None`: as the limits say.
    pub(crate) fn set_max(&self, max: Option<u64>) {
        // Relaxed, here and below: a call decides by the old number or the new one, as if it had come before or after.
        self.set_max.store(max.unwrap_or(Tally::NOT_SET), Ordering::Relaxed);
    }

    pub(crate) fn given_max(&self) -> Option<u64> {
        Some(self.set_max.load(Ordering::Relaxed)).filter(|&max| max != Tally::NOT_SET)
    }

    fn new(is_counting: bool) -> Tally {
        let stripes = is_counting.then(Arc::default);
        Tally {
            stripes,
            shadow_denied: Figure::new(0),
            errors: Figure::new(0),
            in_flight: Figure::new(0),
            epochs: Figure::new(0),
            set_max: Figure::new(Tally::NOT_SET),
            without_store: Default::default(),
            handles: UserCount::new(),
            floors: AskedFloors::default(),
        }
    }

    /// Counts an error if the limiter counts.
    #[cold]
    pub(crate) fn count_error(&self) {
        if self.stripes.is_some() {
            // Relaxed, here and below: figures for operators.
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_shadow_denied(&self) {
        self.shadow_denied.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn without_store(&self) -> OutcomeCounts {
        self.without_store.read()
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    pub(crate) fn shadow_denied(&self) -> u64 {
        self.shadow_denied.load(Ordering::Relaxed)
    }

    pub(crate) fn counted(&self) -> Counted {
        self.stripes.as_ref().map_or_else(Counted::default, |stripes| stripes.sum())
    }
}
