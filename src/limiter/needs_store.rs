//! The error of calls without I/O for limits that only a store knows.

use crate::error::{Error, ErrorKind};

#[cold]
pub(super) fn needs_store(name: &str) -> Error {
    let text = format!(
        "{name} is shared, and only the store knows its buckets: a call that asks the store has `_shared` or `_blocking` in its name, such as spend_shared; a layer needs with_store()"
    );
    Error::new(ErrorKind::NeedsStore, text)
}
