//! The errors of calls for limits that need a handle of another type.

use crate::error::{Error, ErrorKind};

#[cold]
pub(crate) fn needs_store(name: &str) -> Error {
    let text = format!(
        "{name} is shared, and only the store knows its buckets: its handle is that of Limiter::shared, and a layer takes it by Rule::shared"
    );
    Error::new(ErrorKind::NeedsStore, text)
}

#[cold]
pub(crate) fn needs_permits(name: &str) -> Error {
    let text = format!(
        "{name} counts what is in flight, not units: its handle is that of Limiter::concurrency"
    );
    Error::new(ErrorKind::Name, text)
}

#[cold]
pub(crate) fn needs_receipt(name: &str) -> Error {
    let text = format!(
        "{name} counts what is in flight: only the receipt of Batch::spend_estimate gives its permits back"
    );
    Error::new(ErrorKind::Batch, text)
}
