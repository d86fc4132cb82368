//! The generic cell rate algorithm, in Boulder's integers.
//!
//! The word is the theoretical arrival time (TAT): the time, in nanoseconds since the clock's origin,
//! at which the bucket is full again. `now_ns` is at least 1 and at most [`MAX_NOW_NS`]; a burst
//! offset is at most 2^62 ns. So a TAT that is written is at most 2^63 - 1 and no sum below wraps.

use crate::algorithm::{Charge, Grant, Outcome};
use crate::clock::MAX_NOW_NS;
use crate::decision::Decision;

/// The latest time at which a bucket is full again.
const MAX_TAT_NS: u64 = (1 << 63) - 1;

/// The derived numbers of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gcra {
    burst: u64,
    emission_interval_ns: u64,
    burst_offset_ns: u64,
}

impl Gcra {
    /// The caller, [`Limit`](crate::Limit), has checked that all are at least 1 and that
    /// `burst_offset_ns` is their product and at most 2^62.
    pub(crate) const fn new(burst: u64, emission_interval_ns: u64, burst_offset_ns: u64) -> Gcra {
        Gcra { burst, emission_interval_ns, burst_offset_ns }
    }

    #[inline]
    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    pub(crate) fn emission_interval_ns(&self) -> u64 {
        self.emission_interval_ns
    }

    pub(crate) fn burst_offset_ns(&self) -> u64 {
        self.burst_offset_ns
    }

    /// Whether a bucket with this word is full at `now_ns`, and so carries nothing.
    #[inline]
    pub(crate) fn is_full(tat_ns: u64, now_ns: u64) -> bool {
        tat_ns <= now_ns
    }

    /// The time left as units: a time, and the time of one.
    #[inline]
    fn units(&self, left_ns: u64) -> (u64, u64) {
        (left_ns, self.emission_interval_ns)
    }

    /// Asks for `cost` units and charges them if they are there. A denial and a cost of 0 write nothing.
    ///
    /// The caller has checked that `cost` is at most `burst`.
    #[inline]
    pub(crate) fn spend(&self, tat_ns: u64, now_ns: u64, cost: u64) -> Outcome {
        debug_assert!((1..=MAX_NOW_NS).contains(&now_ns), "now {now_ns}");
        debug_assert!(cost <= self.burst, "cost {cost} above burst {}", self.burst);
        let base_ns = now_ns.max(tat_ns);
        // At most the burst offset, for the cost is at most the burst: no product above 2^62.
        let increment_ns = self.emission_interval_ns * cost;
        let limit_ns = now_ns + self.burst_offset_ns;
        let spent_ns = base_ns.saturating_add(increment_ns);
        if spent_ns > limit_ns {
            let left = self.units(limit_ns.saturating_sub(base_ns));
            let decision = Decision::new(false, left, spent_ns - limit_ns, base_ns - now_ns);
            return Outcome { word: None, decision };
        }
        let left_ns = limit_ns - spent_ns;
        let retry_in_ns = increment_ns.saturating_sub(left_ns);
        let decision = Decision::new(true, self.units(left_ns), retry_in_ns, spent_ns - now_ns);
        Outcome { word: (cost > 0).then_some(spent_ns), decision }
    }

    /// Gives back up to `cost` units, never past full. `allowed` says whether anything was given back.
    #[inline]
    pub(crate) fn refund(&self, tat_ns: u64, now_ns: u64, cost: u64) -> Outcome {
        debug_assert!(cost <= self.burst, "cost {cost} above burst {}", self.burst);
        let base_ns = now_ns.max(tat_ns);
        let given_ns = base_ns.saturating_sub(self.emission_interval_ns * cost).max(now_ns);
        let given_back = given_ns != base_ns;
        let left = self.units((now_ns + self.burst_offset_ns).saturating_sub(given_ns));
        let decision = Decision::new(given_back, left, 0, given_ns - now_ns).of_refund();
        Outcome { word: given_back.then_some(given_ns), decision }
    }

