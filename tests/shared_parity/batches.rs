//! Batches of local and shared members.

use tollgate::batch::MemberMode;
use tollgate::limit::Factor;
use tollgate::shared::block_on;
use tollgate::{Decision, Error};

use super::answers::figures;
use super::call::{BatchCall, Call, ONE};
use super::node::{Denial, ready};
use super::ops::Way;
use super::oracle::{Answer, CallError, Oracle};
use super::spec::KNOWN;
use super::world::{InStore, World};

type Members = [(Call, MemberMode)];

/// A shared member of a batch.
#[derive(Clone, Copy)]
struct SharedMember {
    call: Call,
    mode: MemberMode,
    place: InStore,
    /// The units that the calling node holds, and those of all other nodes.
    own: u64,
    others: u64,
    /// Whether the node's lease answers it.
    by_lease: bool,
}

impl SharedMember {
    /// The units that are out of its bucket when the store decides it: a charge gives the node's own lease back first, and a
    /// check of the batch counts it as well.
    fn leased(&self, spends: bool) -> u64 {
        let counts_own = !spends || self.mode != MemberMode::CheckOnly;
        if counts_own && self.call.factor == ONE { self.others } else { self.own + self.others }
    }
}

impl World {
    pub(crate) fn batch(
        &mut self,
        at: usize,
        way: Way,
        what: BatchCall,
        calls: &Members,
    ) -> Result<(), String> {
        let is_known =
            |(call, _): &&(Call, MemberMode)| self.nodes[at].handles[call.limit].is_some();
        let calls: Vec<(Call, MemberMode)> = calls.iter().filter(is_known).copied().collect();
        let mut shared = Vec::new();
        for &(call, mode) in &calls {
            let place = self.in_store(at, call.limit, call.id).filter(|_| call.factor != 0);
            let Some(place) = place.filter(|_| self.nodes[at].oracle.enabled) else { continue };
            let held = self.look(place.key)?;
            self.note_mixed(place.key);
            let (own, all) = (held[at], held.iter().sum::<u64>());
            let by_lease = call.factor == ONE && own >= call.cost.max(1);
            shared.push(SharedMember { call, mode, place, own, others: all - own, by_lease });
            let (now, scaled) = (self.now, self.nodes[at].oracle.rule(call));
            let bucket = self.buckets.bucket(place.key);
            bucket.touch(place.rule, now);
            bucket.find(scaled.unwrap_or(place.rule), now);
        }
        let (calls_before, now) = (self.store.calls(), self.nodes[at].oracle.now);
        let answer = self.ask_batch(at, way, what, &calls);
        let asked = self.store.calls() != calls_before;
        let is_allowed = answer.as_ref().is_ok_and(Decision::allowed);
        if !shared.is_empty() && !is_allowed {
            // A charge that was given back leaves a bucket that is full now, and no later call may have an earlier time.
            self.nodes[at].oracle.floor = now;
        }
        let checked = self.check_batch(at, what, (&calls, &shared), (answer, asked));
        for member in &shared {
            let held = self.look(member.place.key)?;
            self.leased(member.place, held[at]);
        }
        checked.map_err(|text| format!("node {at}: {way:?} {what:?} at {}: {text}", self.now))
    }

