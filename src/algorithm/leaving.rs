//! Spends that must leave units in the bucket.

use crate::algorithm::Outcome;
use crate::algorithm::demand::Demand;
use crate::algorithm::rule::Rule;

impl Rule {
    /// Charges `demand.cost` units if the bucket has them and those that it must leave. The caller has checked that they
    /// are together at most the largest cost.
    ///
    /// The rule is asked about all of them; if it allows that, it is asked for the word after the cost alone.
    pub(crate) fn spend_leaving(&self, word: u64, now_ns: u64, demand: Demand) -> Outcome {
        let Demand { cost, leave } = demand;
        if leave == 0 {
            return self.spend(word, now_ns, cost);
        }
        let with_rest = self.spend(word, now_ns, demand.needed());
        if !with_rest.decision.allowed() {
            return Outcome { word: None, ..with_rest };
        }
        let charged = self.spend(word, now_ns, cost);
        if !charged.decision.allowed() {
            return charged;
        }
        // The wait after an allowed call is that of the same call.
        let again = self.spend(charged.word.unwrap_or(word), now_ns, demand.needed()).decision;
        Outcome { decision: charged.decision.with_wait_of(&again), ..charged }
    }
}
