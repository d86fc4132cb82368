//! Runs any operations on a limiter, sweeps among them, and compares it with a model in `u128` that has no cells.
//!
//! The input is read from the front: the parameters of three limits, then one operation after the other until it ends.
//! The third limit has an override for one id and no default, so its other ids have no limit.
#![no_main]

use std::collections::HashMap;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tollgate::batch::{Member, MemberMode};
use tollgate::clock::ManualClock;
use tollgate::options::Engine;
use tollgate::reserve::Receipt;
use tollgate::{
    Clock, Decision, Error, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits,
};

/// The latest time of a clock.
const MAX_NOW_NS: u128 = (1 << 62) - 1;
const IDS: [&str; 4] = ["a", "b", "c", "d"];
/// The id of the third limit that has an override.
const OVERRIDDEN: usize = 1;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.iter().copied();
    let mut pair = Pair::new(&mut bytes);
    // Bounded by the input: each iteration takes at least one byte.
    while let Some(op) = pair.as_mut().and_then(|_| bytes.next()) {
        let Some(pair) = &mut pair else { return };
        pair.step(op, &mut bytes);
    }
    if let Some(pair) = &mut pair {
        pair.finish();
    }
});

/// A limiter and its model.
struct Pair {
    limiter: Limiter,
    hand: ManualClock,
    handles: [KeyedLimit; 3],
    /// Estimates that are not settled yet.
    open: Vec<(Txn, Receipt)>,
    model: Model,
}

/// Each bucket as the time at which it is full again; a bucket that is missing is full.
struct Model {
    now_ns: u128,
    limits: [Limit; 3],
    full_at_ns: HashMap<(usize, usize), u128>,
}

/// The four figures of a decision, and the member that denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    allowed: bool,
    remaining: Option<u128>,
    retry_in_ns: u128,
    reset_in_ns: u128,
    denied_by: Option<usize>,
}

/// One bucket of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Txn {
    limit: usize,
    id: usize,
    cost: u64,
    mode: MemberMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Spend,
    Check,
    Refund,
    Reset,
}

impl Pair {
    fn new(bytes: &mut impl Iterator<Item = u8>) -> Option<Pair> {
        let limits = [limit(bytes)?, limit(bytes)?, limit(bytes)?];
        let one_of_c = Limits::builder()
            .limit("A", IdFormat::String, limits[0].clone())
            .ok()?
            .limit("B", IdFormat::String, limits[1].clone())
            .ok()?;
        // The name is one of Boulder's limits, so an override without a default is allowed.
        let built = one_of_c
            .override_id(C, OVERRIDDEN as u64, limits[2].clone())
            .expect("a good id")
            .build();
        let (clock, hand) = Clock::manual();
        let engine = if bytes.next()? % 2 == 0 { Engine::LockFree } else { Engine::Exact };
        let options = LimiterOptions::default().clock(clock).engine(engine);
        let limiter = Limiter::with_options(built, options).unwrap();
        let handles = ["A", "B", C].map(|name| limiter.limit(name).expect("known"));
        let model = Model { now_ns: 1, limits, full_at_ns: HashMap::new() };
        Some(Pair { limiter, hand, handles, open: Vec::new(), model })
    }

