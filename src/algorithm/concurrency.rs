//! Concurrency: counts what is in flight. At most `max` permits of a bucket are out at once.
//!
//! The word is the number of permits that are out, and the epoch in which their counting began:
//!
//! ```text
//! bit   0..24  permits     24..62  epoch     62  set
//! ```
//!
//! A permit remembers the epoch of the word that it was counted in. A bucket without permits is full, so it may be dropped;
//! and a bucket is also dropped if a reload or the end of an override lifts its limit. The next word of the key begins a new
//! epoch, so a permit from before changes nothing in it. Time does not matter.

use crate::algorithm::built_in::BuiltIn;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::demand::Demand;
use crate::algorithm::{Algorithm, Outcome};
use crate::decision::Decision;

/// A validated limit: at most `max` permits, from 1 to [`Concurrency::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Concurrency {
    pub(crate) max: u32,
    /// The wait of a denial, and the time until the bucket is full while permits are out: when one comes back is not known.
    pub(crate) retry_after_ns: u64,
}

/// The word of a bucket, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) permits: u64,
    pub(crate) epoch: u64,
}

impl InFlight {
    const EPOCH_SHIFT: u32 = 24;
    const EPOCH_MASK: u64 = (1 << 38) - 1;
    /// Keeps the word from being 0.
    const SET: u64 = 1 << 62;

    #[inline]
    pub(crate) fn from_word(word: u64) -> InFlight {
        InFlight {
            permits: word & Concurrency::MOST,
            epoch: word >> InFlight::EPOCH_SHIFT & InFlight::EPOCH_MASK,
        }
    }

    /// The same, in the next epoch if the bucket has not counted any permit yet. Epochs begin with 1.
    pub(crate) fn counting(self, next_epoch: impl FnOnce() -> u64) -> InFlight {
        match self.epoch {
            // From 1 to the mask, also after as many calls: 0 says that nothing is counted.
            0 => {
                let epoch = next_epoch().wrapping_sub(1) % InFlight::EPOCH_MASK + 1;
                InFlight { epoch, ..self }
            }
            _ => self,
        }
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        InFlight::SET | self.epoch << InFlight::EPOCH_SHIFT | self.permits
    }
}

impl Concurrency {
    pub(crate) const NAME: &'static str = "concurrency";
    /// The most permits of a bucket.
    pub(crate) const MOST: u64 = (1 << 24) - 1;

    /// Decides about permits. An allowed call counts them.
    pub(crate) fn acquire(&self, before: InFlight, demand: Demand) -> Outcome {
        let (cost, needed) = (demand.cost, demand.needed());
        let left = u64::from(self.max).saturating_sub(before.permits);
        if before.permits.saturating_add(needed) > self.max.into() {
            let decision = self.decision(false, (left, 1), needed, before.permits);
            return Outcome { word: None, decision };
        }
        let after = InFlight { permits: before.permits.saturating_add(cost), ..before };
        let left = left.saturating_sub(cost);
        let decision = self.decision(true, (left, 1), needed, after.permits);
        Outcome { word: (cost > 0).then(|| after.word()), decision }
    }

    fn decision(&self, allowed: bool, left: (u64, u64), cost: u64, used: u64) -> Decision {
        let waits = |is_waiting| if is_waiting { self.retry_after_ns } else { 0 };
        Decision::new(allowed, left, waits(!allowed || cost > left.0), waits(used > 0))
    }

    /// Gives back `permits` that were counted in the epoch of `mark`: the new word, or `None` if nothing changes.
    pub(crate) fn released(word: u64, permits: u64, mark: ChargeMark) -> Option<u64> {
        let before = InFlight::from_word(word);
        let is_same = word != 0 && before.epoch == mark.0;
        let left = before.permits.saturating_sub(permits);
        (is_same && left != before.permits).then(|| InFlight { permits: left, ..before }.word())
    }

    /// The mark of a charge that wrote `word`: the bucket's epoch.
    pub(crate) fn mark(word: u64) -> ChargeMark {
        ChargeMark(InFlight::from_word(word).epoch)
    }
}

impl Algorithm for Concurrency {
    fn spend(&self, word: u64, _now_ns: u64, cost: u64) -> Outcome {
        self.acquire(InFlight::from_word(word), cost.into())
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let released = Concurrency::released(word, cost, Concurrency::mark(word));
        let after = released.unwrap_or(word);
        let left = (self.available(after, now_ns), 1);
        let permits = InFlight::from_word(after).permits;
        let decision = self.decision(released.is_some(), left, 0, permits).of_refund();
        Outcome { word: released, decision }
    }

    fn is_full(&self, word: u64, _now_ns: u64) -> bool {
        InFlight::from_word(word).permits == 0
    }

    fn full(&self, _now_ns: u64) -> u64 {
        InFlight::SET
    }

    fn max_cost(&self) -> u64 {
        self.max.into()
    }

    fn shifted(&self, word: u64, _by_ns: u64, _now_ns: u64) -> Option<u64> {
        Some(word)
    }

    fn name(&self) -> &'static str {
        Concurrency::NAME
    }
}

impl BuiltIn for Concurrency {
    fn charge_mark(&self, word: u64) -> ChargeMark {
        Concurrency::mark(word)
    }

    fn returned(&self, word: u64, _now_ns: u64, units: u64, charge: ChargeMark) -> Option<u64> {
        Concurrency::released(word, units, charge)
    }

    /// No overflow bucket has permits, and only charges of overflow buckets are undone.
    fn undone(&self, _word: u64, _change: (u64, u64), _times: (u64, u64)) -> Option<u64> {
        None
    }

    /// What is in flight has no debt.
    fn owe(&self, _word: u64, _now_ns: u64, _cost: u64, _max_debt: u64) -> Option<u64> {
        None
    }

    fn debt_room(&self) -> u64 {
        0
    }

    fn available(&self, word: u64, _now_ns: u64) -> u64 {
        u64::from(self.max).saturating_sub(InFlight::from_word(word).permits)
    }

    fn kept_until_ns(&self, _word: u64) -> u64 {
        0
    }

    fn fills_in_ns(&self) -> u64 {
        self.retry_after_ns
    }

    fn fills_slower_by_factor(&self) -> bool {
        false
    }

    /// A caller whose call was allowed has the permit that is out, and brings it back before its next call.
    #[cfg(feature = "http")]
    fn next_unit_ns(&self, _decision: &Decision) -> u64 {
        0
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// A bucket of epoch 0 would begin another one at its next permit, and forget who has those that are out.
    #[test]
    fn a_bucket_that_counts_has_an_epoch() {
        for next in [1, 2, (1 << 38) - 1, 1 << 38, 1 << 39, u64::MAX] {
            let counting = InFlight::from_word(0).counting(|| next);
            assert!(counting.epoch > 0, "{next}");
            assert_eq!(InFlight::from_word(counting.word()), counting, "{next}");
        }
    }
}
