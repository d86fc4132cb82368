//! Sharkey's leaky bucket: holds `size` units, of which `drip_size` drip out at once every `drip_rate`.
//!
//! The word is the time of the last drip and what is in the bucket. The bound: in any interval of length
//! t at most `size + drip_size * ceil(t / drip_rate)` units.

use crate::algorithm::packed::{MAX_MS, Packed, first_ns_of, ms_of, ns_of, whole_ms};
use crate::algorithm::rule::MAX_COUNT;
use crate::algorithm::{Algorithm, Charge, Grant, Outcome, restored};
use crate::decision::Decision;

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
    /// The time until the word's own. 0, but where more is in the bucket than its size: no clock that
    /// went back makes its drips begin early.
    ahead_ms: u64,
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
            return Found { counter, ts_ms: now_ms, now_ms, ahead_ms: 0 };
        }
        let is_beyond = packed.count > self.size();
        let ahead_ms = if is_beyond { packed.at_ms.saturating_sub(ms_of(now_ns)) } else { 0 };
        // No later than now, whatever the drips: they are the quotient.
        Found { counter, ts_ms: packed.at_ms + drips * self.drip_rate_ms, now_ms, ahead_ms }
    }

    /// What is in the bucket at a time, once it has dripped.
    pub(crate) fn counter_at(&self, word: u64, now_ns: u64) -> u64 {
        self.find(word, now_ns).counter
    }

    /// The time until so many units have dripped out.
    #[inline]
    fn drip_ns(&self, found: Found, units: u64) -> u64 {
        if units == 0 {
            return 0;
        }
        let drips = units.div_ceil(u64::from(self.drip_size));
        let waited_ms = found.now_ms - found.ts_ms;
        let drip_ms = drips.saturating_mul(self.drip_rate_ms).saturating_sub(waited_ms);
        ns_of(drip_ms.saturating_add(found.ahead_ms))
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

    /// What has dripped since the charge has dripped from what was there before it first. Where the bucket
    /// would have been empty without the charge, the others' charges would drip later than they do: no
    /// word says when, so that the next drip is a whole rate from now. Off by at most the time that was
    /// held. Where others may have places to come, which were told to them, nothing is given back.
    fn roll_back(&self, word: u64, charge: Charge, now_ns: &dyn Fn() -> u64) -> Option<u64> {
        if charge.is_last(word) {
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
        let found = self.find(word, now_ns);
        if found.counter.saturating_add(charge.lowered) > self.size() {
            return None;
        }
        let base = self.find(charge.before, charge.now_ns).counter;
        let cost = after.count.saturating_sub(base);
        // Less what was taken back beneath the charge.
        let base = base.saturating_sub(charge.lowered);
        let drips = (packed.now_ms(now_ns) - after.at_ms) / self.drip_rate_ms;
        let dripped = drips.saturating_mul(u64::from(self.drip_size));
        let back = cost.saturating_sub(dripped.saturating_sub(base));
        // A refund since may have left less than the charge: never below what would be left without it.
        let least = base.saturating_sub(dripped).min(found.counter);
        let left = found.counter.saturating_sub(back).max(least);
        if left == found.counter {
            return None;
        }
        let ts_ms = if base > dripped { found.ts_ms } else { found.now_ms };
        Some(Found { ts_ms, ..found }.word(left))
    }

    /// The drips that it waits for are not its own: where the last of them brings more than was in the
    /// bucket, the rest is lost.
    fn reserve(&self, word: u64, now_ns: u64, cost: u64) -> Option<Grant> {
        let found = self.find(word, now_ns);
        // Far below 2^64: a count and a cost, of which neither is above 2^24.
        let cost = cost.min(self.size());
        let beyond = found.counter.saturating_add(cost).saturating_sub(self.size());
        let dripped = beyond.next_multiple_of(u64::from(self.drip_size));
        let counter = found.counter.max(dripped).saturating_add(cost);
        if counter > MAX_COUNT {
            return None;
        }
        let word = found.word(counter);
        let wait_ns = self.drip_ns(found, beyond);
        if wait_ns == 0 {
            return Some(Grant { word, at_ns: now_ns });
        }
        let at_ns = first_ns_of(found.now_ms - found.ahead_ms).checked_add(wait_ns)?;
        (at_ns <= first_ns_of(MAX_MS)).then_some(Grant { word, at_ns })
    }

    fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        let found = self.find(word, now_ns);
        let most = self.size().saturating_add(max_debt).min(MAX_COUNT);
        let counter = found.counter.saturating_add(cost).min(most);
        (counter > found.counter).then(|| found.word(counter))
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
