//! What only decisions of limits that nodes share have.

use std::time::Duration;

use crate::decision::Decision;

impl Decision {
    /// Whether the call was denied because this node has more calls for the store of its shared limits than it can make in
    /// time. The bucket was not charged, unless the call was on its way; whether it has the units is not known.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Decision;
    /// let denied = Decision::for_spend(false, 0, Duration::from_secs(1), Duration::from_secs(3));
    /// assert!(!denied.overloaded()); // denied by its bucket
    /// ```
    #[inline]
    pub fn overloaded(&self) -> bool {
        self.verdict.is_overloaded()
    }

    /// Makes the denial of a call that the node could not ask the store for in time.
    pub(crate) fn overload(retry_in: Duration) -> Decision {
        let mut denied = Decision::for_spend(false, 0, retry_in, retry_in);
        denied.verdict = denied.verdict.overloaded();
        denied
    }

    /// Returns the same answer with the figures of another decision.
    pub(crate) fn with_figures_of(self, mut other: Decision) -> Decision {
        other.verdict = self.verdict;
        other
    }
}
