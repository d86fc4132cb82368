//! What a build without the feature for shared limits writes of them: nothing.

use super::tree::Tree;
use crate::limits::StoreOptions;
use crate::limits::sharing::Sharing;

type Fields = Vec<(&'static str, Tree)>;

pub(super) fn sharing_fields(_: &Sharing) -> Fields {
    Fields::new()
}

pub(super) fn store_fields(store: &StoreOptions) -> Fields {
    match *store {}
}
