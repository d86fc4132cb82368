//! What ids owe that shared the newcomers' bucket before they had an override.

use std::collections::HashMap;

use super::Generation;
use crate::limits::account_of;
use crate::store::key::{KeyRef, LimitIndex, LimitTag, OwnedId};

/// The debts with which the buckets of overrides begin, by the override's id: in the units of its numbers.
///
/// Ids with an override have no part in the newcomers' bucket, so that these words do not change while their limits
/// apply.
#[derive(Default)]
pub(super) struct OwedByOverrides(HashMap<(LimitIndex, OwnedId), (LimitTag, u64)>);

impl OwedByOverrides {
    /// Those of a generation, to which `before` gave way. No newcomers' bucket of `before` changes any more.
    pub(super) fn of(generation: &Generation, before: &Generation) -> OwedByOverrides {
        let is_any = |limit| before.shared.last_word(limit) != 0;
        if before.owed.0.is_empty() && !before.limits.by_index().any(|(limit, _)| is_any(limit)) {
            return OwedByOverrides::default();
        }
        let owed = generation.limits.overrides_by_id().filter_map(|given| {
            let key = KeyRef { limit: given.limit, id: given.id };
            let word = generation.owed_since(before, key, given.tag)?;
            (word != 0).then(|| ((given.limit, OwnedId::new(given.id)), (given.tag, word)))
        });
        OwedByOverrides(owed.collect())
    }

    /// What a key's new bucket owes, whose override's numbers are `tag`.
    pub(super) fn word(&self, generation: &Generation, key: KeyRef<'_>, tag: LimitTag) -> u64 {
        if self.0.is_empty() {
            return 0;
        }
        let account = account_of(generation.limits.entry(key.limit).format, key.id);
        let found = [Some(key.id), account].into_iter().flatten().find_map(|id| {
            let (of, word) = self.0.get(&(key.limit, OwnedId::new(id)))?;
            (*of == tag).then_some(*word)
        });
        found.unwrap_or(0)
    }
}

impl Generation {
    /// What an id owed as a newcomer in the generation `before`, under the numbers `tag` of an override in this one.
    pub(super) fn owed_since(
        &self,
        before: &Generation,
        key: KeyRef<'_>,
        tag: LimitTag,
    ) -> Option<u64> {
        let old = before.limits.tag_of(key, self.at_ns)?;
        let word = match old.is_of_override() {
            true => before.owed.word(before, key, old),
            false => before.shared.last_word(key.limit),
        };
        self.changed(before.limits.limit_at(old)?, self.limits.limit_at(tag)?, word)
    }
}
