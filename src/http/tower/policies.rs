//! Values that are made once: the policies of a rule, and the lists of several.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::Limit;
use crate::http::fields::PolicyLists;
use crate::http::{Answer, Policy, SetupError};

/// Sets of numbers that are kept, overrides included. Those beyond are made for each response.
const KEPT: usize = 16;

/// Combinations of policies whose lists are kept: which rules apply differs from request to request.
const LISTS_KEPT: usize = 8;

/// The policies of one rule, one for each set of numbers. Filled from the front, and never changed: a
/// request reads what is there. Two that fill the same place at once wait for the move of one pointer.
#[derive(Debug)]
pub(crate) struct Policies {
    name: Box<str>,
    kept: [OnceLock<(Limit, Arc<Policy>)>; KEPT],
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
    pub(crate) fn of(&self, limit: &Limit) -> Option<Arc<Policy>> {
        for place in &self.kept {
            match place.get() {
                Some((kept, policy)) if kept == limit => return Some(Arc::clone(policy)),
                Some(_) => {}
                None => {
                    let policy = self.make(limit)?;
                    // Another may have been faster, with these numbers or others: what it put there
                    // stays, and these have their place the next time.
                    let _ = place.set((limit.clone(), Arc::clone(&policy)));
                    return Some(policy);
                }
            }
        }
        self.make(limit)
    }

    fn make(&self, limit: &Limit) -> Option<Arc<Policy>> {
        // The name was looked at when this was made.
        Policy::new(&self.name, limit).ok().map(Arc::new)
    }
}

/// The lists of several policies, for each combination. Filled as [`Policies`] are.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    kept: [OnceLock<Combination>; LISTS_KEPT],
}

#[derive(Debug)]
struct Combination {
    of: SmallVec<[Arc<Policy>; 4]>,
    lists: PolicyLists,
}

impl Lists {
    /// The lists of these policies, which are those of the answer's items, without partition keys.
    /// `None` if there is no room for them.
    pub(crate) fn of<'p>(
        &self,
        policies: impl Iterator<Item = &'p Arc<Policy>> + Clone,
        answer: &Answer<'_>,
    ) -> Option<&PolicyLists> {
        let is_it = |kept: &Combination| {
            // The same ones, not equal ones: a policy is made once, but beyond the number kept.
            policies.clone().map(Arc::as_ptr).eq(kept.of.iter().map(Arc::as_ptr))
        };
        for place in &self.kept {
            if place.get().is_none() {
                // Another may be faster, with these or others: what it puts there stays.
                let of = policies.clone().map(Arc::clone).collect();
                let _ = place.set(Combination { of, lists: answer.policy_lists() });
            }
            if let Some(combination) = place.get().filter(|kept| is_it(kept)) {
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
    fn a_policy_is_made_once_and_more_than_are_kept_are_right_as_well() {
        let policies = Policies::new("a").unwrap();
        let limit = |burst| Limit::new(burst, 1, Duration::from_secs(1)).unwrap();
        for burst in 1..=40 {
            assert_eq!(policies.of(&limit(burst)).unwrap().capacity(), burst);
        }
        let again = |burst| Arc::as_ptr(&policies.of(&limit(burst)).unwrap());
        assert_eq!(again(1), again(1));
        assert_eq!(again(16), again(16));
    }
}
