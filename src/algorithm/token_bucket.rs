//! PlugLimit's token bucket: `burst` units at once, more at a steady rate, at most `limit` in a window
//! that the first allowed call opens.
//!
//! The word is the window's start and what was used in it. The bound: up to any instant of a window
//! `burst` and what the rate has brought since its start, so at most `limit` in all. Tokens are not
//! capped inside a window: what was not used can be spent at once later in it.

use crate::Decision;
use crate::algorithm::packed::ns_of;
use crate::algorithm::window::{Found, Window};
use crate::algorithm::{Algorithm, Charge, Outcome};

/// The numbers of a limit, which has checked them: `1 <= burst <= limit`, and `limit` at most the
/// largest count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenBucket {
    pub(crate) limit: u32,
    pub(crate) burst: u32,
    pub(crate) window: Window,
}

impl TokenBucket {
    /// The time until `used` units, of which the last are those asked for, are covered: 0 if they are,
    /// at most the time to the window's end.
    ///
    /// Covered is `used <= burst + (limit - burst) * elapsed / window`, without division. The products
    /// are below 2^25 * 2^39, more than 64 bits have.
    #[inline]
    fn wait_ms(&self, found: Found, used: u64) -> u64 {
        let short = u128::from(used.saturating_sub(u64::from(self.burst)));
        let (window_ms, elapsed_ms) = (u128::from(self.window.ms()), u128::from(found.elapsed_ms));
        let gained = u128::from(self.limit.saturating_sub(self.burst));
        if gained * elapsed_ms >= short * window_ms {
            return 0;
        }
        // Not covered, so that something is short; with a rate of 0 it is until the window's end.
        let at_ms = (short * window_ms).div_ceil(gained.max(1)).min(window_ms);
        let at_ms = if gained == 0 { window_ms } else { at_ms };
        u64::try_from(at_ms - elapsed_ms).unwrap_or(u64::MAX)
    }

    #[inline]
    fn remaining(&self, used: u64) -> u64 {
        u64::from(self.limit).saturating_sub(used)
    }
}

impl Algorithm for TokenBucket {
    #[inline]
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let found = self.window.find(word, now_ns);
        let used = found.used.saturating_add(cost);
        let wait_ms = self.wait_ms(found, used);
        if wait_ms > 0 {
            let left = (self.remaining(found.used), 1);
            let reset_in_ns = found.reset_in_ns(found.used);
            let decision = Decision::new(false, left, ns_of(wait_ms), reset_in_ns);
            return Outcome { word: None, decision };
        }
        let retry_in_ns = ns_of(self.wait_ms(found, used.saturating_add(cost)));
        let left = (self.remaining(used), 1);
        let decision = Decision::new(true, left, retry_in_ns, found.reset_in_ns(used));
        Outcome { word: (cost > 0).then(|| found.word(used)), decision }
    }

    #[inline]
    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.window.refund(word, now_ns, cost, u64::from(self.limit))
    }

    #[inline]
    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.window.find(word, now_ns).is_full(now_ns)
    }

    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        self.window.reset(word, now_ns, u64::from(self.limit))
    }

    fn full(&self, now_ns: u64) -> u64 {
        Window::full(now_ns)
    }

    fn max_cost(&self) -> u64 {
        u64::from(self.burst)
    }

    fn take_back(&self, word: u64, charge: Charge, now_ns: &dyn Fn() -> u64) -> Option<u64> {
        self.window.take_back(word, charge, now_ns)
    }

    fn shifted(&self, word: u64, by_ns: u64, _: u64) -> Option<u64> {
        Some(Window::shifted(word, by_ns))
    }

    fn name(&self) -> &'static str {
        "token_bucket"
    }
}
