//! A charge of a bucket in the store that can be rolled back later: by a settlement, or by a cancel of a reservation.
//!
//! The rule is that of one node, docs/internals/rollback.md. It knows no leases, whose units are spent later than they are
//! charged: so a charge that was made while nodes held leases of the bucket stays, and so does each while nodes hold some.

#[cfg(all(test, not(tollgate_loom)))]
mod histories;
#[cfg(all(test, not(tollgate_loom)))]
mod late_spends;

use crate::algorithm::Charge;
use crate::algorithm::timed_count::NS_PER_MS;
use crate::core::shared::ledger::{BucketLedger, LedgerEntry, SinceCharge};
use crate::core::shared::text::{SharedBucket, rule_time_ns, unix_ms};
use crate::limit::Limit;
use crate::util::time::saturating_ns;

/// The record of a charge from which a rollback is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReversibleCharge {
    charge: Charge,
    /// The bucket as the text had it.
    found: SharedBucket,
    /// The word before the charge by the limit without a factor: another one if leases have ended before the charge, which
    /// hold the bucket back by both limits.
    own_before: u64,
    /// The bucket's ledger at the charge.
    ledger: Option<BucketLedger>,
    /// When a reservation is granted, in the time of the rules; the time of the charge for any other.
    granted_at_ns: u64,
}

impl ReversibleCharge {
    /// Records a charge of the bucket `found` by a limit. `own`: the limit without the caller's factor. `None` if the charge
    /// cannot be rolled back.
    pub(crate) fn new(
        (limit, own): (&Limit, &Limit),
        found: SharedBucket,
        after: SharedBucket,
        unix_ns: u64,
    ) -> Option<ReversibleCharge> {
        let now_ns = rule_time_ns(unix_ns);
        let before = found.guarded((limit, own), unix_ns);
        (before.leases.units() == 0).then(|| ReversibleCharge {
            charge: Charge::new(before.word, after.word, now_ns),
            found,
            own_before: found.guarded((own, own), unix_ns).word,
            // The entry that the charge itself has written into the ledger is for units in front of its own.
            ledger: after.ledger,
            granted_at_ns: now_ns,
        })
    }

    /// Rolls `cost - actual` of its `cost` units back. `None`: nothing comes back. `own`: the limit without the caller's
    /// factor, by which other calls see the bucket.
    pub(crate) fn rolled_back(
        &self,
        (limit, own): (&Limit, &Limit),
        bucket: SharedBucket,
        unix_ns: u64,
        (cost, actual): (u64, u64),
    ) -> Option<SharedBucket> {
        let since = BucketLedger::since(bucket.ledger, self.ledger);
        if bucket.leases.units() > 0 || since.is_refunded {
            return None;
        }
        let SinceCharge { lowered, last_grant_ns, drained_early, .. } = since;
        let charge = limit.rule().without(self.charge, cost, actual)?;
        let charge = Charge { lowered, last_grant_ns, drained_early, ..charge };
        let (is_last, now_ns) = (charge.is_last(bucket.word), rule_time_ns(unix_ns));
        let own_before = if limit == own { charge.before } else { self.own_before };
        let word = own.rolled_back(limit, bucket.word, (charge, own_before), &|| now_ns)?;
        if !is_last || actual > 0 {
            let entry = LedgerEntry::Lowered(own.rule().measure(bucket.word, word));
            return Some(bucket.with_entry(own, unix_ns, word, entry));
        }
        let new = bucket.with_entry(own, unix_ns, word, LedgerEntry::Undo);
        let SharedBucket { word, leases, .. } = self.found;
        // With the leases that had ended before the charge: calls with a factor count them by their own limit.
        Some(if leases.units() > 0 { SharedBucket { word, leases, ..new } } else { new })
    }

    /// Rolls a reservation back whose time has not passed.
    pub(crate) fn cancelled(
        &self,
        limits: (&Limit, &Limit),
        bucket: SharedBucket,
        unix_ns: u64,
        cost: u64,
    ) -> Option<SharedBucket> {
        let is_used = self.granted_at_ns < rule_time_ns(unix_ns);
        if is_used { None } else { self.rolled_back(limits, bucket, unix_ns, (cost, 0)) }
    }
}

/// Reserved units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    /// The bucket with the charge; `None` for a cost of 0.
    pub(crate) new: Option<SharedBucket>,
    pub(crate) charge: Option<ReversibleCharge>,
    /// The ns until the units are granted.
    pub(crate) wait_ns: u64,
}

/// Why nothing is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The wait would be longer than the caller's longest.
    NotInTime {
        wait_ns: u64,
    },
    /// Beyond the range of the clock or of the text.
    TooFarAhead,
    Blocked {
        left_ns: u64,
    },
}

