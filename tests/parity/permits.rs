//! Permits: concurrency limits, beside the oracle, and in a full table.

use std::collections::BTreeMap;

use tollgate::batch::MemberMode;
use tollgate::options::AtCap;
use tollgate::{ConcurrencyLimit, Decision, Limiter, Permit};

use super::call::{Call, ONE};
use super::held::Claim;
use super::ops::Op;
use super::oracle::bucket::Rule;
use super::oracle::{CallKind, Terms};
use super::run::{Checks, Machine};
use super::spec::{KNOWN, RATES, Spec};

/// The limit whose handle is dropped when a reload removes it, so that its name is forgotten.
const FORGOTTEN: usize = 7;

type Key = (usize, usize);

/// Permits that were counted, and are out.
#[derive(Clone, Copy, Debug)]
struct Out {
    key: Key,
    permits: u64,
    /// How often the id's limit had been lifted.
    lifts: u64,
}

/// The permits that callers hold.
#[derive(Default)]
pub(crate) struct Permits {
    handles: BTreeMap<usize, ConcurrencyLimit>,
    held: Vec<(Permit, Call, Option<Claim>, Option<u64>)>,
    /// The permits that are out, by the numbers that they got here.
    out: BTreeMap<u64, Out>,
    taken: u64,
    /// How often the limit of an id was lifted.
    lifts: BTreeMap<Key, u64>,
    /// Whether a name was forgotten, with its counters, while permits may have been out.
    has_forgotten: bool,
}

impl Permits {
    pub(crate) fn handle(&self, limit: usize) -> Option<&ConcurrencyLimit> {
        self.handles.get(&limit)
    }

    /// Finds handles. One of a limit that a reload has lifted stays.
    pub(crate) fn find_handles(&mut self, limiter: &Limiter) {
        for (limit, known) in KNOWN.iter().enumerate().skip(RATES) {
            if let Ok(handle) = limiter.concurrency(known.name) {
                self.handles.insert(limit, handle);
            }
        }
    }

    /// Drops the handle of a limit that the next reload removes.
    pub(crate) fn let_go(&mut self, spec: &Spec) {
        if spec.limit(FORGOTTEN).is_none() {
            self.has_forgotten |= self.handles.remove(&FORGOTTEN).is_some();
        }
    }

    /// Counts the limits that do not apply from a time on.
    pub(crate) fn note_lifts(&mut self, terms: &Terms, at: i128) {
        for (limit, known) in KNOWN.iter().enumerate().skip(RATES) {
            for id in 0..known.ids.len() {
                if terms.rule(limit, id, at).is_none() {
                    *self.lifts.entry((limit, id)).or_default() += 1;
                }
            }
        }
    }

    fn lifts_of(&self, key: Key) -> u64 {
        self.lifts.get(&key).copied().unwrap_or(0)
    }

    /// The permits that are out and of which this is true.
    fn sum(&self, is_counted: impl Fn(&Out) -> bool) -> u64 {
        self.out.values().filter(|out| is_counted(out)).map(|out| out.permits).sum()
    }

    /// The permits of an id that still count.
    fn of(&self, key: Key) -> u64 {
        self.sum(|out| out.key == key && out.lifts == self.lifts_of(key))
    }
}

