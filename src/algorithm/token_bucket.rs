//! PlugLimit's token bucket: `burst` units at once, more at a steady rate, at most `limit` in a window
//! that the first allowed call opens.
//!
//! The word is the window's start and what was used in it. The bound: up to any instant of a window
//! `burst` and what the rate has brought since its start, so at most `limit` in all. Tokens are not
//! capped inside a window: what was not used can be spent at once later in it.

use crate::algorithm::packed::ns_of;
use crate::algorithm::window::{Found, Holds, Window};
use crate::algorithm::{Algorithm, Charge, Grant, Outcome};
use crate::decision::Decision;

/// The numbers of a limit, which has checked them: `1 <= burst <= limit`, and `limit` at most the
/// largest count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TokenBucket {
    pub(crate) limit: u32,
    pub(crate) burst: u32,
    pub(crate) window: Window,
}

impl TokenBucket {
    #[inline]
    fn holds(&self) -> Holds {
        Holds { quota: u64::from(self.limit), burst: u64::from(self.burst) }
    }

    #[inline]
    fn find(&self, word: u64, now_ns: u64) -> Found {
        self.window.find(word, now_ns, u64::from(self.limit))
    }

    #[inline]
    fn remaining(&self, used: u64) -> u64 {
        u64::from(self.limit).saturating_sub(used)
    }
}

impl Algorithm for TokenBucket {
    #[inline]
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let (found, quota) = (self.find(word, now_ns), u64::from(self.limit));
        let wait_ms = found.place(self.holds(), cost).wait_ms;
        if wait_ms > 0 {
            let left = (self.remaining(found.used), 1);
            let reset_in_ns = found.reset_in_ns(found.used, quota);
            let decision = Decision::new(false, left, ns_of(wait_ms), reset_in_ns);
            return Outcome { word: None, decision };
        }
        let used = found.used.saturating_add(cost);
        let retry_in_ns = ns_of(found.with(used).place(self.holds(), cost).wait_ms);
        let left = (self.remaining(used), 1);
        let decision = Decision::new(true, left, retry_in_ns, found.reset_in_ns(used, quota));
        Outcome { word: (cost > 0).then(|| found.word(used)), decision }
    }

    #[inline]
    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.window.refund(word, now_ns, cost, u64::from(self.limit))
    }

    #[inline]
    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.find(word, now_ns).is_full(now_ns)
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

    fn roll_back(&self, word: u64, charge: Charge, now_ns: &dyn Fn() -> u64) -> Option<u64> {
        self.window.roll_back(word, charge, u64::from(self.limit), now_ns)
    }

    fn reserve(&self, word: u64, now_ns: u64, cost: u64) -> Option<Grant> {
        self.window.reserve(word, now_ns, cost, self.holds())
    }

    fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        let there = |found: Found| self.holds().there(found.elapsed_ms, self.window.ms());
        let most = |found| there(found).saturating_add(max_debt);
        self.window.owe(word, now_ns, cost, u64::from(self.limit), most)
    }

    fn shifted(&self, word: u64, by_ns: u64, _: u64) -> Option<u64> {
        Some(Window::shifted(word, by_ns))
    }

    fn name(&self) -> &'static str {
        "token_bucket"
    }
}
