//! PlugLimit's fixed window: at most `limit` units in a window that the first allowed call opens.
//!
//! The word is the window's start and what was used in it. The bound: in every window at most `limit`
//! units; windows do not overlap, so that in any interval as long as a window it is twice that.

use crate::algorithm::packed::ns_of;
use crate::algorithm::window::{Holds, Window};
use crate::algorithm::{Algorithm, Charge, Grant, Outcome};
use crate::decision::Decision;

/// The numbers of a limit, which has checked them: `limit` from 1 to the largest count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FixedWindow {
    pub(crate) limit: u32,
    pub(crate) window: Window,
}

impl FixedWindow {
    #[inline]
    fn limit(&self) -> u64 {
        u64::from(self.limit)
    }

    #[inline]
    fn holds(&self) -> Holds {
        Holds { quota: self.limit(), burst: self.limit() }
    }
}

impl Algorithm for FixedWindow {
    #[inline]
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let limit = self.limit();
        let found = self.window.find(word, now_ns, limit);
        let used = found.used.saturating_add(cost);
        // More than the limit may be used: by places in windows to come, debt, or if it was lowered.
        let Some(remaining) = limit.checked_sub(used) else {
            let there = limit.saturating_sub(found.used);
            let wait_ns = ns_of(found.place(self.holds(), cost).wait_ms);
            let reset_in_ns = found.reset_in_ns(found.used, limit);
            let decision = Decision::new(false, (there, 1), wait_ns, reset_in_ns);
            return Outcome { word: None, decision };
        };
        let reset_in_ns = found.reset_in_ns(used, limit);
        let retry_in_ns = if remaining >= cost { 0 } else { reset_in_ns };
        let decision = Decision::new(true, (remaining, 1), retry_in_ns, reset_in_ns);
        Outcome { word: (cost > 0).then(|| found.word(used)), decision }
    }

    #[inline]
    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.window.refund(word, now_ns, cost, self.limit())
    }

    #[inline]
    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.window.find(word, now_ns, self.limit()).is_full(now_ns)
    }

    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        self.window.reset(word, now_ns, self.limit())
    }

    fn full(&self, now_ns: u64) -> u64 {
        Window::full(now_ns)
    }

    fn max_cost(&self) -> u64 {
        self.limit()
    }

    fn roll_back(&self, word: u64, charge: Charge, now_ns: &dyn Fn() -> u64) -> Option<u64> {
        self.window.roll_back(word, charge, self.limit(), now_ns)
    }

    fn reserve(&self, word: u64, now_ns: u64, cost: u64) -> Option<Grant> {
        self.window.reserve(word, now_ns, cost, self.holds())
    }

    fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        let most = self.limit().saturating_add(max_debt);
        self.window.owe(word, now_ns, cost, self.limit(), |_| most)
    }

    fn shifted(&self, word: u64, by_ns: u64, _: u64) -> Option<u64> {
        Some(Window::shifted(word, by_ns))
    }

    fn name(&self) -> &'static str {
        "fixed_window"
    }
}
