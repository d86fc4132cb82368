//! Sharkey's leaky bucket: holds `size` units, of which `drip_size` drip out at once every `drip_rate`.
//!
//! The word is the time of the last drip and the units in the bucket. The bound: in any interval of length t, at most
//! `size + drip_size * ceil(t / drip_rate)` units.

use crate::algorithm::built_in::BuiltIn;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::timed_count::{MAX_COUNT, MAX_MS, TimedCount, ms_of, ms_to_ns, ns_to_ms};
use crate::algorithm::{Algorithm, Outcome};
use crate::decision::Decision;

/// A validated limit: counts from 1 to [`MAX_COUNT`], a drip rate from 1 ms to [`LeakyBucket::MAX_DRIP_RATE_MS`].
/// `drip_size` may exceed `size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeakyBucket {
    pub(crate) size: u32,
    pub(crate) drip_size: u32,
    pub(crate) drip_rate_ms: u64,
}

/// The bucket at the time of a call, after the drips up to then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    /// The units in the bucket.
    counter: u64,
    /// The time of the last drip; the present if the bucket is empty.
    last_drip_ms: u64,
    now_ms: u64,
    /// The time until the word's own time, if the clock went back behind it; else 0. Waits count from the present, so
    /// it is part of them.
    ahead_ms: u64,
}

impl LeakyBucket {
    pub(crate) const NAME: &'static str = "leaky_bucket";
    pub(crate) const MAX_DRIP_RATE_MS: u64 = MAX_MS;

    #[inline]
    fn size(&self) -> u64 {
        u64::from(self.size)
    }

    #[inline]
    fn level(&self, word: u64, now_ns: u64) -> Level {
        let timed = TimedCount::from_word(word);
        let now_ms = timed.now_ms(now_ns);
        let ahead_ms = now_ms - ms_of(now_ns);
        let drips = (now_ms - timed.at_ms) / self.drip_rate_ms;
        let counter = timed.count.saturating_sub(drips.saturating_mul(u64::from(self.drip_size)));
        if counter == 0 {
            return Level { counter, last_drip_ms: now_ms, now_ms, ahead_ms };
        }
        // At most the present: `drips` is the quotient above.
        let last_drip_ms = timed.at_ms + drips * self.drip_rate_ms;
        Level { counter, last_drip_ms, now_ms, ahead_ms }
    }

    /// The units in the bucket at `now_ns`, after the drips up to then.
    pub(crate) fn counter_at(&self, word: u64, now_ns: u64) -> u64 {
        self.level(word, now_ns).counter
    }

    /// The time since the last drip.
    pub(crate) fn begun_ms(&self, word: u64, now_ns: u64) -> u64 {
        let level = self.level(word, now_ns);
        level.now_ms - level.last_drip_ms
    }

    /// The time until `units` have dripped out.
    #[inline]
    fn drip_ns(&self, level: Level, units: u64) -> u64 {
        if units == 0 {
            return 0;
        }
        let drips = units.div_ceil(u64::from(self.drip_size));
        let waited_ms = level.now_ms - level.last_drip_ms;
        let drip_ms = drips.saturating_mul(self.drip_rate_ms).saturating_sub(waited_ms);
        ms_to_ns(drip_ms.saturating_add(level.ahead_ms))
    }
}

impl Level {
    /// The word with `counter` units in the bucket.
    #[inline]
    fn word(self, counter: u64) -> u64 {
        let at_ms = if counter == 0 { self.now_ms } else { self.last_drip_ms };
        TimedCount { at_ms, count: counter }.word()
    }
}

