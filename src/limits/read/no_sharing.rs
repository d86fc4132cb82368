//! Refuses the fields of shared limits and the section of a store in a build without the feature for them.

use super::entry::Entry;
use super::faults::Path;
use super::fields::{Field, ON_ERROR, SHARED, named};
use super::node::{Scalar, shown_scalar};
use super::walk::{Walk, Walked};
use crate::limits::sharing::Sharing;

/// The end of each fault.
const NEEDS_FEATURE: &str = "it needs the feature \"valkey\", which this program was built without";

/// Reads the value of a field. Without the feature only `shared: local` is allowed, which says what holds anyway.
pub(super) fn read(field: Field, scalar: &Scalar<'_>) -> Result<u64, String> {
    let word = match field {
        Field::Shared => named(&scalar.text, SHARED)?,
        Field::OnError => named(&scalar.text, ON_ERROR)?,
        _ => u64::MAX,
    };
    match (field, word) {
        (Field::Shared, 0) => Ok(0),
        _ => Err(format!("{}: {NEEDS_FEATURE}", shown_scalar(scalar))),
    }
}

pub(super) fn given(_: &Entry<'_>) -> Sharing {
    Sharing
}

impl Walk<'_, '_> {
    pub(super) fn section(&mut self, line: u64, at: &Path<'_>) -> Walked {
        const RESERVED: &str =
            "the name store is reserved for the section of the store that limits share";
        self.fault(line, at, format!("{RESERVED}: {NEEDS_FEATURE}"));
        self.skip_value(at)
    }
}
