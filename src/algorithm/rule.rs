//! The algorithm of a limit as an enum. gcra's spend is compiled into its callers.

#[cfg(feature = "http")]
use std::time::Duration;

use crate::algorithm::built_in::BuiltIn;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::concurrency::Concurrency;
use crate::algorithm::custom::Custom;
use crate::algorithm::gcra::Gcra;
use crate::algorithm::leaky_bucket::LeakyBucket;
use crate::algorithm::window::Window;
use crate::algorithm::{Algorithm, Outcome};
#[cfg(feature = "http")]
use crate::decision::Decision;
use crate::util::time::saturating_ns;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    Gcra(Gcra),
    Window(Window),
    LeakyBucket(LeakyBucket),
    Concurrency(Concurrency),
    Custom(Custom),
}

const _: () = assert!(size_of::<Rule>() <= 32, "each request reads a rule");

/// Calls a method of whichever algorithm.
macro_rules! each {
    ($rule:expr, $algorithm:ident => $call:expr) => {
        match $rule {
            Rule::Gcra($algorithm) => $call,
            Rule::Window($algorithm) => $call,
            Rule::LeakyBucket($algorithm) => $call,
            Rule::Concurrency($algorithm) => $call,
            Rule::Custom($algorithm) => $call,
        }
    };
}

impl Rule {
    pub(crate) const GCRA: &'static str = Gcra::NAME;
    pub(crate) const CONCURRENCY: &'static str = Concurrency::NAME;
    /// The names of the built-in algorithms.
    pub(crate) const BUILT_IN: [&'static str; 5] = [
        Gcra::NAME,
        Window::FIXED_NAME,
        Window::TOKEN_BUCKET_NAME,
        LeakyBucket::NAME,
        Concurrency::NAME,
    ];

    #[inline(always)]
    pub(crate) fn gcra(&self) -> Option<&Gcra> {
        if let Rule::Gcra(gcra) = self { Some(gcra) } else { None }
    }

    /// Returns the rule of a limit that counts what is in flight.
    pub(crate) fn concurrency(&self) -> Option<&Concurrency> {
        if let Rule::Concurrency(concurrency) = self { Some(concurrency) } else { None }
    }

