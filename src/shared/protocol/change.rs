//! The steps by which a store changes one bucket. Each is relative to the bucket that is there, and needs no answer before it.
//! change.lua has the same steps.

use std::time::Duration;

use crate::algorithm::Outcome;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::rule::Rule;
use crate::algorithm::timed_count::NS_PER_MS;
use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::shared::protocol::StoreMember;
use crate::shared::protocol::decide::read;
use crate::shared::protocol::text::{SharedBucket, rule_time_ns};
use crate::util::time::saturating_ns;

/// A bucket to change, and the step.
#[derive(Clone, Debug)]
pub(crate) struct BucketChange {
    pub(crate) member: StoreMember,
    pub(crate) step: Step,
}

/// A change of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Changes nothing.
    Look,
    /// Returns units by hand.
    Refund {
        units: u64,
    },
    /// Returns units of a charge.
    Return {
        units: u64,
        charge: ChargeMark,
    },
    /// Charges units whether the bucket has them or not, down to a debt.
    Owe {
        units: u64,
        max_debt: u64,
    },
    Reset,
    Block {
        time: Duration,
    },
    Unblock,
    /// Reserves units of gcra, if they are granted within this time.
    Reserve {
        units: u64,
        at_most_ns: u64,
    },
    /// Cancels a reservation of gcra, which wrote this word.
    Cancel {
        units: u64,
        word: u64,
    },
    /// Spends as many of these units as there are.
    SpendUpTo {
        most: u64,
    },
    /// Spends all units but these.
    Drain {
        leave: u64,
    },
}

/// A bucket before and after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stepped {
    /// The store's time, in ns since 1970.
    pub(crate) unix_ns: u64,
    /// As the step has found it: with the units that nodes hold.
    pub(crate) before: SharedBucket,
    /// `None` if the step changes nothing.
    pub(crate) new: Option<SharedBucket>,
    /// The units that a [`Step::SpendUpTo`] has charged.
    pub(crate) units: u64,
    /// The decision of a refund, a reset or a [`Step::SpendUpTo`]; of another step one without figures.
    pub(crate) decision: Decision,
}

impl Stepped {
    /// The bucket after the step.
    pub(crate) fn after(&self) -> SharedBucket {
        self.new.unwrap_or(self.before)
    }

    /// Returns the time until the block ends that the step has found, in ns.
    pub(crate) fn blocked_ns(&self) -> Option<u64> {
        self.before.blocked_ns(self.unix_ns)
    }
}

impl Step {
    /// Whether the step admits units now or later, so that a flood of it is bounded by the [gate](super::gate).
    pub(crate) fn spends(&self) -> bool {
        matches!(self, Step::SpendUpTo { .. } | Step::Reserve { .. })
    }

    /// Returns the limit by which the step counts: what is returned of a charge, and a reservation, by the one without a factor.
    pub(crate) fn limit<'m>(&self, member: &'m StoreMember) -> &'m Limit {
        match self {
            Step::Return { .. } | Step::Cancel { .. } => member.own_limit(),
            _ => &member.limit,
        }
    }
}

impl BucketChange {
    /// Makes the step on the text of a bucket.
    pub(crate) fn stepped(&self, text: Option<&[u8]>, unix_ns: u64) -> Result<Stepped, Error> {
        let BucketChange { member, step } = self;
        let before = read(&member.key, &member.limit, text)?.guarded(member.own_limit(), unix_ns);
        let (rule, now_ns) = (step.limit(member).rule(), rule_time_ns(unix_ns));
        let (word, mut units, mut decision) = (before.word, 0, Decision::UNLIMITED);
        let is_blocked = before.blocked_ns(unix_ns).is_some();
        let mut told = |outcome: Outcome| {
            decision = outcome.decision;
            outcome.word
        };
        let word = match *step {
            Step::Look => None,
            Step::Refund { units } => told(rule.refund(word, now_ns, units)),
            Step::Return { units, charge } => rule.returned(word, now_ns, units, charge),
            Step::Owe { units, max_debt } => rule.owe(word, now_ns, units, max_debt),
            Step::Reset => told(rule.reset(word, now_ns)),
            Step::Block { time } => {
                let end_ns = unix_ns.saturating_add(saturating_ns(time));
                let until_ms = end_ns.div_ceil(NS_PER_MS).max(before.blocked_until_ms);
                return Ok(self.blocked_until(before, until_ms, unix_ns));
            }
            Step::Unblock => return Ok(self.blocked_until(before, 0, unix_ns)),
            Step::Reserve { .. } if is_blocked => None,
            Step::Reserve { units, at_most_ns } => rule
                .gcra()
                .and_then(|gcra| gcra.reserve(word, now_ns, units))
                // While nodes hold units, none waits: these are spent later than they are charged.
                .filter(|new| new.at_ns == now_ns || before.leases.units() == 0)
                .filter(|new| new.at_ns - now_ns <= at_most_ns)
                .map(|new| new.word),
            Step::Cancel { units, word: reserved } => {
                cancelled(rule, word, now_ns, (units, reserved))
            }
            Step::SpendUpTo { most } => {
                let (charged, outcome) = match is_blocked {
                    true => (0, before.spend(&member.limit, unix_ns, most.min(1))),
                    false => rule.spend_up_to(word, now_ns, most),
                };
                units = charged;
                told(outcome).filter(|_| charged > 0)
            }
            Step::Drain { leave } => rule.drain(word, now_ns, leave).word,
        };
        let new = word.map(|word| {
            let new = SharedBucket { word, ..before }.with_guard(member.own_limit(), unix_ns);
            new.with_fill_time(&member.limit, member.keep_ms)
        });
        Ok(Stepped { unix_ns, before, new, units, decision })
    }

    fn blocked_until(&self, before: SharedBucket, until_ms: u64, unix_ns: u64) -> Stepped {
        let new = SharedBucket { blocked_until_ms: until_ms, ..before };
        let new = (new != before).then_some(new);
        Stepped { unix_ns, before, new, units: 0, decision: Decision::UNLIMITED }
    }

    /// Returns the text to write, and the ms for which it is kept. A text without ms is removed. `None`: nothing changes.
    pub(crate) fn written(&self, stepped: &Stepped) -> Option<(String, Option<u64>)> {
        let (member, new) = (&self.member, stepped.new?);
        let is_needed = new.word != 0 || new.blocked_until_ms > 0 || new.leases.units() > 0;
        let kept_ms = is_needed.then(|| member.kept_ms(new, stepped.unix_ns));
        Some((if is_needed { new.text(&member.limit) } else { String::new() }, kept_ms))
    }
}

/// Cancels a reservation. One whose time has come is returned; any other goes back if no charge in the bucket is behind it.
fn cancelled(rule: &Rule, word: u64, now_ns: u64, (units, reserved): (u64, u64)) -> Option<u64> {
    let gcra = rule.gcra()?;
    let has_come = reserved.saturating_sub(gcra.burst_offset_ns()) <= now_ns;
    if !has_come && word > reserved {
        return None;
    }
    rule.returned(word, now_ns, units, rule.charge_mark(reserved))
}
