//! Decides a batch of shared buckets from their texts. The store's script decides in the same way; the node asks these
//! functions for the figures of the decision, and the store in memory for the texts that it writes.

use smallvec::SmallVec;

use crate::algorithm::Outcome;
use crate::algorithm::charge_mark::ChargeMark;
use crate::algorithm::timed_count::NS_PER_MS;
use crate::decision::Decision;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::shared::protocol::lease::Granted;
use crate::shared::protocol::text::{MAX_KEPT_MS, SharedBucket, rule_time_ns, unix_ms};
use crate::shared::protocol::{Found, SLACK_MS, StoreMember};

/// One member of a batch, decided by its own bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecidedMember {
    pub(crate) decision: Decision,
    /// The bucket that the store keeps if the batch is allowed; `None` if it does not change.
    new: Option<SharedBucket>,
    /// The units that the node may take ahead then.
    pub(crate) granted: Option<Granted>,
}

pub(crate) type DecidedMembers = SmallVec<[DecidedMember; 1]>;

/// Decides each member by its own bucket, at the store's time.
pub(crate) fn decide<T: AsRef<[u8]>>(
    members: &[StoreMember],
    texts: &[Option<T>],
    unix_ns: u64,
) -> Result<DecidedMembers, Error> {
    let each = members.iter().zip(texts);
    each.map(|(member, text)| decide_one(member, text.as_ref().map(AsRef::as_ref), unix_ns))
        .collect()
}

/// Decides each member as the store has found it.
pub(crate) fn decide_found(
    members: &[StoreMember],
    found: &Found,
) -> Result<DecidedMembers, Error> {
    let each = members.iter().enumerate();
    each.map(|(at, member)| decide_found_one(member, found, at)).collect()
}

/// Decides a member as the store has found it. `at`: its position.
pub(crate) fn decide_found_one(
    member: &StoreMember,
    found: &Found,
    at: usize,
) -> Result<DecidedMember, Error> {
    let text = found.texts.get(at).and_then(Option::as_deref);
    decide_one(member, text, found.unix_ns_of(at))
}

fn decide_one(
    member: &StoreMember,
    text: Option<&[u8]>,
    unix_ns: u64,
) -> Result<DecidedMember, Error> {
    let StoreMember { key, limit, cost, mode, lease, .. } = member;
    let bucket = read(key, limit, text)?.guarded(member.own_limit(), unix_ns);
    let end = lease.and_then(|lease| lease.end);
    let ended = end.and_then(|end| bucket.without_lease(member.own_limit(), unix_ns, end));
    let bucket = ended.unwrap_or(bucket);
    let Outcome { word, decision } = bucket.spend(limit, unix_ns, *cost);
    let charged = word.filter(|_| mode.is_charged());
    let new = charged.map(|word| SharedBucket { word, ..bucket }).or(ended);
    let leased = lease.filter(|_| decision.allowed() && mode.is_charged());
    let leased = leased.and_then(|lease| new.unwrap_or(bucket).with_lease(limit, unix_ns, lease));
    let (new, granted) = match leased {
        Some((new, granted)) => (Some(new), Some(granted)),
        None => (new, None),
    };
    Ok(DecidedMember { decision, new, granted })
}

impl SharedBucket {
    /// Decides a spend of the bucket. If its id is blocked, the spend is denied and charges nothing.
    pub(crate) fn spend(&self, limit: &Limit, unix_ns: u64, cost: u64) -> Outcome {
        let spend = |cost| limit.rule().spend(self.word, rule_time_ns(unix_ns), cost);
        let outcome = spend(cost);
        let Some(left_ns) = self.blocked_ns(unix_ns) else { return outcome };
        // The call charges nothing, so if the bucket has the units, its figures are those at a cost of 0.
        let asked = if outcome.decision.allowed() { spend(0) } else { outcome };
        Outcome { word: None, decision: asked.decision.under_block(left_ns) }
    }
}

/// Returns what a return of units of a member's charge needs to know. `text`: the bucket's before the charge. `None`: the bucket
/// was not charged.
pub(crate) fn charge_mark(
    member: &StoreMember,
    text: Option<&[u8]>,
    unix_ns: u64,
) -> Option<ChargeMark> {
    let limit = &member.limit;
    let bucket = read(&member.key, limit, text).ok()?.guarded(member.own_limit(), unix_ns);
    let charged = bucket.spend(limit, unix_ns, member.cost).word;
    charged.filter(|_| member.mode.is_charged()).map(|word| limit.rule().charge_mark(word))
}

