//! Forgets the names of limits that callers no longer use, so that their indices can be given to new names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::core::generation::Generation;
use crate::core::state::LimiterState;
use crate::limits::{LimitUse, Limits};
use crate::observe::tally::Tally;
use crate::store::key::LimitIndex;

/// Limits that a reload takes away and that have no handle. No caller gets a handle of them until this is dropped.
#[derive(Default)]
pub(super) struct Closed {
    tallies: HashMap<LimitIndex, Arc<Tally>>,
    /// Those whose names lose their index.
    forgotten: HashSet<LimitIndex>,
    /// The limits that have blocks. Their names keep their index.
    blocked: HashSet<LimitIndex>,
}

impl Closed {
    /// Closes the limits that are lost by a reload to `new`. Until the end of the reload no caller gets a handle of them, so
    /// the caller first makes every check that can refuse the reload without it.
    pub(super) fn new(inner: &LimiterState, now: &Generation, new: &Limits) -> Closed {
        let mut closed = Closed::default();
        for index in now.limits.lost_by(new) {
            let tally = now.tallies.of(index);
            if tally.handles.close() {
                closed.tallies.insert(index, tally.clone());
            }
        }
        // Only a handle can add a block. So a closed limit gets no more of them.
        if !closed.tallies.is_empty() {
            closed.blocked = limits_with_blocks(inner);
        }
        let left = closed.tallies.keys().copied();
        let left = left.filter(|&index| now.limits.is_left_by(new, index));
        let mut kept = 0;
        let left = left.filter(|&index| {
            let is_kept = kept < MAX_KEPT && keeps_network(inner, (now, new), index);
            kept += usize::from(is_kept);
            !is_kept
        });
        closed.forgotten = left.filter(|index| !closed.blocked.contains(index)).collect();
        closed
    }

    /// Returns the limits whose names are forgotten.
    pub(super) fn forgotten(&self) -> &HashSet<LimitIndex> {
        &self.forgotten
    }

    /// Returns what uses a limit that is lost.
    pub(super) fn use_of(&self, index: LimitIndex) -> LimitUse {
        if !self.tallies.contains_key(&index) {
            // Even if the handle is dropped by now: another may come.
            LimitUse::Handles
        } else if self.blocked.contains(&index) {
            LimitUse::Blocks
        } else {
            LimitUse::Nothing
        }
    }

    /// Leaves the limits that are forgotten closed for good: the new limits are published.
    pub(super) fn forget(mut self) {
        self.tallies.retain(|index, _| !self.forgotten.contains(index));
    }
}

/// The most networks that keep their index after a reload has removed their overrides. Each has buckets, so a reload does not reach it
/// unless the limits give many thousand new networks again and again.
const MAX_KEPT: usize = 1 << 20;

/// Whether a network's limit stays although a reload to `new` takes the network away: buckets of it may owe units. In the
/// reload that takes it away, calls that have begun before may still charge its buckets.
fn keeps_network(
    inner: &LimiterState,
    (now, new): (&Generation, &Limits),
    index: LimitIndex,
) -> bool {
    if !now.limits.may_keep_network(new, index) {
        return false;
    }
    let owes = || {
        let tag = now.limits.default_tag(index);
        let now_ns = inner.clock.now_ns();
        let is_full = |word| {
            tag.is_none_or(|tag| {
                now.limits.is_full(tag, word, now_ns, |it| now.largest_factors.get(it))
            })
        };
        !now.overflow_word(index).is_ok_and(is_full)
    };
    now.limits.is_current_network(index) || inner.store.has_cells(index) || owes()
}

/// Returns the limits of which ids are blocked.
pub(super) fn limits_with_blocks(inner: &LimiterState) -> HashSet<LimitIndex> {
    if !inner.blocks.is_any() {
        return HashSet::new();
    }
    let blocks = inner.blocks.all(inner.clock.now_ns());
    blocks.iter().map(|block| block.key.as_ref().limit).collect()
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.tallies.values().for_each(|tally| tally.handles.reopen());
    }
}

/// Returns the concurrency limits whose default changes, which ends the [maximum that a caller has
/// set](crate::ConcurrencyLimit::set_max).
pub(super) fn changed_permits(before: &Generation, after: &Limits) -> Vec<LimitIndex> {
    // By the entries: the new limits have no tags yet.
    let changed = after.by_index().filter(|(index, entry)| {
        entry.counts_in_flight() && before.limits.entry(*index).default != entry.default
    });
    changed.map(|(index, _)| index).collect()
}
