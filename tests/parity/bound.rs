//! Runs a list of operations on one engine where answers are not exact: reservations in the future,
//! receipts that are settled later, full tables. Checks that nothing is granted beyond the bound, and
//! returns the answers, which must be alike on both engines.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tollgate::Decision;
use tollgate::batch::MemberMode;
use tollgate::options::AtCap;
use tollgate::reserve::{Receipt, Reservation};

use super::ledger::{GrantId, Ledger};
use super::ops::{BatchCall, Call, Op};
use super::run::{Failure, Machine, On, Start, text_of};
use super::spec::KNOWN;

/// The answers of a run's calls, as text.
pub(crate) type Answers = Vec<String>;

struct Bounded {
    machine: Machine,
    ledger: Ledger,
    answers: Answers,
    places: Vec<(Reservation, GrantId)>,
    receipts: Vec<(Receipt, GrantId)>,
}

/// Runs the list. Returns the answers and the least room that any window had.
pub(crate) fn run(on: On, start: &Start, ops: &[Op]) -> Result<(Answers, i128), Failure> {
    let mut at = 0;
    let all = catch_unwind(AssertUnwindSafe(|| {
        let machine = Machine::new(on, start);
        let (answers, places, receipts) = (Vec::new(), Vec::new(), Vec::new());
        let mut run = Bounded { machine, ledger: Ledger::default(), answers, places, receipts };
        run.note_rules(run.machine.now());
        for op in ops {
            run.apply(op)?;
            at += 1;
        }
        // Calls that a full table allows are charged to no bucket.
        let is_counted = start.cap.is_none_or(|cap| cap.1 != AtCap::Allow);
        let room = if is_counted { run.ledger.check()? } else { 0 };
        Ok((run.answers, room))
    }));
    let text = match all {
        Ok(Ok(answers)) => return Ok(answers),
        Ok(Err(text)) => text,
        Err(panic) => text_of(&*panic),
    };
    Err(Failure { at, text })
}

impl Bounded {
    fn note_rules(&mut self, at: i128) {
        let terms = &self.machine.oracle.terms;
        self.ledger.note_rules(at, |limit, id| terms.rule(limit, id, at));
    }

    fn note_answer(&mut self, decision: &Decision) {
        self.answers.push(format!("{decision:?}"));
    }

