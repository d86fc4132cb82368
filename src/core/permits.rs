//! Permits: what is in flight under a limit of concurrency.

use std::cell::Cell;

use crate::algorithm::concurrency::{Concurrency, InFlight};
use crate::algorithm::demand::Demand;
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
    /// A key without room has permits of the limit's overflow bucket. If it gets a bucket of its own later, that bucket is
    /// marked, and the permits of the overflow bucket count beside its own until none is out. So a key has at most `max` of
    /// both together.
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
        // Repeats only if the table was full, and the key had a bucket afterwards.
        loop {
            let decided = Cell::new(None);
            let change = Change { key, absent: Absent::Insert, now_ns };
            let updated = self.inner.store.update(change, &self, |word| {
                let decide = || {
                    let (before, elsewhere) = self.in_flight_of(key, word)?;
                    Ok(rule.acquire(before.counting(next_epoch), elsewhere, demand))
                };
                let outcome: Result<_, Outdated> = decide();
                decided.set(Some(outcome));
                outcome.ok()?.word
            });
            match updated {
                Ok(()) => {}
                Err(UpdateError::Outdated) => return Err(Outdated),
                Err(UpdateError::TableFull) => {
                    // One for both calls of `ask` with the same word.
                    let epoch = next_epoch();
                    let ask = |word, _| {
                        rule.acquire(InFlight::from_word(word).counting(|| epoch), 0, demand)
                    };
                    match self.charge_at_cap(key, limit, now_ns, (ask, ask))? {
                        Some(spent) => return Ok(spent),
                        None => continue,
                    }
                }
            }
            let outcome = decided.take().ok_or(Outdated)??;
            return Ok(Spent::new(limit.rule(), outcome, (now_ns, now_ns), ChargedTo::OwnCell));
        }
    }

    /// Returns a word by which to look at a key: with all permits that count for it.
    pub(super) fn all_in_flight(self, key: &StoreKey<'_>, word: u64) -> Result<u64, Outdated> {
        let (before, elsewhere) = self.in_flight_of(key, word)?;
        let permits = before.permits.saturating_add(elsewhere).min(Concurrency::MOST);
        Ok(InFlight { permits, ..before }.word())
    }

    /// Returns what the word of a key says is in flight, and how many permits of the overflow bucket count beside it.
    pub(crate) fn in_flight_of(
        self,
        key: &StoreKey<'_>,
        word: u64,
    ) -> Result<(InFlight, u64), Outdated> {
        let before = InFlight::from_word(word);
        let is_new = word == 0;
        let may_have = (is_new || before.is_beside_overflow) && self.inner.overflow.has_overflow();
        if !may_have {
            return Ok((before, 0));
        }
        self.inner.overflow.fence();
        if is_new && key.tag.is_of_override() {
            // Only an id that got its override by a reload may have permits from the time before.
            let owed = self.generation.owed_by_untracked(key.key, key.tag)?;
            if InFlight::from_word(owed).permits == 0 {
                return Ok((before, 0));
            }
        }
        let overflow = self.generation.overflow_word(key.key.limit)?;
        let elsewhere = InFlight::from_word(overflow).permits;
        // Once none is out, the key has none of them.
        let before = InFlight { is_beside_overflow: elsewhere > 0, ..before };
        Ok((before, elsewhere))
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
            match self.to {
                ChargedTo::Nothing => Ok(()),
                ChargedTo::Overflow => view.generation.update_overflow(key.limit, released),
                ChargedTo::OwnCell => {
                    // A clock that has gone back may find the limit lifted for the key, which keeps its bucket by the default.
                    let applies = entry.limit_for(key.id, view.limits_now_ns());
                    let tag = applies.map(|(_, tag)| tag).or_else(|| limits.default_tag(key.limit));
                    let Some(tag) = tag else { return Ok(()) };
                    view.change_charged(&view.store_key(key, tag), ChargedTo::OwnCell, released)
                }
            }
        });
        if waiters::is_any() {
            Bucket::new(inner, KeyRef { limit: waits_for.get(), ..key }).wake_first();
        }
    }
}
