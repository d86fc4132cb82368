//! Sharkey's leaky bucket: holds `size` units, of which `drip_size` drip out at once every `drip_rate`.
//!
//! The word is the time of the last drip and the units in the bucket. The bound: in any interval of length t, at most
//! `size + drip_size * ceil(t / drip_rate)` units.

use crate::algorithm::timed_count::{
    MAX_COUNT, MAX_MS, TimedCount, first_ns_of, ms_of, ms_to_ns, ns_to_ms,
};
use crate::algorithm::{Algorithm, Charge, Grant, Outcome, word_before};
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
    /// The time until the word's own time, if the word has more units than the size; else 0. Reservations keep their
    /// times when the clock goes back, so their waits count from the present, not from the word's time.
    ahead_ms: u64,
}

/// The units in a bucket when a call with a factor found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundUnits {
    last_drip_ms: u64,
    /// By the scaled limit.
    found: u64,
    /// By the limit itself.
    own: u64,
}

impl FoundUnits {
    /// The units that the call has let drip out beyond those that drip out by the limit itself.
    pub(crate) fn drained_early(self) -> u64 {
        self.own.saturating_sub(self.found)
    }

    /// The units in the bucket before the charge, by the limit by which more of them are left.
    pub(crate) fn before(self) -> u64 {
        self.own.max(self.found)
    }

