//! Charges a batch whose buckets are in several slots of a cluster.
//!
//! A script runs in one slot. So the batch is first checked in all slots at once, which writes nothing. If no member denies,
//! the slots charge their members one after the other, in the order of the slots' numbers. Where one denies after all, because
//! another call came between, or fails, the charges before it are given back.
//!
//! A charge is given back as any other return: its units come back to the bucket that is there. A slot whose answer is lost may
//! have charged its members; these units stay charged.

use std::sync::Arc;

use futures_util::future::join_all;
use smallvec::smallvec;
use tokio::time::{Instant, timeout_at};

use super::link::TOO_LATE;
use super::servers::Servers;
use super::slots::slot_of;
use crate::error::Error;
use crate::shared::protocol::change::{BucketChange, Step};
use crate::shared::protocol::decide::charge_mark;
use crate::shared::protocol::{Found, SharedMode, StoreMember};

/// The members of one slot.
struct Part {
    members: Arc<[StoreMember]>,
    /// Their positions in the batch.
    positions: Vec<usize>,
}

/// Splits a batch by slots, in their order.
fn parts_of(members: &[StoreMember]) -> Vec<Part> {
    let mut slots: Vec<_> = members.iter().map(|member| slot_of(&member.key)).collect();
    let of_members = slots.clone();
    slots.sort_unstable();
    slots.dedup();
    let part = |slot| {
        let positions: Vec<_> = (0..members.len()).filter(|&at| of_members[at] == slot).collect();
        let members = positions.iter().map(|&at| members[at].clone()).collect();
        Part { members, positions }
    };
    slots.into_iter().map(part).collect()
}

/// Makes a member that is looked at, and not charged.
fn checked(member: &StoreMember) -> StoreMember {
    let mode = if member.mode.can_deny() { SharedMode::CheckOnly } else { SharedMode::LookOnly };
    StoreMember { mode, lease: None, ..member.clone() }
}

/// The answers of the slots so far, as one.
struct Merged(Found);

impl Merged {
    fn new(members: usize) -> Merged {
        Merged(Found {
            unix_ns: 0,
            denied: None,
            texts: vec![None; members],
            leased: smallvec![0; members],
            times: vec![0; members],
        })
    }

    /// Notes what one slot has found. `denied` is the first member of the batch that denies.
    fn put(&mut self, part: &Part, found: &Found) {
        let Merged(all) = self;
        all.unix_ns = all.unix_ns.max(found.unix_ns);
        for (at, &position) in part.positions.iter().enumerate() {
            all.times[position] = found.unix_ns;
            all.texts[position] = found.texts[at].clone();
            all.leased[position] = found.leased[at];
        }
        let Some(at) = found.denied else { return };
        // A text that is no bucket has no position.
        let position = part.positions.get(at).copied().unwrap_or(usize::MAX);
        let is_fault = |position| position == usize::MAX;
        all.denied = match all.denied {
            None => Some(position),
            Some(other) if is_fault(other) || is_fault(position) => Some(usize::MAX),
            Some(other) => Some(other.min(position)),
        };
    }
}

/// Charges a batch.
pub(super) async fn charge(
    servers: &Arc<Servers>,
    members: &[StoreMember],
    deadline: Instant,
) -> Result<Found, Error> {
    let parts = parts_of(members);
    let mut merged = Merged::new(members.len());
    let is_charged = |part: &Part| part.members.iter().any(|member| member.mode.is_charged());
    // Without a member that can deny only a failure ends the batch, and each part that is charged shows its texts then.
    if members.iter().any(|member| member.mode.can_deny()) || !parts.iter().all(is_charged) {
        check(servers, &parts, &mut merged, deadline).await?;
        if merged.0.denied.is_some() {
            return Ok(merged.0);
        }
    }
    let mut charged: Vec<(Arc<[StoreMember]>, Found)> = Vec::new();
    for part in parts.iter().filter(|part| is_charged(part)) {
        let found = match charge_in_time(servers, part, deadline).await {
            Ok(found) => found,
            Err(error) => {
                give_back_in_time(servers, charged, deadline).await;
                return Err(error);
            }
        };
        merged.put(part, &found);
        if found.denied.is_some() {
            give_back_in_time(servers, charged, deadline).await;
            // No lease of them is held. (Calls ask for none in several slots.)
            merged.0.leased.fill(0);
            return Ok(merged.0);
        }
        charged.push((part.members.clone(), found));
    }
    Ok(merged.0)
}