    /// Makes the bucket full.
    #[inline]
    pub(crate) fn reset(&self, tat_ns: u64, now_ns: u64) -> Outcome {
        let decision = Decision::new(true, (self.burst, 1), 0, 0);
        Outcome { word: (tat_ns > now_ns).then_some(now_ns), decision }
    }

    /// Takes the place behind all that have one: at its time as much is there as a spend would need.
    /// None after [`MAX_NOW_NS`], where the clock stops: so no word is above 2^63 - 1.
    pub(crate) fn reserve(&self, tat_ns: u64, now_ns: u64, cost: u64) -> Option<Grant> {
        debug_assert!((1..=self.burst).contains(&cost), "cost {cost}, burst {}", self.burst);
        // At most 2^63 - 1 and 2^62.
        let word = now_ns.max(tat_ns).saturating_add(self.emission_interval_ns * cost);
        let at_ns = word.saturating_sub(self.burst_offset_ns).max(now_ns);
        (at_ns <= MAX_NOW_NS).then_some(Grant { word, at_ns })
    }

    /// Charges what is owed, to at most `max_debt` units beyond empty.
    pub(crate) fn owe(&self, tat_ns: u64, now_ns: u64, cost: u64, max_debt: u64) -> Option<u64> {
        let base_ns = now_ns.max(tat_ns);
        let debt_ns = self.emission_interval_ns.saturating_mul(max_debt);
        // A limit has checked that this does not saturate; a factor may make it.
        let most_ns = (now_ns + self.burst_offset_ns).saturating_add(debt_ns).min(MAX_TAT_NS);
        let increment_ns = self.emission_interval_ns.saturating_mul(cost);
        let owed_ns = base_ns.saturating_add(increment_ns).min(most_ns);
        (owed_ns > base_ns).then_some(owed_ns)
    }

    /// The word on a clock whose origin is `by_ns` later. What was full before it is full at it.
    pub(crate) fn shifted(tat_ns: u64, by_ns: u64) -> u64 {
        tat_ns.saturating_sub(by_ns).max(1)
    }