impl Algorithm for LeakyBucket {
    #[inline]
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let level = self.level(word, now_ns);
        let counter = level.counter.saturating_add(cost);
        // The bucket may have more units than its size, by debt, or a size that was larger.
        let Some(remaining) = self.size().checked_sub(counter) else {
            let left = (self.size().saturating_sub(level.counter), 1);
            let retry_in_ns = self.drip_ns(level, counter - self.size());
            let reset_in_ns = self.drip_ns(level, level.counter);
            let decision = Decision::new(false, left, retry_in_ns, reset_in_ns);
            return Outcome { word: None, decision };
        };
        let retry_in_ns = self.drip_ns(level, cost.saturating_sub(remaining));
        let decision =
            Decision::new(true, (remaining, 1), retry_in_ns, self.drip_ns(level, counter));
        Outcome { word: (cost > 0).then(|| level.word(counter)), decision }
    }

    #[inline]
    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let level = self.level(word, now_ns);
        let counter = level.counter.saturating_sub(cost);
        let refunded = counter != level.counter;
        let left = (self.size().saturating_sub(counter), 1);
        // The bucket may have no debt any more.
        let after = self.level(level.word(counter), now_ns);
        let decision = Decision::new(refunded, left, 0, self.drip_ns(after, counter)).of_refund();
        Outcome { word: refunded.then(|| level.word(counter)), decision }
    }

    #[inline]
    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        // The word's own time must have come: a new bucket would answer the same only from then on.
        let level = self.level(word, now_ns);
        level.counter == 0 && level.now_ms <= ms_of(now_ns)
    }

    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        let level = self.level(word, now_ns);
        let decision = Decision::new(true, (self.size(), 1), 0, 0);
        Outcome { word: (level.counter > 0).then(|| level.word(0)), decision }
    }

    fn full(&self, now_ns: u64) -> u64 {
        TimedCount::full_word(now_ns)
    }

    fn max_cost(&self) -> u64 {
        self.size()
    }

    /// The new word has the time and the count of the last drip. If that drip was before the new origin, the next one
    /// counts from the origin, and is late by less than a drip rate.
    fn shifted(&self, word: u64, by_ns: u64, now_ns: u64) -> Option<u64> {
        let TimedCount { at_ms, count } = TimedCount::from_word(word);
        let by_ms = ns_to_ms(by_ns);
        let passed_ms = (ms_of(now_ns) + by_ms).saturating_sub(at_ms);
        let drips = passed_ms / self.drip_rate_ms;
        // The product is at most `passed_ms`.
        let at_ms = (at_ms + drips * self.drip_rate_ms).saturating_sub(by_ms).max(1);
        let dripped = drips.saturating_mul(u64::from(self.drip_size));
        Some(TimedCount { at_ms, count: count.saturating_sub(dripped) }.word())
    }

    fn name(&self) -> &'static str {
        LeakyBucket::NAME
    }
}

impl BuiltIn for LeakyBucket {
    fn charge_mark(&self, _word: u64) -> ChargeMark {
        ChargeMark(0)
    }

    fn returned(&self, word: u64, now_ns: u64, units: u64, _: ChargeMark) -> Option<u64> {
        self.refund(word, now_ns, units).word
    }

    fn undone(
        &self,
        word: u64,
        (before, after): (u64, u64),
        (charged_ns, now_ns): (u64, u64),
    ) -> Option<u64> {
        let after = TimedCount::from_word(after);
        let units = after.count.saturating_sub(self.counter_at(before, charged_ns));
        self.refund(word, now_ns, units).word
    }

    fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        let level = self.level(word, now_ns);
        let max_counter = self.size().saturating_add(max_debt).min(MAX_COUNT);
        let counter = level.counter.saturating_add(cost).min(max_counter);
        (counter > level.counter).then(|| level.word(counter))
    }

    fn debt_room(&self) -> u64 {
        MAX_COUNT.saturating_sub(self.size())
    }

    fn available(&self, word: u64, now_ns: u64) -> u64 {
        self.size().saturating_sub(self.counter_at(word, now_ns))
    }

    fn kept_until_ns(&self, word: u64) -> u64 {
        TimedCount::from_word(word).at_ns()
    }

    fn fills_in_ns(&self) -> u64 {
        let drips = u64::from(self.size.div_ceil(self.drip_size));
        ms_to_ns(drips.saturating_mul(self.drip_rate_ms))
    }

    fn fills_slower_by_factor(&self) -> bool {
        true
    }

    /// The time until the next drip. The bucket has no debt.
    #[cfg(feature = "http")]
    fn next_unit_ns(&self, decision: &Decision) -> u64 {
        let (remaining, reset_in_ns) = decision.left_and_reset_ns();
        let drips = self.size().saturating_sub(remaining).div_ceil(u64::from(self.drip_size));
        let later_ms = drips.saturating_sub(1).saturating_mul(self.drip_rate_ms);
        reset_in_ns.saturating_sub(ms_to_ns(later_ms))
    }
}
