//! Keeps the counters of each limit.

use std::sync::Arc;

use super::shared::{OutcomeCounts, Outcomes};
use super::stripes::{Counted, Stripes};
use crate::store::key::LimitIndex;
use crate::util::sync::{Figure, Ordering};

/// The counters of one limit. A reload keeps them with the limit's name.
pub(crate) struct Tally {
    /// The counters that every spend writes; `None` unless the limiter counts.
    pub(crate) stripes: Option<Arc<Stripes>>,
    /// These are written rarely, and never on the fast path.
    shadow_denied: Figure,
    errors: Figure,
    /// Spends that the limit's policy allowed and denied while its store did not answer.
    pub(crate) without_store: Outcomes,
}

/// The counters of all limits.
pub(crate) struct Tallies {
    each: Box<[Arc<Tally>]>,
    is_counting: bool,
}

impl Tallies {
    pub(crate) fn new(limits: usize, is_counting: bool) -> Tallies {
        Tallies { each: Box::new([]), is_counting }.and_more(limits)
    }

    /// Shares these counters and adds new ones, so that there are counters for `limits` limits.
    pub(crate) fn and_more(&self, limits: usize) -> Tallies {
        let is_counting = self.is_counting;
        let new = (self.each.len()..limits).map(|_| Arc::new(Tally::new(is_counting)));
        Tallies { each: self.each.iter().cloned().chain(new).collect(), is_counting }
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
