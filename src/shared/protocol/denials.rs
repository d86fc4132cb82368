//! Denials of the store that a node keeps, so that a flood of calls for one id costs no I/O.
//!
//! When the store denies a batch, the node keeps the texts that the store has found, for a tenth of a second. It decides a later
//! batch by these texts, at the store's time now. If they deny it, it is denied, with the figures that the store would compute.
//! If they allow it, the store is asked. So a kept text admits nothing.
//!
//! Each answer to a call of this node that may have changed a bucket ends what the node has kept of it. A change by another node
//! is seen when the kept time is over.

use std::sync::Arc;

use ahash::RandomState;
use smallvec::SmallVec;

use crate::shared::protocol::decide::{decide_found, denied_by};
use crate::shared::protocol::lease::{LeaseEnd, LeaseRequest};
use crate::shared::protocol::{Found, StoreMember};
use crate::util::lock::Mutex;

/// The time for which a denial is kept, in ns.
pub(crate) const KEPT_NS: u64 = 100_000_000;

/// The places for texts. Buckets whose keys have the same place take it from each other.
const PLACES: usize = 1 << 14;

/// The denials that a node keeps.
pub(crate) struct Denials {
    hasher: RandomState,
    places: Box<[Mutex<Place>]>,
}

#[derive(Default)]
struct Place {
    /// The answers to calls that may have changed a bucket of this place.
    changes: u64,
    kept: Option<Box<Kept>>,
}

/// The text of a bucket, as a denied call has found it.
struct Kept {
    key: Box<str>,
    text: Option<Box<[u8]>>,
    /// The store's time then.
    unix_ns: u64,
    /// When the call was sent, on the node's clock.
    sent_ns: u64,
    /// The node's own lease, of which no unit was left.
    end: Option<LeaseEnd>,
}

/// What a call knows of the places of its members when it is sent: the changes of each.
pub(crate) type Marks = SmallVec<[u64; 2]>;

/// A batch that kept texts deny: its members, each with the lease that the node would give up, and the texts.
pub(crate) type Denied = (Arc<[StoreMember]>, Found);

impl Denials {
    pub(crate) fn new() -> Denials {
        Denials {
            hasher: RandomState::new(),
            places: (0..PLACES).map(|_| Mutex::default()).collect(),
        }
    }

    fn place(&self, key: &str) -> &Mutex<Place> {
        &self.places[self.hasher.hash_one(key) as usize % PLACES]
    }

    /// Decides a batch by the kept texts of all its members. `None`: they do not deny it, or the node does not have all of them.
    pub(crate) fn find(&self, members: &[StoreMember], now_ns: u64) -> Option<Denied> {
        let mut found = Found {
            unix_ns: 0,
            denied: None,
            texts: Vec::new(),
            leased: vec![0; members.len()],
            times: Vec::new(),
        };
        let mut ended: Vec<StoreMember> = Vec::new();
        for member in members {
            // No call waits for a thread that stands still: it asks the store.
            let place = self.place(&member.key).try_lock()?;
            let kept = place.kept.as_ref().filter(|kept| kept.key == member.key)?;
            let for_ns = now_ns.checked_sub(kept.sent_ns).filter(|&for_ns| for_ns < KEPT_NS)?;
            // The store decided after the call was sent, so its time is not later than this.
            found.times.push(kept.unix_ns.saturating_add(for_ns));
            found.texts.push(kept.text.clone());
            let lease = kept.end.map(|end| LeaseRequest { want: 0, length_ms: 1, end: Some(end) });
            ended.push(StoreMember { lease, ..member.clone() });
        }
        found.unix_ns = found.times.iter().copied().max()?;
        found.denied = Some(denied_by(&ended, &decide_found(&ended, &found).ok()?)?);
        Some((ended.into(), found))
    }

    /// Returns the marks of a call that is sent now, and whether the last answer for one of its buckets was a denial.
    pub(crate) fn marks(&self, members: &[StoreMember]) -> (Marks, bool) {
        let mut was_denied = false;
        let marks = members.iter().map(|member| {
            let place = self.place(&member.key).lock();
            was_denied |= place.kept.as_ref().is_some_and(|kept| kept.key == member.key);
            place.changes
        });
        (marks.collect(), was_denied)
    }

    /// Keeps the texts of a batch that the store has denied, except those of buckets that may have changed since it was sent.
    pub(crate) fn keep(
        &self,
        members: &[StoreMember],
        found: &Found,
        (marks, sent_ns): (&Marks, u64),
    ) {
        for (at, (member, mark)) in members.iter().zip(marks).enumerate() {
            let mut place = self.place(&member.key).lock();
            if place.changes != *mark {
                continue;
            }
            place.kept = Some(Box::new(Kept {
                key: member.key.clone(),
                text: found.texts.get(at).cloned().flatten(),
                unix_ns: found.unix_ns_of(at),
                sent_ns,
                end: member.lease.and_then(|lease| lease.end),
            }));
        }
    }

    /// Notes that a bucket may have changed.
    pub(crate) fn forget(&self, key: &str) {
        let mut place = self.place(key).lock();
        place.changes = place.changes.wrapping_add(1);
        if place.kept.as_ref().is_some_and(|kept| *kept.key == *key) {
            place.kept = None;
        }
    }
}
