//! Defines what a response's fields depend on besides the layer's own decision: the denial of an inner layer.

use std::time::Duration;

use crate::decision::Decision;
use crate::http::Fields;

/// The facts besides the outcome that the fields depend on.
#[derive(Clone, Copy)]
pub(crate) struct ResponseState<'a> {
    /// Whether the layer answers denied requests itself. A permissive layer does not.
    pub(crate) enforced: bool,
    /// Whether the response is a denial by an inner layer or by the service.
    pub(crate) already_denied: bool,
    /// The fields that the denial by an inner layer has written.
    pub(crate) fields_of_denial: Option<&'a Fields>,
    /// The wait of the denial by an inner layer.
    pub(crate) wait_within: Option<Duration>,
}

impl ResponseState<'_> {
    /// Returns the decision that the fields show. A client that an inner layer has denied repeats the call, so a limit that
    /// would deny the repeated call counts as one that denies.
    pub(crate) fn shown(&self, decision: Decision) -> Decision {
        if self.wait_within.is_some() && self.enforced { decision.for_retry() } else { decision }
    }

    /// Returns the wait of the response with this decision, if it is a denial.
    pub(crate) fn wait(&self, decision: &Decision) -> Option<Duration> {
        let own = (!decision.allowed()).then(|| decision.retry_in());
        match self.wait_within {
            Some(within) if !self.enforced => Some(within),
            within => own.max(within),
        }
    }
}