    /// The word with these units, and no drip since the last one.
    pub(crate) fn word_before(self) -> u64 {
        TimedCount { at_ms: self.last_drip_ms, count: self.before() }.word()
    }
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
        let drips = (now_ms - timed.at_ms) / self.drip_rate_ms;
        let counter = timed.count.saturating_sub(drips.saturating_mul(u64::from(self.drip_size)));
        if counter == 0 {
            return Level { counter, last_drip_ms: now_ms, now_ms, ahead_ms: 0 };
        }
        let is_beyond = timed.count > self.size();
        let ahead_ms = if is_beyond { timed.at_ms.saturating_sub(ms_of(now_ns)) } else { 0 };
        // At most the present: `drips` is the quotient above.
        let last_drip_ms = timed.at_ms + drips * self.drip_rate_ms;
        Level { counter, last_drip_ms, now_ms, ahead_ms }
    }

    /// The units in the bucket at `now_ns`, after the drips up to then.
    pub(crate) fn counter_at(&self, word: u64, now_ns: u64) -> u64 {
        self.level(word, now_ns).counter
    }

    /// The units in the bucket with the word `high` at the time of the word `low`.
    pub(crate) fn count_at_time_of(&self, high: u64, low: u64) -> u64 {
        self.counter_at_ms(high, TimedCount::from_word(low).at_ms)
    }

    /// The units in the bucket in a millisecond at or after the word's own time.
    fn counter_at_ms(&self, word: u64, at_ms: u64) -> u64 {
        self.counter_at(word, first_ns_of(at_ms))
    }

    /// The units in the bucket, before its own, when a call by the limit `scaled` made a charge at `now_ns` on the word
    /// `before`: as that call found them, and as they would be by this limit at the time of the last drip before it. By this
    /// limit the word was `own_before`: another one only after leases.
    pub(crate) fn found_by(
        &self,
        scaled: &LeakyBucket,
        (before, own_before): (u64, u64),
        now_ns: u64,
    ) -> FoundUnits {
        let level = scaled.level(before, now_ns);
        let own = self.counter_at_ms(own_before, level.last_drip_ms);
        FoundUnits { last_drip_ms: level.last_drip_ms, found: level.counter, own }
    }

    /// Returns the word that a call by the limit `scaled` finds at `now_ns` if `units` units in the bucket may have been spent by
    /// this limit at any time up to now.
    ///
    /// If the bucket has other units in front of them, it has not been empty, and each such spend has brought the word to the
    /// last drip before it: a call by a factor below 1 counts its drips from there. Else the bucket may have been empty before
    /// all of them were spent just now. By a factor above 1 the other units may still be there as well.
    #[cfg(feature = "valkey")]
    pub(crate) fn with_late_spends(
        &self,
        scaled: &LeakyBucket,
        word: u64,
        now_ns: u64,
        units: u64,
    ) -> u64 {
        let all_just_now = |word| {
            let level = scaled.level(word, now_ns);
            TimedCount { at_ms: level.now_ms, count: level.counter.max(units) }.word()
        };
        let level = self.level(word, now_ns);
        if level.counter <= units {
            return all_just_now(word);
        }
        if scaled.drip_rate_ms >= self.drip_rate_ms {
            return word;
        }
        let word = level.word(level.counter);
        if scaled.counter_at(word, now_ns) > units { word } else { all_just_now(word) }
    }

    /// Returns the word of a bucket with `units` units less in it at `now_ns`. Its time is that of the last drip, also if they
    /// are none.
    #[cfg(feature = "valkey")]
    pub(crate) fn with_less(&self, word: u64, now_ns: u64, units: u64) -> u64 {
        let level = self.level(word, now_ns);
        level.word(level.counter.saturating_sub(units))
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
        // The bucket may have more units than its size, by reservations, debt, or a size that was larger.
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
        let decision = Decision::new(refunded, left, 0, self.drip_ns(level, counter)).of_refund();
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

    /// The bucket is a queue: each drip takes the units that came first. So of the charge's units, those are left that the
    /// drips since have not reached. A drip comes a drip rate after the one before, or after the charge that found the
    /// bucket empty: so no more drips have come than drip rates have passed since the charge's word, whatever has emptied
    /// the bucket or put its drips off meanwhile.
    ///
    /// A charge with a factor below 1 may have let more drip out than it has added. Then its rollback adds the difference.
    ///
    /// If the bucket would have been empty without the charge, the charges of other calls would have started their drips
    /// later. The word does not say when, so the next drip comes a whole drip rate from now, and the bucket is worse off
    /// by at most the time for which the charge was held. If other calls may have reservations in the future, nothing is
    /// returned: their times were already promised.
    fn roll_back(&self, word: u64, charge: Charge, now_ns: &dyn Fn() -> u64) -> Option<u64> {
        if charge.is_last(word) {
            return Some(word_before(self, charge));
        }
        let (timed, after) = (TimedCount::from_word(word), TimedCount::from_word(charge.after));
        let now_ns = now_ns();
        let level = self.level(word, now_ns);
        let in_front = self.counter_at_ms(charge.before, after.at_ms);
        let Some(cost) = after.count.checked_sub(in_front) else {
            // By its factor the charge has let more drip out than it has added. All of it is missing: drips since may have
            // taken units of other calls in its place.
            let missing = in_front - after.count;
            let counter = level.counter.saturating_add(missing).min(MAX_COUNT);
            return (counter > level.counter).then(|| level.word(counter));
        };
        if now_ns < charge.now_ns || timed.at_ms < after.at_ms {
            // The clock went back and does not show how much has dripped, or another call has refunded.
            return None;
        }
        // A reservation waits as long as the bucket has more than its size, with the units that did not drip out.
        let with_removed =
            level.counter.saturating_add(charge.lowered).saturating_add(charge.drained_early);
        if charge.last_grant_ns > now_ns && with_removed > self.size() {
            return None;
        }
        let drips = (level.now_ms - after.at_ms) / self.drip_rate_ms;
        let dripped = drips.saturating_mul(u64::from(self.drip_size));
        let drained = dripped.saturating_add(charge.drained_early);
        // Less the rollbacks since the charge.
        let in_front = in_front.saturating_sub(charge.lowered);
        let returned = cost.saturating_sub(drained.saturating_sub(in_front));
        // A refund since may have left less than the charge. Never go below the units that would be left without it.
        let floor = in_front.saturating_sub(drained).min(level.counter);
        let left = level.counter.saturating_sub(returned).max(floor);
        if left == level.counter {
            return None;
        }
        let last_drip_ms = if in_front > drained { level.last_drip_ms } else { level.now_ms };
        Some(Level { last_drip_ms, ..level }.word(left))
    }

    /// The drips before the grant belong to earlier units: if the last of them removes more than the bucket has, its
    /// rest is lost.
    fn reserve(&self, word: u64, now_ns: u64, cost: u64) -> Option<Grant> {
        let level = self.level(word, now_ns);
        // Far below 2^64: the count and the cost are below 2^24.
        let cost = cost.min(self.size());
        let beyond = level.counter.saturating_add(cost).saturating_sub(self.size());
        let dripped = beyond.next_multiple_of(u64::from(self.drip_size));
        let counter = level.counter.max(dripped).saturating_add(cost);
        if counter > MAX_COUNT {
            return None;
        }
        let word = level.word(counter);
        let wait_ns = self.drip_ns(level, beyond);
        if wait_ns == 0 {
            return Some(Grant { word, at_ns: now_ns });
        }
        let at_ns = first_ns_of(level.now_ms - level.ahead_ms).checked_add(wait_ns)?;
        (at_ns <= first_ns_of(MAX_MS)).then_some(Grant { word, at_ns })
    }

    fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        let level = self.level(word, now_ns);
        let max_counter = self.size().saturating_add(max_debt).min(MAX_COUNT);
        let counter = level.counter.saturating_add(cost).min(max_counter);
        (counter > level.counter).then(|| level.word(counter))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::timed_count::NS_PER_MS;

    /// The limit itself drips at 1000, 2000 and 3000 ms, the scaled one each 700 or 3000 ms.
    #[test]
    fn found_units_are_those_at_the_last_drip() {
        let own = LeakyBucket { size: 10, drip_size: 1, drip_rate_ms: 1_000 };
        let scaled = |drip_rate_ms| LeakyBucket { drip_rate_ms, ..own };
        let before = TimedCount { at_ms: 1, count: 9 }.word();
        for (drip_rate_ms, last_drip_ms, found, own_units, early) in [
            (700, 2_801, 5, 7, 2),
            (100, 3_101, 0, 6, 6),
            (3_000, 3_001, 8, 6, 0),
            (1_000, 3_001, 6, 6, 0),
        ] {
            let units =
                own.found_by(&scaled(drip_rate_ms), (before, before), 3_100 * NS_PER_MS + 1);
            assert_eq!(units, FoundUnits { last_drip_ms, found, own: own_units });
            assert_eq!(units.drained_early(), early);
            assert_eq!(units.before(), found.max(own_units));
        }
    }
}
