//! Logs what operators want to know of a store.

use std::time::Duration;

use tracing::{info, warn};

use crate::error::Error;
use crate::observe::events::MAX_ERROR_CHARS;
use crate::util::escape::shown;

/// Logs, at a new connection to a store, what is wrong with its settings.
pub(crate) fn store_warning(store: &str, warning: &str) {
    warn!(target: "tollgate", store, warning, "the store may forget buckets");
}

/// Logs the 1st, 2nd, 4th, 8th and so on of the answers of a store that cannot be used, such as a text that is no bucket.
pub(crate) fn unusable_answer(error: &Error, count: u64) {
    if count.is_power_of_two() {
        let error = shown(&error.to_string(), MAX_ERROR_CHARS);
        warn!(target: "tollgate", %error, count, "an answer of the store cannot be used");
    }
}

/// Logs that the store does not decide calls any more, and why.
pub(crate) fn outage_began(error: &Error) {
    let error = shown(&error.to_string(), MAX_ERROR_CHARS);
    warn!(target: "tollgate", %error, "shared limits are decided without the store");
}

/// Logs that the store decides calls again.
pub(crate) fn outage_ended(length: Duration) {
    info!(target: "tollgate", ?length, "shared limits are decided by the store again");
}
