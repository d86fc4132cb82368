//! What a change of numbers does to buckets that are in use, by the rule for what they owe.

use std::time::Duration;

use clap::ValueEnum;
use tollgate::Limit;
use tollgate::limit::Parameters;

use crate::numbers::capacity;
use crate::text::{grouped, wait};

/// What is kept of a bucket's debt when its numbers change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DebtRule {
    /// The share that is used
    Share,
    /// The units that are used
    Units,
    /// The time until it is full, as Boulder does
    Time,
    /// Nothing: each starts full
    Afresh,
}

impl DebtRule {
    fn name(self) -> &'static str {
        match self {
            DebtRule::Share => "share",
            DebtRule::Units => "units",
            DebtRule::Time => "time",
            DebtRule::Afresh => "afresh",
        }
    }

    /// The change in words, with an example; `None` if nothing changes. `None` as a limit is no limit.
    pub(crate) fn effect(self, old: Option<&Limit>, new: Option<&Limit>) -> Option<String> {
        match (old, new) {
            (Some(old), Some(new)) if old != new => Some(self.example(old, new)),
            (None, Some(_)) => Some("there are none yet: each starts full".into()),
            (Some(_), None) => Some("they are not asked any more: no limit".into()),
            _ => None,
        }
    }

    fn example(self, old: &Limit, new: &Limit) -> String {
        let is_same_algorithm = old.algorithm() == new.algorithm();
        // Units and times of one algorithm say little about another.
        let rule = match self {
            DebtRule::Units | DebtRule::Time if !is_same_algorithm => DebtRule::Share,
            rule => rule,
        };
        let (old_most, new_most) = (capacity(old), capacity(new));
        // Four fifths: enough that the rules differ.
        let used = (old_most - old_most / 5).max(1);
        let (will, rest) = match rule {
            DebtRule::Share => (scaled(used, new_most, old_most), String::new()),
            DebtRule::Units => (used, String::new()),
            DebtRule::Time => by_time(old, new, used),
            DebtRule::Afresh => (0, String::new()),
        };
        let changed = if is_same_algorithm { "" } else { ", for the algorithm changes" };
        let why = match (rule == self, rule) {
            (true, rule) => rule.name().to_owned(),
            (false, rule) => format!("{}{changed}", rule.name()),
        };
        format!(
            "a client that has used {} of {} will have used {} of {}{rest} ({why})",
            grouped(used),
            grouped(old_most),
            grouped(will.min(new_most)),
            grouped(new_most),
        )
    }
}