/// Reserves `cost` units of a [guarded](SharedBucket::guarded) bucket, at the earliest time behind all earlier reservations.
///
/// A reservation that has to wait would be granted while nodes still spend the leases that they hold. So none waits while
/// there are leases.
pub(crate) fn reserve(
    limit: &Limit,
    bucket: SharedBucket,
    unix_ns: u64,
    cost: u64,
    at_most_ns: u64,
) -> Result<Reserved, Refused> {
    if let Some(left_ns) = bucket.blocked_ns(unix_ns) {
        return Err(Refused::Blocked { left_ns });
    }
    let (rule, now_ns) = (limit.rule(), rule_time_ns(unix_ns));
    let in_time = |wait_ns| match wait_ns <= at_most_ns {
        true => Ok(wait_ns),
        false => Err(Refused::NotInTime { wait_ns }),
    };
    if cost == 0 {
        let decision = rule.spend(bucket.word, now_ns, 0).decision;
        let debt_ns = if decision.allowed() { 0 } else { saturating_ns(decision.retry_in()) };
        return Ok(Reserved { new: None, charge: None, wait_ns: in_time(debt_ns)? });
    }
    let grant = rule.reserve(bucket.word, now_ns, cost).ok_or(Refused::TooFarAhead)?;
    let wait_ns = in_time(grant.at_ns.saturating_sub(now_ns))?;
    let granted = SharedBucket { word: grant.word, ..bucket };
    let charge = ReversibleCharge::new((limit, limit), bucket, granted, unix_ns);
    if wait_ns == 0 {
        return Ok(Reserved { new: Some(granted), charge, wait_ns });
    }
    if bucket.leases.units() > 0 {
        let leased_ms = bucket.leases.last_end_ms().saturating_sub(unix_ms(unix_ns));
        return Err(Refused::NotInTime { wait_ns: wait_ns.max(leased_ms * NS_PER_MS) });
    }
    let new = bucket.with_entry(limit, unix_ns, grant.word, LedgerEntry::Grant(grant.at_ns));
    // The reservation's own entry came before its charge.
    let charge = charge.map(|charge| ReversibleCharge {
        ledger: new.ledger,
        granted_at_ns: grant.at_ns,
        ..charge
    });
    Ok(Reserved { new: Some(new), charge, wait_ns })
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::factor::Factor;
    use crate::core::shared::lease::LeaseRequest;

    #[test]
    fn charges_beside_leases_stay() {
        let at_ns = 1_790_000_000 * 1_000_000_000;
        let limit = Limit::new(20, 1, Duration::from_secs(60)).unwrap();
        let request = LeaseRequest { want: 8, length_ms: 1_000, end: None };
        let (leased, granted) = SharedBucket::default().with_lease(&limit, at_ns, request).unwrap();
        let rolled_back = |before: SharedBucket, ended_ns| {
            let word = limit.rule().spend(before.word, rule_time_ns(at_ns), 3).word.unwrap();
            let after = SharedBucket { word, ..before }.guarded((&limit, &limit), ended_ns);
            let charge = ReversibleCharge::new(
                (&limit, &limit),
                before,
                SharedBucket { word, ..before },
                at_ns,
            )?;
            charge.rolled_back((&limit, &limit), after, ended_ns, (3, 0))
        };
        let ended_ns = granted.until_ms * NS_PER_MS + 1;
        assert!(rolled_back(SharedBucket::default(), ended_ns).is_some());
        assert_eq!(rolled_back(leased, at_ns), None);
        assert_eq!(rolled_back(leased, ended_ns), None, "also after the leases have ended");
    }

    /// The other charges drain by the limit without a factor.
    #[test]
    fn rollbacks_by_factor_keep_ledgers_long_enough() {
        let at_ns = 1_790_000_000 * 1_000_000_000;
        let second = Duration::from_secs(1);
        let own = Limit::leaky_bucket(20, second, 1).unwrap();
        let fast = own.scaled(Factor::from_millionths(500_000)).unwrap().unwrap();
        let spent = |limit: &Limit, bucket: SharedBucket, cost| {
            let word = limit.rule().spend(bucket.word, rule_time_ns(at_ns), cost).word.unwrap();
            SharedBucket { word, ..bucket }
        };
        let before = spent(&own, SharedBucket::default(), 10);
        let after = spent(&fast, before, 2);
        let charge = ReversibleCharge::new((&fast, &own), before, after, at_ns).unwrap();
        let back = charge.rolled_back((&fast, &own), after, at_ns, (2, 0)).unwrap();
        assert!(back.ledger.unwrap().needed_until_ms > unix_ms(at_ns) + 10_000);
    }
}
