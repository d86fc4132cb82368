//! Finds which limit applies to an id: names, formats of ids, defaults and overrides.

#[cfg(feature = "serde")]
pub(crate) mod config;
mod expiry;
mod explanation;
mod floors;
mod format;
mod id;
mod id_format;
#[cfg(feature = "boulder")]
mod identifier_set;
#[cfg(any(feature = "yaml", feature = "serde"))]
mod loader;
mod names;
mod options;
#[cfg(any(feature = "yaml", feature = "serde"))]
mod read;
mod registry;
#[cfg(feature = "valkey")]
pub(crate) mod sharing;
#[cfg(not(feature = "valkey"))]
#[path = "no_sharing.rs"]
mod sharing;
#[cfg(feature = "valkey")]
pub(crate) mod store_address;
#[cfg(feature = "valkey")]
mod store_options;
#[cfg(feature = "yaml")]
mod yaml;

use crate::util::escape::quoted;

#[cfg(feature = "serde")]
pub use config::Overrides;
pub use explanation::{Applies, ExplainedCall, Explanation, NearEntry, WhyNot};
pub use floors::Floor;
pub(crate) use floors::{AskedFloors, FloorName, Leave};
#[cfg(feature = "snapshot")]
pub(crate) use format::STRING_MAX_BYTES;
pub(crate) use format::{
    NumberedText, Scratch, WithBytes, account_of, decode, encode, visit_plain_bytes,
    with_plain_bytes,
};
pub use id::{Id, IdField, WideInteger};
pub use id_format::{IdFormat, TupleFormat};
#[cfg(feature = "boulder")]
pub use identifier_set::IdentifierSet;
#[cfg(any(feature = "yaml", feature = "serde"))]
pub use loader::Loader;
#[cfg(feature = "boulder")]
pub(crate) use names::boulder_number;
pub use options::{LimitMode, LimitOptions, OverrideOptions};
#[cfg(any(feature = "yaml", feature = "serde"))]
pub use read::AlgorithmFields;
pub(crate) use registry::{Applying, BEFORE_ALL_ENDS_NS, Entry, LimitUse, OverrideById};
pub use registry::{LimitEntry, Limits, LimitsBuilder, Location, OverrideEntry};
#[cfg(any(feature = "yaml", feature = "serde"))]
pub use registry::{Warning, WarningKind, Warnings};
#[cfg(not(feature = "valkey"))]
pub(crate) use sharing::StoreOptions;
#[cfg(feature = "watch")]
pub(crate) use yaml::{FileCopy, Identity};
#[cfg(feature = "valkey")]
pub use {
    sharing::{OnError, Shared},
    store_options::StoreOptions,
};

/// How much of a given text a message shows.
const SHOWN_MAX_CHARS: usize = 64;

/// Shows a given text in a message: in quotes, escaped, and cut after [`SHOWN_MAX_CHARS`].
fn shown(text: &str) -> String {
    quoted(text, SHOWN_MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_text_is_cut_and_escaped() {
        let long = "\u{e9}".repeat(64);
        assert_eq!(shown("a\"\n"), "\"a\\\"\\n\"");
        assert_eq!(shown(&long), format!("\"{long}\""));
        assert_eq!(shown(&format!("{long}\u{e9}")), format!("\"{long}\"..."));
    }
}
