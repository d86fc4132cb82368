//! Which numbers apply to whom: names, formats of ids, defaults and overrides.

mod format;
mod id;
#[cfg(feature = "boulder")]
mod identifier;
mod names;
mod registry;
#[cfg(feature = "yaml")]
mod yaml;

pub(crate) use format::{STRING_MAX_BYTES, Scratch, decode, encode};
pub use id::{Id, IdFormat};
#[cfg(feature = "boulder")]
pub use identifier::IdentifierSet;
pub use registry::{Limits, LimitsBuilder};
