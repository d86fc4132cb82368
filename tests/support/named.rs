//! A gcra limit under the name of a custom algorithm, for files that name it.

use tollgate::Limit;
use tollgate::algorithm::{Algorithm, Outcome};

#[derive(Debug)]
pub(crate) struct Named(pub(crate) Limit, pub(crate) &'static str);

impl Algorithm for Named {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.0.spend(word, now_ns, cost)
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        self.0.refund(word, now_ns, cost)
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.0.is_full(word, now_ns)
    }

    fn full(&self, now_ns: u64) -> u64 {
        self.0.full(now_ns)
    }

    fn max_cost(&self) -> u64 {
        self.0.burst()
    }

    fn name(&self) -> &'static str {
        self.1
    }
}
