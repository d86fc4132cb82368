//! The generic cell rate algorithm, in Boulder's integers.
//!
//! The word is the theoretical arrival time (TAT): the time, in nanoseconds since the clock's origin,
//! at which the bucket is full again. `now_ns` is at least 1 and at most [`MAX_NOW_NS`]; a burst
//! offset is at most 2^62 ns. So a TAT that is written is below 2^63 + 1 and no sum below wraps.

use crate::Decision;
use crate::algorithm::Outcome;

/// The latest time that a decision is made at: 2^62 - 1 ns, 146 years from the clock's origin.
pub(crate) const MAX_NOW_NS: u64 = (1 << 62) - 1;

/// The derived numbers of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gcra {
    burst: u64,
    emission_interval_ns: u64,
    burst_offset_ns: u64,
}

/// What a batch charged to one bucket, kept to take it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The word before the charge; 0 if the bucket was new.
    pub(crate) before: u64,
    /// The word that the charge left.
    pub(crate) after: u64,
    /// When it was charged.
    pub(crate) now_ns: u64,
}

impl Gcra {
    /// The caller, [`Limit`](crate::Limit), has checked that all are at least 1 and that
    /// `burst_offset_ns` is their product and at most 2^62.
    pub(crate) const fn new(burst: u64, emission_interval_ns: u64, burst_offset_ns: u64) -> Gcra {
        Gcra { burst, emission_interval_ns, burst_offset_ns }
    }

    #[inline]
    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    pub(crate) fn emission_interval_ns(&self) -> u64 {
        self.emission_interval_ns
    }

    pub(crate) fn burst_offset_ns(&self) -> u64 {
        self.burst_offset_ns
    }

    /// Whether a bucket with this word is full at `now_ns`, and so carries nothing.
    #[inline]
    pub(crate) fn is_full(tat_ns: u64, now_ns: u64) -> bool {
        tat_ns <= now_ns
    }

    /// Asks for `cost` units and charges them if they are there. A denial and a cost of 0 write nothing.
    ///
    /// The caller has checked that `cost` is at most `burst`.
    #[inline]
    pub(crate) fn spend(&self, tat_ns: u64, now_ns: u64, cost: u64) -> Outcome {
        debug_assert!((1..=MAX_NOW_NS).contains(&now_ns), "now {now_ns}");
        debug_assert!(cost <= self.burst, "cost {cost} above burst {}", self.burst);
        let base_ns = now_ns.max(tat_ns);
        // At most the burst offset, for the cost is at most the burst: no product above 2^62.
        let increment_ns = self.emission_interval_ns * cost;
        let limit_ns = now_ns + self.burst_offset_ns;
        let spent_ns = base_ns.saturating_add(increment_ns);
        if spent_ns > limit_ns {
            let remaining = limit_ns.saturating_sub(base_ns) / self.emission_interval_ns;
            let decision = Decision::new(false, remaining, spent_ns - limit_ns, base_ns - now_ns);
            return Outcome { word: None, decision };
        }
        let left_ns = limit_ns - spent_ns;
        let decision = Decision::new(
            true,
            left_ns / self.emission_interval_ns,
            increment_ns.saturating_sub(left_ns),
            spent_ns - now_ns,
        );
        Outcome { word: (cost > 0).then_some(spent_ns), decision }
    }

    /// Gives back up to `cost` units, never past full. `allowed` says whether anything was given back.
    #[inline]
    pub(crate) fn refund(&self, tat_ns: u64, now_ns: u64, cost: u64) -> Outcome {
        debug_assert!(cost <= self.burst, "cost {cost} above burst {}", self.burst);
        let base_ns = now_ns.max(tat_ns);
        let given_ns = base_ns.saturating_sub(self.emission_interval_ns * cost).max(now_ns);
        let given_back = given_ns != base_ns;
        let remaining = (now_ns + self.burst_offset_ns).saturating_sub(given_ns) / self.emission_interval_ns;
        let decision = Decision::new(given_back, remaining, 0, given_ns - now_ns).of_refund();
        Outcome { word: given_back.then_some(given_ns), decision }
    }

    /// Makes the bucket full.
    #[inline]
    pub(crate) fn reset(&self, tat_ns: u64, now_ns: u64) -> Outcome {
        let decision = Decision::new(true, self.burst, 0, 0);
        Outcome { word: (tat_ns > now_ns).then_some(now_ns), decision }
    }

    /// The word with a batch's own `charge` taken back at `now_ns`; `None` if nothing is left to take.
    ///
    /// This is no refund. If nobody else has charged, the word goes back to what it was. If somebody
    /// has, the bucket may have refilled behind the charge: only what the charge still takes from
    /// them is given back, its increment less the time since its base. Giving back the whole
    /// increment would forget part of theirs.
    #[inline]
    pub(crate) fn take_back(tat_ns: u64, charge: Charge, now_ns: u64) -> Option<u64> {
        let base_ns = charge.before.max(charge.now_ns);
        if tat_ns == charge.after {
            // Never 0: to a cell that was new, its charge's time is as full as 0 is.
            return Some(if charge.before == 0 { charge.now_ns } else { charge.before });
        }
        let increment_ns = charge.after - base_ns;
        let drained_ns = now_ns.saturating_sub(base_ns);
        let back_ns = increment_ns.saturating_sub(drained_ns);
        // A refund or a reset since may have left less than the charge: never below its base.
        let taken_ns = tat_ns.saturating_sub(back_ns).max(base_ns.min(tat_ns));
        (taken_ns != tat_ns).then_some(taken_ns)
    }
}
