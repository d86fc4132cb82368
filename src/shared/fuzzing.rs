//! Opens the reading and changing of the store's texts to a fuzz target. Only in a build with `--cfg fuzzing`.

use crate::decision::Decision;
use crate::error::Error;
use crate::limit::Limit;
use crate::shared::protocol::decide::{decide, kept_ms, written};
use crate::shared::protocol::lease::{LeaseEnd, LeaseRequest};
use crate::shared::protocol::text::{SharedBucket, rule_time_ns};
use crate::shared::protocol::{SharedMode, StoreMember};

/// A bucket as a text of the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextBucket(SharedBucket);

impl TextBucket {
    /// Reads the text of a bucket of `limit`.
    pub fn read(limit: &Limit, text: &[u8]) -> Result<TextBucket, String> {
        SharedBucket::read(limit, Some(text)).map(TextBucket)
    }

    /// Returns the text of the bucket.
    pub fn text(self, limit: &Limit) -> String {
        self.0.text(limit)
    }

    /// Returns the bucket as calls of this time find it.
    pub fn guarded(self, limit: &Limit, unix_ns: u64) -> TextBucket {
        TextBucket(self.0.guarded(limit, unix_ns))
    }

    /// Returns the ms for which the store keeps the bucket.
    pub fn kept_ms(self, limit: &Limit, unix_ns: u64) -> u64 {
        kept_ms((limit, limit), self.0, unix_ns, 0)
    }

    /// Whether a bucket that the store has forgotten is the same to calls of this time: full, without a block.
    pub fn is_over(self, limit: &Limit, unix_ns: u64) -> bool {
        let bucket = self.0.guarded(limit, unix_ns);
        let is_full = bucket.word == 0 || limit.rule().is_full(bucket.word, rule_time_ns(unix_ns));
        is_full && bucket.blocked_ns(unix_ns).is_none() && bucket.leases.units() == 0
    }
}

/// A call on a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// At most the limit's burst.
    pub cost: u64,
    /// 0: it can deny and is charged; 1: it can deny; 2: it is charged.
    pub mode: u8,
    /// The units of a lease, and its length in ms, from 1.
    pub lease: Option<(u64, u64)>,
    /// The lease that the call gives up: its tag in ms since 1970, its units, and those that are unspent.
    pub end: (u64, u64, u64),
}

/// The answer of a call.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The decision by the bucket alone.
    pub decision: Decision,
    /// The units of the lease.
    pub granted: u64,
    /// The text that an allowed batch writes, and the ms for which it is kept.
    pub written: Option<(String, u64)>,
}

/// Decides a call for a bucket with this text.
pub fn decide_text(limit: &Limit, text: &[u8], unix_ns: u64, call: Call) -> Result<Answer, Error> {
    let mode = match call.mode {
        0 => SharedMode::CheckAndSpend,
        1 => SharedMode::CheckOnly,
        _ => SharedMode::SpendOnly,
    };
    let (tag_ms, granted, unspent) = call.end;
    let end = (granted > 0).then_some(LeaseEnd { tag_ms, granted, unspent });
    let lease = call.lease.map(|(want, length_ms)| LeaseRequest { want, length_ms, end });
    let (limit, cost) = (limit.clone(), call.cost);
    let member =
        StoreMember { key: "a".into(), limit, cost, mode, keep_ms: 0, lease, unscaled: None };
    let decided = decide(std::slice::from_ref(&member), &[Some(text)], unix_ns)?;
    Ok(Answer {
        decision: decided[0].decision,
        granted: decided[0].granted.map_or(0, |granted| granted.units),
        written: written(&member, &decided[0], unix_ns),
    })
}
