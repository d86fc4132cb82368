//! PlugLimit's fixed_window and token_bucket: at most `quota` units in a window that the first allowed call opens.
//!
//! `burst` units are there at the window's start, and the rest of the quota comes at a steady rate over its length. A
//! fixed window is a token bucket whose burst is its quota. The instant at which a window ends belongs to the next one.
//!
//! The word is the window's start and the units used in it. The bound: up to any instant of a window, at most `burst`
//! units and those that the rate has brought since its start. Unused tokens are not capped inside a window, so a call can
//! spend them at once later in it. Windows do not overlap, so an interval as long as one admits at most twice the quota.
//!
//! Debt may use more than a window's quota. Then the next window begins where this one ends, with the
//! units that this one did not hold.

use crate::algorithm::built_in::BuiltIn;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::timed_count::{MAX_COUNT, MAX_MS, TimedCount, ms_of, ms_to_ns, ns_to_ms};
use crate::algorithm::{Algorithm, Outcome};
use crate::decision::Decision;

/// A validated limit by windows: `1 <= burst <= quota <= MAX_COUNT` and `1 <= window_ms <= MAX_MS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) kind: WindowKind,
    /// The units of a whole window.
    pub(crate) quota: u32,
    /// The units at a window's start.
    pub(crate) burst: u32,
    pub(crate) window_ms: u64,
}

/// The name that a limit by windows has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WindowKind {
    /// Its burst is its quota.
    FixedWindow,
    TokenBucket,
}

/// The window at the time of a call. If no unit is used, no window is open, and an allowed call would open one now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Current {
    used: u64,
    elapsed_ms: u64,
    start_ms: u64,
    now_ms: u64,
    /// The time until the word's own time, if the clock went back behind it; else 0. Waits count from the present, so
    /// it is part of them.
    ahead_ms: u64,
}

/// The earliest time at which a cost fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fit {
    wait_ms: u64,
    /// The units used from the current window on, the cost and the lost rest of skipped windows among them.
    used: u64,
}

impl Window {
    pub(crate) const FIXED_NAME: &'static str = "fixed_window";
    pub(crate) const TOKEN_BUCKET_NAME: &'static str = "token_bucket";
    pub(crate) const MAX_MS: u64 = MAX_MS;

    #[inline]
    fn quota(&self) -> u64 {
        u64::from(self.quota)
    }

    #[inline]
    fn current(&self, word: u64, now_ns: u64) -> Current {
        let timed = TimedCount::from_word(word);
        let now_ms = timed.now_ms(now_ns);
        let elapsed_ms = now_ms - timed.at_ms;
        let (mut used, mut start_ms) = (timed.count, timed.at_ms);
        if used > self.quota() {
            // Each window that has passed held a quota of them.
            let windows = elapsed_ms / self.window_ms;
            used = used.saturating_sub(windows.saturating_mul(self.quota()));
            start_ms += windows * self.window_ms;
        } else if elapsed_ms >= self.window_ms {
            used = 0;
        }
        if used == 0 {
            start_ms = now_ms;
        }
        let ahead_ms = now_ms - ms_of(now_ns);
        Current { used, elapsed_ms: now_ms - start_ms, start_ms, now_ms, ahead_ms }
    }

    /// Finds the earliest time for `cost`, which is at most `burst`, behind all units that are used.
    #[inline]
    fn fit(&self, current: Current, cost: u64) -> Fit {
        let (quota, window_ms) = (self.quota(), self.window_ms);
        // The window of the last used unit, counted from the current one.
        let last = if current.used <= quota { 0 } else { (current.used - 1) / quota };
        let used = (current.used - last * quota).saturating_add(cost);
        let from_ms = if last == 0 { current.elapsed_ms } else { 0 };
        let at_ms = self.covers_in_ms(used).max(from_ms);
        let (windows, at_ms, used) = if at_ms < window_ms {
            (last, at_ms, current.used.saturating_add(cost))
        } else {
            (last + 1, 0, (last + 1).saturating_mul(quota).saturating_add(cost))
        };
        let at_ms = windows.saturating_mul(window_ms).saturating_add(at_ms);
        let wait_ms = at_ms.saturating_sub(current.elapsed_ms);
        let ahead_ms = if wait_ms == 0 { 0 } else { current.ahead_ms };
        Fit { wait_ms: wait_ms.saturating_add(ahead_ms), used }
    }

