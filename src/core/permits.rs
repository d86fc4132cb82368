//! Permits: the units of a limit of concurrency, which callers hold while their work is in flight.

use std::cell::Cell;

use crate::algorithm::concurrency::{Concurrency, InFlight};
use crate::algorithm::demand::Demand;
use crate::core::at_cap::AtCap;
use crate::core::returns::ReturnableCharge;
use crate::core::spent::{ChargedTo, Spent};
use crate::core::state::LimiterState;
use crate::core::view::LimitsView;
use crate::core::waiters::{self, Bucket};
use crate::limit::Limit;
use crate::store::key::KeyRef;
use crate::store::{Absent, Change, Outdated, StoreKey, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

impl LimitsView<'_> {
    /// Takes permits if they are there, and those that must be left.
    ///
    /// A key for whose bucket the table has no room gets no permits. If such keys shared a bucket, one long call in it would deny all
    /// of them until it ended.
    #[cold]
    #[inline(never)]
    pub(super) fn acquire(
        self,
        key: &StoreKey<'_>,
        (limit, rule): (&Limit, &Concurrency),
        demand: Demand,
        now_ns: u64,
    ) -> Result<Spent, Outdated> {
        let next_epoch = || self.generation.tallies.of(key.key.limit).next_epoch();
        let decided = Cell::new(None);
        let change = Change { key, absent: Absent::Insert, now_ns };
        let updated = self.inner.store.update(change, &self, |word| {
            let before = InFlight::from_word(word).counting(next_epoch);
            let outcome = rule.acquire(before, demand);
            decided.set(Some(outcome));
            outcome.word
        });
        match updated {
            Ok(()) => {
                let outcome = decided.take().ok_or(Outdated)?;
                let to = ChargedTo::OwnCell;
                Ok(Spent::new(limit.rule(), outcome, (now_ns, now_ns), to))
            }
            Err(UpdateError::Outdated) => Err(Outdated),
            Err(UpdateError::TableFull) if self.inner.overflow.at_cap == AtCap::Allow => {
                Ok(self.allowed_at_cap(rule.acquire(InFlight::from_word(0), demand).decision))
            }
            Err(UpdateError::TableFull) => Ok(self.denied_at_cap(key, limit, now_ns)),
        }
    }
}

impl ReturnableCharge<'_> {
    /// Whether the charge is of permits.
    pub(super) fn is_of_permits(&self) -> bool {
        self.limit().is_some_and(|limit| limit.rule().is_concurrency())
    }

    /// Gives `permits` permits back to the bucket that has counted them, whatever limit applies to the key now. A bucket whose
    /// counting has begun again since then takes nothing.
    pub(super) fn release(&self, inner: &LimiterState, key: KeyRef<'_>, permits: u64) {
        let released = |word| {
            coverage::hit(Race::Released);
            if fault::active(Fault::ReleaseOfAnyEpoch) {
                return Concurrency::released(word, permits, Concurrency::mark(word));
            }
            Concurrency::released(word, permits, self.mark)
        };
        // Callers that wait have the limit's handle, also if a network's limit applies.
        let waits_for = Cell::new(key.limit);
        inner.with_view(|view| {
            if view.generation.number < self.generation {
                // A reload is running. The permits were counted under the new limits.
                return Err(Outdated);
            }
            let limits = &view.generation.limits;
            let entry = limits.entry_of(key.limit, self.generation);
            waits_for.set(entry.public_index(key.limit));
            if !entry.counts_in_flight() {
                return Ok(());
            }
            // A clock that has gone back may find the limit lifted for the key, which keeps its bucket by the default.
            let applies = entry.limit_for(key.id, view.limits_now_ns());
            let tag = applies.map(|(_, tag)| tag).or_else(|| limits.default_tag(key.limit));
            let Some(tag) = tag else { return Ok(()) };
            view.change_charged(&view.store_key(key, tag), self.to, released)
        });
        if waiters::is_any() {
            Bucket::new(inner, KeyRef { limit: waits_for.get(), ..key }).wake_first();
        }
    }
}
