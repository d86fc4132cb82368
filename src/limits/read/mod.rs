//! Reads limits from a stream of nodes: the rules for defaults, for overrides and for every field, and the texts of their
//! faults. The nodes come from a file of YAML (`limits/yaml/`) or from a section of a configuration (`limits/config/`).

mod custom;
mod custom_limit;
mod duration;
mod entries;
mod entry;
mod entry_fields;
mod entry_options;
mod faults;
mod fields;
mod floors;
mod ids;
mod limit;
mod names;
mod node;
mod parameters;
#[cfg(feature = "serde")]
mod parts;
#[cfg(feature = "valkey")]
mod sharing;
#[cfg(not(feature = "valkey"))]
#[path = "no_sharing.rs"]
mod sharing;
mod store;
mod string_ids;
mod walk;

pub use custom::AlgorithmFields;
pub(crate) use names::{Names, ReadOptions};
pub(crate) use node::{DEPTH_MAX, Node, Nodes, Scalar, StreamFault, Style, Value, too_deep};
pub(crate) use walk::{File, Role, walk};

/// Used by the reader of configurations only.
#[cfg(feature = "serde")]
pub(crate) use {
    duration::parse as parse_duration,
    faults::{Faults, Path},
    fields::{boolean, named, unknown_field, whole_number_or_0},
    node::shown_scalar,
    parts::{read_limit, read_limit_options, read_override_options},
    string_ids::WrittenId,
};
