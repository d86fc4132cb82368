//! The error of local handles for limits that nodes share.

use crate::error::{Error, ErrorKind};

#[cold]
pub(super) fn needs_store(name: &str) -> Error {
    let text = format!(
        "{name} is shared, and only the store knows its buckets: its handle is that of Limiter::shared, and a layer takes it by Rule::shared"
    );
    Error::new(ErrorKind::NeedsStore, text)
}