    /// The word with `charge` taken back; `None` if nothing is left to take.
    ///
    /// This is no refund. If nobody else has charged, the word goes back to what it was. If somebody
    /// has, the bucket may have refilled behind the charge: only what the charge still takes from
    /// them is given back, its increment less the time since its base. Giving back the whole
    /// increment would forget part of theirs. Only then `now_ns` is asked for the time, which is to
    /// be no earlier than any that another's charge on this word was made at.
    ///
    /// A place behind the charge that is still to come counts as charged when it is granted, for then
    /// it is used. No word says who is behind: what lies beyond the burst may be one such place.
    pub(crate) fn roll_back(
        &self,
        tat_ns: u64,
        charge: Charge,
        now_ns: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let base_ns = charge.before.max(charge.now_ns);
        if charge.is_last(tat_ns) {
            // Never 0: to a cell that was new, its charge's time is as full as 0 is.
            return Some(if charge.before == 0 { charge.now_ns } else { charge.before });
        }
        let now_ns = now_ns();
        if now_ns < charge.now_ns {
            // The clock went back: nothing can be said of what has refilled.
            return None;
        }
        let increment_ns = charge.after.saturating_sub(base_ns);
        // What was taken back beneath has moved the base, and places behind that the word no longer shows.
        let base_ns = base_ns.saturating_sub(charge.lowered).max(charge.now_ns);
        let last_grant_ns =
            tat_ns.saturating_add(charge.lowered).saturating_sub(self.burst_offset_ns);
        let drained_ns = now_ns.max(last_grant_ns).saturating_sub(base_ns);
        let back_ns = increment_ns.saturating_sub(drained_ns);
        // A refund or a reset since may have left less than the charge: never below its base.
        let taken_ns = tat_ns.saturating_sub(back_ns).max(base_ns.min(tat_ns));
        (taken_ns != tat_ns).then_some(taken_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::rule::Rule;
    use crate::limit::Limit;

    const MS: u64 = 1_000_000;
    const NOW: u64 = 1_700_000_000 * 1000 * MS;

    fn rule(burst: u64, count: u64, period: Duration) -> Gcra {
        match Limit::new(burst, count, period).unwrap().rule() {
            Rule::Gcra(gcra) => *gcra,
            other => panic!("{other:?}"),
        }
    }

    /// 20 at once, one more every 50 ms.
    fn twenty() -> Gcra {
        rule(20, 20, Duration::from_secs(1))
    }

    /// allowed, remaining, retry_in_ns, reset_in_ns and the word after.
    type Figures = (bool, u64, u64, u64, u64);

    fn figures(outcome: Outcome, tat_ns: u64) -> Figures {
        let decision = outcome.decision;
        (
            decision.allowed(),
            decision.remaining().unwrap(),
            decision.retry_in().as_nanos() as u64,
            decision.reset_in().as_nanos() as u64,
            outcome.word.unwrap_or(tat_ns),
        )
    }

    #[test]
    fn spends_as_boulder_at_the_edges() {
        let spend = |tat_ns, cost| figures(twenty().spend(tat_ns, NOW, cost), tat_ns);
        let s = 1000 * MS;
        let full_after_one = (true, 19, 0, 50 * MS, NOW + 50 * MS);
        assert_eq!(spend(0, 1), full_after_one, "never charged");
        assert_eq!(spend(NOW - 1, 1), full_after_one, "full since 1 ns");
        assert_eq!(spend(NOW, 20), (true, 0, s, s, NOW + s), "all at once");
        assert_eq!(spend(NOW + 950 * MS, 1), (true, 0, 50 * MS, s, NOW + s));
        let early = NOW + 950 * MS + 1;
        assert_eq!(spend(early, 1), (false, 0, 1, 950 * MS + 1, early), "one nanosecond early");
        let late = NOW + 25 * MS;
        assert_eq!(spend(late, 20), (false, 19, 25 * MS, 25 * MS, late), "19 are there, not 20");
        assert_eq!(spend(NOW + s, 0), (true, 0, 0, s, NOW + s), "a cost of 0 when empty");
        let over = NOW + 2 * s;
        assert_eq!(
            spend(over, 0),
            (false, 0, s, 2 * s, over),
            "a limit that shrank; never below 0"
        );
    }

    #[test]
    fn refunds_as_boulder_at_the_edges() {
        let refund = |tat_ns, cost| figures(twenty().refund(tat_ns, NOW, cost), tat_ns);
        assert_eq!(refund(NOW + 25 * MS, 1), (true, 20, 0, 0, NOW), "capped at full");
        assert_eq!(refund(NOW + 50 * MS, 0), (false, 19, 0, 50 * MS, NOW + 50 * MS));
        assert_eq!(refund(NOW, 1), (false, 20, 0, 0, NOW), "full");
        assert_eq!(refund(0, 1), (false, 20, 0, 0, 0), "a bucket that does not exist is full");
        let over = NOW + 2000 * MS;
        assert_eq!(refund(over, 1), (true, 0, 0, 1950 * MS, NOW + 1950 * MS));
    }

    #[test]
    fn denial_zero_cost_and_empty_refund_write_nothing() {
        let rule = twenty();
        assert_eq!(rule.spend(NOW + 1000 * MS, NOW, 1).word, None);
        assert_eq!(rule.spend(0, NOW, 0).word, None);
        assert_eq!(rule.refund(NOW, NOW, 3).word, None);
        assert_eq!(rule.reset(NOW, NOW).word, None);
        assert_eq!(rule.reset(NOW + 1, NOW).word, Some(NOW));
    }

    #[test]
    fn largest_limit_at_latest_time_does_not_wrap() {
        let rule = rule(1 << 62, 1, Duration::from_nanos(1));
        let outcome = rule.spend(0, MAX_NOW_NS, 1 << 62);
        assert_eq!(outcome.word, Some(MAX_NOW_NS + (1 << 62)));
        assert_eq!(outcome.word.unwrap() >> 63, 0, "the top bit is the table's");
        let denied = rule.spend(outcome.word.unwrap(), 1, 1 << 62);
        assert!(!denied.decision.allowed(), "a clock that went back denies");
    }

    #[test]
    fn rollback_restores_state_without_other_charges() {
        for before in [0, NOW - 5, NOW, NOW + 100 * MS] {
            let after = twenty().spend(before, NOW, 2).word.unwrap();
            let charge = Charge::new(before, after, NOW);
            let back = twenty().roll_back(after, charge, || NOW + 7);
            assert_eq!(back, Some(if before == 0 { NOW } else { before }), "before {before}");
        }
    }

    #[test]
    fn rollback_leaves_later_charges_despite_refill() {
        // F6 of the table's protocol, 10 ns a unit: 2 units at 1, another's unit at 5, back at 5.
        let rule = Gcra::new(3, 10, 30);
        let after = rule.spend(0, 1, 2).word.unwrap();
        assert_eq!(after, 21);
        let both = rule.spend(after, 5, 1).word.unwrap();
        assert_eq!(both, 31);
        let charge = Charge::new(0, after, 1);
        assert_eq!(
            rule.roll_back(both, charge, || 5),
            Some(15),
            "what the other alone would have left"
        );
        assert_eq!(rule.refund(both, 5, 2).word, Some(11), "a refund would forget 4 ns of it");
    }

    #[test]
    fn taking_back_what_has_drained_gives_nothing() {
        let rule = Gcra::new(3, 10, 30);
        let charge = Charge::new(0, 21, 1);
        assert_eq!(rule.roll_back(60, charge, || 50), None);
        assert_eq!(rule.roll_back(1, charge, || 2), None, "a refund took it first");
        let later = Charge::new(0, 121, 101);
        assert_eq!(rule.roll_back(131, later, || 100), None, "the clock went back");
    }

    /// The rule in unbounded integers, as it is written down.
    fn oracle(rule: &Gcra, tat: u64, now: u64, cost: u64) -> Figures {
        let (ei, bo) = (i128::from(rule.emission_interval_ns), i128::from(rule.burst_offset_ns));
        let (tat, now) = (i128::from(tat), i128::from(now));
        let t = tat.max(now);
        let inc = ei * i128::from(cost);
        let n = t + inc;
        let diff = now - (n - bo);
        let (allowed, remaining, retry, reset, word) = if diff < 0 {
            (false, (now - (t - bo)) / ei, -diff, t - now, tat)
        } else {
            (true, diff / ei, (inc - diff).max(0), n - now, if cost > 0 { n } else { tat })
        };
        let natural = |x: i128| u64::try_from(x.max(0)).unwrap();
        (allowed, natural(remaining), natural(retry), natural(reset), natural(word))
    }

    prop_compose! {
        fn any_rule()(ei in prop_oneof![1..1000u64, 1..1u64 << 40], burst in prop_oneof![1..50u64, 1..1u64 << 22])
            -> Gcra {
            Gcra::new(burst, ei, ei * burst)
        }
    }

    proptest! {
        #[test]
        fn spends_as_the_oracle(
            rule in any_rule(),
            now in prop_oneof![1..10_000u64, 1..=MAX_NOW_NS, MAX_NOW_NS - 1000..=MAX_NOW_NS],
            part in 0.0..1.0f64,
            ahead in prop_oneof![0..3u64, 0..1u64 << 62],
        ) {
            let cost = (rule.burst as f64 * part) as u64;
            for tat in [0, now, now.saturating_sub(ahead), now + ahead % (2 * rule.burst_offset_ns)] {
                let said = figures(rule.spend(tat, now, cost), tat);
                prop_assert_eq!(said, oracle(&rule, tat, now, cost), "tat {} now {} cost {}", tat, now, cost);
            }
        }

        #[test]
        fn denied_call_is_admitted_exactly_after_its_wait(
            rule in any_rule(), now in 1..1u64 << 61, ahead in 0..1u64 << 61, part in 0.0..1.0f64,
        ) {
            let cost = 1 + ((rule.burst - 1) as f64 * part) as u64;
            let tat = now + ahead % (2 * rule.burst_offset_ns);
            let denied = rule.spend(tat, now, cost).decision;
            if !denied.allowed() {
                let wait = denied.retry_in().as_nanos() as u64;
                prop_assert!(wait > 0);
                prop_assert!(rule.spend(tat, now + wait, cost).decision.allowed());
                prop_assert!(!rule.spend(tat, now + wait - 1, cost).decision.allowed());
            }
        }

        #[test]
        fn rollback_never_gives_more_than_the_charge(
            rule in any_rule(),
            start in 1..1u64 << 40,
            debt in 0..1u64 << 40,
            steps in prop::collection::vec((0..1u64 << 20, 1..4u64), 0..4),
        ) {
            // One charge of ours, charges of others after it, then ours is taken back.
            let before = if debt % 2 == 0 { 0 } else { start + debt % rule.burst_offset_ns };
            let Some(after) = rule.spend(before, start, 1).word else { return Ok(()) };
            let charge = Charge::new(before, after, start);
            let (mut with, mut without, mut now) = (after, before, start);
            for (wait, cost) in steps {
                now += wait;
                let cost = cost.min(rule.burst);
                if let Some(word) = rule.spend(with, now, cost).word {
                    with = word;
                    without = rule.spend(without, now, cost).word.expect("there is more without ours");
                }
            }
            let taken = rule.roll_back(with, charge, || now).unwrap_or(with);
            // At `now` and later, the bucket holds no more than if the batch had not been.
            prop_assert!(taken.max(now) >= without.max(now), "{} < {} at {}", taken, without, now);
            prop_assert!(taken <= with.max(start));
        }
    }

    #[derive(serde::Deserialize)]
    struct Vector {
        op: String,
        burst: u64,
        count: u64,
        period_ns: u64,
        emission_interval_ns: u64,
        burst_offset_ns: u64,
        now_ns: u64,
        tat_ns: u64,
        cost: u64,
        allowed: bool,
        remaining: i64,
        retry_in_ns: u64,
        reset_in_ns: u64,
        new_tat_ns: u64,
        note: String,
    }

    #[test]
    fn equals_boulders_recorded_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/vectors/boulder_gcra.jsonl");
        let Ok(text) = std::fs::read_to_string(path) else {
            // Past the test runner, which keeps to itself what a passing test prints.
            writeln!(
                std::io::stderr(),
                "NOT CHECKED: ../shared/vectors/boulder_gcra.jsonl is not here"
            )
            .unwrap();
            return;
        };
        let mut checked = 0;
        for line in text.lines() {
            let v: Vector = serde_json::from_str(line).unwrap();
            let rule = rule(v.burst, v.count, Duration::from_nanos(v.period_ns));
            assert_eq!(rule.emission_interval_ns, v.emission_interval_ns, "{line}");
            assert_eq!(rule.burst_offset_ns, v.burst_offset_ns, "{line}");
            let outcome = match v.op.as_str() {
                "spend" => rule.spend(v.tat_ns, v.now_ns, v.cost),
                "refund" => rule.refund(v.tat_ns, v.now_ns, v.cost),
                other => panic!("{other}: {line}"),
            };
            let said = figures(outcome, v.tat_ns);
            // Boulder stores the time of a full bucket where we leave the word alone.
            let word = if said.4 <= v.now_ns { v.now_ns } else { said.4 };
            let remaining = v.remaining.max(0) as u64;
            let expected =
                (v.allowed, remaining, v.retry_in_ns, v.reset_in_ns, v.new_tat_ns.max(v.now_ns));
            assert_eq!((said.0, said.1, said.2, said.3, word), expected, "{}: {line}", v.note);
            checked += 1;
        }
        assert_eq!(checked, 1028);
    }
}
