//! Makes the result of a decided batch from its members.

use crate::algorithm::demand::Demand;
use crate::decision::Decision;
use crate::limiter::batch::MemberMode;
use crate::limiter::batch::prepared::Trial;
use crate::shared::calls::asked::{AskedBatch, Counted, LocalCharges};
use crate::shared::calls::charged::ChargedInStore;
use crate::shared::calls::kept::{DecidedBatch, DecidedMember, MemberCharge};
use crate::shared::calls::lease_path::allowed;
use crate::shared::protocol::decide::{charge_mark, decide_found_one, read};
use crate::shared::protocol::text::rule_time_ns;
use crate::shared::protocol::{Found, StoreMember};

impl DecidedBatch {
    /// Makes the result of a batch that a local member has denied.
    pub(super) fn denied_here(
        decision: Decision,
        locals: impl Iterator<Item = Counted>,
    ) -> DecidedBatch {
        let kept = locals.filter(|member| member.limit.is_some());
        let members = kept.map(|member| member.kept_of_denied(None)).collect();
        DecidedBatch { decision, members }
    }
}

impl Counted {
    fn kept(self, decision: Decision, charge: Option<MemberCharge>) -> DecidedMember {
        let is_shown = !self.is_in_shadow_mode();
        let decision = decision.for_member(self.position);
        let shown = self.limit.filter(|_| is_shown).map(|limit| (decision, limit));
        let decision = if is_shown { decision } else { decision.in_shadow() };
        DecidedMember { position: self.position, decision, shown, charge }
    }

    /// A member of a batch that is denied and has charged nothing: one that has not denied it, or is in shadow mode, has the
    /// decision of a check at a cost of 0. `again`: that decision, if the member is not local.
    fn kept_of_denied(self, again: Option<Decision>) -> DecidedMember {
        let decision = match (self.decision.allowed() || self.is_in_shadow_mode(), again) {
            (false, _) => self.decision,
            (true, Some(decision)) => decision,
            (true, None) => self.look(),
        };
        self.kept(decision, None)
    }

    /// Checks the local bucket at a cost of 0, or the lease that has answered the member.
    fn look(&self) -> Decision {
        let inner = &*self.handle.limiter.inner;
        let (now_ns, key) = (inner.clock.now_ns(), self.key.as_ref());
        let Some(limit) = &self.limit else { return self.decision };
        inner.with_view(|view| {
            let entry = view.generation.limits.entry(key.limit);
            let Some((_, tag)) = entry.limit_for(key.id, view.limits_ns(now_ns)) else {
                return Ok(self.decision);
            };
            if self.is_leased {
                let Some(leases) = inner.leases() else { return Ok(self.decision) };
                let key = leases.words.key(view, key, tag);
                let spent = leases.words.spend(view, &key, (0, false), now_ns)?;
                return Ok(spent.map_or(self.decision, |(left, _)| allowed(limit, left)));
            }
            let ask = |word, at_ns| limit.rule().spend(word, at_ns, 0);
            view.look(&view.store_key(key, tag), (limit, Demand::NOTHING), now_ns, ask)
        })
    }
}

impl AskedBatch {
    /// Makes the result of the batch, with its members if the call keeps them. `found`: the store's answer.
    pub(super) fn decided(mut self, decision: Decision, found: Option<Found>) -> DecidedBatch {
        if !self.call.keeps {
            return DecidedBatch { decision, members: Vec::new() };
        }
        // The charges of a batch that is denied are given back before its members are looked at again.
        let mut charges = std::mem::replace(&mut self.claims, LocalCharges::new(None));
        if !decision.allowed() {
            charges = LocalCharges::new(None);
        }
        let mut members = Vec::with_capacity(self.locals.len() + self.shared.len());
        for member in std::mem::take(&mut self.locals) {
            if !decision.allowed() {
                members.push(member.kept_of_denied(None));
                continue;
            }
            let (own, charge) = (member.decision, charges.take(member.position));
            members.push(member.kept(own, charge));
        }
        let shared = std::mem::take(&mut self.shared);
        for (at, member) in shared.into_iter().enumerate() {
            let own = member.decision;
            members.push(match (decision.allowed(), &found) {
                (false, found) => {
                    let again = found.as_ref();
                    let again = again.and_then(|found| looked_at(&self.members[at], at, found));
                    member.kept_of_denied(Some(again.unwrap_or(own)))
                }
                // The policy of an outage has allowed the batch: the store was not charged, or it is not known.
                (true, None) => member.kept(own, None),
                (true, Some(found)) => {
                    // As on a node: a batch has nothing to settle of a member above its burst.
                    let is_above = member.trial == Trial::ShadowMode { is_above: true };
                    let charge = member.charged_in_store(&self.members[at], at, found);
                    member.kept(own, charge.filter(|_| self.call.is_of_one || !is_above))
                }
            });
        }
        members.sort_unstable_by_key(|member| member.position);
        DecidedBatch { decision, members }
    }
}

