//! Calls for one bucket.

use tollgate::limit::Factor;
use tollgate::shared::{SharedLimit, block_on};
use tollgate::{Decision, Error};

use super::answers::figures;
use super::bucket::{Algorithm, Key, with_units, without_units};
use super::call::{Call, ONE};
use super::node::{Denial, KEPT_NS, ready};
use super::ops::{Kind, Way};
use super::oracle::bucket::{Figures, State};
use super::oracle::{Answer, CallError, CallKind, Oracle};
use super::spec::KNOWN;
use super::world::{InStore, World};

impl Kind {
    fn of_oracle(self) -> CallKind {
        match self {
            Kind::Spend => CallKind::Spend,
            Kind::Check => CallKind::Check,
            Kind::Refund => CallKind::Refund,
            Kind::Reset => CallKind::Reset,
        }
    }

    fn uses_leases(self) -> bool {
        matches!(self, Kind::Spend | Kind::Check)
    }
}

/// Makes a call. `None`: its future was dropped before its first poll.
fn asked(
    handle: &SharedLimit,
    way: Way,
    kind: Kind,
    call: Call,
) -> Option<Result<Decision, Error>> {
    let (id, cost) = (KNOWN[call.limit].id(call.id), call.cost);
    let scaled = handle.scaled(Factor::from_millionths(call.factor));
    let is_plain = call.factor == ONE;
    Some(match (way, kind) {
        (Way::Blocking, Kind::Spend) => block_on(handle.spend(id, cost)),
        (Way::Blocking, Kind::Check) => block_on(handle.check(id, cost)),
        (Way::Dropped, _) => {
            drop(handle.spend(id, cost));
            return None;
        }
        (_, Kind::Spend) if is_plain => ready(handle.spend(id, cost)),
        (_, Kind::Check) if is_plain => ready(handle.check(id, cost)),
        (_, Kind::Refund) if is_plain => ready(handle.refund(id, cost)),
        (_, Kind::Reset) if is_plain => ready(handle.reset(id)),
        (_, Kind::Spend) => ready(scaled.spend(id, cost)),
        (_, Kind::Check) => ready(scaled.check(id, cost)),
        (_, Kind::Refund) => ready(scaled.refund(id, cost)),
        (_, Kind::Reset) => ready(scaled.reset(id)),
    })
}

/// A call for a shared bucket, with the units that nodes held before it.
#[derive(Clone, Copy)]
struct SharedCall {
    at: usize,
    kind: Kind,
    call: Call,
    place: InStore,
    /// The units that the calling node holds, and those of all other nodes.
    own: u64,
    others: u64,
}

impl World {
    pub(crate) fn one(
        &mut self,
        at: usize,
        way: Way,
        kind: Kind,
        call: Call,
    ) -> Result<(), String> {
        if self.nodes[at].handles[call.limit].is_none() {
            return Ok(());
        }
        let enabled = self.nodes[at].oracle.enabled;
        let place = self.in_store(at, call.limit, call.id).filter(|_| enabled && call.factor != 0);
        let calls = self.store.calls();
        let what = |at| format!("node {at}: {way:?} {kind:?} {call:?}");
        let Some(place) = place else {
            let handle = self.nodes[at].handles[call.limit].as_ref().expect("there is one");
            let Some(answer) = asked(handle, way, kind, call) else { return Ok(()) };
            let expected = self.nodes[at].oracle.call(kind.of_oracle(), call);
            if self.store.calls() != calls {
                return Err(format!("{} asked the store", what(at)));
            }
            return self.same(answer, expected, || what(at));
        };
        let held = self.look(place.key)?;
        self.note_mixed(place.key);
        let handle = self.nodes[at].handles[call.limit].as_ref().expect("there is one");
        let answer = asked(handle, way, kind, call);
        let has_asked = self.store.calls() != calls;
        let (own, all) = (held[at], held.iter().sum::<u64>());
        let shared = SharedCall { at, kind, call, place, own, others: all - own };
        self.buckets.bucket(place.key).touch(place.rule, self.now);
        let checked = match answer {
            None if has_asked => Err("a dropped future asked the store".into()),
            None => Ok(()),
            Some(answer) => self.with_store(shared, answer, has_asked),
        };
        checked.map_err(|text| {
            let bucket = self.bucket(place.key);
            format!("{} at {}: {text}\n    held {held:?}, {bucket:?}", what(at), self.now)
        })?;
        self.still_held(shared, &held, has_asked)
    }

