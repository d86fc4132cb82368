//! Reads and writes limits and options as sections of an application's configuration, by serde. A section becomes a tree
//! of values, and the tree's nodes go to the same reader as those of a file.

mod factor;
mod nodes;
mod overrides;
mod read;
mod section;
#[cfg(feature = "valkey")]
mod sharing;
#[cfg(not(feature = "valkey"))]
#[path = "no_sharing.rs"]
mod sharing;
mod tree;
mod write;

pub use overrides::Overrides;
pub(crate) use section::{read_section, write_section};
pub(crate) use tree::Tree;