    fn step(&mut self, op: u8, bytes: &mut impl Iterator<Item = u8>) {
        let mut byte = || bytes.next().unwrap_or_default();
        match op % 8 {
            0 => self.advance(Duration::from_nanos(u64::from(byte()) << (byte() % 56))),
            1 => {
                // By whole intervals and up to 1 ns more or less, where decisions change.
                let limit = &self.model.limits[usize::from(byte() % 3)];
                let interval_ns = limit.emission_interval().as_nanos() as u64;
                let by_ns = interval_ns.saturating_mul(u64::from(byte()));
                self.advance(Duration::from_nanos(
                    by_ns.saturating_add(u64::from(byte() % 3)).saturating_sub(1),
                ));
            }
            2 => {
                // Full buckets may be dropped or not: no answer depends on it.
                let cells = 1 << (byte() % 16);
                // A step is bounded: it ends with the part of the table in which it reaches its number of cells.
                assert!(self.limiter.sweep(cells).looked_at <= cells + 64 + IDS.len() * 3);
            }
            3 => {
                let (kind, count) = (kind(byte()), usize::from(byte() % 10));
                let txns: Vec<Txn> = (0..count).map(|_| self.txn(&mut byte)).collect();
                self.batch(kind, &txns);
            }
            7 => match self.open.pop().filter(|_| op >= 128) {
                // From the estimate's cost down to 0, or up to any number.
                Some((txn, receipt)) => {
                    let less = txn.cost.saturating_sub(byte().into());
                    let more = u64::from(byte()) << (byte() % 64);
                    let actual = if op >= 192 { less } else { txn.cost.saturating_add(more) };
                    let context = format!("settle {txn:?} as {actual} at {}", self.model.now_ns);
                    compare(
                        Ok(receipt.settle(actual)),
                        Some(self.model.settle(txn, actual)),
                        &context,
                    );
                }
                None => {
                    let txn = Txn { mode: MemberMode::CheckAndSpend, ..self.txn(&mut byte) };
                    self.estimate(txn);
                }
            },
            _ => {
                let txn = Txn { mode: MemberMode::CheckAndSpend, ..self.txn(&mut byte) };
                self.single(kind(op / 8), txn);
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.hand.advance(by);
        self.model.now_ns = (self.model.now_ns + by.as_nanos()).min(MAX_NOW_NS);
    }

    fn txn(&self, byte: &mut impl FnMut() -> u8) -> Txn {
        let (limit, id) = (usize::from(byte() % 3), usize::from(byte() % 4));
        let burst = self.model.limits[limit].burst();
        let cost = match byte() {
            // From 54 below the burst to 1 above it, or a small cost.
            near @ 200.. => (burst + 1).saturating_sub(u64::from(255 - near)),
            small => u64::from(small % 50),
        };
        let mode = [MemberMode::CheckAndSpend, MemberMode::CheckOnly, MemberMode::SpendOnly]
            [usize::from(byte() % 3)];
        Txn { limit, id, cost, mode }
    }

    fn single(&mut self, op: Op, txn: Txn) {
        let handle = &self.handles[txn.limit];
        let said = match (op, txn.limit) {
            (Op::Spend, 2) => handle.spend(txn.id as u64, txn.cost),
            (Op::Check, 2) => handle.check(txn.id as u64, txn.cost),
            (Op::Refund, 2) => handle.refund(txn.id as u64, txn.cost),
            (Op::Reset, 2) => handle.reset(txn.id as u64),
            (Op::Spend, _) => handle.spend(IDS[txn.id], txn.cost),
            (Op::Check, _) => handle.check(IDS[txn.id], txn.cost),
            (Op::Refund, _) => handle.refund(IDS[txn.id], txn.cost),
            (Op::Reset, _) => handle.reset(IDS[txn.id]),
        };
        let context = format!("{op:?} {txn:?} at {}", self.model.now_ns);
        compare(said, self.model.call(op, &[txn]), &context);
    }

    fn estimate(&mut self, txn: Txn) {
        let handle = &self.handles[txn.limit];
        let said = match txn.limit {
            2 => handle.spend_estimate(txn.id as u64, txn.cost),
            _ => handle.spend_estimate(IDS[txn.id], txn.cost),
        };
        let (said, receipt) = match said {
            Ok((said, receipt)) => (Ok(said), receipt),
            Err(error) => (Err(error), None),
        };
        let context = format!("estimate {txn:?} at {}", self.model.now_ns);
        compare(said, self.model.call(Op::Spend, &[txn]), &context);
        self.open.extend(receipt.map(|receipt| (txn, receipt)));
    }

    fn batch(&mut self, op: Op, txns: &[Txn]) {
        let members: Vec<Member<'_>> = txns
            .iter()
            .map(|txn| {
                let handle = &self.handles[txn.limit];
                let member = match txn.limit {
                    2 => handle.member(txn.id as u64),
                    _ => handle.member(IDS[txn.id]),
                };
                member.cost(txn.cost).mode(txn.mode)
            })
            .collect();
        let batch = self.limiter.batch(&members);
        let said = match op {
            Op::Spend => batch.spend(),
            Op::Check => batch.check(),
            Op::Refund => batch.refund(),
            Op::Reset => batch.reset(),
        };
        let context = format!("{op:?} {txns:?} at {}", self.model.now_ns);
        compare(said, self.model.call(op, txns), &context);
    }

    /// Checks that every bucket equals the model's, and that no full bucket has a cell after two sweeps.
    fn finish(&mut self) {
        for limit in 0..self.handles.len() {
            for id in 0..IDS.len() {
                self.single(Op::Check, Txn { limit, id, cost: 1, mode: MemberMode::CheckAndSpend });
            }
        }
        self.advance(Duration::MAX);
        // The first sweep ends the pass that the last step began; the second is a whole pass.
        let _ = self.limiter.sweep(usize::MAX);
        assert!(self.limiter.sweep(usize::MAX).finished);
        let left = self.limiter.stats().cells;
        let now_ns = self.model.now_ns;
        let owing =
            self.model.full_at_ns.values().filter(|full_at_ns| **full_at_ns > now_ns).count();
        assert_eq!(left, owing, "cells after all was swept");
    }
}

/// The name of the third limit.
const C: &str = "NewOrdersPerAccount";

/// Reads a limit of any size. `None` if its parameters are invalid, or the input ends.
fn limit(bytes: &mut impl Iterator<Item = u8>) -> Option<Limit> {
    let burst = (u64::from(bytes.next()?) + 1) << (bytes.next()? % 54);
    let count = u64::from(bytes.next()?) + 1;
    let period_ns = (u64::from(bytes.next()?) + 1) << (bytes.next()? % 54);
    Limit::new(burst, count, Duration::from_nanos(period_ns)).ok()
}

fn kind(byte: u8) -> Op {
    // Half of the operations are spends.
    [Op::Spend, Op::Spend, Op::Spend, Op::Check, Op::Refund, Op::Reset][usize::from(byte % 6)]
}

/// Compares an answer with the model's, which is `None` if the model expects an error.
fn compare(said: Result<Decision, Error>, expected: Option<Figures>, context: &str) {
    match (said, expected) {
        (Ok(said), Some(expected)) => {
            let said = Figures {
                allowed: said.allowed(),
                remaining: said.remaining().map(u128::from),
                retry_in_ns: said.retry_in().as_nanos(),
                reset_in_ns: said.reset_in().as_nanos(),
                denied_by: said.denied_by(),
            };
            assert_eq!(said, expected, "{context}");
        }
        (Err(error), None) => {
            assert!(
                error.is_cost_above_burst() || error.is_invalid_batch(),
                "{context}: {error:?}"
            );
        }
        (said, expected) => panic!("{context}: {said:?}, not {expected:?}"),
    }
}

impl Model {
    /// Runs a batch on the model and returns its decision, or `None` for an error. A single call is a batch of one.
    fn call(&mut self, op: Op, txns: &[Txn]) -> Option<Figures> {
        // An id without a limit has no bucket, and its member cannot be invalid.
        let members: Vec<(usize, Txn)> =
            txns.iter().copied().enumerate().filter(|(_, txn)| has_numbers(txn)).collect();
        for (i, (_, txn)) in members.iter().enumerate() {
            if op != Op::Reset && txn.cost > self.limits[txn.limit].burst() {
                return None;
            }
            if members[..i]
                .iter()
                .any(|(_, before)| (before.limit, before.id) == (txn.limit, txn.id))
            {
                return None;
            }
        }
        let mut answers = Vec::new();
        for &(at, txn) in &members {
            let before = self.owed_ns(txn);
            let is_changed = txn.mode != MemberMode::CheckOnly;
            let answer = match op {
                Op::Spend | Op::Check => self.asked(txn, at),
                Op::Refund => {
                    let given = if is_changed { before.min(self.cost_ns(txn)) } else { 0 };
                    self.owe(txn, before - given);
                    self.stands(txn, given > 0)
                }
                Op::Reset => {
                    if is_changed {
                        self.owe(txn, 0);
                    }
                    self.stands(txn, true)
                }
            };
            let counts = !matches!(op, Op::Spend | Op::Check) || txn.mode != MemberMode::SpendOnly;
            answers.extend(counts.then_some(answer));
        }
        let decision = strictest(&answers);
        if op == Op::Spend && decision.allowed {
            for &(at, txn) in &members {
                // A `SpendOnly` member is skipped if its cost does not fit.
                if txn.mode != MemberMode::CheckOnly && self.asked(txn, at).allowed {
                    self.owe(txn, self.owed_ns(txn) + self.cost_ns(txn));
                }
            }
        }
        Some(decision)
    }

    /// Settles an estimate, without debt, and returns the bucket's figures.
    fn settle(&mut self, txn: Txn, actual: u64) -> Figures {
        if !has_numbers(&txn) {
            return strictest(&[]);
        }
        let (owed_ns, interval_ns) = (self.owed_ns(txn), self.interval_ns(txn));
        let owes_ns = match actual.checked_sub(txn.cost) {
            None => owed_ns.saturating_sub(interval_ns * u128::from(txn.cost - actual)),
            Some(more) => (owed_ns + interval_ns * u128::from(more)).min(self.room_ns(txn)),
        };
        self.owe(txn, owes_ns);
        self.asked(Txn { cost: 0, ..txn }, 0)
    }

    /// The decision of a spend, without charging it.
    fn asked(&self, txn: Txn, at: usize) -> Figures {
        let (owed_ns, cost_ns, room_ns) = (self.owed_ns(txn), self.cost_ns(txn), self.room_ns(txn));
        let interval_ns = self.interval_ns(txn);
        if owed_ns + cost_ns > room_ns {
            return Figures {
                allowed: false,
                remaining: Some(room_ns.saturating_sub(owed_ns) / interval_ns),
                retry_in_ns: owed_ns + cost_ns - room_ns,
                reset_in_ns: owed_ns,
                denied_by: Some(at),
            };
        }
        Figures {
            allowed: true,
            remaining: Some((room_ns - owed_ns - cost_ns) / interval_ns),
            retry_in_ns: (owed_ns + 2 * cost_ns).saturating_sub(room_ns),
            reset_in_ns: owed_ns + cost_ns,
            denied_by: None,
        }
    }

    /// The present figures of a bucket.
    fn stands(&self, txn: Txn, allowed: bool) -> Figures {
        let owed_ns = self.owed_ns(txn);
        let remaining = (self.room_ns(txn) - owed_ns) / self.interval_ns(txn);
        Figures {
            allowed,
            remaining: Some(remaining),
            retry_in_ns: 0,
            reset_in_ns: owed_ns,
            denied_by: None,
        }
    }

    /// The time until the bucket is full.
    fn owed_ns(&self, txn: Txn) -> u128 {
        let full_at_ns = self.full_at_ns.get(&(txn.limit, txn.id)).copied().unwrap_or(0);
        full_at_ns.saturating_sub(self.now_ns)
    }

    fn owe(&mut self, txn: Txn, owed_ns: u128) {
        self.full_at_ns.insert((txn.limit, txn.id), self.now_ns + owed_ns);
    }

    fn interval_ns(&self, txn: Txn) -> u128 {
        self.limits[txn.limit].emission_interval().as_nanos()
    }

    fn cost_ns(&self, txn: Txn) -> u128 {
        self.interval_ns(txn) * u128::from(txn.cost)
    }

    fn room_ns(&self, txn: Txn) -> u128 {
        self.interval_ns(txn) * u128::from(self.limits[txn.limit].burst())
    }
}

/// Whether a limit applies.
fn has_numbers(txn: &Txn) -> bool {
    txn.limit < 2 || txn.id == OVERRIDDEN
}

/// The strictest answer: denied before allowed, then the longer wait, then the fewer remaining units, then the later
/// one. Without answers, no limit applies.
fn strictest(answers: &[Figures]) -> Figures {
    let no_limit =
        Figures { allowed: true, remaining: None, retry_in_ns: 0, reset_in_ns: 0, denied_by: None };
    let rank = |f: &Figures| (!f.allowed, f.retry_in_ns, std::cmp::Reverse(f.remaining));
    // `max_by_key` returns the last of equal elements.
    answers.iter().copied().max_by_key(rank).unwrap_or(no_limit)
}