    /// Checks that the units of other nodes are still theirs.
    fn still_held(
        &mut self,
        shared: SharedCall,
        before: &[u64],
        has_asked: bool,
    ) -> Result<(), String> {
        let SharedCall { at, kind, call, place, .. } = shared;
        let after = self.look(place.key)?;
        let is_others = |node: &usize| *node != at;
        if (0..after.len()).filter(is_others).any(|node| before[node] != after[node]) {
            return Err(format!("{call:?} of node {at} changed leases: {before:?}, {after:?}"));
        }
        self.leased(place, after[at]);
        if !has_asked && kind != Kind::Spend && before != after {
            return Err(format!("{kind:?} {call:?} of node {at}: {before:?}, {after:?}"));
        }
        Ok(())
    }

    /// Records that a node holds units of a bucket. If no unit of it is used, its window has begun with the lease, and the
    /// oracle does not know it.
    pub(crate) fn leased(&mut self, place: InStore, units: u64) {
        let now = self.now;
        let bucket = self.buckets.bucket(place.key);
        let is_unused = bucket.state.is_none_or(|state| place.rule.is_full(state, now));
        if units > 0 && is_unused && place.key.1 != Algorithm::Gcra {
            bucket.is_sure = false;
        }
        if units > 0 {
            bucket.bring_up(place.rule, now);
        }
    }

    fn with_store(
        &mut self,
        shared: SharedCall,
        answer: Result<Decision, Error>,
        has_asked: bool,
    ) -> Result<(), String> {
        let SharedCall { at, kind, call, place, own, others } = shared;
        let mut oracle = self.nodes[at].oracle.clone();
        match oracle.call(kind.of_oracle(), call) {
            Err(error) => {
                let is_charged = has_asked || self.look(place.key)?[at] != own;
                if is_charged {
                    return Err(format!("an error asked the store: {answer:?}"));
                }
                return self.same(answer, Err(error), String::new);
            }
            Ok(_) if !has_asked => {
                return match answer {
                    Ok(decision) if kind.uses_leases() => self.by_node(shared, &decision),
                    answer => Err(format!("{answer:?} without the store")),
                };
            }
            Ok(_) if kind.uses_leases() && call.factor == ONE && own >= call.cost.max(1) => {
                return Err("the store was asked beside a lease".into());
            }
            Ok(_) => {}
        }
        if call.factor != ONE && self.bucket(place.key).has_leases(self.now) {
            self.buckets.bucket(place.key).charge_beside_leases();
        }
        self.find_scaled(at, place.key, call);
        let was_sure = self.bucket(place.key).is_sure;
        // A spend gives the node's own lease back first, and a check counts it as well.
        let counts_own = kind.uses_leases() && call.factor == ONE;
        let expected = self.by_oracle(shared, if counts_own { others } else { own + others });
        let decision = answer.map_err(|error| format!("{error}, expected {expected:?}"))?;
        self.by_store(shared, figures(&decision), (expected, was_sure))
    }

    /// Finds out whether the store may have forgotten units that count by the limit with a call's factor.
    pub(crate) fn find_scaled(&mut self, at: usize, key: Key, call: Call) {
        if let Some(scaled) = self.nodes[at].oracle.rule(call) {
            self.buckets.bucket(key).find(scaled, self.now);
        }
    }

    /// Checks the answer of a node that has not asked the store.
    fn by_node(&mut self, shared: SharedCall, decision: &Decision) -> Result<(), String> {
        let SharedCall { at, kind, call, place, own, .. } = shared;
        let Answer { figures: Some(answer), denied_by, .. } = figures(decision) else {
            return Err("unlimited".into());
        };
        if !answer.allowed {
            if self.nodes[at].oracle.terms.is_shadow(call.limit) {
                return Err("a limit in shadow mode denies no call".into());
            }
            return self.by_denial((at, place), (kind, call), figures(decision));
        }
        let left = i128::from(own) - i128::from(call.cost);
        if own == 0 || answer.remaining != left || answer.retry != 0 || denied_by.is_some() {
            return Err(format!("{decision:?} from a lease of {own}"));
        }
        let (bucket, lease) = (self.bucket(place.key), self.longest_lease_ns(call.limit));
        if bucket.is_blocked(self.now) && self.now > bucket.blocked_at + 2 * lease {
            return Err("a lease is longer than a block".into());
        }
        if kind == Kind::Spend {
            self.used(at, place, call)?;
        }
        Ok(())
    }

