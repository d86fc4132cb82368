//! What a bucket owes when its numbers change: the rules that carry a word from the old numbers to the
//! new ones. Pure functions of the word, both numbers and the instant of the change.

use crate::algorithm::packed::{MAX_MS, Packed, ms_of};
use crate::algorithm::rule::{MAX_COUNT, Rule};
use crate::limit::Limit;

/// What becomes of what a bucket owes when a [reload](crate::Limiter::reload) changes its numbers.
///
/// Whatever the rule, a bucket that is full stays full, and one that owes owes no more than its new
/// capacity. What lies beyond the capacity, such as places in the future that were
/// promised, keeps its time. Fractions are rounded so that more is owed, by less than a unit.
///
/// Where the algorithm changes with the numbers, `Share` is kept by all but `Afresh`, because neither
/// units nor times are the same things in both. A limit of one's own algorithm keeps its word while the
/// algorithm's name stays.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use tollgate::reload::CarryOver;
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limits = |burst| -> Result<Limits, tollgate::Error> {
///     let limit = Limit::new(burst, burst, Duration::from_secs(3600))?;
///     Ok(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build())
/// };
/// let limiter = Limiter::new(limits(50)?);
/// let users = limiter.limit("PerUser")?;
/// assert!(users.spend("alice", 50)?.allowed()); // exhausted
/// assert!(users.spend("bob", 40)?.allowed());
/// limiter.reload_with(limits(5_000)?, CarryOver::Share)?;
/// assert_eq!(users.check("bob", 1)?.remaining(), Some(1_000 - 1), "a fifth is left");
/// assert!(!users.check("alice", 100)?.allowed());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CarryOver {
    /// The share of the capacity that is used: 40 of 50 become 4,000 of 5,000.
    #[default]
    Share,
    /// The units that are used, at most the new capacity: 40 of 50 become 40 of 5,000.
    Units,
    /// The time until the bucket is full, at most the time that an empty one takes; Boulder's way.
    ///
    /// A window that is made longer began, in its new length, before the present one. No bucket has a time from before
    /// the limiter was made: within the first such length after that it ends later, at most one new window after the
    /// limiter was made.
    Time,
    /// Nothing: every bucket whose numbers change is full.
    Afresh,
}

/// What a bucket owed when its numbers changed.
#[derive(Clone, Copy)]
struct Owed {
    used: u128,
    /// Of so much: in units, or in nanoseconds.
    of: u128,
}

impl CarryOver {
    /// The word under the numbers `new` that was `word` under `old`, when they changed at `at_ns`. Always
    /// the same for the same arguments, and the larger the larger `word` is. `None`: nothing is left.
    pub(crate) fn converted(self, old: &Limit, new: &Limit, word: u64, at_ns: u64) -> Option<u64> {
        let (old, new) = (old.rule(), new.rule());
        if old == new || word == 0 {
            return Some(word);
        }
        if self == CarryOver::Afresh {
            return None;
        }
        if let (Rule::Custom(_), _) | (_, Rule::Custom(_)) = (old, new) {
            return (old.name() == new.name()).then_some(word);
        }
        if old.is_full(word, at_ns) {
            return Some(new.full(at_ns));
        }
        Some(match (old, new) {
            (Rule::Gcra(old), Rule::Gcra(new)) => {
                let owed_ns = word.saturating_sub(at_ns);
                let within_ns = owed_ns.min(old.burst_offset_ns());
                let most_ns = new.burst_offset_ns();
                let scaled = |by: u64, of: u64| scaled(within_ns, by, of).min(most_ns);
                let kept_ns = match self {
                    CarryOver::Units => {
                        scaled(new.emission_interval_ns(), old.emission_interval_ns())
                    }
                    CarryOver::Time => within_ns.min(most_ns),
                    CarryOver::Share | CarryOver::Afresh => scaled(most_ns, old.burst_offset_ns()),
                };
                let beyond_ns = owed_ns - within_ns;
                at_ns.saturating_add(kept_ns).saturating_add(beyond_ns).min(MAX_WORD)
            }
            (
                Rule::FixedWindow(_) | Rule::TokenBucket(_),
                Rule::FixedWindow(_) | Rule::TokenBucket(_),
            ) if old.name() == new.name() => {
                let (old, new) = (Quota::of(old)?, Quota::of(new)?);
                self.converted_window(old, new, Packed::of_word(word), at_ns)
            }
            (Rule::LeakyBucket(old), Rule::LeakyBucket(new)) => {
                let in_time = |units: u64| {
                    let time_ms =
                        units.div_ceil(old.drip_size.into()).saturating_mul(old.drip_rate_ms);
                    time_ms.div_ceil(new.drip_rate_ms).saturating_mul(new.drip_size.into())
                };
                let counter = old.counter_at(word, at_ns);
                let within = counter.min(old.size.into());
                let kept = match self {
                    CarryOver::Units => within,
                    CarryOver::Time => in_time(within),
                    CarryOver::Share | CarryOver::Afresh => {
                        scaled(within, new.size.into(), old.size.into())
                    }
                };
                let beyond = in_time(counter - within);
                counted(ms_of(at_ns), kept.min(new.size.into()).saturating_add(beyond))
            }
            _ => Owed::of(old, word, at_ns).under(new, at_ns)?,
        })
    }

