//! Carries the debt of a bucket over to other limits: converts its word when a reload changes its limit.
//!
//! Pure functions of the word, both limits and the time of the change.

use crate::algorithm::rule::Rule;
use crate::algorithm::timed_count::{MAX_COUNT, MAX_MS, TimedCount, ms_of};
use crate::algorithm::window::Window;
use crate::limit::Limit;

/// The part of its debt that a bucket keeps when a [reload](crate::Limiter::reload) changes its limit.
///
/// With every variant, a full bucket stays full, and a bucket owes at most its new capacity. Debt beyond the capacity,
/// such as reservations in the future, keeps its time. Fractions are rounded so that the bucket owes more, by less than a
/// unit. The time since the last drip of a leaky bucket counts for its next one, at most as one new drip less a millisecond. Debt above 16,777,215 units of an algorithm other than gcra is
/// forgotten. A token bucket has at most as many units at once as before the change, or as its new burst if that is more.
///
/// If the algorithm changes to another built-in one, every variant except `Afresh` keeps the share, also of debt beyond the
/// capacity, whose time then changes, because neither units nor
/// times have the same meaning in two algorithms. From or to a custom algorithm only `Afresh` is possible; the others are an
/// error. A custom algorithm that a reload replaces by another of the same name, or that is in a
/// snapshot under the same name, gets the words of its buckets unchanged; with `Afresh` the buckets are full.
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
    /// Keeps the used share of the capacity: 40 of 50 become 4,000 of 5,000.
    #[default]
    Share,
    /// Keeps the used units, at most the new capacity: 40 of 50 become 40 of 5,000.
    Units,
    /// Keeps the time until the bucket is full, at most the time from empty to full. Boulder does this.
    ///
    /// If a window becomes longer, it begins, in its new length, before it did. No window begins before the limiter was
    /// made. So within one new length after that, such a window ends later than before: at most one new length after the
    /// limiter was made. The same holds for the last drip of a leaky bucket.
    Time,
    /// Keeps nothing: every bucket whose limit changes is full.
    Afresh,
}

impl CarryOver {
    /// Converts a word at `at_ns` from the limit `old` to the limit `new`. `None` if the bucket keeps nothing.
    ///
    /// The result is the same for the same arguments. Except for leaky buckets, a larger `word` never gives a smaller result.
    pub(crate) fn converted(self, old: &Limit, new: &Limit, word: u64, at_ns: u64) -> Option<u64> {
        let (old, new) = (old.rule(), new.rule());
        if old == new || word == 0 {
            return Some(word);
        }
        // Permits are out until their holders drop them, whatever the limit says.
        if old.is_concurrency() || new.is_concurrency() {
            return (old.is_concurrency() && new.is_concurrency()).then_some(word);
        }
        if self == CarryOver::Afresh {
            return None;
        }
        if old.is_custom() || new.is_custom() {
            return (old.name() == new.name()).then_some(word);
        }
        if old.is_full(word, at_ns) {
            return Some(new.full(at_ns));
        }
        Some(match (old, new) {
            (Rule::Gcra(old), Rule::Gcra(new)) => {
                let owed_ns = word.saturating_sub(at_ns);
                let within_ns = owed_ns.min(old.burst_offset_ns());
                let max_ns = new.burst_offset_ns();
                let scaled = |by: u64, of: u64| scaled(within_ns, by, of).min(max_ns);
                let kept_ns = match self {
                    CarryOver::Units => {
                        scaled(new.emission_interval_ns(), old.emission_interval_ns())
                    }
                    CarryOver::Time => within_ns.min(max_ns),
                    CarryOver::Share | CarryOver::Afresh => scaled(max_ns, old.burst_offset_ns()),
                };
                let beyond_ns = owed_ns - within_ns;
                at_ns.saturating_add(kept_ns).saturating_add(beyond_ns).min(MAX_WORD)
            }
            (Rule::Window(old), Rule::Window(new)) if old.kind == new.kind => {
                self.converted_window(old, new, TimedCount::from_word(word), at_ns)
            }
            (Rule::LeakyBucket(old), Rule::LeakyBucket(new)) => {
                let time_ms = |units: u64| {
                    units.div_ceil(old.drip_size.into()).saturating_mul(old.drip_rate_ms)
                };
                let drips_in = |time_ms: u64| time_ms.div_ceil(new.drip_rate_ms);
                let units_of = |drips: u64| drips.saturating_mul(new.drip_size.into());
                let counter = old.counter_at(word, at_ns);
                let within = counter.min(old.size.into());
                // The drip that has begun goes on.
                let mut begun_ms = old.begun_ms(word, at_ns);
                let kept = match self {
                    CarryOver::Units => within,
                    CarryOver::Time => {
                        let left_ms = time_ms(within).saturating_sub(begun_ms);
                        let drips = drips_in(left_ms).max(1);
                        // At most the time from empty to full.
                        let is_longer = drips > u64::from(new.size).div_ceil(new.drip_size.into());
                        let spare_ms = drips.saturating_mul(new.drip_rate_ms) - left_ms;
                        begun_ms = if is_longer { 0 } else { spare_ms };
                        // Of the counts that take as many drips, the one nearest to the units before.
                        within.clamp(units_of(drips - 1) + 1, units_of(drips))
                    }
                    CarryOver::Share | CarryOver::Afresh => {
                        scaled(within, new.size.into(), old.size.into())
                    }
                };
                let last_drip_ms = ms_of(at_ns).saturating_sub(begun_ms.min(new.drip_rate_ms - 1));
                let beyond = units_of(drips_in(time_ms(counter - within)));
                counted(last_drip_ms, kept.min(new.size.into()).saturating_add(beyond))
            }
            _ => {
                let (used, capacity) = used_of(old, word, at_ns)?;
                let share = |of: u64| scaled(used, of, capacity);
                match new {
                    Rule::Gcra(new) => {
                        at_ns.saturating_add(share(new.burst_offset_ns())).min(MAX_WORD)
                    }
                    Rule::Window(new) => counted(ms_of(at_ns), share(new.quota.into())),
                    Rule::LeakyBucket(new) => counted(ms_of(at_ns), share(new.size.into())),
                    Rule::Concurrency(_) | Rule::Custom(_) => return None,
                }
            }
        })
    }