    pub(crate) fn is_concurrency(&self) -> bool {
        matches!(self, Rule::Concurrency(_))
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self, Rule::Custom(_))
    }

    #[inline(always)]
    pub(crate) fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        match self {
            Rule::Gcra(gcra) => gcra.spend(word, now_ns, cost),
            other => other.spend_other(word, now_ns, cost),
        }
    }

    #[inline(never)]
    fn spend_other(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        each!(self, it => it.spend(word, now_ns, cost))
    }

    /// Spends as many units as there are, at most `most`, and returns their number. With no unit left, the outcome is that
    /// of a denied spend of 1. `most` is at most the limit's burst.
    pub(crate) fn spend_up_to(&self, word: u64, now_ns: u64, most: u64) -> (u64, Outcome) {
        let units = self.available(word, now_ns).max(1).min(most);
        let outcome = self.spend(word, now_ns, units);
        (if outcome.decision.allowed() { units } else { 0 }, outcome)
    }

    /// Charges all units that there are but `leave`. The outcome's decision has the figures after it, and is no denial.
    pub(crate) fn drain(&self, word: u64, now_ns: u64, leave: u64) -> Outcome {
        let units = self.available(word, now_ns).saturating_sub(leave);
        let drained = if units == 0 { None } else { self.owe(word, now_ns, units, 0) };
        let after = self.spend(drained.unwrap_or(word), now_ns, 0).decision;
        Outcome { word: drained, decision: after.of_refund() }
    }

    #[inline(never)]
    pub(crate) fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        let outcome = each!(self, it => it.refund(word, now_ns, cost));
        Outcome { decision: outcome.decision.of_refund(), ..outcome }
    }

    #[inline(never)]
    pub(crate) fn reset(&self, word: u64, now_ns: u64) -> Outcome {
        each!(self, it => it.reset(word, now_ns))
    }

    /// See [`BuiltIn::charge_mark`].
    pub(crate) fn charge_mark(&self, word: u64) -> ChargeMark {
        each!(self, it => it.charge_mark(word))
    }

    /// See [`BuiltIn::returned`].
    pub(crate) fn returned(
        &self,
        word: u64,
        now_ns: u64,
        units: u64,
        charge: ChargeMark,
    ) -> Option<u64> {
        each!(self, it => it.returned(word, now_ns, units, charge))
    }

    /// See [`BuiltIn::undone`].
    pub(crate) fn undone(&self, word: u64, change: (u64, u64), times: (u64, u64)) -> Option<u64> {
        each!(self, it => it.undone(word, change, times))
    }

    /// See [`BuiltIn::owe`].
    pub(crate) fn owe(&self, word: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        each!(self, it => it.owe(word, now_ns, cost, max_debt))
    }

    /// See [`BuiltIn::debt_room`].
    pub(crate) fn debt_room(&self) -> u64 {
        each!(self, it => it.debt_room())
    }

    /// See [`BuiltIn::available`].
    fn available(&self, word: u64, now_ns: u64) -> u64 {
        each!(self, it => it.available(word, now_ns))
    }

    #[inline]
    pub(crate) fn is_full(&self, word: u64, now_ns: u64) -> bool {
        each!(self, it => Algorithm::is_full(it, word, now_ns))
    }

    /// Returns the time from `now_ns` until the bucket is full, as [`is_full`](Self::is_full) says.
    pub(crate) fn full_in_ns(&self, word: u64, now_ns: u64) -> u64 {
        let full_in_ns = saturating_ns(self.spend(word, now_ns, 0).decision.reset_in());
        let kept_until_ns = each!(self, it => it.kept_until_ns(word));
        full_in_ns.max(kept_until_ns.saturating_sub(now_ns))
    }

    /// Returns the time at which the bucket is full, if it is not charged again.
    pub(crate) fn full_at_ns(&self, word: u64, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.full_in_ns(word, now_ns))
    }

    /// See [`BuiltIn::fills_slower_by_factor`].
    pub(crate) fn fills_slower_by_factor(&self) -> bool {
        each!(self, it => it.fills_slower_by_factor())
    }

    /// See [`Algorithm::unit_ns`]. A window can end, and a leaky bucket can drip, right after a charge.
    pub(crate) fn unit_ns(&self) -> u64 {
        each!(self, it => it.unit_ns()).max(1)
    }

    /// See [`BuiltIn::fills_in_ns`].
    pub(crate) fn fills_in_ns(&self) -> u64 {
        each!(self, it => it.fills_in_ns())
    }

    /// See [`BuiltIn::next_unit_ns`].
    #[cfg(feature = "http")]
    pub(crate) fn next_unit_in(&self, decision: &Decision) -> Duration {
        Duration::from_nanos(each!(self, it => it.next_unit_ns(decision)))
    }

    /// See [`Algorithm::shifted`].
    pub(crate) fn shifted(&self, word: u64, by_ns: u64, now_ns: u64) -> Option<u64> {
        each!(self, it => it.shifted(word, by_ns, now_ns))
    }

    /// See [`Algorithm::full`].
    pub(crate) fn full(&self, now_ns: u64) -> u64 {
        each!(self, it => it.full(now_ns))
    }

    pub(crate) fn name(&self) -> &'static str {
        each!(self, it => it.name())
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
                b,
                n.max(b),
                ms(t)
            )
            .unwrap()),
            (1..20u64, 1..500u64, 1..5u64).prop_map(move |(n, t, d)| Limit::leaky_bucket(
                n,
                d,
                ms(t)
            )
            .unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn shifted_word_answers_same_or_owes_more(
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
                // Exact if the last drip is after the origin.
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

    #[cfg(feature = "http")]
    proptest! {
        #[test]
        fn next_unit_comes_exactly_then(
            limit in any_limit(),
            calls in prop::collection::vec((0..3_000 * MS, 0..4u64), 1..20),
        ) {
            // The counting algorithms have a resolution of a millisecond.
            let step_ns = if limit.algorithm() == "gcra" { 1 } else { MS };
            let (mut word, mut now_ns) = (0, 5_000 * MS);
            for (wait_ns, cost) in calls {
                now_ns += wait_ns / step_ns * step_ns;
                let outcome = limit.spend(word, now_ns, cost.min(limit.max_cost()));
                word = outcome.word.unwrap_or(word);
                if !outcome.decision.allowed() {
                    continue;
                }
                let rule = limit.rule();
                let next_ns = rule.next_unit_in(&outcome.decision).as_nanos() as u64;
                // A new window of a token bucket may hold fewer tokens, and has more of its quota.
                let units = |at_ns| {
                    let remaining = limit.spend(word, at_ns, 0).decision.remaining();
                    (rule.available(word, at_ns), remaining.unwrap())
                };
                let now = units(now_ns);
                if next_ns == 0 {
                    prop_assert!(limit.is_full(word, now_ns), "{:?} {:#x}", limit, word);
                    continue;
                }
                let says = format!("{limit:?} {word:#x} at {now_ns}: {next_ns} ns");
                prop_assert_eq!(units(now_ns + next_ns - step_ns), now, "{}", says);
                let then = units(now_ns + next_ns);
                prop_assert!(then.0 > now.0 || then.1 > now.1, "{}", says);
            }
        }
    }

    #[test]
    fn drips_before_the_origin_have_dripped() {
        // 10 units, charged in millisecond 500; one drips out each second.
        let limit = Limit::leaky_bucket(10, 1, Duration::from_secs(1)).unwrap();
        let word = limit.spend(0, 499 * MS + 1, 10).word.unwrap();
        let remaining = |by_ms: u64, from_ms: u64, at_ms: u64| {
            let word = limit.shifted(word, by_ms * MS, from_ms * MS).unwrap();
            limit.spend(word, at_ms * MS, 0).decision.remaining()
        };
        assert_eq!(remaining(400, 101, 101), Some(0));
        assert_eq!(remaining(3_600, 1, 1), Some(3), "three have dripped by 3.6 s");
        assert_eq!(remaining(3_600, 1, 1_000), Some(3), "the fourth drip is late");
        assert_eq!(remaining(3_600, 1, 1_001), Some(4), "by less than a drip rate");
        assert_eq!(remaining(3_600, 900, 900), Some(4), "on time");
        assert_eq!(remaining(3_600, 900, 1_899), Some(4));
        assert_eq!(remaining(3_600, 900, 1_900), Some(5));
        assert_eq!(remaining(60_000, 1, 1), Some(10));
    }

    #[test]
    fn undone_charge_returns_its_own_units() {
        let s = Duration::from_secs;
        for limit in [
            Limit::new(10, 1, s(1)),
            Limit::leaky_bucket(10, 1, s(1)),
            Limit::fixed_window(10, s(60)),
            Limit::token_bucket(10, 10, s(60)),
        ] {
            let limit = limit.unwrap();
            let at = 100_000 * MS;
            let spend = |word, cost| limit.spend(word, at, cost).word.unwrap();
            for before in [0, limit.spend(0, MS, 1).word.unwrap()] {
                let after = spend(before, 2);
                let word = limit.rule().undone(spend(after, 5), (before, after), (at, at)).unwrap();
                assert_eq!(
                    limit.spend(word, at, 0).decision.remaining(),
                    Some(5),
                    "{limit:?} {before}"
                );
            }
        }
    }
}