    fn ask_batch(
        &self,
        at: usize,
        way: Way,
        what: BatchCall,
        calls: &Members,
    ) -> Result<Decision, Error> {
        let node = &self.nodes[at];
        let members: Vec<_> = calls
            .iter()
            .filter_map(|&(call, mode)| {
                let handle = node.handles[call.limit].as_ref()?;
                let member = handle.member(KNOWN[call.limit].id(call.id));
                let factor = Factor::from_millionths(call.factor);
                Some(member.cost(call.cost).mode(mode).factor(factor))
            })
            .collect();
        let batch = node.limiter.shared_batch(&members);
        let each = &mut Vec::new();
        match (way, what) {
            (Way::Blocking, BatchCall::SpendAll) => block_on(batch.spend()),
            (Way::Blocking, BatchCall::CheckAll) => block_on(batch.check()),
            (_, BatchCall::SpendAll) => {
                drop(batch.spend());
                ready(batch.spend())
            }
            (_, BatchCall::SpendEach) => ready(batch.spend_into(each)),
            (_, BatchCall::CheckAll) => ready(batch.check()),
            (_, BatchCall::RefundAll) => {
                drop(batch.refund());
                ready(batch.refund())
            }
            (_, BatchCall::ResetAll) => ready(batch.reset()),
            (_, BatchCall::ChargeAll) => unreachable!("no batch of several nodes keeps permits"),
        }
    }

    fn check_batch(
        &mut self,
        at: usize,
        what: BatchCall,
        (calls, shared): (&Members, &[SharedMember]),
        (answer, asked): (Result<Decision, Error>, bool),
    ) -> Result<(), String> {
        let mut oracle = self.nodes[at].oracle.clone();
        let expected = oracle.batch(what, calls).map(|(answer, _)| answer);
        if expected.is_err() || shared.is_empty() {
            if asked {
                return Err("it asked the store".into());
            }
            if shared.is_empty() {
                self.nodes[at].oracle = oracle;
            }
            return self.same(answer, expected, || format!("{calls:?}"));
        }
        if matches!(what, BatchCall::RefundAll | BatchCall::ResetAll) {
            let answer = answer.map_err(|error| error.to_string())?;
            return self.given(at, what, (calls, shared), figures(&answer));
        }
        let spends = what != BatchCall::CheckAll;
        if let Some(denied) = self.denied_here(at, what, calls)? {
            if asked {
                return Err(format!("it asked the store beside {denied:?}"));
            }
            return self.same(answer, Ok(denied), || "denied by a local member".into());
        }
        let needs_store = shared.iter().any(|member| !member.by_lease);
        let answer = match answer {
            Err(error) => return Err(error.to_string()),
            Ok(decision) => figures(&decision),
        };
        let allowed = answer.figures.is_none_or(|figures| figures.allowed);
        if asked && !needs_store {
            return Err("it asked the store".into());
        }
        if !asked && allowed && needs_store {
            return Err("it was allowed without the store".into());
        }
        if !asked && !allowed {
            return self.denied_by_node((at, what), (calls, shared), answer);
        }
        self.decided(at, (calls, shared), answer, (spends, asked))
    }

    /// Checks a batch of refunds or resets: each member's is that of the bucket alone.
    fn given(
        &mut self,
        at: usize,
        what: BatchCall,
        (calls, shared): (&Members, &[SharedMember]),
        answer: Answer,
    ) -> Result<(), String> {
        for member in shared {
            let (call, key) = (member.call, member.place.key);
            if call.factor != ONE && self.bucket(key).has_leases(self.now) {
                self.buckets.bucket(key).charge_beside_leases();
            }
            self.find_scaled(at, key, call);
            if member.mode != MemberMode::CheckOnly || what == BatchCall::RefundAll {
                self.nodes[at].forget_denials(key);
            }
        }
        let is_sure = shared.iter().all(|member| self.is_sure_of(at, member));
        let has_leases =
            shared.iter().any(|member| self.bucket(member.place.key).has_leases(self.now));
        let leased = |member: &SharedMember| member.own + member.others;
        let places: Vec<_> =
            shared.iter().map(|member| (member.place, leased(member), true)).collect();
        let own = self.nodes[at].oracle.clone();
        let mut oracle = own.clone();
        self.lend(&mut oracle, &places);
        let expected = oracle.batch(what, calls).map_err(|error| format!("{error:?}"))?.0;
        // Of units beside leases the answer shows fewer than the oracle.
        if is_sure && !has_leases && answer != expected {
            return Err(format!("{answer:?}\n    expected {expected:?}"));
        }
        let now = self.now;
        for member in shared {
            let SharedMember { call, mode, place, .. } = *member;
            let rule = own.rule(call).unwrap_or(place.rule);
            if self.bucket(place.key).is_sure {
                self.take_back(&mut oracle, (place, leased(member)), rule, true);
            } else if mode != MemberMode::CheckOnly {
                let state = self.bucket(place.key).state;
                let (state, _) = match what {
                    BatchCall::RefundAll => rule.refund(state, now, i128::from(call.cost)),
                    _ => rule.reset(state, now),
                };
                if state.is_some() {
                    self.buckets.bucket(place.key).put(state, place.rule, now, true);
                }
            }
            let key = (place.key.0, place.key.2);
            let kept = own.clone().swap(key, (None, None));
            let _ = oracle.swap(key, kept);
            match (mode, what) {
                (MemberMode::CheckOnly, _) => {}
                (_, BatchCall::RefundAll) => {
                    self.ledger.give(call.limit, call.id, now, call.cost.into());
                }
                _ => self.ledger.reset(call.limit, call.id, now),
            }
        }
        self.nodes[at].oracle = oracle;
        Ok(())
    }