/// Charges the members of one slot, if the slots before have left time for it.
async fn charge_in_time(servers: &Servers, part: &Part, deadline: Instant) -> Result<Found, Error> {
    if Instant::now() >= deadline {
        return Err(servers.overload(TOO_LATE));
    }
    servers.charge_in_slot(&part.members, deadline).await
}

/// Looks at all slots at once. The error is that of the lowest slot which has one.
async fn check(
    servers: &Servers,
    parts: &[Part],
    merged: &mut Merged,
    deadline: Instant,
) -> Result<(), Error> {
    let asked = parts.iter().map(|part| async move {
        let members: Vec<_> = part.members.iter().map(checked).collect();
        servers.charge_in_slot(&members, deadline).await
    });
    for (part, found) in parts.iter().zip(join_all(asked).await) {
        merged.put(part, &found?);
    }
    Ok(())
}

/// Gives charges back by a task that goes on if the deadline comes before its end.
async fn give_back_in_time(
    servers: &Arc<Servers>,
    charged: Vec<(Arc<[StoreMember]>, Found)>,
    deadline: Instant,
) {
    if charged.is_empty() {
        return;
    }
    let by = servers.clone();
    let giving = tokio::spawn(async move {
        for (members, found) in charged.iter().rev() {
            give_back(&by, members, found).await;
        }
    });
    let _ = timeout_at(deadline, giving).await;
}

/// Gives the charges of a slot back, as any other return. What fails stays charged.
pub(super) async fn give_back(servers: &Servers, members: &[StoreMember], found: &Found) {
    let given = members.iter().zip(&found.texts).filter_map(|(member, text)| {
        let charge = charge_mark(member, text.as_deref(), found.unix_ns)?;
        let step = Step::Return { units: member.cost, charge };
        Some(BucketChange { member: member.clone(), step })
    });
    let given: Vec<_> = given.collect();
    if !given.is_empty() {
        let _ = servers.change(&given, Instant::now()).await;
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Limit;

    /// Members in the slots 12182, 12739, 2381 and 12182.
    fn parts() -> Vec<Part> {
        let limit = Limit::new(5, 1, Duration::from_secs(1)).unwrap();
        let member = |key: &str| StoreMember {
            key: key.into(),
            limit: limit.clone(),
            unscaled: None,
            cost: 1,
            mode: SharedMode::CheckAndSpend,
            keep_ms: 0,
            lease: None,
        };
        parts_of(&["foo", "123456789", "tollgate:PerUser:alice", "a{foo}b"].map(member))
    }

    #[test]
    fn parts_are_in_the_order_of_slots() {
        let parts = parts();
        let slots: Vec<_> =
            parts.iter().map(|part| (slot_of(&part.members[0].key), &part.positions[..])).collect();
        assert_eq!(slots, [(2_381, &[2][..]), (12_182, &[0, 3]), (12_739, &[1])]);
        assert_eq!(&*parts[1].members[1].key, "a{foo}b");
    }

    #[test]
    fn members_keep_the_time_of_their_server() {
        let mut merged = Merged::new(4);
        for (part, unix_ns) in parts().iter().zip([9, 7, 8]) {
            let members = part.members.len();
            merged.put(part, &Found { unix_ns, ..Merged::new(members).0 });
        }
        assert_eq!((merged.0.unix_ns, &merged.0.times[..]), (9, &[7, 8, 9, 7][..]));
    }
}