    /// Converts a window. It ends when it would have ended, or one new window after the change if that is sooner. Windows
    /// behind it that reservations have used up take as long as before, in whole new windows.
    fn converted_window(self, old: &Window, new: &Window, word: TimedCount, at_ns: u64) -> u64 {
        let (old_quota, new_quota) = (u64::from(old.quota), u64::from(new.quota));
        let TimedCount { at_ms: start_ms, count: used } = without_past_windows(old, word, at_ns);
        let behind = used.saturating_sub(1) / old_quota;
        let within = used - behind * old_quota;
        let kept = match self {
            CarryOver::Units => within.min(new_quota),
            _ => scaled(within, new_quota, old_quota),
        };
        let behind_kept = scaled(behind, old.window_ms, new.window_ms).saturating_mul(new_quota);
        let end_ms = start_ms.saturating_add(old.window_ms);
        if behind > 0 {
            // The windows behind keep their times.
            let start_ms = end_ms.saturating_sub(new.window_ms);
            return counted(start_ms, kept.saturating_add(behind_kept));
        }
        // The window is no longer than a new one.
        let now_ms = ms_of(at_ns);
        let end_ms = end_ms.min(now_ms.saturating_add(new.window_ms));
        let new_start_ms = end_ms.saturating_sub(new.window_ms).max(1);
        // The new limit's tokens for the time before the change were never there.
        let available = |window: &Window, start_ms| window.come(now_ms.saturating_sub(start_ms));
        let at_once = available(old, start_ms).saturating_sub(within).max(new.burst.into());
        let missing = available(new, new_start_ms).saturating_sub(at_once);
        counted(new_start_ms, kept.max(missing))
    }
}

/// The largest word: the top bit is the table's.
const MAX_WORD: u64 = (1 << 63) - 1;

/// Computes `amount * by / of`, rounded up.
fn scaled(amount: u64, by: u64, of: u64) -> u64 {
    let product = u128::from(amount) * u128::from(by);
    u64::try_from(product.div_ceil(u128::from(of.max(1)))).unwrap_or(u64::MAX)
}

/// The word of a time and a count, each cut to its range.
fn counted(at_ms: u64, count: u64) -> u64 {
    TimedCount { at_ms: at_ms.clamp(1, MAX_MS), count: count.min(MAX_COUNT) }.word()
}

/// Leaves out the windows that were used up and have ended.
fn without_past_windows(window: &Window, word: TimedCount, at_ns: u64) -> TimedCount {
    let TimedCount { at_ms: start_ms, count: used } = word;
    let quota = u64::from(window.quota);
    if used <= quota {
        return word;
    }
    let passed = ms_of(at_ns).saturating_sub(start_ms) / window.window_ms;
    TimedCount {
        at_ms: start_ms.saturating_add(passed.saturating_mul(window.window_ms)),
        count: used.saturating_sub(passed.saturating_mul(quota)),
    }
}

/// The used part of a bucket and its capacity: both in nanoseconds, or both in units. `None` for a custom algorithm.
fn used_of(rule: &Rule, word: u64, at_ns: u64) -> Option<(u64, u64)> {
    Some(match rule {
        Rule::Gcra(gcra) => (word.saturating_sub(at_ns), gcra.burst_offset_ns()),
        Rule::Window(window) => {
            let present = without_past_windows(window, TimedCount::from_word(word), at_ns);
            (present.count, window.quota.into())
        }
        Rule::LeakyBucket(leaky) => (leaky.counter_at(word, at_ns), leaky.size.into()),
        Rule::Concurrency(_) | Rule::Custom(_) => return None,
    })
}