    /// The answer of the local members, if they deny the batch.
    fn denied_here(
        &self,
        at: usize,
        what: BatchCall,
        calls: &Members,
    ) -> Result<Option<Answer>, String> {
        let terms = &self.nodes[at].oracle.terms;
        let is_local = |call: &Call| !terms.is_shared(call.limit);
        let locals: Vec<_> =
            calls.iter().enumerate().filter(|(_, (call, _))| is_local(call)).collect();
        let own: Vec<_> = locals.iter().map(|&(_, &member)| member).collect();
        let mut oracle = self.nodes[at].oracle.clone();
        let (answer, _) =
            oracle.batch(what, &own).map_err(|error| format!("{error:?} of {own:?}"))?;
        let denied_by = answer.denied_by.map(|at| locals[at].0);
        Ok(denied_by.map(|_| Answer { denied_by, ..answer }))
    }

    /// Whether the store's answer for a member is known. A factor changes the time that leased units take.
    fn is_sure_of(&mut self, at: usize, member: &SharedMember) -> bool {
        self.find_scaled(at, member.place.key, member.call);
        let (bucket, now) = (self.bucket(member.place.key), self.now);
        bucket.is_sure && (member.call.factor == ONE || !bucket.has_leases(now))
    }

    /// Checks a denial by the node itself: it has a denial by the store for each member that no lease answers, and these deny the
    /// batch.
    fn denied_by_node(
        &mut self,
        (at, what): (usize, BatchCall),
        (calls, shared): (&Members, &[SharedMember]),
        answer: Answer,
    ) -> Result<(), String> {
        let (mut before, mut places) = (Vec::new(), Vec::new());
        let mut is_known = !shared.iter().any(|member| member.by_lease);
        for member in shared.iter().filter(|member| !member.by_lease) {
            let kept = self.nodes[at].kept(member.place.key, self.now);
            let Some(Denial { found, leased, .. }) = kept.last() else {
                return Err(format!(
                    "the node has no denial of {:?}: {answer:?}",
                    member.place.key
                ));
            };
            let bucket = self.buckets.bucket(member.place.key);
            before.push((member.place.key, std::mem::replace(bucket, *found)));
            bucket.touch(member.place.rule, self.now);
            self.find_scaled(at, member.place.key, member.call);
            places.push((member.place, *leased, true));
            is_known &= kept.len() == 1 && self.bucket(member.place.key).is_sure;
        }
        let mut oracle = self.nodes[at].oracle.clone();
        self.lend(&mut oracle, &places);
        let expected = oracle.batch(what, calls).map(|(answer, _)| answer);
        for (key, bucket) in before.into_iter().rev() {
            *self.buckets.bucket(key) = bucket;
        }
        match !is_known || expected == Ok(answer) {
            true => Ok(()),
            false => Err(format!("{answer:?} by the node itself, expected {expected:?}")),
        }
    }

