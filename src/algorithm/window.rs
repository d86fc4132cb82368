//! What fixed_window and token_bucket share: a window that opens with the first allowed call, and what
//! was used in it. The instant at which it ends belongs to the next one.

use crate::Decision;
use crate::algorithm::packed::{MAX_MS, Packed, ms_of, ns_of, whole_ms};
use crate::algorithm::{Charge, Outcome};

/// The length of a window: 1 ms to [`MAX_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    ms: u64,
}

/// A window as a call finds it. Where nothing is used there is none yet: it would open now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) used: u64,
    pub(crate) elapsed_ms: u64,
    start_ms: u64,
    now_ms: u64,
    window_ms: u64,
}

impl Window {
    /// Gives back up to `cost` of what is spent of the window's `quota`.
    #[inline]
    pub(crate) fn refund(self, word: u64, now_ns: u64, cost: u64, quota: u64) -> Outcome {
        let found = self.find(word, now_ns);
        let used = found.used.saturating_sub(cost);
        let given_back = used != found.used;
        let left = (quota.saturating_sub(used), 1);
        let decision = Decision::new(given_back, left, 0, found.reset_in_ns(used)).of_refund();
        Outcome { word: given_back.then(|| found.word(used)), decision }
    }

    /// Makes a bucket full that holds `quota`.
    pub(crate) fn reset(self, word: u64, now_ns: u64, quota: u64) -> Outcome {
        let found = self.find(word, now_ns);
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
    pub(crate) fn find(self, word: u64, now_ns: u64) -> Found {
        let packed = Packed::of_word(word);
        let now_ms = packed.now_ms(now_ns);
        let elapsed_ms = now_ms - packed.at_ms;
        if packed.count == 0 || elapsed_ms >= self.ms {
            return Found { used: 0, elapsed_ms: 0, start_ms: now_ms, now_ms, window_ms: self.ms };
        }
        let (used, start_ms) = (packed.count, packed.at_ms);
        Found { used, elapsed_ms, start_ms, now_ms, window_ms: self.ms }
    }

    /// Of this window, opened by the call before `charge` or by it: see [`Algorithm::take_back`].
    ///
    /// Where the charge opened the window and others have charged in it since, theirs alone would have
    /// opened one later. No word says when, so it opens now: off by at most the time that was held.
    ///
    /// [`Algorithm::take_back`]: crate::Algorithm::take_back
    pub(crate) fn take_back(
        self,
        word: u64,
        charge: Charge,
        now_ns: &dyn Fn() -> u64,
    ) -> Option<u64> {
        if word == charge.after {
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
        let base = self.find(charge.before, charge.now_ns).used;
        let cost = after.count.saturating_sub(base);
        // A refund since may have left less than the charge: never below what was there before it.
        let left = now.count.saturating_sub(cost).max(base.min(now.count));
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
    /// [`Algorithm::shifted`]: crate::Algorithm::shifted
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

    /// The time to the window's end.
    #[inline]
    pub(crate) fn left_ms(self) -> u64 {
        self.window_ms - self.elapsed_ms
    }

    /// The time until the bucket is full, with so much used.
    #[inline]
    pub(crate) fn reset_in_ns(self, used: u64) -> u64 {
        if used == 0 { 0 } else { ns_of(self.left_ms()) }
    }
}
