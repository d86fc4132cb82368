//! The policies of one rule: one for each set of numbers, made once.

use std::sync::{Arc, OnceLock};

use crate::Limit;
use crate::http::{Policy, SetupError};

/// Sets of numbers that are kept, overrides included. Those beyond are made for each response.
const KEPT: usize = 16;

/// Filled from the front, and never changed: a request reads what is there and waits for nobody.
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
                    let _ = place.set((*limit, Arc::clone(&policy)));
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