/// Reads the text of a bucket in the store; the error names its key.
pub(crate) fn read(key: &str, limit: &Limit, text: Option<&[u8]>) -> Result<SharedBucket, Error> {
    SharedBucket::read(limit, text).map_err(|fault| {
        Error::new(
            ErrorKind::Store,
            format!("the text of {key:?} in the store is unknown: {fault}"),
        )
    })
}

/// Returns the position of the first member that denies the batch.
pub(crate) fn denied_by(members: &[StoreMember], decided: &[DecidedMember]) -> Option<usize> {
    let mut each = members.iter().zip(decided);
    each.position(|(member, decided)| member.mode.can_deny() && !decided.decision.allowed())
}

/// Returns the text that an allowed batch writes for a member, and the ms for which it is kept.
pub(crate) fn written(
    member: &StoreMember,
    decided: &DecidedMember,
    unix_ns: u64,
) -> Option<(String, u64)> {
    let bucket = decided.new?.with_fill_time(&member.limit, member.keep_ms);
    Some((bucket.text(&member.limit), member.kept_ms(bucket, unix_ns)))
}

impl StoreMember {
    /// Returns the ms for which the store keeps a bucket after a call: by the call's limit, and by the limit without its
    /// factor, by which the bucket may be full later.
    pub(crate) fn kept_ms(&self, bucket: SharedBucket, unix_ns: u64) -> u64 {
        let by = |limit| kept_ms((limit, self.own_limit()), bucket, unix_ns, self.keep_ms);
        by(&self.limit).max(by(self.own_limit()))
    }
}

/// Returns the ms for which the store keeps a bucket: until it is full again by a call's limit, and its id's block is over, at
/// least `at_least_ms`, and a slack. `own`: the limit without a factor, by which the units of leases
/// [hold the bucket back](SharedBucket::with_guard).
pub(crate) fn kept_ms(
    (limit, own): (&Limit, &Limit),
    bucket: SharedBucket,
    unix_ns: u64,
    at_least_ms: u64,
) -> u64 {
    let bucket = bucket.with_guard(own, unix_ns);
    // A lease that ends leaves the bucket as if its units were spent at that moment.
    let leased_ms = bucket.leases.last_end_ms().saturating_sub(unix_ms(unix_ns));
    let full_in_ms = full_in_ms(limit, bucket, unix_ns).saturating_add(leased_ms);
    let blocked_ms = bucket.blocked_until_ms.saturating_sub(unix_ms(unix_ns));
    let needed_ms = full_in_ms.max(blocked_ms).max(at_least_ms).max(bucket.fills_in_ms);
    needed_ms.saturating_add(SLACK_MS).min(MAX_KEPT_MS)
}

/// Returns the ms until a bucket without leases is full again.
pub(crate) fn full_in_ms(limit: &Limit, bucket: SharedBucket, unix_ns: u64) -> u64 {
    limit.rule().full_in_ns(bucket.word, rule_time_ns(unix_ns)).div_ceil(NS_PER_MS)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::shared::protocol::groups::LeaseGroups;

    /// A reset leaves the bucket full, and its leases are taken for spent when they end.
    #[test]
    fn texts_outlive_the_leases_of_full_buckets() {
        let unix_ns = 1_790_000_000_000_000_000;
        let limit = Limit::new(20, 1, Duration::from_secs(60)).unwrap();
        let until_ms = unix_ms(unix_ns) + 20_000;
        let (leases, _) = LeaseGroups::default().with(until_ms, 8).unwrap();
        let word = limit.rule().full(rule_time_ns(unix_ns));
        let bucket = SharedBucket { word, leases, ..SharedBucket::default() };
        let kept_ms = kept_ms((&limit, &limit), bucket, unix_ns, 0);
        let ended = bucket.guarded(&limit, until_ms * NS_PER_MS);
        let full_ms = 20_000 + full_in_ms(&limit, ended, until_ms * NS_PER_MS);
        assert!(full_ms > 7 * 60_000, "{full_ms} ms");
        assert!(kept_ms >= full_ms + SLACK_MS, "{kept_ms} of {full_ms} ms");
    }
}
