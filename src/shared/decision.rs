//! What only decisions of limits that nodes share have.

use std::time::Duration;

use crate::decision::Decision;

impl Decision {
    /// Whether the call was denied because the store of its shared limits did not answer in time, or because this node has more
    /// calls for it than it can make. Whether the bucket has the units is not known, nor whether a call that was sent is charged.
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