    /// The window ends when it would have, or a whole new window after the change if that is sooner. Those
    /// behind it that are used up before their time take as long as they did, in whole new windows.
    fn converted_window(self, old: Quota, new: Quota, packed: Packed, at_ns: u64) -> u64 {
        let Packed { at_ms: start_ms, count: used } = old.present(packed, at_ns);
        let behind = used.saturating_sub(1) / old.limit;
        let within = used - behind * old.limit;
        let kept = match self {
            CarryOver::Units => within.min(new.limit),
            _ => scaled(within, new.limit, old.limit),
        };
        let behind_kept = scaled(behind, old.window_ms, new.window_ms).saturating_mul(new.limit);
        let end_ms = start_ms.saturating_add(old.window_ms);
        // What lies behind the window keeps its time; else no window is longer than a new one.
        let end_ms = match behind {
            0 => end_ms.min(ms_of(at_ns).saturating_add(new.window_ms)),
            _ => end_ms,
        };
        counted(end_ms.saturating_sub(new.window_ms), kept.saturating_add(behind_kept))
    }
}

/// The largest word: its top bit is the table's.
const MAX_WORD: u64 = (1 << 63) - 1;

/// `amount * by / of`, rounded up.
fn scaled(amount: u64, by: u64, of: u64) -> u64 {
    let product = u128::from(amount) * u128::from(by);
    u64::try_from(product.div_ceil(u128::from(of.max(1)))).unwrap_or(u64::MAX)
}

/// A word of those that count.
fn counted(at_ms: u64, count: u64) -> u64 {
    Packed { at_ms: at_ms.clamp(1, MAX_MS), count: count.min(MAX_COUNT) }.word()
}

/// What a window's limit and length are, whatever its rule does inside.
#[derive(Clone, Copy)]
struct Quota {
    limit: u64,
    window_ms: u64,
}

impl Quota {
    fn of(rule: &Rule) -> Option<Quota> {
        match rule {
            Rule::FixedWindow(rule) => {
                Some(Quota { limit: u64::from(rule.limit), window_ms: rule.window.ms() })
            }
            Rule::TokenBucket(rule) => {
                Some(Quota { limit: u64::from(rule.limit), window_ms: rule.window.ms() })
            }
            Rule::Gcra(_) | Rule::LeakyBucket(_) | Rule::Custom(_) => None,
        }
    }

    /// What is used in the present window and those behind it: windows that were used up and are over are left out.
    fn present(self, packed: Packed, at_ns: u64) -> Packed {
        let Packed { at_ms: start_ms, count: used } = packed;
        if used <= self.limit {
            return packed;
        }
        let passed = ms_of(at_ns).saturating_sub(start_ms) / self.window_ms;
        Packed {
            at_ms: start_ms.saturating_add(passed.saturating_mul(self.window_ms)),
            count: used.saturating_sub(passed.saturating_mul(self.limit)),
        }
    }
}

impl Owed {
    fn of(rule: &Rule, word: u64, at_ns: u64) -> Owed {
        let (used, of) = match rule {
            Rule::Gcra(rule) => (word.saturating_sub(at_ns), rule.burst_offset_ns()),
            Rule::FixedWindow(_) | Rule::TokenBucket(_) => Quota::of(rule)
                .map_or((0, 1), |quota| {
                    (quota.present(Packed::of_word(word), at_ns).count, quota.limit)
                }),
            Rule::LeakyBucket(rule) => (rule.counter_at(word, at_ns), u64::from(rule.size)),
            Rule::Custom(_) => (0, 1),
        };
        Owed { used: used.into(), of: u128::from(of.max(1)) }
    }

    /// The word of a bucket of another rule that owes the same share.
    fn under(self, rule: &Rule, at_ns: u64) -> Option<u64> {
        let share_of = |capacity: u64| {
            let product = self.used.saturating_mul(capacity.into());
            u64::try_from(product.div_ceil(self.of)).unwrap_or(u64::MAX)
        };
        Some(match rule {
            Rule::Gcra(rule) => {
                at_ns.saturating_add(share_of(rule.burst_offset_ns())).min(MAX_WORD)
            }
            Rule::FixedWindow(rule) => counted(ms_of(at_ns), share_of(rule.limit.into())),
            Rule::TokenBucket(rule) => counted(ms_of(at_ns), share_of(rule.limit.into())),
            Rule::LeakyBucket(rule) => counted(ms_of(at_ns), share_of(rule.size.into())),
            Rule::Custom(_) => return None,
        })
    }
}