    /// The time from a window's start until `used` units may be used; the window's length if that is not within it.
    ///
    /// It is the least `t` with `used <= burst + (quota - burst) * t / window`. The product needs 24 + 39 bits, and its
    /// rounding one more, so it is computed in 128.
    #[inline]
    fn covers_in_ms(&self, used: u64) -> u64 {
        let short = used.saturating_sub(self.burst.into());
        if short == 0 {
            return 0;
        }
        let gained = self.quota().saturating_sub(self.burst.into());
        if short > gained {
            return self.window_ms;
        }
        // At most the window's length, because `short` is at most `gained`.
        (u128::from(short) * u128::from(self.window_ms)).div_ceil(u128::from(gained)) as u64
    }

    /// The units that may be used up to a time after a window's start.
    pub(crate) fn come(&self, elapsed_ms: u64) -> u64 {
        let gained = u128::from(self.quota().saturating_sub(self.burst.into()));
        let come = gained * u128::from(elapsed_ms) / u128::from(self.window_ms);
        u64::from(self.burst).saturating_add(come as u64).min(self.quota())
    }

    /// Returns the start of the window that a charge at `now_ns` belongs to, in ms; `None` if no unit is used in it.
    fn start_ms(&self, word: u64, now_ns: u64) -> Option<u64> {
        let current = self.current(word, now_ns);
        (current.used > 0).then_some(current.start_ms)
    }

    /// The quota that is left once `used` units are used.
    #[inline]
    fn remaining(&self, used: u64) -> (u64, u64) {
        (self.quota().saturating_sub(used), 1)
    }

    /// The time until the bucket is full once `used` units are used.
    #[inline]
    fn reset_in_ns(&self, current: Current, used: u64) -> u64 {
        if used == 0 {
            return 0;
        }
        let windows = if used <= self.quota() { 1 } else { used.div_ceil(self.quota()) };
        let end_ms = windows.saturating_mul(self.window_ms).saturating_add(current.ahead_ms);
        ms_to_ns(end_ms - current.elapsed_ms)
    }
}

impl Current {
    /// Whether no unit is used and the word's own time has come, so that a new bucket would answer the same.
    #[inline]
    fn is_full(self, now_ns: u64) -> bool {
        self.used == 0 && self.now_ms <= ms_of(now_ns)
    }

    /// The word with `used` units used in this window.
    #[inline]
    fn word(self, used: u64) -> u64 {
        let at_ms = if used == 0 { self.now_ms } else { self.start_ms };
        TimedCount { at_ms, count: used }.word()
    }
}

