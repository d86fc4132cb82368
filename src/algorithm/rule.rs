//! The rule of a limit, whichever it is. gcra's arm is compiled into its callers; the others are calls.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::gcra::Gcra;
use crate::algorithm::leaky_bucket::LeakyBucket;
use crate::algorithm::token_bucket::TokenBucket;
use crate::algorithm::{Algorithm, Charge, Grant, Outcome, packed};
use crate::clock::MAX_NOW_NS;
use crate::decision::Decision;

/// The largest count that a word of 24 bits for it has room for.
pub(crate) const MAX_COUNT: u64 = (1 << 24) - 1;

/// The bits that no word of a rule may have: the table's.
const TABLES_BITS: u64 = 1 << 63;

#[derive(Clone, Debug)]
pub(crate) enum Rule {
    Gcra(Gcra),
    FixedWindow(FixedWindow),
    TokenBucket(TokenBucket),
    LeakyBucket(LeakyBucket),
    Custom(Arc<dyn Algorithm>),
}

const _: () = assert!(size_of::<Rule>() <= 32, "a rule is read on the way of a request");

impl Rule {
    pub(crate) const GCRA: &'static str = "gcra";

    #[inline(always)]
    pub(crate) fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        match self {
            Rule::Gcra(gcra) => gcra.spend(word, now_ns, cost),
            other => other.spend_other(word, now_ns, cost),
        }
    }

    #[inline(always)]
    pub(crate) fn gcra(&self) -> Option<&Gcra> {
        if let Rule::Gcra(gcra) = self { Some(gcra) } else { None }
    }

    #[inline(never)]
    fn spend_other(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        match self {
            Rule::Gcra(rule) => rule.spend(word, now_ns, cost),
            Rule::FixedWindow(rule) => rule.spend(word, now_ns, cost),
            Rule::TokenBucket(rule) => rule.spend(word, now_ns, cost),
            Rule::LeakyBucket(rule) => rule.spend(word, now_ns, cost),
            Rule::Custom(rule) => checked(rule.spend(word, now_ns, cost)),
        }
    }

    #[inline(never)]
    pub(crate) fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        match self {
            Rule::Gcra(rule) => rule.refund(word, now_ns, cost),
            Rule::FixedWindow(rule) => rule.refund(word, now_ns, cost),
            Rule::TokenBucket(rule) => rule.refund(word, now_ns, cost),
            Rule::LeakyBucket(rule) => rule.refund(word, now_ns, cost),
            Rule::Custom(rule) => {
                let outcome = checked(rule.refund(word, now_ns, cost));
                Outcome { decision: outcome.decision.of_refund(), ..outcome }
            }
        }
    }

    #[inline(never)]
    pub(crate) fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        match self {
            Rule::Gcra(rule) => rule.reset(word, now_ns),
            Rule::FixedWindow(rule) => rule.reset(word, now_ns),
            Rule::TokenBucket(rule) => rule.reset(word, now_ns),
            Rule::LeakyBucket(rule) => rule.reset(word, now_ns),
            Rule::Custom(rule) => checked(rule.reset(word, now_ns)),
        }
    }

    /// The word with `charge` taken back, `None` to leave it; `now_ns` is asked only where it matters.
    pub(crate) fn roll_back(
        &self,
        word: u64,
        charge: Charge,
        now_ns: impl Fn() -> u64,
    ) -> Option<u64> {
        match self {
            Rule::Gcra(rule) => rule.roll_back(word, charge, now_ns),
            Rule::FixedWindow(rule) => rule.roll_back(word, charge, &now_ns),
            Rule::TokenBucket(rule) => rule.roll_back(word, charge, &now_ns),
            Rule::LeakyBucket(rule) => rule.roll_back(word, charge, &now_ns),
            Rule::Custom(rule) => {
                rule.roll_back(word, charge, &now_ns).filter(|&word| is_allowed(word))
            }
        }
    }

    /// A place behind all that have one; see [`Algorithm::reserve`].
    pub(crate) fn reserve(&self, word: u64, now_ns: u64, cost: u64) -> Option<Grant> {
        match self {
            Rule::Gcra(rule) => rule.reserve(word, now_ns, cost),
            Rule::FixedWindow(rule) => rule.reserve(word, now_ns, cost),
            Rule::TokenBucket(rule) => rule.reserve(word, now_ns, cost),
            Rule::LeakyBucket(rule) => rule.reserve(word, now_ns, cost),
            Rule::Custom(rule) => rule
                .reserve(word, now_ns, cost)
                .filter(|grant| is_allowed(grant.word) && grant.at_ns <= MAX_NOW_NS)
                .map(|grant| Grant { at_ns: grant.at_ns.max(now_ns), ..grant }),
        }
    }

    /// What was charged by `charge` of a cost, but for `actual` units of it, which are less. `None` if that
    /// cannot be told.
    pub(crate) fn without(&self, charge: Charge, cost: u64, actual: u64) -> Option<Charge> {
        if actual == 0 {
            return Some(charge);
        }
        let more = cost.saturating_sub(actual);
        let before = match self {
            // What was charged was at most a burst offset.
            Rule::Gcra(rule) => charge.after.checked_sub(rule.emission_interval_ns() * more)?,
            Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::LeakyBucket(_) => {
                packed::less(charge.after, more)?
            }
            Rule::Custom(rule) => {
                let outcome = checked(rule.spend(charge.before, charge.now_ns, actual));
                outcome.word?
            }
        };
        Some(Charge { before, ..charge })
    }

    /// The word with `cost` owed; see [`Algorithm::owe`].
    pub(crate) fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        match self {
            Rule::Gcra(rule) => rule.owe(word, now_ns, cost, max_debt),
            Rule::FixedWindow(rule) => rule.owe(word, now_ns, cost, max_debt),
            Rule::TokenBucket(rule) => rule.owe(word, now_ns, cost, max_debt),
            Rule::LeakyBucket(rule) => rule.owe(word, now_ns, cost, max_debt),
            Rule::Custom(rule) => {
                rule.owe(word, now_ns, cost, max_debt).filter(|&word| is_allowed(word))
            }
        }
    }

    /// By how much one word of a bucket is below another, in the measure of [`Charge::lowered`].
    pub(crate) fn measure(&self, high: u64, low: u64) -> u64 {
        match self {
            Rule::Gcra(_) | Rule::Custom(_) => high.saturating_sub(low),
            Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::LeakyBucket(_) => {
                packed::count_of(high).saturating_sub(packed::count_of(low))
            }
        }
    }

    #[inline]
    pub(crate) fn is_full(&self, word: u64, now_ns: u64) -> bool {
        match self {
            Rule::Gcra(_) => Gcra::is_full(word, now_ns),
            Rule::FixedWindow(rule) => rule.is_full(word, now_ns),
            Rule::TokenBucket(rule) => rule.is_full(word, now_ns),
            Rule::LeakyBucket(rule) => rule.is_full(word, now_ns),
            Rule::Custom(rule) => rule.is_full(word, now_ns),
        }
    }

    /// Whether a factor changes when a bucket with a given word is full.
    pub(crate) fn fills_slower_by_factor(&self) -> bool {
        match self {
            // Its word is the time when it is full.
            Rule::Gcra(_) => false,
            // The next windows take what one does not hold.
            Rule::FixedWindow(_) | Rule::TokenBucket(_) => true,
            Rule::LeakyBucket(_) | Rule::Custom(_) => true,
        }
    }

    /// A lower bound on the time between a charge and a moment at which its bucket is full again.
    pub(crate) fn unit_ns(&self) -> u64 {
        match self {
            Rule::Gcra(gcra) => gcra.emission_interval_ns(),
            // A window may end, and a drip may fall, right after a charge.
            Rule::FixedWindow(_) | Rule::TokenBucket(_) | Rule::LeakyBucket(_) => 1,
            Rule::Custom(rule) => rule.unit_ns().max(1),
        }
    }

    /// Whether it is the caller's own.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Rule::Custom(_))
    }

    /// What a newcomer that finds no room is told to wait: about the time in which some of what others
    /// have spent comes back.
    pub(crate) fn wait_for_room_ns(&self) -> u64 {
        match self {
            Rule::Gcra(gcra) => gcra.emission_interval_ns(),
            Rule::FixedWindow(rule) => packed::ns_of(rule.window.ms()),
            Rule::TokenBucket(rule) => packed::ns_of(rule.window.ms()),
            Rule::LeakyBucket(rule) => packed::ns_of(rule.drip_rate_ms),
            Rule::Custom(rule) => rule.unit_ns().max(1),
        }
    }

    /// See [`Algorithm::shifted`].
    pub(crate) fn shifted(&self, word: u64, by_ns: u64, now_ns: u64) -> Option<u64> {
        match self {
            Rule::Gcra(_) => Some(Gcra::shifted(word, by_ns)),
            Rule::FixedWindow(rule) => rule.shifted(word, by_ns, now_ns),
            Rule::TokenBucket(rule) => rule.shifted(word, by_ns, now_ns),
            Rule::LeakyBucket(rule) => rule.shifted(word, by_ns, now_ns),
            Rule::Custom(rule) => {
                rule.shifted(word, by_ns, now_ns).filter(|&word| is_allowed(word))
            }
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Rule::Gcra(_) => Rule::GCRA,
            Rule::FixedWindow(rule) => rule.name(),
            Rule::TokenBucket(rule) => rule.name(),
            Rule::LeakyBucket(rule) => rule.name(),
            Rule::Custom(rule) => rule.name(),
        }
    }

    /// A full word, for the seam.
    pub(crate) fn full(&self, now_ns: u64) -> u64 {
        match self {
            Rule::Gcra(_) => now_ns.clamp(1, MAX_NOW_NS),
            Rule::FixedWindow(rule) => rule.full(now_ns),
            Rule::TokenBucket(rule) => rule.full(now_ns),
            Rule::LeakyBucket(rule) => rule.full(now_ns),
            Rule::Custom(rule) => rule.full(now_ns),
        }
    }
}