/// The decision of a check at a cost of 0, from the text that the store found. Like a check it counts the node's own lease, which
/// is the node's again, because the batch is denied.
fn looked_at(member: &StoreMember, at: usize, found: &Found) -> Option<Decision> {
    let at_no_cost = StoreMember { cost: 0, ..member.clone() };
    let decision = decide_found_one(&at_no_cost, found, at).ok()?.decision;
    if !decision.blocked() {
        return Some(decision);
    }
    // A member in shadow mode, which shows its own figures.
    let limit = &member.limit;
    let unix_ns = found.unix_ns_of(at);
    let bucket = read(&member.key, limit, found.texts.get(at)?.as_deref()).ok()?;
    let word = bucket.guarded(member.own_limit(), unix_ns).word;
    Some(limit.rule().spend(word, rule_time_ns(unix_ns), 0).decision)
}

impl Counted {
    /// Returns the charge of a member of an allowed batch, of which the caller keeps the charges. `to_store`: the member as
    /// the store got it; `at`: its position in the store's answer. A limit in shadow mode also has one that has charged
    /// nothing.
    fn charged_in_store(
        &self,
        to_store: &StoreMember,
        at: usize,
        found: &Found,
    ) -> Option<MemberCharge> {
        let is_above = matches!(self.trial, Trial::ShadowMode { is_above: true });
        let is_charged = self.decision.allowed() && !is_above;
        let has_none = !is_charged && !self.is_in_shadow_mode();
        if has_none || self.mode == MemberMode::CheckOnly {
            return None;
        }
        let text = found.texts.get(at)?.as_deref();
        let mark = charge_mark(to_store, text, found.unix_ns_of(at));
        Some(MemberCharge::InStore(Box::new(ChargedInStore {
            handle: self.handle.clone(),
            key: self.key.clone(),
            limit: to_store.own_limit().clone(),
            factor: self.factor,
            cost: self.cost,
            mark: mark.filter(|_| is_charged),
            reserved: None,
            ends_ns: self.handle.override_end_ns(self.key.as_ref().id),
        })))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Limit;
    use crate::shared::protocol::SharedMode;
    use crate::shared::protocol::text::{SharedBucket, rule_time_ns};

    fn member_of(limit: &Limit) -> StoreMember {
        StoreMember {
            key: "a".into(),
            limit: limit.clone(),
            unscaled: None,
            cost: 2,
            mode: SharedMode::CheckAndSpend,
            keep_ms: 0,
            lease: None,
        }
    }

    #[test]
    fn looks_know_the_time_of_their_server() {
        let at_ns = 1_790_000_000_000_000_000;
        let minute_ns = 60_000_000_000;
        let limit = Limit::new(5, 1, Duration::from_secs(60)).unwrap();
        let word = limit.rule().spend(0, rule_time_ns(at_ns), 3).word.unwrap();
        let bucket = SharedBucket { word, ..Default::default() };
        let member = member_of(&limit);
        let texts = vec![None, Some(bucket.text(&limit).into_bytes().into())];
        let times = vec![at_ns + minute_ns, at_ns];
        let found = Found {
            unix_ns: at_ns + minute_ns,
            denied: Some(0),
            texts,
            leased: smallvec::smallvec![0; 2],
            times,
        };
        assert_eq!(looked_at(&member, 1, &found).unwrap().remaining(), Some(2));
    }
}
