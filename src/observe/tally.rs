//! Keeps the counters of each limit.

use std::ops::Deref;
use std::sync::Arc;

use super::shared::{OutcomeCounts, Outcomes};
use super::stripes::{Counted, Stripes};
use crate::limits::Limits;
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
    /// Spends that the limit's policy allowed and denied while its store did not answer.
    pub(crate) without_store: Outcomes,
    /// The number of the limit's handles. While a reload forgets the limit's name, it is closed.
    pub(crate) handles: UserCount,
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
        let each = limits.known_or_new((before, &self.each), || Arc::new(Tally::new(is_counting)));
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
    fn new(is_counting: bool) -> Tally {
        let stripes = is_counting.then(Arc::default);
        Tally {
            stripes,
            shadow_denied: Figure::new(0),
            errors: Figure::new(0),
            without_store: Default::default(),
            handles: UserCount::new(),
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
