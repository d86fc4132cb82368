//! A custom algorithm in a limit: refuses what breaks the contract, and answers what a custom algorithm is not asked.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::algorithm::built_in::BuiltIn;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::{Algorithm, Outcome};
use crate::decision::Decision;
#[cfg(feature = "http")]
use crate::util::time::saturating_ns;

/// The bit of a word that belongs to the table; no algorithm may set it.
const TABLE_BIT: u64 = 1 << 63;

/// A custom algorithm. Two are equal if they are the same object.
#[derive(Clone, Debug)]
pub(crate) struct Custom(pub(crate) Arc<dyn Algorithm>);

fn is_allowed(word: u64) -> bool {
    word != 0 && word & TABLE_BIT == 0
}

/// Replaces an outcome that breaks the contract: a forbidden word is not stored, and its call is denied.
fn checked(outcome: Outcome) -> Outcome {
    match outcome.word {
        Some(word) if !is_allowed(word) => {
            debug_assert!(is_allowed(word), "a word is never 0 and leaves its top bit clear");
            Outcome { word: None, decision: Decision::new(false, (0, 1), 1, 1) }
        }
        Some(_) if !outcome.decision.allowed() => Outcome { word: None, ..outcome },
        _ => outcome,
    }
}

impl Algorithm for Custom {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        checked(self.0.spend(word, now_ns, cost))
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        checked(self.0.refund(word, now_ns, cost))
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.0.is_full(word, now_ns)
    }

    fn full(&self, now_ns: u64) -> u64 {
        let word = self.0.full(now_ns);
        if is_allowed(word) { word } else { 1 }
    }

    fn max_cost(&self) -> u64 {
        self.0.max_cost()
    }

    fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        checked(self.0.reset(word, now_ns))
    }

    fn unit_ns(&self) -> u64 {
        self.0.unit_ns()
    }

    fn shifted(&self, word: u64, by_ns: u64, now_ns: u64) -> Option<u64> {
        self.0.shifted(word, by_ns, now_ns).filter(|&word| is_allowed(word))
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}

impl BuiltIn for Custom {
    fn charge_mark(&self, _word: u64) -> ChargeMark {
        ChargeMark(0)
    }

    fn returned(&self, word: u64, now_ns: u64, units: u64, _: ChargeMark) -> Option<u64> {
        self.refund(word, now_ns, units).word
    }

    /// Only a charge that is still the last one can be undone.
    fn undone(
        &self,
        word: u64,
        (before, after): (u64, u64),
        (charged_ns, _): (u64, u64),
    ) -> Option<u64> {
        (word == after).then(|| if before == 0 { self.full(charged_ns) } else { before })
    }

    /// A custom algorithm has no debt.
    fn owe(&self, word: u64, now_ns: u64, cost: u64, _max_debt: u64) -> Option<u64> {
        let units = cost.min(self.available(word, now_ns)).min(self.max_cost());
        self.spend(word, now_ns, units).word
    }

    fn debt_room(&self) -> u64 {
        0
    }

    fn available(&self, word: u64, now_ns: u64) -> u64 {
        self.spend(word, now_ns, 0).decision.remaining().unwrap_or(u64::MAX)
    }

    fn kept_until_ns(&self, _word: u64) -> u64 {
        0
    }

    fn fills_in_ns(&self) -> u64 {
        self.unit_ns().max(1)
    }

    /// A custom algorithm has no factors.
    fn fills_slower_by_factor(&self) -> bool {
        false
    }

    /// The wait for the same cost, if there is one, else the time until the bucket is full.
    #[cfg(feature = "http")]
    fn next_unit_ns(&self, decision: &Decision) -> u64 {
        let wait = decision.retry_in();
        saturating_ns(if wait.is_zero() { decision.reset_in() } else { wait })
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}

impl Eq for Custom {}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).cast::<()>().hash(state);
    }
}