fn is_allowed(word: u64) -> bool {
    word != 0 && word & TABLES_BITS == 0
}

/// The outcome of a rule that is not ours: what it must not write is not written, and then denied.
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

impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        match (self, other) {
            (Rule::Gcra(a), Rule::Gcra(b)) => a == b,
            (Rule::FixedWindow(a), Rule::FixedWindow(b)) => a == b,
            (Rule::TokenBucket(a), Rule::TokenBucket(b)) => a == b,
            (Rule::LeakyBucket(a), Rule::LeakyBucket(b)) => a == b,
            (Rule::Custom(a), Rule::Custom(b)) => std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
            _ => false,
        }
    }
}

impl Eq for Rule {}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Rule::Gcra(rule) => rule.hash(state),
            Rule::FixedWindow(rule) => rule.hash(state),
            Rule::TokenBucket(rule) => rule.hash(state),
            Rule::LeakyBucket(rule) => rule.hash(state),
            Rule::Custom(rule) => Arc::as_ptr(rule).cast::<()>().hash(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use crate::algorithm::{Algorithm, Outcome};
    use crate::limit::Limit;

    const MS: u64 = 1_000_000;

    fn any_limit() -> impl Strategy<Value = Limit> {
        let ms = Duration::from_millis;
        prop_oneof![
            (1..20u64, 1..5_000u64).prop_map(move |(n, t)| Limit::new(n, 1, ms(t)).unwrap()),
            (1..20u64, 1..5_000u64).prop_map(move |(n, t)| Limit::fixed_window(n, ms(t)).unwrap()),
            (1..20u64, 1..5_000u64, 1..20u64).prop_map(move |(n, t, b)| Limit::token_bucket(
                n.max(b),
                ms(t),
                b
            )
            .unwrap()),
            (1..20u32, 1..500u64, 1..5u32).prop_map(move |(n, t, d)| Limit::leaky_bucket(
                n,
                ms(t),
                d
            )
            .unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn shifted_word_answers_alike_or_owes_more(
            limit in any_limit(),
            start_ms in 1..10_000u64,
            calls in prop::collection::vec((0..3_000 * MS, 0..10u64, any::<bool>()), 1..20),
            by_ms in 0..20_000u64,
            wait_ns in 0..10_000 * MS,
        ) {
            let (mut word, mut now_ns) = (0, start_ms * MS);
            for (step_ns, cost, is_spend) in calls {
                now_ns += step_ns;
                let cost = cost.min(limit.max_cost());
                let outcome = if is_spend {
                    limit.spend(word, now_ns, cost)
                } else {
                    limit.refund(word, now_ns, cost)
                };
                word = outcome.word.unwrap_or(word);
            }
            now_ns += wait_ns;
            let by_ms = by_ms % (now_ns / MS);
            let by_ns = by_ms * MS;
            if word == 0 {
                return Ok(());
            }
            let then_ns = now_ns - by_ns;
            let shifted = limit.shifted(word, by_ns, then_ns).unwrap();
            prop_assert!(shifted != 0 && shifted >> 63 == 0);
            let is_exact = match limit.algorithm() {
                "gcra" => true,
                // The last drip comes after the origin.
                "leaky_bucket" => Duration::from_nanos(then_ns) > limit.period(),
                _ => word >> 24 > by_ms,
            };
            for cost in 0..=limit.max_cost() {
                let old = limit.spend(word, now_ns, cost);
                let new = limit.spend(shifted, then_ns, cost);
                if is_exact {
                    prop_assert_eq!(new.decision, old.decision, "{:?} {:#x}", limit, word);
                    let left = old.word.map(|word| limit.shifted(word, by_ns, then_ns).unwrap());
                    prop_assert_eq!(new.word, left, "{:?} {:#x}", limit, word);
                } else {
                    prop_assert!(!new.decision.allowed() || old.decision.allowed());
                    let left = |outcome: &Outcome| outcome.decision.remaining();
                    prop_assert!(cost > 0 || left(&new) <= left(&old));
                    let waits = |outcome: &Outcome| outcome.decision.retry_in();
                    prop_assert!(old.decision.allowed() || waits(&new) >= waits(&old));
                }
            }
            prop_assert!(!limit.is_full(shifted, then_ns) || limit.is_full(word, now_ns));
        }
    }

    #[test]
    fn drips_before_the_origin_have_dripped() {
        // 10 units, one a second, which were put in in the millisecond 500.
        let limit = Limit::leaky_bucket(10, Duration::from_secs(1), 1).unwrap();
        let word = limit.spend(0, 499 * MS + 1, 10).word.unwrap();
        let remaining = |by_ms: u64, from_ms: u64, at_ms: u64| {
            let word = limit.shifted(word, by_ms * MS, from_ms * MS).unwrap();
            limit.spend(word, at_ms * MS, 0).decision.remaining()
        };
        assert_eq!(remaining(400, 101, 101), Some(0));
        assert_eq!(remaining(3_600, 1, 1), Some(3), "at 3.6 s three have dripped");
        assert_eq!(remaining(3_600, 1, 1_000), Some(3), "the fourth is late");
        assert_eq!(remaining(3_600, 1, 1_001), Some(4), "by less than a rate");
        assert_eq!(remaining(3_600, 900, 900), Some(4), "in time");
        assert_eq!(remaining(3_600, 900, 1_899), Some(4));
        assert_eq!(remaining(3_600, 900, 1_900), Some(5));
        assert_eq!(remaining(60_000, 1, 1), Some(10));
    }
}
