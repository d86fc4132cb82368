//! What fixed_window and token_bucket share: a window that opens with the first allowed call, and what
//! was used in it. The instant at which it ends belongs to the next one.
//!
//! More may be used than a window's quota: places that were taken in windows to come, or debt. Then the
//! next window begins where this one ends, with what this one did not hold. A fixed window is a token
//! bucket whose burst is its quota.

use crate::algorithm::packed::{MAX_MS, Packed, first_ns_of, ms_of, ns_of, whole_ms};
use crate::algorithm::rule::MAX_COUNT;
use crate::algorithm::{Charge, Grant, Outcome};
use crate::decision::Decision;

/// The length of a window: 1 ms to [`MAX_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    ms: u64,
}

/// What a window holds: `1 <= burst <= quota`, and `quota` at most the largest count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holds {
    /// In the whole window.
    pub(crate) quota: u64,
    /// At its start; the rest comes at a steady rate.
    pub(crate) burst: u64,
}

/// A window as a call finds it. Where nothing is used there is none yet: it would open now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) used: u64,
    pub(crate) elapsed_ms: u64,
    start_ms: u64,
    now_ms: u64,
    window_ms: u64,
    /// The time until the word's own. 0, but where more is used than a quota: no clock that went back
    /// makes such a window begin early.
    ahead_ms: u64,
}

/// Where a cost has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) wait_ms: u64,
    /// What is used of this window and those after it, up to the place.
    used: u64,
}

impl Window {
    /// Gives back up to `cost` of what is spent of the window's `quota`.
    #[inline]
    pub(crate) fn refund(self, word: u64, now_ns: u64, cost: u64, quota: u64) -> Outcome {
        let found = self.find(word, now_ns, quota);
        let used = found.used.saturating_sub(cost);
        let given_back = used != found.used;
        let left = (quota.saturating_sub(used), 1);
        let reset_in_ns = found.reset_in_ns(used, quota);
        let decision = Decision::new(given_back, left, 0, reset_in_ns).of_refund();
        Outcome { word: given_back.then(|| found.word(used)), decision }
    }

    /// Makes a bucket full that holds `quota`.
    pub(crate) fn reset(self, word: u64, now_ns: u64, quota: u64) -> Outcome {
        let found = self.find(word, now_ns, quota);
        let decision = Decision::new(true, (quota, 1), 0, 0);
        Outcome { word: (found.used > 0).then(|| found.word(0)), decision }
    }

    pub(crate) const MAX_MS: u64 = MAX_MS;

    pub(crate) const fn new(ms: u64) -> Window {
        Window { ms }
    }

    #[inline]
    pub(crate) fn ms(self) -> u64 {
        self.ms
    }

    #[inline]
    pub(crate) fn find(self, word: u64, now_ns: u64, quota: u64) -> Found {
        let packed = Packed::of_word(word);
        let now_ms = packed.now_ms(now_ns);
        let elapsed_ms = now_ms - packed.at_ms;
        let (mut used, mut start_ms, mut ahead_ms) = (packed.count, packed.at_ms, 0);
        if used > quota {
            // What as many windows as have passed did not hold is in the present one.
            let windows = elapsed_ms / self.ms;
            used = used.saturating_sub(windows.saturating_mul(quota));
            start_ms += windows * self.ms;
            ahead_ms = packed.at_ms.saturating_sub(ms_of(now_ns));
        } else if elapsed_ms >= self.ms {
            used = 0;
        }
        if used == 0 {
            start_ms = now_ms;
        }
        let elapsed_ms = now_ms - start_ms;
        Found { used, elapsed_ms, start_ms, now_ms, window_ms: self.ms, ahead_ms }
    }

    /// Takes the earliest place behind all that have one. A cost is never parted: what it leaves of a
    /// window that it does not fit in is lost.
    pub(crate) fn reserve(self, word: u64, now_ns: u64, cost: u64, holds: Holds) -> Option<Grant> {
        let found = self.find(word, now_ns, holds.quota);
        let place = found.place(holds, cost);
        if place.used > MAX_COUNT {
            return None;
        }
        let word = found.word(place.used);
        if place.wait_ms == 0 {
            return Some(Grant { word, at_ns: now_ns });
        }
        let at_ms = (found.now_ms - found.ahead_ms).checked_add(place.wait_ms)?;
        (at_ms <= MAX_MS).then_some(Grant { word, at_ns: first_ns_of(at_ms) })
    }

    /// Charges `cost`, so that at most `most` is used.
    pub(crate) fn owe(
        self,
        word: u64,
        now_ns: u64,
        cost: u64,
        quota: u64,
        most: impl FnOnce(Found) -> u64,
    ) -> Option<u64> {
        let found = self.find(word, now_ns, quota);
        let used = found.used.saturating_add(cost).min(most(found)).min(MAX_COUNT);
        (used > found.used).then(|| found.word(used))
    }

