//! The registry: for a limit and an id, the most specific override, else the default, else nothing.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind};
use crate::key::{LimitIndex, OwnedId};
use crate::limits::{Id, IdFormat, Scratch, encode, format, names};
use crate::Limit;

/// Every limit that a [`Limiter`](crate::Limiter) knows: its name, the format of its ids, the numbers
/// that apply by default, and those that apply to some ids instead.
///
/// With the feature `boulder`, Boulder's names are always known; without numbers they are no limit.
///
/// # Example: limits made in code
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limits};
///
/// let minute = Duration::from_secs(60);
/// let limits = Limits::builder()
///     .limit("RequestsPerUser", IdFormat::String, Limit::new(20, 60, minute)?)?
///     .override_id("RequestsPerUser", "alice", Limit::new(200, 600, minute)?)?
///     .build();
/// assert!(limits.names().any(|name| name == "RequestsPerUser"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Limits {
    entries: Vec<Entry>,
    by_name: HashMap<Box<str>, LimitIndex, ahash::RandomState>,
}

/// One limit by its name.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    pub(crate) format: IdFormat,
    pub(crate) default: Option<Limit>,
    /// The overrides' ids, in normal form, with an index into `numbers`: many share theirs.
    overrides: HashMap<OwnedId, Override, ahash::RandomState>,
    numbers: Vec<Limit>,
}
