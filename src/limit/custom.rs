//! Limits by custom algorithms, and the trait [`Algorithm`] for `Limit` itself.

use std::sync::Arc;

use crate::algorithm::custom::Custom;
use crate::algorithm::rule::Rule;
use crate::algorithm::{Algorithm, Outcome};
use crate::clock::MAX_NOW_NS;
use crate::error::Error;
use crate::limit::{Limit, LimitFault, to_error};

impl Limit {
    /// Makes a limit of a custom algorithm. Two such limits are equal if they share the `Arc`.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if the algorithm's largest cost is 0, or if its name is that of a built-in algorithm:
    /// reloads and snapshots know an algorithm by its name.
    ///
    /// # Example
    ///
    /// [`Algorithm`] has a whole example.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Limit, algorithm::Algorithm};
    /// # fn f(one_a_second: impl Algorithm + 'static) -> Result<(), tollgate::Error> {
    /// let limit = Limit::custom(Arc::new(one_a_second))?;
    /// assert_eq!(limit.burst(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn custom(algorithm: Arc<dyn Algorithm>) -> Result<Limit, Error> {
        to_error(Limit::validate_custom(algorithm))
    }

    pub(super) fn validate_custom(algorithm: Arc<dyn Algorithm>) -> Result<Limit, LimitFault> {
        let max_cost = algorithm.max_cost();
        if max_cost == 0 {
            let message =
                format!("invalid largest cost 0 of {}: at least 1 is allowed", algorithm.name());
            return Err(LimitFault { field: "max_cost", message });
        }
        let name = algorithm.name();
        if Rule::BUILT_IN.contains(&name) {
            let built_in = Rule::BUILT_IN.join(", ");
            let message = format!(
                "invalid name {name:?} of a custom algorithm: any is allowed but those of the built-in algorithms, {built_in}"
            );
            return Err(LimitFault { field: "name", message });
        }
        Ok(Limit { max_cost, count: 0, period_ns: 0, rule: Rule::Custom(Custom(algorithm)) })
    }

    /// Moves arguments that are out of range to the nearest allowed value, so that no sum wraps.
    fn in_range(&self, now_ns: u64, cost: u64) -> (u64, u64) {
        (now_ns.clamp(1, MAX_NOW_NS), cost.min(self.max_cost))
    }
}

/// Runs a limit on a bare word, for simulations and tests. A cost above the largest is answered as the largest.
impl Algorithm for Limit {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let (now_ns, cost) = self.in_range(now_ns, cost);
        self.rule().spend(word, now_ns, cost)
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let (now_ns, cost) = self.in_range(now_ns, cost);
        self.rule().refund(word, now_ns, cost)
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.rule().is_full(word, now_ns)
    }

    fn full(&self, now_ns: u64) -> u64 {
        self.rule().full(now_ns)
    }

    fn max_cost(&self) -> u64 {
        self.max_cost
    }

    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        self.rule().reset(word, now_ns.clamp(1, MAX_NOW_NS))
    }

    fn shifted(&self, word: u64, by_ns: u64, now_ns: u64) -> Option<u64> {
        self.rule().shifted(word, by_ns, now_ns)
    }

    fn unit_ns(&self) -> u64 {
        self.rule().unit_ns()
    }

    fn name(&self) -> &'static str {
        self.rule().name()
    }
}