    /// Of this window, opened by the call before `charge` or by it: see [`Algorithm::roll_back`].
    ///
    /// Where the charge opened the window and others have charged in it since, theirs alone would have
    /// opened one later. No word says when, so it opens now: off by at most the time that was held.
    /// Where others may have places in windows to come, which were told to them, nothing is given back.
    ///
    /// [`Algorithm::roll_back`]: crate::algorithm::Algorithm::roll_back
    pub(crate) fn roll_back(
        self,
        word: u64,
        charge: Charge,
        quota: u64,
        now_ns: &dyn Fn() -> u64,
    ) -> Option<u64> {
        if charge.is_last(word) {
            return Some(if charge.before == 0 {
                Window::full(charge.now_ns)
            } else {
                charge.before
            });
        }
        let (now, after) = (Packed::of_word(word), Packed::of_word(charge.after));
        if now.at_ms != after.at_ms {
            // Another window: that of the charge is over, or was refunded to nothing.
            return None;
        }
        if now.count.saturating_add(charge.lowered) > quota {
            return None;
        }
        let base = self.find(charge.before, charge.now_ns, quota).used;
        let cost = after.count.saturating_sub(base);
        // A refund since may have left less than the charge: never below what was there before it, less
        // what was taken back beneath it.
        let floor = base.saturating_sub(charge.lowered);
        let left = now.count.saturating_sub(cost).max(floor.min(now.count));
        if left == now.count {
            return None;
        }
        let mut start_ms = now.at_ms;
        if base == 0 {
            let now_ns = now_ns();
            if now_ns < charge.now_ns || ms_of(now_ns).saturating_sub(start_ms) >= self.ms {
                // The clock went back, and says nothing of the others' charges; or the window is over.
                return None;
            }
            start_ms = now.now_ms(now_ns);
        }
        Some(Packed { at_ms: start_ms, count: left }.word())
    }

    /// See [`Algorithm::shifted`]: a window that began before the origin begins with it, and ends later.
    ///
    /// [`Algorithm::shifted`]: crate::algorithm::Algorithm::shifted
    pub(crate) fn shifted(word: u64, by_ns: u64) -> u64 {
        let Packed { at_ms, count } = Packed::of_word(word);
        Packed { at_ms: at_ms.saturating_sub(whole_ms(by_ns)).max(1), count }.word()
    }

    /// A word without charges. Its time is kept as the earliest at which a window may open.
    #[inline]
    pub(crate) fn full(now_ns: u64) -> u64 {
        Packed { at_ms: ms_of(now_ns), count: 0 }.word()
    }
}

impl Found {
    /// Nothing is used, and it is not before the time that the word keeps: a bucket that starts anew
    /// would answer the same.
    #[inline]
    pub(crate) fn is_full(self, now_ns: u64) -> bool {
        self.used == 0 && self.now_ms <= ms_of(now_ns)
    }

    /// The word with so much used in this window.
    #[inline]
    pub(crate) fn word(self, used: u64) -> u64 {
        let at_ms = if used == 0 { self.now_ms } else { self.start_ms };
        Packed { at_ms, count: used }.word()
    }

    /// The same with so much used.
    #[inline]
    pub(crate) fn with(self, used: u64) -> Found {
        Found { used, ..self }
    }

    /// The earliest place of a cost that a window holds at its start.
    #[inline]
    pub(crate) fn place(self, holds: Holds, cost: u64) -> Place {
        let (window_ms, quota) = (self.window_ms, holds.quota);
        // The window, counted from this one, in which the last unit that is used has its place.
        let last = self.used.saturating_sub(1) / quota;
        let used = (self.used - last * quota).saturating_add(cost);
        let from_ms = if last == 0 { self.elapsed_ms } else { 0 };
        let at_ms = holds.covers_in_ms(used, window_ms).max(from_ms);
        let (windows, at_ms, used) = if at_ms < window_ms {
            (last, at_ms, self.used.saturating_add(cost))
        } else {
            (last + 1, 0, (last + 1).saturating_mul(quota).saturating_add(cost))
        };
        let at_ms = windows.saturating_mul(window_ms).saturating_add(at_ms);
        let wait_ms = at_ms.saturating_sub(self.elapsed_ms);
        // None has to wait that is there now: a quota's worth at a time to come is a clock that went back.
        let wait_ms = if wait_ms == 0 { 0 } else { wait_ms.saturating_add(self.ahead_ms) };
        Place { wait_ms, used }
    }

    /// The time until the bucket is full, with so much used.
    #[inline]
    pub(crate) fn reset_in_ns(self, used: u64, quota: u64) -> u64 {
        if used == 0 {
            return 0;
        }
        let windows = if used <= quota { 1 } else { used.div_ceil(quota) };
        let end_ms = windows.saturating_mul(self.window_ms).saturating_add(self.ahead_ms);
        ns_of(end_ms - self.elapsed_ms)
    }
}

impl Holds {
    /// The time from a window's start until so much is there; the window's length if that is not in it.
    ///
    /// There is `used <= burst + (quota - burst) * elapsed / window`. The products are below 2^25 * 2^39,
    /// more than 64 bits have.
    #[inline]
    fn covers_in_ms(self, used: u64, window_ms: u64) -> u64 {
        let short = used.saturating_sub(self.burst);
        if short == 0 {
            return 0;
        }
        let gained = self.quota.saturating_sub(self.burst);
        if short > gained {
            return window_ms;
        }
        // As far as the window, because what is short is no more than what a window brings.
        (u128::from(short) * u128::from(window_ms)).div_ceil(u128::from(gained)) as u64
    }

    /// What is there in all, so long after a window's start.
    pub(crate) fn there(self, elapsed_ms: u64, window_ms: u64) -> u64 {
        let gained = u128::from(self.quota.saturating_sub(self.burst));
        let come = gained * u128::from(elapsed_ms) / u128::from(window_ms);
        self.burst.saturating_add(come as u64).min(self.quota)
    }
}
