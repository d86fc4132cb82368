//! What leases need to know of a clock.

use std::sync::Arc;

use crate::clock::{Clock, Source};

impl Clock {
    /// Whether the clock advances as time does, and is read when it is asked: nobody sets it, and no thread has to renew it.
    pub(crate) fn is_of_machine(&self) -> bool {
        matches!(self.source, Source::Counter(..) | Source::Instant(_))
    }

    /// Whether both are read from the same source, which is not the machine's.
    pub(crate) fn has_source_of(&self, other: &Clock) -> bool {
        match (&self.source, &other.source) {
            (Source::Stored { now_ns, .. }, Source::Stored { now_ns: other, .. }) => {
                Arc::ptr_eq(now_ns, other)
            }
            (Source::Custom { now, .. }, Source::Custom { now: other, .. }) => {
                Arc::ptr_eq(now, other)
            }
            _ => false,
        }
    }
}