    /// Checks the answer of a node that has denied a call without the store: the store has denied one to this node, and would deny
    /// this one, with these figures, if no other node had changed the bucket since.
    pub(crate) fn by_denial(
        &mut self,
        (at, place): (usize, InStore),
        (kind, call): (Kind, Call),
        answer: Answer,
    ) -> Result<(), String> {
        let mut expected = Vec::new();
        for Denial { found, leased, .. } in self.nodes[at].kept(place.key, self.now) {
            let now = std::mem::replace(self.buckets.bucket(place.key), found);
            self.buckets.bucket(place.key).touch(place.rule, self.now);
            self.find_scaled(at, place.key, call);
            let mut oracle = self.nodes[at].oracle.clone();
            self.lend(&mut oracle, &[(place, leased, true)]);
            let is_sure = self.bucket(place.key).is_sure;
            *self.buckets.bucket(place.key) = now;
            let by_oracle = oracle.call(kind.of_oracle(), call);
            if !is_sure || by_oracle == Ok(answer) {
                return Ok(());
            }
            expected.push(by_oracle);
        }
        Err(format!("{answer:?} by the node itself; by denials of the store {expected:?}"))
    }

    /// The oracle's answer of a call that the store decides, where `leased` units are out of its bucket.
    fn by_oracle(&mut self, shared: SharedCall, leased: u64) -> Result<Answer, CallError> {
        let SharedCall { at, kind, call, place, .. } = shared;
        let places = [(place, leased, true)];
        let mut oracle = self.nodes[at].oracle.clone();
        self.lend(&mut oracle, &places);
        let answer = oracle.call(kind.of_oracle(), call);
        if self.bucket(place.key).is_sure {
            let removes = !kind.uses_leases();
            let rule = oracle.rule(call).unwrap_or(place.rule);
            self.take_back(&mut oracle, (place, leased), rule, removes);
        }
        answer
    }

    /// Puts the state of shared buckets into an oracle: each with units that are leased, and with its block or without.
    pub(crate) fn lend(&mut self, oracle: &mut Oracle, places: &[(InStore, u64, bool)]) {
        for &(InStore { key, rule }, leased, is_blocked) in places {
            let bucket = self.bucket(key);
            let state = with_units(rule, bucket.state, self.now, leased.into());
            let until = bucket.blocked_until.filter(|_| is_blocked);
            let _ = oracle.swap((key.0, key.2), (state, until));
        }
    }

    /// Takes the state of a shared bucket from the oracle that it was lent to. Returns whether it has changed.
    pub(crate) fn take_back(
        &mut self,
        oracle: &mut Oracle,
        (InStore { key, rule }, leased): (InStore, u64),
        scaled: super::oracle::bucket::Rule,
        removes: bool,
    ) -> bool {
        let now = self.now;
        let bucket = self.buckets.bucket(key);
        let lent = with_units(rule, bucket.state, now, leased.into());
        let (state, _) = oracle.swap((key.0, key.2), (None, None));
        if state == lent {
            return false;
        }
        bucket.put(without_units(rule, state, leased.into()), scaled, now, removes);
        // Units that come back beside leased ones come back in part, or too early.
        bucket.is_sure &= !(removes && bucket.has_leases(now));
        true
    }

    /// Records that a node may keep a denial of the store.
    pub(crate) fn note_denial(&mut self, at: usize, InStore { key, .. }: InStore, leased: u64) {
        let (until, found) = (self.now + KEPT_NS, self.bucket(key));
        self.nodes[at].denials.push(Denial { key, until, found, leased });
    }

    /// Checks the answer of the store.
    fn by_store(
        &mut self,
        shared: SharedCall,
        answer: Answer,
        (expected, was_sure): (Result<Answer, CallError>, bool),
    ) -> Result<(), String> {
        let SharedCall { at, kind, call, place, own, others } = shared;
        let expected = expected.map_err(|error| format!("{error:?} expected"))?;
        let now = self.now;
        let is_shadow = self.nodes[at].oracle.terms.is_shadow(call.limit);
        let Some(told) = answer.figures else { return Err("unlimited".into()) };
        if kind.uses_leases() {
            // An allowed call leaves a text by which the node may deny the next one.
            self.note_denial(at, place, others);
            if !told.allowed && kind == Kind::Spend && self.look(place.key)?[at] != own {
                return Err("a denied call changed the lease".into());
            }
        } else {
            self.nodes[at].forget_denials(place.key);
        }
        if was_sure {
            // `by_oracle` has charged it. A refund or a reset does not show the units that nodes hold.
            let may_show_less = !kind.uses_leases() && self.bucket(place.key).has_leases(now);
            if answer != expected && !(may_show_less && shows_less(answer, expected)) {
                return Err(format!("{answer:?}\n    expected {expected:?}"));
            }
            if kind == Kind::Spend && told.allowed && !is_shadow {
                self.note_use(place, call);
            }
        } else {
            self.by_unsure_store(shared, answer, expected)?;
        }
        match kind {
            Kind::Refund => self.ledger.give(call.limit, call.id, now, call.cost.into()),
            Kind::Reset => self.ledger.reset(call.limit, call.id, now),
            Kind::Spend | Kind::Check => {}
        }
        Ok(())
    }

