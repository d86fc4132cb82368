//! Sharkey's leaky bucket: holds `size` units, of which `drip_size` drip out at once every `drip_rate`.
//!
//! The word is the time of the last drip and what is in the bucket. The bound: in any interval of length
//! t at most `size + drip_size * ceil(t / drip_rate)` units.

use crate::Decision;
use crate::algorithm::packed::{MAX_MS, Packed, ms_of, ns_of, whole_ms};
use crate::algorithm::{Algorithm, Charge, Outcome, restored};

/// The numbers of a limit, which has checked them: counts from 1 to the largest, and a drip rate from
/// 1 ms to [`LeakyBucket::MAX_DRIP_RATE_MS`]. `drip_size` may exceed `size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeakyBucket {
    pub(crate) size: u32,
    pub(crate) drip_size: u32,
    pub(crate) drip_rate_ms: u64,
}

/// A bucket as a call finds it, once it has dripped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    counter: u64,
    /// The last drip; now, where the bucket is empty.
    ts_ms: u64,
    now_ms: u64,
}

impl LeakyBucket {
    pub(crate) const MAX_DRIP_RATE_MS: u64 = MAX_MS;

    #[inline]
    fn size(&self) -> u64 {
        u64::from(self.size)
    }

    #[inline]
    fn find(&self, word: u64, now_ns: u64) -> Found {
        let packed = Packed::of_word(word);
        let now_ms = packed.now_ms(now_ns);
        let drips = (now_ms - packed.at_ms) / self.drip_rate_ms;
        let counter = packed.count.saturating_sub(drips.saturating_mul(u64::from(self.drip_size)));
        if counter == 0 {
            return Found { counter, ts_ms: now_ms, now_ms };
        }
        // No later than now, whatever the drips: they are the quotient.
        Found { counter, ts_ms: packed.at_ms + drips * self.drip_rate_ms, now_ms }
    }

    /// What is in the bucket at a time, once it has dripped.
    pub(crate) fn counter_at(&self, word: u64, now_ns: u64) -> u64 {
        self.find(word, now_ns).counter
    }

    /// The time until so many units have dripped out.
    #[inline]
    fn drip_ns(&self, found: Found, units: u64) -> u64 {
        let drips = units.div_ceil(u64::from(self.drip_size));
        let waited_ms = found.now_ms - found.ts_ms;
        ns_of(drips.saturating_mul(self.drip_rate_ms).saturating_sub(waited_ms))
    }
}

impl Found {
    /// Empty, and not before the time that the word keeps.
    #[inline]
    fn is_full(self, now_ns: u64) -> bool {
        self.counter == 0 && self.now_ms <= ms_of(now_ns)
    }

    #[inline]
    fn word(self, counter: u64) -> u64 {
        let at_ms = if counter == 0 { self.now_ms } else { self.ts_ms };
        Packed { at_ms, count: counter }.word()
    }
}

impl Algorithm for LeakyBucket {
    #[inline]
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let found = self.find(word, now_ns);
        let counter = found.counter.saturating_add(cost);
        // More than the size may be in the bucket if it was lowered.
        let Some(remaining) = self.size().checked_sub(counter) else {
            let left = (self.size().saturating_sub(found.counter), 1);
            let retry_in_ns = self.drip_ns(found, counter - self.size());
            let reset_in_ns = self.drip_ns(found, found.counter);
            let decision = Decision::new(false, left, retry_in_ns, reset_in_ns);
            return Outcome { word: None, decision };
        };
        let retry_in_ns = self.drip_ns(found, cost.saturating_sub(remaining));
        let decision =
            Decision::new(true, (remaining, 1), retry_in_ns, self.drip_ns(found, counter));
        Outcome { word: (cost > 0).then(|| found.word(counter)), decision }
    }

    #[inline]
    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let found = self.find(word, now_ns);
        let counter = found.counter.saturating_sub(cost);
        let given_back = counter != found.counter;
        let left = (self.size().saturating_sub(counter), 1);
        let decision = Decision::new(given_back, left, 0, self.drip_ns(found, counter)).of_refund();
        Outcome { word: given_back.then(|| found.word(counter)), decision }
    }

    #[inline]
    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.find(word, now_ns).is_full(now_ns)
    }

    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        let found = self.find(word, now_ns);
        let decision = Decision::new(true, (self.size(), 1), 0, 0);
        Outcome { word: (found.counter > 0).then(|| found.word(0)), decision }
    }

    fn full(&self, now_ns: u64) -> u64 {
        Packed { at_ms: ms_of(now_ns), count: 0 }.word()
    }

    fn max_cost(&self) -> u64 {
        self.size()
    }

    /// What has dripped since the charge is taken as dripped from it first. Where the bucket may have
    /// been empty without the charge, the others' charges would drip later than they do: no word says
    /// when, so that the next drip is a whole rate from now. Off by at most the time that was held.
    fn take_back(&self, word: u64, charge: Charge, now_ns: &dyn Fn() -> u64) -> Option<u64> {
        if word == charge.after {
            return Some(restored(self, charge));
        }
        let (packed, after) = (Packed::of_word(word), Packed::of_word(charge.after));
        let now_ns = now_ns();
        if now_ns < charge.now_ns || packed.at_ms < after.at_ms {
            // The clock went back, and says nothing of what has dripped; or others have refunded.
            return None;
        }
        if !(packed.at_ms - after.at_ms).is_multiple_of(self.drip_rate_ms) {
            // It has been empty since: the charge has dripped.
            return None;
        }
        let base = self.find(charge.before, charge.now_ns).counter;
        let now_ms = packed.now_ms(now_ns);
        let drips = (now_ms - after.at_ms) / self.drip_rate_ms;
        let dripped = drips.saturating_mul(u64::from(self.drip_size));
        let back = after.count.saturating_sub(base).saturating_sub(dripped);
        let found = self.find(word, now_ns);
        // A refund since may have left less than the charge: never below what would be left without it.
        let left =
            found.counter.saturating_sub(back).max(base.saturating_sub(dripped).min(found.counter));
        if left == found.counter {
            return None;
        }
        let ts_ms = if base > 0 && drips == 0 { found.ts_ms } else { found.now_ms };
        Some(Found { ts_ms, ..found }.word(left))
    }

    /// As of the last drip. If that was before the origin, the next one counts from the origin: late, by
    /// less than a rate.
    fn shifted(&self, word: u64, by_ns: u64, now_ns: u64) -> Option<u64> {
        let Packed { at_ms, count } = Packed::of_word(word);
        let by_ms = whole_ms(by_ns);
        let passed_ms = (ms_of(now_ns) + by_ms).saturating_sub(at_ms);
        let drips = passed_ms / self.drip_rate_ms;
        // The product is at most what has passed.
        let at_ms = (at_ms + drips * self.drip_rate_ms).saturating_sub(by_ms).max(1);
        let dripped = drips.saturating_mul(u64::from(self.drip_size));
        Some(Packed { at_ms, count: count.saturating_sub(dripped) }.word())
    }

    fn name(&self) -> &'static str {
        "leaky_bucket"
    }
}
