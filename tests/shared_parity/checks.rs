//! Blocks, explanations, and the checks at the end of a run.

use tollgate::batch::MemberMode;

use super::answers::{figures, ns};
use super::bucket::with_units;
use super::call::{BatchCall, Call, call};
use super::node::ready;
use super::ops::{Kind, Way};
use super::spec::KNOWN;
use super::world::{InStore, NS_PER_MS, World};

impl World {
    pub(crate) fn block(
        &mut self,
        at: usize,
        limit: usize,
        id: usize,
        time: i128,
    ) -> Result<(), String> {
        let Some(handle) = self.nodes[at].handles[limit].clone() else { return Ok(()) };
        let place = self.in_store(at, limit, id);
        if let Some(place) = place {
            let _ = self.look(place.key)?;
        }
        let answer = ready(handle.block(KNOWN[limit].id(id), ns(time)));
        let Some(place) = place else {
            return match (answer, self.nodes[at].oracle.block(limit, id, time)) {
                (Ok(answer), Some(left)) if answer.as_nanos() as i128 == left => Ok(()),
                (Err(error), None) if error.is_invalid_block() => Ok(()),
                (answer, expected) => Err(format!("block: {answer:?}, expected {expected:?}")),
            };
        };
        let now = self.now;
        let bucket = self.buckets.bucket(place.key);
        // Whole ms since the origin, which is at 1 ns.
        let until = (now - 1 + time + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS + 1;
        let until = bucket.blocked_until.map_or(until, |before| before.max(until));
        let left = until - now;
        bucket.touch(place.rule, now);
        bucket.block(until, place.rule, now);
        // A node that blocks an id drops its lease.
        bucket.lose_lease(at, now);
        self.nodes[at].forget_denials(place.key);
        match answer {
            Ok(answer) if answer.as_nanos() as i128 == left => {}
            answer => return Err(format!("block: {answer:?}, expected {left} ns")),
        }
        if self.look(place.key)?[at] > 0 {
            return Err(format!("node {at} holds units of an id that it has blocked"));
        }
        self.blocked_for(at, limit, id)
    }

    pub(crate) fn unblock(&mut self, at: usize, limit: usize, id: usize) -> Result<(), String> {
        let Some(handle) = self.nodes[at].handles[limit].clone() else { return Ok(()) };
        let answer = ready(handle.unblock(KNOWN[limit].id(id)));
        let answer = answer.map_err(|error| format!("unblock: {error}"))?;
        let expected = match self.in_store(at, limit, id) {
            None => self.nodes[at].oracle.unblock(limit, id),
            Some(place) => {
                let now = self.now;
                let bucket = self.buckets.bucket(place.key);
                bucket.touch(place.rule, now);
                let was_blocked = bucket.unblock(place.rule, now);
                self.nodes[at].forget_denials(place.key);
                was_blocked
            }
        };
        if answer != expected {
            return Err(format!("unblock: {answer}, expected {expected}"));
        }
        self.blocked_for(at, limit, id)
    }

    /// The time until the end of a node's own block, by the node's clock.
    fn own_block(&mut self, at: usize, limit: usize, id: usize) -> Option<i128> {
        let oracle = &mut self.nodes[at].oracle;
        let store_now = oracle.store_now.take();
        let left = oracle.blocked_for(limit, id);
        oracle.store_now = store_now;
        left
    }

    /// Compares the time until the end of an id's block.
    fn blocked_for(&mut self, at: usize, limit: usize, id: usize) -> Result<(), String> {
        let Some(handle) = self.nodes[at].handles[limit].clone() else { return Ok(()) };
        let left = ready(handle.blocked_for(KNOWN[limit].id(id)));
        let left = left.map_err(|error| format!("blocked: {error}"))?;
        let expected = match self.in_store(at, limit, id) {
            None => self.own_block(at, limit, id),
            Some(place) => self.bucket(place.key).blocked_until.map(|until| until - self.now),
        };
        if left.map(|left| left.as_nanos() as i128) == expected {
            return Ok(());
        }
        Err(format!("{} is blocked for {left:?}, expected {expected:?}", KNOWN[limit].ids[id]))
    }

    pub(crate) fn explain(&mut self, at: usize, call: Call) -> Result<(), String> {
        let Some(handle) = self.nodes[at].handles[call.limit].clone() else { return Ok(()) };
        let (limit, id, cost) = (call.limit, call.id, call.cost);
        let place = self.in_store(at, limit, id);
        let held = match place {
            Some(place) => self.look(place.key)?,
            None => Vec::new(),
        };
        let calls = self.store.calls();
        let explained = ready(handle.explain(KNOWN[limit].id(id), cost));
        let explained = explained.map_err(|error| format!("explain {call:?}: {error}"))?;
        let Some(explained) = explained.call else {
            return Err(format!("explain {call:?}: no call"));
        };
        if explained.is_enabled != self.nodes[at].oracle.enabled {
            return Err(format!("explain {call:?}: {explained:?}"));
        }
        let blocked = match place {
            None => self.own_block(at, limit, id),
            Some(place) => self.bucket(place.key).blocked_until.map(|until| until - self.now),
        };
        if explained.blocked.map(|left| left.as_nanos() as i128) != blocked {
            return Err(format!("explain {call:?}: {explained:?}, blocked {blocked:?}"));
        }
        if place.is_some() && calls == self.store.calls() {
            return Err(format!("explain {call:?} has not asked the store"));
        }
        let Some(place) = place.filter(|_| explained.is_enabled) else { return Ok(()) };
        self.explained(at, (call, place), held.iter().sum(), &explained)
    }

    /// Compares an explanation of a shared bucket.
    fn explained(
        &mut self,
        at: usize,
        (call, place): (Call, InStore),
        leased: u64,
        explained: &tollgate::limits::ExplainedCall,
    ) -> Result<(), String> {
        let (bucket, now) = (self.bucket(place.key), self.now);
        self.buckets.bucket(place.key).touch(place.rule, now);
        if !bucket.is_sure {
            return Ok(());
        }
        let state = with_units(place.rule, bucket.state, now, leased.into());
        let mut state = place.rule.spend(state, now, 0).1;
        state.allowed |= self.nodes[at].oracle.terms.is_shadow(call.limit);
        let told = figures(&explained.state).figures;
        let places = [(place, leased, true)];
        let mut oracle = self.nodes[at].oracle.clone();
        self.lend(&mut oracle, &places);
        let decision = oracle.batch(BatchCall::CheckAll, &[(call, MemberMode::CheckAndSpend)]);
        let is_shadow = oracle.terms.is_shadow(call.limit);
        let is_same = match (&explained.decision, decision) {
            // A batch does not show the figures of a limit in shadow mode.
            (Some(decision), Ok(_)) if is_shadow => decision.allowed(),
            (Some(decision), Ok((expected, _))) => {
                let told = figures(decision);
                (told.figures, told.blocked) == (expected.figures, expected.blocked)
            }
            (None, Err(_)) => true,
            _ => false,
        };
        if told == Some(state) && is_same {
            return Ok(());
        }
        Err(format!("node {at}: explain {call:?} at {now}: {explained:?}\n    expected {state:?}"))
    }

    /// Checks at the end of a run that nothing was lost and nothing made: compares each bucket when no unit is leased, and
    /// when it must be full.
    pub(crate) fn check_all(&mut self) -> Result<(), String> {
        for at in 0..self.nodes.len() {
            self.enable(at, true)?;
            self.give_back(at)?;
        }
        self.check_each()?;
        if self.is_in_ledger {
            self.ledger.check()?;
        }
        Ok(())
    }

    fn check_each(&mut self) -> Result<(), String> {
        for at in 0..self.nodes.len() {
            for (limit, known) in KNOWN.iter().enumerate() {
                for id in 0..known.ids.len() {
                    self.check_bucket(at, limit, id)?;
                    self.blocked_for(at, limit, id)?;
                }
            }
        }
        Ok(())
    }

    fn check_bucket(&mut self, at: usize, limit: usize, id: usize) -> Result<(), String> {
        self.one(at, Way::Async, Kind::Check, call(limit, id, 0))
    }
}