    /// Checks and charges a batch that the store or the node's leases have decided.
    fn decided(
        &mut self,
        at: usize,
        (calls, shared): (&Members, &[SharedMember]),
        answer: Answer,
        (spends, asked): (bool, bool),
    ) -> Result<(), String> {
        let allowed = answer.figures.is_none_or(|figures| figures.allowed);
        let is_sure = shared.iter().all(|member| self.is_sure_of(at, member));
        let places: Vec<_> = shared
            .iter()
            .map(|member| (member.place, member.leased(spends), !member.by_lease))
            .collect();
        let mut oracle = self.nodes[at].oracle.clone();
        self.lend(&mut oracle, &places);
        let what = if spends { BatchCall::SpendAll } else { BatchCall::CheckAll };
        let expected = oracle.batch(what, calls).map_err(|error| format!("{error:?}"))?.0;
        if is_sure {
            let has_leases = shared.iter().any(|member| member.by_lease);
            let is_same = match has_leases {
                false => answer == expected,
                true => expected.figures.is_none_or(|figures| figures.allowed) == allowed,
            };
            if !is_same {
                return Err(format!("{answer:?}\n    expected {expected:?}"));
            }
            self.charge_sure(at, oracle, shared, &places);
        } else {
            self.charge_unsure(at, (calls, shared), (allowed, spends))?;
        }
        for member in shared.iter().filter(|member| asked && !member.by_lease) {
            self.note_denial(at, member.place, member.leased(spends));
        }
        Ok(())
    }

    /// Takes the buckets back from the oracle that has decided the batch as the limiter has.
    fn charge_sure(
        &mut self,
        at: usize,
        mut oracle: Oracle,
        shared: &[SharedMember],
        places: &[(InStore, u64, bool)],
    ) {
        let own = self.nodes[at].oracle.clone();
        for (member, &(place, leased, _)) in shared.iter().zip(places) {
            let rule = own.rule(member.call).unwrap_or(place.rule);
            if self.take_back(&mut oracle, (place, leased), rule, false) {
                self.note_use(place, member.call);
            }
            // The node's own bucket of the id stays as it is, from when the limit was local.
            let mut before = own.clone();
            let key = (place.key.0, place.key.2);
            let kept = before.swap(key, (None, None));
            let _ = oracle.swap(key, kept);
        }
        self.nodes[at].oracle = oracle;
    }

    /// Charges the units that an answer shows, where the oracle does not know them before.
    fn charge_unsure(
        &mut self,
        at: usize,
        (calls, shared): (&Members, &[SharedMember]),
        (allowed, spends): (bool, bool),
    ) -> Result<(), String> {
        if !allowed || !spends {
            return Ok(());
        }
        let terms = &self.nodes[at].oracle.terms;
        let locals: Vec<_> =
            calls.iter().filter(|(call, _)| !terms.is_shared(call.limit)).copied().collect();
        let oracle = &mut self.nodes[at].oracle;
        let charged: Result<_, CallError> = oracle.batch(BatchCall::SpendAll, &locals);
        charged.map_err(|error| format!("{error:?}"))?;
        for member in shared {
            let SharedMember { call, mode, place, .. } = *member;
            let (bucket, now) = (self.bucket(place.key), self.now);
            if call.factor != ONE && bucket.has_leases(now) {
                self.buckets.bucket(place.key).charge_beside_leases();
            }
            let is_shadow = self.nodes[at].oracle.terms.is_shadow(call.limit);
            match mode {
                MemberMode::CheckOnly => {}
                MemberMode::CheckAndSpend if !is_shadow => self.used(at, place, call)?,
                // Whether it was charged is not known.
                _ => self.buckets.bucket(place.key).is_sure = false,
            }
        }
        Ok(())
    }
}
