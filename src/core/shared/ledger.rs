//! The rollback ledger of a bucket in the store: by how much calls have lowered the bucket since it began.
//!
//! A settlement or a cancel rolls a charge back by the rule of docs/internals/rollback.md, which asks by how much other calls
//! have lowered the bucket since the charge. On one node a table beside the buckets answers that; in the store it is a part
//! of the bucket's text, which only calls write that lower the bucket or reserve units in the future.
//!
//! A ledger may be dropped once all charges from before its last entry have drained. So for a charge, no ledger means that no
//! call has lowered the bucket since, or that the charge has drained and its rollback returns nothing.

/// What calls have done to a bucket since the ledger began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketLedger {
    /// The store's time at the beginning, in ns since 1970. It tells two ledgers of a bucket apart.
    pub(crate) began_ns: u64,
    /// The time at which all charges from before the last entry have drained and all reservations are granted, in ms since
    /// 1970. The store keeps the text until then.
    pub(crate) needed_until_ms: u64,
    /// The number of entries. So no text comes back after a call has lowered its bucket, and a compare-and-set that was
    /// computed before fails.
    pub(crate) entries: u64,
    /// The sum by which rollbacks and settlements have lowered the bucket, in the measure of
    /// [`Charge::lowered`](crate::algorithm::Charge::lowered).
    pub(crate) lowered: u64,
    /// The number of refunds and resets.
    pub(crate) refunds: u64,
    /// The latest time at which a reservation is granted, in the time of the rules; 0 if none had to wait.
    pub(crate) last_grant_ns: u64,
    /// The units in the measure of [`Charge::drained_early`](crate::algorithm::Charge::drained_early), at most
    /// [`MAX_DRAINED`].
    pub(crate) drained_early: u64,
}

/// The most units in a ledger that were drained early: the script counts them exactly.
pub(crate) const MAX_DRAINED: u64 = (1 << 53) - 1;

/// What calls have done to a bucket since a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SinceCharge {
    pub(crate) lowered: u64,
    pub(crate) is_refunded: bool,
    pub(crate) last_grant_ns: u64,
    pub(crate) drained_early: u64,
}

/// An entry of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LedgerEntry {
    /// The last charge was undone: the bucket is as if it had not been made.
    Undo,
    Lowered(u64),
    Refund,
    /// A reservation is granted at this time of the rules.
    Grant(u64),
}

impl BucketLedger {
    /// Begins a ledger.
    pub(crate) fn new(unix_ns: u64) -> BucketLedger {
        BucketLedger {
            began_ns: unix_ns,
            needed_until_ms: 0,
            entries: 0,
            lowered: 0,
            refunds: 0,
            last_grant_ns: 0,
            drained_early: 0,
        }
    }

    /// Returns what calls have done since a charge. `mark`: the ledger at the charge.
    pub(crate) fn since(now: Option<BucketLedger>, mark: Option<BucketLedger>) -> SinceCharge {
        let Some(now) = now else {
            return SinceCharge {
                lowered: 0,
                is_refunded: false,
                last_grant_ns: 0,
                drained_early: 0,
            };
        };
        // A ledger that began after the charge counts from 0.
        let mark = mark.filter(|mark| mark.began_ns == now.began_ns);
        let (lowered, refunds) = mark.map_or((0, 0), |mark| (mark.lowered, mark.refunds));
        let drained = mark.map_or(0, |mark| mark.drained_early);
        SinceCharge {
            lowered: now.lowered.wrapping_sub(lowered),
            is_refunded: now.refunds != refunds,
            last_grant_ns: now.last_grant_ns,
            drained_early: now.drained_early.saturating_sub(drained),
        }
    }
}
