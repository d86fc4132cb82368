//! Keeps the debts that ids have from the overflow bucket of their limit when they get an override.

use std::collections::HashMap;

use super::Generation;
use crate::limits::account_of;
use crate::store::key::{KeyRef, LimitIndex, LimitTag, OwnedId};

/// The words with which the cells of overrides begin, by the override's id, each with its limit's tag.
///
/// Ids with an override do not use the overflow bucket. So these words do not change while their limits apply.
#[derive(Default)]
pub(super) struct OwedByOverrides(HashMap<(LimitIndex, OwnedId), (LimitTag, u64)>);

impl OwedByOverrides {
    /// Computes the debts of a generation that has replaced `before`. The overflow buckets of `before` are frozen.
    pub(super) fn new(generation: &Generation, before: &Generation) -> OwedByOverrides {
        let is_any = |limit| before.overflow.last_word(limit) != 0;
        if !before.has_owed() && !before.limits.by_index().any(|(limit, _)| is_any(limit)) {
            return OwedByOverrides::default();
        }
        let owed = generation.limits.overrides_by_id().filter_map(|given| {
            let key = KeyRef { limit: given.limit, id: given.id };
            let word = generation.owed_since(before, key, given.tag)?;
            (word != 0).then_some((key, given.tag, word))
        });
        owed.collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the word with which the new cell of a key begins, 0 for none. `tag` is the key's override.
    pub(super) fn word(&self, generation: &Generation, key: KeyRef<'_>, tag: LimitTag) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let account = account_of(generation.limits.entry(key.limit).format, key.id);
        let word = [Some(key.id), account].into_iter().flatten().find_map(|id| {
            let (owed_tag, word) = self.0.get(&(key.limit, OwnedId::new(id)))?;
            (*owed_tag == tag).then_some(*word)
        });
        word.unwrap_or(0)
    }
}

impl<'k> FromIterator<(KeyRef<'k>, LimitTag, u64)> for OwedByOverrides {
    fn from_iter<I: IntoIterator<Item = (KeyRef<'k>, LimitTag, u64)>>(owed: I) -> OwedByOverrides {
        let owed = owed.into_iter();
        OwedByOverrides(
            owed.map(|(key, tag, word)| ((key.limit, OwnedId::new(key.id)), (tag, word))).collect(),
        )
    }
}

impl Generation {
    /// Converts the debt that a key had in the generation `before`, while it was untracked, to `tag`, an override in
    /// this generation.
    pub(super) fn owed_since(
        &self,
        before: &Generation,
        key: KeyRef<'_>,
        tag: LimitTag,
    ) -> Option<u64> {
        let old = before.limits.tag_of(key, self.at_ns)?;
        let word = match old.is_of_override() {
            true => before.owed_by_override(key, old),
            false => before.overflow.last_word(key.limit),
        };
        self.convert(before.limits.limit_at(old)?, self.limits.limit_at(tag)?, word)
    }
}
