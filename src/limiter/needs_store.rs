//! The error of calls without I/O for limits that only a store knows.

use crate::error::{Error, ErrorKind};

#[cold]
pub(super) fn needs_store(name: &str) -> Error {
    let text = format!(
        "{name} is shared, and only the store knows its buckets: call spend_shared or spend_blocking, or another of the calls that ask the store; a layer needs with_store()"
    );
    Error::new(ErrorKind::NeedsStore, text)
}