    /// Checks the answer of the store where the bucket may have less than the oracle says.
    fn by_unsure_store(
        &mut self,
        shared: SharedCall,
        answer: Answer,
        expected: Answer,
    ) -> Result<(), String> {
        let SharedCall { at, kind, call, place, .. } = shared;
        if answer.blocked != expected.blocked {
            return Err(format!("{answer:?}\n    expected {expected:?}"));
        }
        let (Some(told), bucket, now) = (answer.figures, self.bucket(place.key), self.now) else {
            return Err("unlimited".into());
        };
        let is_shadow = self.nodes[at].oracle.terms.is_shadow(call.limit);
        match kind {
            Kind::Spend if told.allowed && !is_shadow => {
                self.used(at, place, call)?;
            }
            Kind::Refund | Kind::Reset => {
                let cost = i128::from(call.cost);
                let rule = self.nodes[at].oracle.rule(call).unwrap_or(place.rule);
                let (state, _) = match kind {
                    Kind::Refund => rule.refund(bucket.state, now, cost),
                    _ => rule.reset(bucket.state, now),
                };
                let bucket = self.buckets.bucket(place.key);
                if state.is_some() {
                    bucket.put(state, place.rule, now, true);
                }
            }
            _ => {}
        }
        let scaled = self.nodes[at].oracle.rule(call).unwrap_or(place.rule);
        let most = scaled.spend(self.bucket(place.key).state, now, 0).1;
        let is_bound = self.bucket(place.key).is_bound(place.key);
        if is_bound && !answer.blocked && told.remaining > most.remaining {
            return Err(format!("{told:?}: more units than {most:?}"));
        }
        Ok(())
    }

    /// Charges a bucket for a call that was allowed, and checks that it may be.
    pub(crate) fn used(&mut self, at: usize, place: InStore, call: Call) -> Result<(), String> {
        let InStore { key, rule } = place;
        let (bucket, now, cost) = (self.bucket(key), self.now, i128::from(call.cost));
        let scaled = self.nodes[at].oracle.rule(call).unwrap_or(rule);
        let allowed: Figures = scaled.spend(bucket.state, now, cost).1;
        let must_fit = bucket.is_sure || bucket.is_bound(key);
        if must_fit && !allowed.allowed {
            return Err(format!("units beyond the limit: {allowed:?}"));
        }
        if cost > 0 {
            let state: Option<State> = with_units(scaled, bucket.state, now, cost);
            let bucket = self.buckets.bucket(key);
            bucket.put(state, scaled, now, false);
            self.note_use(place, call);
        }
        Ok(())
    }

    pub(crate) fn note_use(&mut self, place: InStore, call: Call) {
        self.is_in_ledger &= call.factor == ONE;
        let (now, key) = (self.now, (call.limit, call.id));
        self.ledger.note_rule(now, key, Some(place.rule));
        let _ = self.ledger.grant(key, now, now, call.cost.into());
    }

    /// Compares an answer with the oracle's.
    pub(crate) fn same(
        &self,
        answer: Result<Decision, Error>,
        expected: Result<Answer, CallError>,
        of: impl FnOnce() -> String,
    ) -> Result<(), String> {
        let is_same = match (&answer, &expected) {
            (Ok(answer), Ok(expected)) => figures(answer) == *expected,
            (Err(error), Err(CallError::Cost)) => error.is_cost_above_burst(),
            (Err(error), Err(CallError::Batch)) => error.is_invalid_batch(),
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        let answer = answer.map(|answer| figures(&answer));
        Err(format!("{} at {}: answer {answer:?}\n    expected {expected:?}", of(), self.now))
    }
}

/// Whether an answer differs in that its bucket has fewer units and fills later.
fn shows_less(answer: Answer, than: Answer) -> bool {
    let (Some(shown), Some(full)) = (answer.figures, than.figures) else { return false };
    let as_full = Figures { remaining: full.remaining, reset: full.reset, ..shown };
    Answer { figures: Some(as_full), ..answer } == than
        && shown.remaining <= full.remaining
        && shown.reset >= full.reset
}
