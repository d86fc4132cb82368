//! Describes the effect of a changed limit on buckets in use.

use std::time::Duration;

use clap::ValueEnum;
use tollgate::Limit;
use tollgate::limit::Parameters;
use tollgate::limits::LimitEntry;

use crate::fields::{capacity, is_shared};
use crate::text::{grouped, wait};

/// The rule by which a reload carries over the used units of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CarryOver {
    /// The used share
    Share,
    /// The used units
    Units,
    /// The time until the bucket is full, as Boulder does
    Time,
    /// Nothing: each bucket starts full
    Afresh,
}

impl CarryOver {
    /// Describes the effect on live buckets with an example; returns `None` if nothing changes. A limit that
    /// is `None` means that no limit applies.
    pub(crate) fn effect(self, old: Option<&Limit>, new: Option<&Limit>) -> Option<String> {
        let is_of_permits =
            |limit: &Limit| matches!(limit.parameters(), Parameters::Concurrency { .. });
        match (old, new) {
            (Some(old), Some(new)) if old != new && is_of_permits(new) => {
                Some("permits that are out stay out".into())
            }
            (Some(old), Some(new)) if old != new => Some(self.example(old, new)),
            (None, Some(_)) => Some("there are none yet: each starts full".into()),
            (Some(_), None) => Some("not used any more: no limit applies".into()),
            _ => None,
        }
    }

    fn example(self, old: &Limit, new: &Limit) -> String {
        // Units and times of one algorithm have no meaning for another.
        let falls_back = old.algorithm() != new.algorithm()
            && matches!(self, CarryOver::Units | CarryOver::Time);
        let rule = if falls_back { CarryOver::Share } else { self };
        let why = if falls_back { ", because the algorithm changes" } else { "" };
        let name = rule.to_possible_value().expect("no rule is skipped");
        let name = name.get_name();
        let (old_capacity, new_capacity) = (capacity(old), capacity(new));
        // With four fifths in use, the rules give different results.
        let used = (old_capacity - old_capacity / 5).max(1);
        let (will_have_used, rest) = match rule {
            CarryOver::Share => (scaled(used, new_capacity, old_capacity), String::new()),
            CarryOver::Units => (used, String::new()),
            CarryOver::Time => by_time(old, new, used),
            CarryOver::Afresh => (0, String::new()),
        };
        format!(
            "a client that has used {} of {} will have used {} of {}{rest} ({name}{why})",
            grouped(used),
            grouped(old_capacity),
            grouped(will_have_used.min(new_capacity)),
            grouped(new_capacity),
        )
    }
}

/// What a reload does with the buckets of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buckets {
    /// The limiter has them, and converts them by the rule.
    Converted,
    /// The store has them, and no rule has an effect.
    Kept,
    /// The limit moves into the store or out of it, or the store has other buckets for its new algorithm.
    Replaced,
}

const KEPT: &str = "the store keeps them as they are, whatever --debt says";
const MAYBE_THERE: &str = "each starts full, or as the store has it";
const REPLACED: &str = "the limit gets other buckets: each starts full and without a block, or as it was when the limit last had it";

impl Buckets {
    /// `old` is `None` for a limit that is added.
    pub(crate) fn new(old: Option<&LimitEntry<'_>>, new: &LimitEntry<'_>) -> Buckets {
        match (old.map(is_shared), is_shared(new)) {
            (None | Some(false), false) => Buckets::Converted,
            (None, true) => Buckets::Kept,
            (Some(true), true) if old.and_then(LimitEntry::algorithm) == new.algorithm() => {
                Buckets::Kept
            }
            _ => Buckets::Replaced,
        }
    }

    /// Describes the effect of a reload by `rule`, like [`CarryOver::effect`].
    pub(crate) fn effect(
        self,
        rule: CarryOver,
        old: Option<&Limit>,
        new: Option<&Limit>,
    ) -> Option<String> {
        match (self, old, new) {
            (Buckets::Kept, Some(old), Some(new)) => (old != new).then(|| KEPT.into()),
            (Buckets::Kept, None, Some(_)) => Some(MAYBE_THERE.into()),
            (Buckets::Replaced, _, Some(_)) => Some(REPLACED.into()),
            _ => rule.effect(old, new),
        }
    }
}

