//! Writes the options of shared limits and of their store.

use crate::limit::Factor;
use crate::limits::StoreOptions;
use crate::limits::sharing::{Shared, Sharing};

use super::tree::Tree;

type Fields = Vec<(&'static str, Tree)>;

/// Returns the options of a shared limit that were given.
pub(super) fn sharing_fields(given: &Sharing) -> Fields {
    let mut fields = Fields::new();
    if given.shared != Shared::Local {
        fields.push(("shared", Tree::text(given.shared)));
    }
    fields.extend(given.on_error.map(|word| ("on_error", Tree::text(word))));
    fields.extend(given.fraction.map(|part| ("fraction", fraction(part))));
    fields.extend(given.allow_for.map(|time| ("for", Tree::duration(time))));
    fields.extend(given.lease.map(|time| ("lease", Tree::duration(time))));
    fields
}

/// Returns a number; a text if formats may write the number with an exponent, which files do not have.
fn fraction(part: Factor) -> Tree {
    let text = part.to_string();
    match text.parse() {
        Ok(number) if part.millionths() >= 1000 => Tree::Float(number),
        _ => Tree::Text(text),
    }
}

/// Returns the URL of a store, with its password, and the options that are not at their defaults.
pub(super) fn store_fields(store: &StoreOptions) -> Fields {
    let mut fields = vec![("url", Tree::text(store.url()))];
    if store.key_prefix() != StoreOptions::DEFAULT_PREFIX {
        fields.push(("prefix", Tree::text(store.key_prefix())));
    }
    fields.extend(store.hash_tag().map(|tag| ("tag", Tree::text(tag))));
    if store.has_boulder_keys() {
        fields.push(("format", Tree::text("boulder")));
    }
    let (connect, timeout) = (store.connects_within(), store.answers_within());
    if connect != StoreOptions::DEFAULT_CONNECT {
        fields.push(("connect", Tree::duration(connect)));
    }
    if timeout != StoreOptions::DEFAULT_ANSWER {
        fields.push(("timeout", Tree::duration(timeout)));
    }
    fields
}
