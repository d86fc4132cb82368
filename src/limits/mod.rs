//! Which numbers apply to whom: names, formats of ids, defaults and overrides.

mod expiry;
mod explanation;
mod format;
mod id;
#[cfg(feature = "boulder")]
mod identifier;
mod names;
mod options;
mod registry;
#[cfg(feature = "yaml")]
mod yaml;

pub use explanation::{Applies, ExplainedCall, Explanation, NearEntry, WhyNot};
pub(crate) use format::{STRING_MAX_BYTES, Scratch, account_of, decode, encode};
pub use id::{Id, IdFormat};
#[cfg(feature = "boulder")]
pub use identifier::IdentifierSet;
pub use options::{LimitMode, LimitOptions, OverrideOptions};
pub(crate) use registry::{BEFORE_ALL_ENDS_NS, Entry, OverrideById};
pub use registry::{
    LimitEntry, Limits, LimitsBuilder, Location, OverrideEntry, Warning, WarningKind, Warnings,
};
#[cfg(feature = "yaml")]
pub use yaml::YamlLoader;
#[cfg(feature = "watch")]
pub(crate) use yaml::{FileCopy, Identity};
