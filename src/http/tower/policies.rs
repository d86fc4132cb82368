//! Caches the joined policies of several rules.

use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::http::Answer;
use crate::http::fields::PolicyLists;

/// The number of combinations of policies whose lists are cached. Different rules may apply to different requests.
const CACHED_LISTS: usize = 8;

/// The joined policies of several rules, for each combination. Slots are filled like those of a
/// [`PolicyCache`](crate::http::policies::PolicyCache).
#[derive(Debug, Default)]
pub(crate) struct PolicyListCache {
    slots: [OnceLock<Combination>; CACHED_LISTS],
}

/// The positions of rules, each with the slot of its policy.
pub(crate) type PolicySlots = SmallVec<[(usize, u8); 4]>;

#[derive(Debug)]
struct Combination {
    policies: PolicySlots,
    lists: PolicyLists,
}

impl PolicyListCache {
    /// Finds the joined policies of an answer's items, or makes them. `policies` are the items' policies, none of which
    /// may have a partition key. `None` if the cache is full.
    pub(crate) fn get_or_make(
        &self,
        policies: &PolicySlots,
        answer: &Answer<'_>,
    ) -> Option<&PolicyLists> {
        for slot in &self.slots {
            if slot.get().is_none() {
                // As in `PolicyCache::find`.
                let (policies, lists) = (policies.clone(), answer.policy_lists());
                let _ = slot.set(Combination { policies, lists });
            }
            if let Some(combination) = slot.get().filter(|cached| cached.policies == *policies) {
                return Some(&combination.lists);
            }
        }
        None
    }
}