impl Machine {
    pub(crate) fn permit_op(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Acquire(call) => self.acquire(*call),
            Op::CheckPermits(call) => self.check_permit(*call),
            Op::Release(at) => match at.checked_rem(self.permits.held.len()) {
                Some(at) => self.release(at),
                None => Ok(()),
            },
            Op::SetMax(limit, max) => self.set_max(*limit, *max),
            other => unreachable!("{other:?}"),
        }
    }

    pub(crate) fn in_flight(&self, key: Key) -> u64 {
        let handle = self.permits.handle(key.0);
        handle.map_or(0, |handle| handle.in_flight(KNOWN[key.0].id(key.1)).unwrap())
    }

    fn acquire(&mut self, call: Call) -> Result<(), String> {
        let Some(handle) = self.permits.handle(call.limit) else { return Ok(()) };
        let key = (call.limit, call.id);
        let before = self.in_flight(key);
        let (answer, permit) = match handle.acquire(KNOWN[call.limit].id(call.id), call.cost) {
            Ok((answer, permit)) => (Ok(answer), permit),
            Err(error) => (Err(error), None),
        };
        if answer.as_ref().is_ok_and(|answer| answer.allowed()) != permit.is_some() {
            return Err(format!("{answer:?} has {permit:?}"));
        }
        if let Ok(answer) = &answer {
            self.check_decided(call, answer)?;
        }
        let (expected, claim) = match self.held.spend(&mut self.oracle, call) {
            Ok((answer, claim)) => (Ok(answer), claim),
            Err(error) => (Err(error), None),
        };
        self.same(answer, expected, || format!("acquire {call:?}"))?;
        if let Some(permit) = permit {
            if permit.count() != call.cost {
                return Err(format!("{permit:?} for {call:?}"));
            }
            let taken = self.note_taken(call, MemberMode::CheckAndSpend, before)?;
            self.permits.held.push((permit, call, claim, taken));
        }
        self.check_in_flight(key)
    }

    /// Checks a decision, which a full table does not change for an id that has permits. An id without any can lack room.
    fn check_decided(&self, call: Call, answer: &Decision) -> Result<(), String> {
        let Some(Rule::Permits { max, .. }) = self.oracle.rule(call) else { return Ok(()) };
        let denies_none = !self.oracle.enabled || self.oracle.terms.is_shadow(call.limit);
        if denies_none || answer.blocked() {
            return Ok(());
        }
        let out = self.permits.of((call.limit, call.id));
        let is_right = if answer.out_of_room() {
            let denies = self.cap.is_some_and(|cap| cap.1 != AtCap::Allow);
            denies && !answer.allowed() && out == 0 && call.cost > 0
        } else {
            answer.allowed() == (i128::from(out + call.cost) <= max)
        };
        if is_right {
            return Ok(());
        }
        Err(format!("{call:?}, with {out} of {max} permits out: {answer:?}"))
    }

    fn check_permit(&mut self, call: Call) -> Result<(), String> {
        let Some(handle) = self.permits.handle(call.limit) else { return Ok(()) };
        let answer = handle.check(KNOWN[call.limit].id(call.id), call.cost);
        if let Ok(answer) = &answer {
            self.check_decided(call, answer)?;
        }
        let expected = self.oracle.call(CallKind::Check, call);
        self.same(answer, expected, || format!("check permits {call:?}"))?;
        self.check_in_flight((call.limit, call.id))
    }

    fn release(&mut self, at: usize) -> Result<(), String> {
        let (permit, call, claim, taken) = self.permits.held.swap_remove(at);
        drop(permit);
        self.note_back(claim, taken);
        self.check_in_flight((call.limit, call.id))
    }

    fn set_max(&mut self, limit: usize, max: u64) -> Result<(), String> {
        let Some(handle) = self.permits.handle(limit) else { return Ok(()) };
        handle.set_max(max);
        self.oracle.max_set.insert(limit, max);
        let default = self.oracle.terms.spec.limit(limit).and_then(|spec| spec.default);
        let (found, expected) = (handle.max(), default.map(|_| max));
        if found == expected { Ok(()) } else { Err(format!("max {found:?}, not {expected:?}")) }
    }

    /// Notes permits of an allowed call, if they were counted, and checks the bound. `before` were out of the id's bucket.
    pub(crate) fn note_taken(
        &mut self,
        call: Call,
        mode: MemberMode,
        before: u64,
    ) -> Result<Option<u64>, String> {
        let key = (call.limit, call.id);
        let Some(Rule::Permits { max, .. }) = self.oracle.rule(call) else { return Ok(None) };
        let grown = self.in_flight(key).checked_sub(before);
        if !grown.is_some_and(|grown| grown == 0 || grown == call.cost) {
            return Err(format!("{call:?}: {before} and {grown:?} more are in flight"));
        }
        if grown == Some(0) {
            let may_charge_none = self.cap.is_some_and(|cap| cap.1 == AtCap::Allow)
                && self.permits.of(key) == 0
                || self.oracle.terms.is_shadow(key.0)
                || !self.oracle.enabled;
            let is_counted = mode == MemberMode::CheckAndSpend && call.cost > 0;
            return match is_counted && !may_charge_none {
                true => Err(format!("{call:?} is allowed, and {before} are in flight as before")),
                false => Ok(None),
            };
        }
        self.permits.taken += 1;
        let (number, permits) = (self.permits.taken, call.cost);
        let lifts = self.permits.lifts_of(key);
        self.permits.out.insert(number, Out { key, permits, lifts });
        let all = self.permits.of(key);
        if i128::from(all) > max {
            let out = &self.permits.out;
            return Err(format!("{all} of an id are out, at most {max}: {out:?}"));
        }
        Ok(Some(number))
    }

    /// Notes that permits went back.
    pub(crate) fn note_back(&mut self, claim: Option<Claim>, taken: Option<u64>) {
        self.held.release(&mut self.oracle, claim);
        if let Some(taken) = taken {
            self.permits.out.remove(&taken);
        }
    }

    /// Compares the numbers of permits that are out, of an id and of its limit.
    pub(crate) fn check_in_flight(&self, key: Key) -> Result<(), String> {
        let Some(handle) = self.permits.handle(key.0) else { return Ok(()) };
        let applies = self.oracle.terms.rule(key.0, key.1, self.now()).is_some();
        let own = if applies { self.permits.of(key) } else { 0 };
        let expected = match self.checks {
            Checks::All => self.oracle.in_flight(key),
            _ => own,
        };
        let found = self.in_flight(key);
        if found != expected || found != own {
            return Err(format!("{key:?} has {found} in flight, not {expected} or {own}"));
        }
        let (total, sum) = (handle.total_in_flight(), self.permits.sum(|out| out.key.0 == key.0));
        let is_known = key.0 != FORGOTTEN || !self.permits.has_forgotten;
        if is_known && total != sum {
            return Err(format!("{} has {total} in flight, not {sum}", KNOWN[key.0].name));
        }
        Ok(())
    }

    /// Gives all permits back. Then each id has all of its permits.
    pub(crate) fn check_permits(&mut self) -> Result<(), String> {
        while !self.permits.held.is_empty() {
            self.release(0)?;
        }
        while !self.receipts.is_empty() {
            self.drop_receipt(0)?;
        }
        for (limit, known) in KNOWN.iter().enumerate().skip(RATES) {
            for id in 0..known.ids.len() {
                self.apply(&Op::SweepAll)?;
                self.check_all_are_back((limit, id))?;
            }
        }
        Ok(())
    }

    fn check_all_are_back(&self, key: Key) -> Result<(), String> {
        self.check_in_flight(key)?;
        let Some(handle) = self.permits.handle(key.0) else { return Ok(()) };
        if handle.total_in_flight() != 0 || self.in_flight(key) != 0 {
            return Err(format!("{handle:?}: {} are in flight", handle.total_in_flight()));
        }
        let call = Call { limit: key.0, id: key.1, cost: 0, factor: ONE, leave: 0 };
        let Some(Rule::Permits { max, most }) = self.oracle.rule(call) else { return Ok(()) };
        let id = || KNOWN[key.0].id(key.1);
        let left = handle.check(id(), 0).unwrap();
        let cost = max.min(most) as u64;
        let (answer, _permit) = handle.acquire(id(), cost).unwrap();
        if answer.blocked() || self.oracle.blocked_for(key.0, key.1).is_some() {
            return Ok(());
        }
        let has_room = !answer.out_of_room();
        if left.remaining() != Some(max as u64) || has_room && !answer.allowed() {
            return Err(format!(
                "{} of {max} are left of {key:?}: {answer:?}",
                left.remaining().unwrap_or(0)
            ));
        }
        Ok(())
    }
}
