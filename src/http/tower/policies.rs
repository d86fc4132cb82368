//! Values that are made once: the policies of a rule, and the lists of several.

use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::http::fields::PolicyLists;
use crate::http::{Answer, Policy, SetupError};
use crate::limit::Limit;

/// Sets of numbers that are kept, overrides included. Those beyond are made for each response.
const KEPT: usize = 16;

/// Combinations of policies whose lists are kept: which rules apply differs from request to request.
const LISTS_KEPT: usize = 8;

/// The policies of one rule, one for each set of numbers. Filled from the front, and never changed: a
/// request reads what is there. Two that fill the same place at once wait for the move of one pointer.
#[derive(Debug)]
pub(crate) struct Policies {
    name: Box<str>,
    kept: [OnceLock<(Limit, Policy)>; KEPT],
}

/// Where a policy is. Requests on all cores would meet in the count of a shared pointer.
#[derive(Debug)]
pub(crate) enum Found {
    Kept(u8),
    /// There was no room for it.
    Made(Box<Policy>),
}

impl Policies {
    /// The policies of a rule by this name.
    ///
    /// # Errors
    ///
    /// The name is none that a field can carry.
    pub(crate) fn new(name: &str) -> Result<Policies, SetupError> {
        Policy::check_name(name)?;
        Ok(Policies { name: name.into(), kept: Default::default() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The policy of these numbers.
    pub(crate) fn find(&self, limit: &Limit) -> Option<Found> {
        for (place, kept) in (0..).zip(&self.kept) {
            if kept.get().is_none() {
                // Another may be faster, with these numbers or others: what it puts there stays.
                let _ = kept.set((limit.clone(), self.make(limit)?));
            }
            if kept.get().is_some_and(|(kept, _)| kept == limit) {
                return Some(Found::Kept(place));
            }
        }
        Some(Found::Made(Box::new(self.make(limit)?)))
    }

    /// What `find` found.
    pub(crate) fn get<'p>(&'p self, found: &'p Found) -> Option<&'p Policy> {
        match found {
            Found::Kept(place) => Some(&self.kept.get(usize::from(*place))?.get()?.1),
            Found::Made(policy) => Some(policy),
        }
    }

    fn make(&self, limit: &Limit) -> Option<Policy> {
        // The name was looked at when this was made.
        Policy::new(&self.name, limit).ok()
    }
}

/// The lists of several policies, for each combination. Filled as [`Policies`] are.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    kept: [OnceLock<Combination>; LISTS_KEPT],
}

/// The positions of rules, and where their policies are.
pub(crate) type Places = SmallVec<[(usize, u8); 4]>;

#[derive(Debug)]
struct Combination {
    of: Places,
    lists: PolicyLists,
}

impl Lists {
    /// The lists of the policies at these places, which are those of the answer's items, without
    /// partition keys. `None` if there is no room for them.
    pub(crate) fn of(&self, places: &Places, answer: &Answer<'_>) -> Option<&PolicyLists> {
        for kept in &self.kept {
            if kept.get().is_none() {
                // As in `Policies::find`.
                let _ = kept.set(Combination { of: places.clone(), lists: answer.policy_lists() });
            }
            if let Some(combination) = kept.get().filter(|kept| kept.of == *places) {
                return Some(&combination.lists);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn policies_are_cached_and_right_beyond_the_cache() {
        let policies = Policies::new("a").unwrap();
        let limit = |burst| Limit::new(burst, 1, Duration::from_secs(1)).unwrap();
        for burst in 1..=40 {
            let found = policies.find(&limit(burst)).unwrap();
            assert_eq!(matches!(found, Found::Kept(_)), burst <= KEPT as u64);
            assert_eq!(policies.get(&found).unwrap().quota(), burst);
        }
        for burst in [1, 16] {
            let found = policies.find(&limit(burst)).unwrap();
            assert!(matches!(found, Found::Kept(place) if u64::from(place) == burst - 1));
        }
    }
}