    fn grant(&mut self, call: Call, at: i128) -> GrantId {
        let blocked = self.machine.oracle.blocked(call.limit, call.id);
        assert_eq!(blocked, None, "{call:?} was granted to a blocked id");
        let now = self.machine.now();
        self.ledger.grant((call.limit, call.id), at, now, call.cost.into())
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Spend(call) => self.spend(*call),
            Op::Refund(call) => self.refund(*call),
            Op::Reset(call) => self.reset(*call),
            Op::SpendUpTo(call) => self.spend_up_to(*call),
            Op::Drain(call) => self.drain(*call),
            Op::Batch(what, members) => self.batch(*what, &members.0),
            Op::Reserve(call, at_most) => self.reserve(*call, *at_most),
            Op::Charge(call) => self.charge(*call),
            Op::Cancel(at) => {
                if let Some((place, granted)) = taken(&mut self.places, *at) {
                    place.cancel();
                    if self.ledger.time_of(granted) > self.machine.now() {
                        self.ledger.settle(granted, 0);
                    } else {
                        self.give_back(granted, 0);
                    }
                }
            }
            Op::Keep(at) => {
                if let Some((place, granted)) = taken(&mut self.places, *at) {
                    self.receipts.push((place.into_receipt(), granted));
                }
            }
            Op::Settle(at, actual) => {
                if let Some((receipt, granted)) = taken(&mut self.receipts, *at) {
                    let after = receipt.settle(*actual);
                    self.note_answer(&after);
                    self.give_back(granted, *actual);
                }
            }
            // These operations need exact answers.
            Op::Check(_) | Op::SpendMany { .. } | Op::Settled(..) | Op::Back(_) => {}
            other => self.other(other)?,
        }
        self.machine.check_cap()
    }

    /// Applies an operation that is no call for a bucket, and notes the overrides that end meanwhile.
    fn other(&mut self, op: &Op) -> Result<(), String> {
        let before = self.machine.now();
        let terms = self.machine.oracle.terms.clone();
        if matches!(op, Op::Restore(..)) {
            // The restore would forget the spends since the last snapshot.
            self.machine.apply(&Op::Snapshot)?;
        }
        self.machine.apply(op)?;
        let now = self.machine.now();
        if matches!(op, Op::Advance(_) | Op::ToEnd(_)) {
            for end in terms.ends_within(before, now) {
                self.ledger.note_rules(end, |limit, id| terms.rule(limit, id, end));
            }
        }
        self.note_rules(now);
        Ok(())
    }

    /// Records that what a grant has not used was returned.
    fn give_back(&mut self, granted: GrantId, actual: u64) {
        let now = self.machine.now();
        self.ledger.give_back(granted, now, actual.into());
    }

    fn spend(&mut self, call: Call) {
        let Some(handle) = self.machine.handle(call.limit) else { return };
        let Ok(answer) = handle.spend(KNOWN[call.limit].id(call.id), call.cost) else { return };
        self.note_answer(&answer);
        if answer.allowed() && answer.remaining().is_some() {
            self.grant(call, self.machine.now());
        }
    }

    fn spend_up_to(&mut self, call: Call) {
        let Some(handle) = self.machine.handle(call.limit) else { return };
        let id = KNOWN[call.limit].id(call.id);
        let Ok((units, answer)) = handle.spend_up_to(id, call.cost) else { return };
        self.note_answer(&answer);
        assert!(
            units <= call.cost && (units > 0 || !answer.allowed() || call.cost == 0),
            "{call:?}"
        );
        if units > 0 && answer.remaining().is_some() {
            self.grant(Call { cost: units, ..call }, self.machine.now());
        }
    }

    /// No call uses the units that a drain takes, so that the ledger has none of them.
    fn drain(&mut self, call: Call) {
        let Some(handle) = self.machine.handle(call.limit) else { return };
        let Ok(answer) = handle.drain(KNOWN[call.limit].id(call.id), call.cost) else { return };
        self.note_answer(&answer);
    }

    fn refund(&mut self, call: Call) {
        let Some(handle) = self.machine.handle(call.limit) else { return };
        let Ok(answer) = handle.refund(KNOWN[call.limit].id(call.id), call.cost) else { return };
        self.note_answer(&answer);
        if answer.allowed() {
            self.ledger.give(call.limit, call.id, self.machine.now(), call.cost.into());
        }
    }

    fn reset(&mut self, call: Call) {
        let Some(handle) = self.machine.handle(call.limit) else { return };
        let Ok(answer) = handle.reset(KNOWN[call.limit].id(call.id)) else { return };
        self.note_answer(&answer);
        self.ledger.reset(call.limit, call.id, self.machine.now());
    }

    fn batch(&mut self, what: BatchCall, calls: &[(Call, MemberMode)]) {
        let calls: Vec<(Call, MemberMode)> = calls
            .iter()
            .filter(|(call, _)| self.machine.handle(call.limit).is_some())
            .copied()
            .collect();
        let members: Vec<_> = calls
            .iter()
            .filter_map(|&(call, mode)| {
                let member = self.machine.handle(call.limit)?.member(KNOWN[call.limit].id(call.id));
                Some(member.cost(call.cost).mode(mode))
            })
            .collect();
        if !matches!(what, BatchCall::SpendAll | BatchCall::SpendEach) {
            return;
        }
        let mut each = Vec::new();
        let Ok(answer) = self.machine.limiter.batch(&members).spend_each(&mut each) else { return };
        self.note_answer(&answer);
        for (member_answer, &(call, mode)) in each.iter().zip(&calls) {
            self.note_answer(member_answer);
            let is_charged =
                answer.allowed() && member_answer.allowed() && mode != MemberMode::CheckOnly;
            if is_charged && member_answer.remaining().is_some() {
                self.grant(call, self.machine.now());
            }
        }
    }

    fn reserve(&mut self, call: Call, at_most: u64) {
        let Some(handle) = self.machine.handle(call.limit) else { return };
        let id = KNOWN[call.limit].id(call.id);
        match handle.reserve(id, call.cost, Duration::from_nanos(at_most)) {
            Ok(place) => {
                let wait = place.wait();
                self.answers.push(format!("place in {wait:?}"));
                if self.machine.has_limit(call) {
                    let granted = self.grant(call, self.machine.now() + wait.as_nanos() as i128);
                    self.places.push((place, granted));
                }
            }
            Err(error) => self.answers.push(format!("{error:?}")),
        }
    }

    fn charge(&mut self, call: Call) {
        let Some(handle) = self.machine.handle(call.limit) else { return };
        let Ok((answer, receipt)) = handle.spend_estimate(KNOWN[call.limit].id(call.id), call.cost)
        else {
            return;
        };
        self.note_answer(&answer);
        if let Some(receipt) = receipt.filter(|_| answer.remaining().is_some()) {
            let granted = self.grant(call, self.machine.now());
            self.receipts.push((receipt, granted));
        }
    }
}

fn taken<T>(all: &mut Vec<T>, at: usize) -> Option<T> {
    if all.is_empty() { None } else { Some(all.remove(at % all.len())) }
}
