//! What a node knows of a bucket without the store.

use crate::decision::Decision;
use crate::limiter::batch::OF_SPEND;
use crate::limits::Id;
use crate::shared::calls::asked::{SharedCall, shared_mode};
use crate::shared::calls::batch::{SharedBatch, asked_member};
use crate::shared::calls::handle::SharedLimit;
use crate::shared::calls::lease::{answer_by_lease, have_no_units};
use crate::shared::protocol::decide::decide_found_one;

impl SharedLimit {
    /// Spends from a lease of this node, or is denied by a denial that it keeps. `None`: the store has to be asked.
    pub(crate) fn spend_here<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Option<Decision> {
        self.decide_here(id.into(), SharedCall::SPEND, cost)
    }

    #[cfg(feature = "yaml")]
    pub(crate) fn check_here<'a>(&self, id: impl Into<Id<'a>>, cost: u64) -> Option<Decision> {
        self.decide_here(id.into(), SharedCall::CHECK, cost)
    }

    fn decide_here(&self, id: Id<'_>, call: SharedCall, cost: u64) -> Option<Decision> {
        let members = [self.limit.member(id).cost(cost).into()];
        self.limit.limiter.shared_batch(&members).decide_here(call)
    }
}

impl SharedBatch<'_> {
    /// Decides a call for one bucket by a lease or a denial of this node, without the store. `None`: it has neither.
    fn decide_here(&self, call: SharedCall) -> Option<Decision> {
        if !self.limiter.is_enabled() {
            return Some(Decision::UNLIMITED);
        }
        let decided = self.prepared(OF_SPEND, |view, members| {
            let now_ns = view.inner.clock.now_ns();
            let Some(member) = members.last_mut() else { return Ok(Some(Decision::UNLIMITED)) };
            let Some(part) = view.inner.part().filter(|_| member.is_shared(view)) else {
                return Ok(None);
            };
            let mode = shared_mode(member, call.spends);
            if answer_by_lease(view, member, mode, now_ns)?.is_some() {
                return Ok(Some(member.decision));
            }
            let to_store = asked_member(view, &part.handle, member, call.spends);
            let members = [to_store];
            let denied = part.denials.as_ref().and_then(|all| all.find(&members, now_ns));
            match denied {
                Some(found) if have_no_units(view, &[member], now_ns)? => {
                    Ok(decide_found_one(&members[0], &found, 0).ok().map(|it| it.decision))
                }
                _ => Ok(None),
            }
        });
        decided.ok().flatten()
    }
}