impl Algorithm for Window {
    #[inline]
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let current = self.current(word, now_ns);
        let wait_ms = self.fit(current, cost).wait_ms;
        if wait_ms > 0 {
            let reset_in_ns = self.reset_in_ns(current, current.used);
            let left = self.remaining(current.used);
            let decision = Decision::new(false, left, ms_to_ns(wait_ms), reset_in_ns);
            return Outcome { word: None, decision };
        }
        let used = current.used.saturating_add(cost);
        let retry_in_ns = ms_to_ns(self.fit(Current { used, ..current }, cost).wait_ms);
        let reset_in_ns = self.reset_in_ns(current, used);
        let decision = Decision::new(true, self.remaining(used), retry_in_ns, reset_in_ns);
        Outcome { word: (cost > 0).then(|| current.word(used)), decision }
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let current = self.current(word, now_ns);
        let used = current.used.saturating_sub(cost);
        let refunded = used != current.used;
        let reset_in_ns = self.reset_in_ns(current, used);
        let decision = Decision::new(refunded, self.remaining(used), 0, reset_in_ns).of_refund();
        Outcome { word: refunded.then(|| current.word(used)), decision }
    }

    #[inline]
    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.current(word, now_ns).is_full(now_ns)
    }

    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        let current = self.current(word, now_ns);
        let decision = Decision::new(true, self.remaining(0), 0, 0);
        Outcome { word: (current.used > 0).then(|| current.word(0)), decision }
    }

    fn full(&self, now_ns: u64) -> u64 {
        TimedCount::full_word(now_ns)
    }

    fn max_cost(&self) -> u64 {
        self.burst.into()
    }

    /// A window that began before the new origin begins at it, and so ends later.
    fn shifted(&self, word: u64, by_ns: u64, _: u64) -> Option<u64> {
        let TimedCount { at_ms, count } = TimedCount::from_word(word);
        Some(TimedCount { at_ms: at_ms.saturating_sub(ns_to_ms(by_ns)).max(1), count }.word())
    }

    fn name(&self) -> &'static str {
        match self.kind {
            WindowKind::FixedWindow => Window::FIXED_NAME,
            WindowKind::TokenBucket => Window::TOKEN_BUCKET_NAME,
        }
    }
}

impl BuiltIn for Window {
    /// The start of a fixed window.
    fn charge_mark(&self, word: u64) -> ChargeMark {
        match self.kind {
            WindowKind::FixedWindow => ChargeMark(TimedCount::from_word(word).at_ms),
            WindowKind::TokenBucket => ChargeMark(0),
        }
    }

    /// A fixed window that is not that of the charge takes nothing.
    fn returned(&self, word: u64, now_ns: u64, units: u64, charge: ChargeMark) -> Option<u64> {
        let is_other = self.start_ms(word, now_ns) != Some(charge.0);
        if self.kind == WindowKind::FixedWindow && is_other {
            return None;
        }
        self.refund(word, now_ns, units).word
    }

    fn undone(
        &self,
        word: u64,
        (before, after): (u64, u64),
        (charged_ns, now_ns): (u64, u64),
    ) -> Option<u64> {
        let after = TimedCount::from_word(after);
        let units = after.count.saturating_sub(self.current(before, charged_ns).used);
        self.returned(word, now_ns, units, ChargeMark(after.at_ms))
    }

    fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        let current = self.current(word, now_ns);
        let max_used = self.come(current.elapsed_ms).saturating_add(max_debt).min(MAX_COUNT);
        let used = current.used.saturating_add(cost).min(max_used);
        (used > current.used).then(|| current.word(used))
    }

    fn debt_room(&self) -> u64 {
        MAX_COUNT.saturating_sub(self.quota())
    }

    /// What remains of the quota may come later in the window.
    fn available(&self, word: u64, now_ns: u64) -> u64 {
        let current = self.current(word, now_ns);
        self.come(current.elapsed_ms).saturating_sub(current.used)
    }

    fn kept_until_ns(&self, word: u64) -> u64 {
        TimedCount::from_word(word).at_ns()
    }

    fn fills_in_ns(&self) -> u64 {
        ms_to_ns(self.window_ms)
    }

    fn fills_slower_by_factor(&self) -> bool {
        true
    }

    /// The time until the next token, or until the end of the window if no more come in it. The bucket has no debt.
    #[cfg(feature = "http")]
    fn next_unit_ns(&self, decision: &Decision) -> u64 {
        let (remaining, reset_in_ns) = decision.left_and_reset_ns();
        if remaining >= self.quota() {
            return reset_in_ns;
        }
        let elapsed_ms = self.window_ms.saturating_sub(ns_to_ms(reset_in_ns));
        let next_ms = self.covers_in_ms(self.come(elapsed_ms).saturating_add(1));
        // The window may begin later than now, by a clock that has gone back.
        reset_in_ns.saturating_sub(ms_to_ns(self.window_ms.saturating_sub(next_ms)))
    }
}