/// Computes `used * new / old`, rounded up, so that no client gets used units back.
fn scaled(used: u64, new: u64, old: u64) -> u64 {
    let share = (u128::from(used) * u128::from(new)).div_ceil(u128::from(old.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Computes the used units of a bucket that keeps its time until it is full, and describes that time.
fn by_time(old: &Limit, new: &Limit, used: u64) -> (u64, String) {
    let (Some(full_in), Some(unit_in)) = (refill_time(old, used), refill_time(new, 1)) else {
        // The units of a window come back at its end, for every limit.
        return (used, " until its window ends".into());
    };
    let units_per_step = match new.parameters() {
        Parameters::LeakyBucket { drip_size, .. } => drip_size,
        _ => 1,
    };
    let steps = full_in.as_nanos().div_ceil(unit_in.as_nanos().max(1));
    let will_have_used = u64::try_from(steps * u128::from(units_per_step)).unwrap_or(u64::MAX);
    let full = format!("is full in {}", wait(full_in));
    if will_have_used <= capacity(new) {
        return (will_have_used, format!(", and {full}"));
    }
    let all_but_one = refill_time(new, capacity(new).saturating_sub(1)).unwrap_or_default();
    let denied_for = wait(full_in.saturating_sub(all_but_one));
    (will_have_used, format!(", is denied for {denied_for}, and {full}"))
}

/// Returns the time in which `units` come back; `None` if the end of a window decides.
fn refill_time(limit: &Limit, units: u64) -> Option<Duration> {
    let (steps, step) = match limit.parameters() {
        Parameters::Gcra { .. } => (units, limit.emission_interval()),
        Parameters::LeakyBucket { drip_rate, drip_size, .. } => {
            (units.div_ceil(drip_size), drip_rate)
        }
        _ => return None,
    };
    let ns = step.as_nanos().saturating_mul(u128::from(steps));
    Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn effect(rule: CarryOver, old: &Limit, new: &Limit) -> String {
        rule.effect(Some(old), Some(new)).expect("they differ")
    }

    #[test]
    fn each_rule_has_its_example() {
        let old = Limit::new(50, 1, SECOND).unwrap();
        let new = Limit::new(5_000, 100, SECOND).unwrap();
        for (rule, wanted) in [
            (CarryOver::Share, "will have used 4,000 of 5,000 (share)"),
            (CarryOver::Units, "will have used 40 of 5,000 (units)"),
            (CarryOver::Time, "will have used 4,000 of 5,000, and is full in 40s (time)"),
            (CarryOver::Afresh, "will have used 0 of 5,000 (afresh)"),
        ] {
            let text = effect(rule, &old, &new);
            assert_eq!(text, format!("a client that has used 40 of 50 {wanted}"));
        }
        // In the other direction: more units are used than the new bucket has.
        for (rule, wanted) in [
            (CarryOver::Share, "will have used 40 of 50 (share)"),
            (CarryOver::Units, "will have used 50 of 50 (units)"),
            (CarryOver::Time, "will have used 40 of 50, and is full in 40s (time)"),
        ] {
            let text = effect(rule, &new, &old);
            assert_eq!(text, format!("a client that has used 4,000 of 5,000 {wanted}"));
        }
    }

    #[test]
    fn by_time_a_raise_may_deny() {
        let old = Limit::new(10, 1, 60 * SECOND).unwrap();
        let new = Limit::new(20, 20, 60 * SECOND).unwrap();
        // It is full in 8 minutes. An empty new bucket is full in one minute, and 19 of its units take 57 s.
        assert_eq!(
            effect(CarryOver::Time, &old, &new),
            "a client that has used 8 of 10 will have used 20 of 20, is denied for 7m3s, and is full in 8m (time)"
        );
        let old = Limit::leaky_bucket(10, 2, SECOND).unwrap();
        let new = Limit::leaky_bucket(10, 3, SECOND).unwrap();
        assert_eq!(
            effect(CarryOver::Time, &old, &new),
            "a client that has used 8 of 10 will have used 10 of 10, is denied for 1s, and is full in 4s (time)"
        );
    }

    #[test]
    fn a_new_algorithm_keeps_the_share() {
        let old = Limit::new(10, 1, SECOND).unwrap();
        let new = Limit::token_bucket(5, 100, SECOND).unwrap();
        for rule in [CarryOver::Units, CarryOver::Time] {
            assert_eq!(
                effect(rule, &old, &new),
                "a client that has used 8 of 10 will have used 80 of 100 (share, because the algorithm changes)"
            );
        }
        assert!(effect(CarryOver::Share, &old, &new).ends_with("80 of 100 (share)"));
        assert!(effect(CarryOver::Afresh, &old, &new).ends_with("0 of 100 (afresh)"));
        let window = |limit| Limit::fixed_window(limit, SECOND).unwrap();
        assert_eq!(
            effect(CarryOver::Time, &window(10), &window(5)),
            "a client that has used 8 of 10 will have used 5 of 5 until its window ends (time)"
        );
    }

    #[test]
    fn a_share_is_rounded_against_the_client() {
        let (old, new) = (Limit::new(3, 1, SECOND).unwrap(), Limit::new(2, 1, SECOND).unwrap());
        assert!(effect(CarryOver::Share, &old, &new).contains("used 3 of 3 will have used 2 of 2"));
        assert_eq!(scaled(1, 2, 3), 1);
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), u64::MAX);
        assert_eq!(CarryOver::Share.effect(Some(&old), Some(&old)), None);
        assert_eq!(CarryOver::Share.effect(None, None), None);
    }
}