/// `used * new / old`, rounded up: nobody gets back what was used.
fn scaled(used: u64, new: u64, old: u64) -> u64 {
    let share = (u128::from(used) * u128::from(new)).div_ceil(u128::from(old.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// What a bucket will have used that is full again when it would have been; and what that means.
fn by_time(old: &Limit, new: &Limit, used: u64) -> (u64, String) {
    let (Some(full_in), Some(new_full_in)) = (time_of(old, used), time_of(new, 1)) else {
        // What was used of a window comes back at its end, whatever the numbers.
        return (used, " until its window ends".into());
    };
    let unit_ns = new_full_in.as_nanos().max(1);
    let will = full_in.as_nanos().div_ceil(unit_ns) * u128::from(per_time(new));
    let most = capacity(new);
    let will = u64::try_from(will).unwrap_or(u64::MAX);
    let empty_for =
        full_in.saturating_sub(time_of(new, most.saturating_sub(1)).unwrap_or_default());
    let rest = match will > most {
        true => format!(", is denied for {}, and is full in {}", wait(empty_for), wait(full_in)),
        false => format!(", and is full in {}", wait(full_in)),
    };
    (will, rest)
}

/// The time in which so many units come back; `None` where a window's end decides.
fn time_of(limit: &Limit, units: u64) -> Option<Duration> {
    let (times, one) = match limit.parameters() {
        Parameters::Gcra { .. } => (units, limit.emission_interval()),
        Parameters::LeakyBucket { drip_rate, drip_size, .. } => {
            (units.div_ceil(drip_size), drip_rate)
        }
        _ => return None,
    };
    let ns = one.as_nanos().saturating_mul(u128::from(times));
    Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
}

/// The units that come back in the time of one.
fn per_time(limit: &Limit) -> u64 {
    match limit.parameters() {
        Parameters::LeakyBucket { drip_size, .. } => drip_size,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn effect(rule: DebtRule, old: &Limit, new: &Limit) -> String {
        rule.effect(Some(old), Some(new)).expect("they differ")
    }

    #[test]
    fn each_rule_has_its_example() {
        let old = Limit::new(50, 1, SECOND).unwrap();
        let new = Limit::new(5_000, 100, SECOND).unwrap();
        for (rule, wanted) in [
            (DebtRule::Share, "will have used 4,000 of 5,000 (share)"),
            (DebtRule::Units, "will have used 40 of 5,000 (units)"),
            (DebtRule::Time, "will have used 4,000 of 5,000, and is full in 40s (time)"),
            (DebtRule::Afresh, "will have used 0 of 5,000 (afresh)"),
        ] {
            let text = effect(rule, &old, &new);
            assert_eq!(text, format!("a client that has used 40 of 50 {wanted}"));
        }
        // The other way round: what was used is more than there is.
        for (rule, wanted) in [
            (DebtRule::Share, "will have used 40 of 50 (share)"),
            (DebtRule::Units, "will have used 50 of 50 (units)"),
            (DebtRule::Time, "will have used 40 of 50, and is full in 40s (time)"),
        ] {
            let text = effect(rule, &new, &old);
            assert_eq!(text, format!("a client that has used 4,000 of 5,000 {wanted}"));
        }
    }

    #[test]
    fn by_time_clients_may_be_denied_after_raise() {
        let old = Limit::new(10, 1, 60 * SECOND).unwrap();
        let new = Limit::new(20, 20, 60 * SECOND).unwrap();
        // 8 minutes until full: more than the new bucket's minute, of which the first unit takes 57 s.
        assert_eq!(
            effect(DebtRule::Time, &old, &new),
            "a client that has used 8 of 10 will have used 20 of 20, is denied for 7m3s, and is full in 8m (time)"
        );
        let old = Limit::leaky_bucket(10, SECOND, 2).unwrap();
        let new = Limit::leaky_bucket(10, SECOND, 3).unwrap();
        assert_eq!(
            effect(DebtRule::Time, &old, &new),
            "a client that has used 8 of 10 will have used 10 of 10, is denied for 1s, and is full in 4s (time)"
        );
    }

    #[test]
    fn a_change_of_algorithm_keeps_the_share() {
        let old = Limit::new(10, 1, SECOND).unwrap();
        let new = Limit::token_bucket(100, SECOND, 5).unwrap();
        for rule in [DebtRule::Units, DebtRule::Time] {
            assert_eq!(
                effect(rule, &old, &new),
                "a client that has used 8 of 10 will have used 80 of 100 (share, for the algorithm changes)"
            );
        }
        assert!(effect(DebtRule::Share, &old, &new).ends_with("80 of 100 (share)"));
        assert!(effect(DebtRule::Afresh, &old, &new).ends_with("0 of 100 (afresh)"));
        let window = |limit| Limit::fixed_window(limit, SECOND).unwrap();
        assert_eq!(
            effect(DebtRule::Time, &window(10), &window(5)),
            "a client that has used 8 of 10 will have used 5 of 5 until its window ends (time)"
        );
    }

    #[test]
    fn a_share_is_rounded_against_the_client() {
        let (old, new) = (Limit::new(3, 1, SECOND).unwrap(), Limit::new(2, 1, SECOND).unwrap());
        assert!(effect(DebtRule::Share, &old, &new).contains("used 3 of 3 will have used 2 of 2"));
        assert_eq!(scaled(1, 2, 3), 1);
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), u64::MAX);
        assert_eq!(DebtRule::Share.effect(Some(&old), Some(&old)), None);
        assert_eq!(DebtRule::Share.effect(None, None), None);
    }
}
