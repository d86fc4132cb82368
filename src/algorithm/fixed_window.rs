//! PlugLimit's fixed window: at most `limit` units in a window that the first allowed call opens.
//!
//! The word is the window's start and what was used in it. The bound: in every window at most `limit`
//! units; windows do not overlap, so that in any interval as long as a window it is twice that.

use crate::Decision;
use crate::algorithm::window::Window;
use crate::algorithm::{Algorithm, Charge, Outcome};

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
}

impl Algorithm for FixedWindow {
    #[inline]
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let found = self.window.find(word, now_ns);
        let used = found.used.saturating_add(cost);
        // More than the limit may be used if it was lowered.
        let Some(remaining) = self.limit().checked_sub(used) else {
            let there = self.limit().saturating_sub(found.used);
            let wait_ns = found.reset_in_ns(used);
            let decision = Decision::new(false, (there, 1), wait_ns, wait_ns);
            return Outcome { word: None, decision };
        };
        let reset_in_ns = found.reset_in_ns(used);
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
        self.window.find(word, now_ns).is_full(now_ns)
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

    fn take_back(&self, word: u64, charge: Charge, now_ns: &dyn Fn() -> u64) -> Option<u64> {
        self.window.take_back(word, charge, now_ns)
    }

    fn shifted(&self, word: u64, by_ns: u64, _: u64) -> Option<u64> {
        Some(Window::shifted(word, by_ns))
    }

    fn name(&self) -> &'static str {
        "fixed_window"
    }
}
