//! Caches the policies of a limit and its overrides.

use std::sync::OnceLock;

use crate::http::{Policy, QuotaUnit, SetupError};
use crate::limit::Limit;

/// The number of limits that one name caches: the first that responses have, including those of overrides, scaled limits, and
/// limits that a reload has replaced since. The policies of further limits are made for each response.
const CACHED_POLICIES: usize = 16;

/// The policies of the limits under one name. The slots are filled in order and never change, so that a request reads them
/// without a lock. Only requests that fill the same slot at the same time wait, for the move of one value.
#[derive(Debug)]
pub(crate) struct PolicyCache {
    name: Box<str>,
    unit: QuotaUnit,
    slots: [OnceLock<(Limit, Policy)>; CACHED_POLICIES],
}

/// A policy in a cache, or beside it. An index is used in place of a shared pointer, whose reference count would be
/// contended by all cores.
#[derive(Debug)]
pub(crate) enum PolicyRef {
    Cached(u8),
    /// The cache is full.
    Owned(Box<Policy>),
}

impl PolicyCache {
    /// Makes an empty cache for a limit that clients see under `name`.
    ///
    /// # Errors
    ///
    /// A field cannot contain the name.
    pub(crate) fn new(name: &str) -> Result<PolicyCache, SetupError> {
        Policy::check_name(name)?;
        Ok(PolicyCache::with_limits_name(name))
    }

    /// Makes an empty cache for a limit under its own name, which every field can contain.
    pub(crate) fn with_limits_name(name: &str) -> PolicyCache {
        PolicyCache { name: name.into(), unit: QuotaUnit::default(), slots: Default::default() }
    }

    /// Sets the unit in which the limit counts.
    pub(crate) fn counting_in(self, unit: QuotaUnit) -> PolicyCache {
        PolicyCache { unit, slots: Default::default(), ..self }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Finds the policy of `limit`, or makes it.
    pub(crate) fn find(&self, limit: &Limit) -> Option<PolicyRef> {
        self.find_or_make(limit, 0, |(cached, _)| cached == limit)
    }

    /// Finds the policy of `limit` for clients whose calls must leave `floor` units, or makes it. A cache whose clients have a
    /// floor is asked by this function alone.
    #[cfg(feature = "tower")]
    pub(crate) fn find_leaving(&self, limit: &Limit, floor: u64) -> Option<PolicyRef> {
        self.find_or_make(limit, floor, |(cached, policy)| {
            cached == limit && policy.figures.floor == floor
        })
    }

    // Always: a response without a priority must not pay for a second comparison or a call (work `layer-fields`).
    #[inline(always)]
    fn find_or_make(
        &self,
        limit: &Limit,
        floor: u64,
        is_of: impl Fn(&(Limit, Policy)) -> bool,
    ) -> Option<PolicyRef> {
        for (index, slot) in (0..).zip(&self.slots) {
            if slot.get().is_none() {
                // Another request may fill the slot first, with this limit or another one. Its policy stays.
                let _ = slot.set((limit.clone(), self.make(limit, floor)?));
            }
            if slot.get().is_some_and(&is_of) {
                return Some(PolicyRef::Cached(index));
            }
        }
        Some(PolicyRef::Owned(Box::new(self.make(limit, floor)?)))
    }

    /// Returns the policy that [`find`](PolicyCache::find) has found.
    pub(crate) fn get<'p>(&'p self, policy: &'p PolicyRef) -> Option<&'p Policy> {
        match policy {
            PolicyRef::Cached(index) => Some(&self.slots.get(usize::from(*index))?.get()?.1),
            PolicyRef::Owned(policy) => Some(policy),
        }
    }

    fn make(&self, limit: &Limit, floor: u64) -> Option<Policy> {
        // Every field can contain the name, so this is never `None`.
        Some(Policy::leaving(&self.name, limit, floor).ok()?.unit(self.unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn policies_are_right_within_and_beyond_the_cache() {
        let policies = PolicyCache::new("a").unwrap();
        let limit = |burst| Limit::new(burst, 1, Duration::from_secs(1)).unwrap();
        for burst in 1..=40 {
            let found = policies.find(&limit(burst)).unwrap();
            let is_cached = matches!(found, PolicyRef::Cached(_));
            assert_eq!(is_cached, burst <= CACHED_POLICIES as u64);
            assert_eq!(policies.get(&found).unwrap().quota(), burst);
        }
        for burst in [1, 16] {
            let found = policies.find(&limit(burst)).unwrap();
            assert!(matches!(found, PolicyRef::Cached(slot) if u64::from(slot) == burst - 1));
        }
    }
}
