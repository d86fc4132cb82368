//! Reads the fields of a shared limit.

use super::fields::{Field, named};
use super::node::Scalar;

#[cfg(feature = "valkey")]
use {
    super::entry::Entry,
    super::fields::SHARING,
    crate::limit::Factor,
    crate::limits::sharing::{OnError, Shared, Sharing},
    crate::util::decimal::Decimal,
    std::time::Duration,
};

/// The words of the field `shared`, numbered.
const SHARED: &[(&str, u64)] = &[("local", 0), ("leased", 1), ("exact", 2)];

/// The words of the field `on_error`, numbered.
const ON_ERROR: &[(&str, u64)] = &[("deny", 0), ("allow", 1), ("local", 2)];

/// Returns the end of the fault of a field that needs the feature.
#[cfg(not(feature = "valkey"))]
pub(super) const NEEDS_FEATURE: &str =
    "it needs the feature \"valkey\", which this program was built without";

/// Reads the value of a field: the number of a word, millionths or nanoseconds. Whether it is in its range depends on
/// other fields. An error says what was given and what is allowed.
#[cfg(feature = "valkey")]
pub(super) fn read(field: Field, scalar: &Scalar<'_>) -> Result<u64, String> {
    use crate::limits::shown;
    match field {
        Field::Shared => named(&scalar.text, SHARED),
        Field::OnError => named(&scalar.text, ON_ERROR),
        // As a factor, it may be a number or the text of one.
        Field::Fraction => {
            let read = Decimal::parse(&scalar.text).map(|read| read.millionths);
            read.map_err(|reason| {
                let is_negative = reason.starts_with("negative");
                let reason = if is_negative { "more than 0 is allowed" } else { &*reason };
                format!("{}: {reason}", shown(&scalar.text))
            })
        }
        _ => super::duration::parse(&scalar.text),
    }
}

/// Reads the value of a field. Without the feature only `shared: local` is allowed, which says what holds anyway.
#[cfg(not(feature = "valkey"))]
pub(super) fn read(field: Field, scalar: &Scalar<'_>) -> Result<u64, String> {
    let word = match field {
        Field::Shared => named(&scalar.text, SHARED)?,
        Field::OnError => named(&scalar.text, ON_ERROR)?,
        _ => u64::MAX,
    };
    match (field, word) {
        (Field::Shared, 0) => Ok(0),
        _ => Err(format!("{}: {NEEDS_FEATURE}", super::node::given(scalar))),
    }
}

/// Returns the options of a shared limit. If one of them is at fault, which was reported, they are those of a local limit:
/// the others may fit what was meant.
#[cfg(feature = "valkey")]
pub(super) fn given(entry: &Entry<'_>) -> Sharing {
    let value = |field: Field| entry.values[field as usize];
    let is_faulty = |field: &Field| entry.line_of(*field).is_some() && value(*field).is_none();
    if SHARING.iter().any(is_faulty) {
        return Sharing::default();
    }
    Sharing {
        shared: match value(Field::Shared) {
            Some(1) => Shared::Leased,
            Some(2) => Shared::Exact,
            _ => Shared::Local,
        },
        on_error: value(Field::OnError).map(|word| match word {
            0 => OnError::Deny,
            1 => OnError::Allow,
            _ => OnError::Local,
        }),
        fraction: value(Field::Fraction).map(Factor::from_millionths),
        allow_for: value(Field::For).map(Duration::from_nanos),
        lease: value(Field::Lease).map(Duration::from_nanos),
    }
}
