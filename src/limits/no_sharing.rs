//! What a build without the feature for shared limits has in their place: each limit is local.

/// How a limit is shared: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sharing;

/// The options of a store, of which there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreOptions {}
