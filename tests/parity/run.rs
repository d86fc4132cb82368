//! Runs a list of operations on one engine and compares its answers with the oracle's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::batch::MemberMode;
use tollgate::clock::ManualClock;
use tollgate::limit::Factor;
use tollgate::options::{AtCap, Engine};
use tollgate::reload::CarryOver;
use tollgate::{Clock, Decision, Error, KeyedLimit, Limiter};

use super::answers::{figures, folder, ns, options};
use super::ends::{PutInPlace, terms_of};
use super::ops::{BatchCall, Call, ONE, Op};
use super::oracle::{Answer, CallError, CallKind, Oracle, Terms};
use super::spec::{FIRST_IDS, KNOWN, LARGEST_FACTOR, List, Spec};

/// A restored limiter's clock continues by the system's clock. The run then moves it to a whole multiple of
/// this.
const RESTORE_STEP_NS: i128 = 1_000_000_000;
/// The latest time of the clock: 800 days, so that a restore shifts no times.
const LATEST_NS: i128 = 800 * 86_400 * 1_000_000_000;

/// The engines of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    LockFree,
    Exact,
    /// Exact until a restore, lock-free from then on.
    Both,
}

/// The limits and the time at which a run begins.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) spec: Spec,
    pub(crate) now: u64,
    /// The maximum of keys, and the policy at that cap.
    pub(crate) cap: Option<(usize, AtCap)>,
}

/// A wrong answer, and the index of its operation.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// Runs the list. A panic is a failure.
pub(crate) fn run(on: On, start: &Start, ops: &[Op]) -> Result<(), Failure> {
    let mut at = 0;
    let all = catch_unwind(AssertUnwindSafe(|| {
        let mut machine = Machine::new(on, start);
        for op in ops {
            machine.apply(op)?;
            at += 1;
        }
        machine.check_all()
    }));
    let text = match all {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(text)) => text,
        Err(panic) => text_of(&*panic),
    };
    Err(Failure { at, text })
}

pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("?"))
}

pub(crate) struct Machine {
    on: On,
    cap: Option<(usize, AtCap)>,
    began_s: i64,
    pub(crate) limiter: Limiter,
    handles: Vec<Option<KeyedLimit>>,
    hand: ManualClock,
    /// The limiter's time when the manual clock is at its origin.
    base: i128,
    pub(crate) oracle: Oracle,
    folder: Option<tempfile::TempDir>,
    saved: Option<Oracle>,
}

impl Machine {
    pub(crate) fn new(on: On, start: &Start) -> Machine {
        let (clock, hand) = Clock::manual();
        let engine = if on == On::LockFree { Engine::LockFree } else { Engine::Exact };
        let now = i128::from(start.now);
        hand.set(ns(now - 1));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_s = since.as_secs() as i64;
        let before = SystemTime::now();
        let options = options(start.cap, clock, engine);
        let limiter = Limiter::with_options(start.spec.build(began_s), options);
        let terms = Terms { spec: start.spec.clone(), ends: Vec::new() };
        let mut machine = Machine {
            on,
            cap: start.cap,
            began_s,
            limiter,
            handles: Vec::new(),
            hand,
            base: 1,
            oracle: Oracle::new(terms, now),
            folder: None,
            saved: None,
        };
        machine.find_handles();
        machine.oracle.terms = machine.with_ends(&start.spec, now, (before, SystemTime::now()));
        for (handle, id) in machine.handles.iter().zip(FIRST_IDS) {
            if let Some(handle) = handle {
                let largest = Factor::from_millionths(LARGEST_FACTOR);
                let _ = handle.scaled(largest).check(id, 0).unwrap();
            }
        }
        machine
    }

    fn find_handles(&mut self) {
        let handle = |at: usize| self.limiter.limit(KNOWN[at].name).ok();
        self.handles = (0..KNOWN.len()).map(handle).collect();
    }

    pub(crate) fn now(&self) -> i128 {
        self.oracle.now
    }

    pub(crate) fn handle(&self, limit: usize) -> Option<&KeyedLimit> {
        self.handles[limit].as_ref()
    }

    /// Whether any limit applies to a call.
    pub(crate) fn has_limit(&self, call: Call) -> bool {
        self.oracle.enabled && self.oracle.terms.rule(call.limit, call.id, self.now()).is_some()
    }

    /// Checks that the limiter has no more cells than the cap.
    pub(crate) fn check_cap(&self) -> Result<(), String> {
        let (cells, most) = (self.limiter.stats().cells, self.cap.map_or(1 << 20, |cap| cap.0));
        if cells <= most { Ok(()) } else { Err(format!("{cells} cells, at most {most} may be")) }
    }

    fn set_hand(&self, now: i128) {
        self.hand.set(ns((now - self.base).max(0)));
    }

    fn set_now(&mut self, now: i128) {
        let now = now.clamp(self.oracle.floor, LATEST_NS);
        self.oracle.set_now(now);
        self.set_hand(now);
    }

    fn with_ends(&self, spec: &Spec, at: i128, between: (SystemTime, SystemTime)) -> Terms {
        let (began_s, handles) = (self.began_s, &*self.handles);
        let terms =
            terms_of(spec, PutInPlace { began_s, handles, at, between }, |at| self.set_hand(at));
        self.set_hand(self.oracle.now);
        terms
    }

    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Advance(by) => self.set_now(self.oracle.now + i128::from(*by)),
            Op::Back(by) => self.set_now(self.oracle.now - i128::from(*by)),
            Op::ToEnd(by) => {
                if let Some(end) = self.oracle.next_end() {
                    self.set_now((end + i128::from(*by)).max(self.oracle.now));
                }
            }
            Op::Spend(call) => self.one(CallKind::Spend, *call)?,
            Op::Check(call) => self.one(CallKind::Check, *call)?,
            Op::Refund(call) => self.one(CallKind::Refund, *call)?,
            Op::Reset(call) => self.one(CallKind::Reset, *call)?,
            Op::Drain(call) => self.one(CallKind::Drain, *call)?,
            Op::SpendUpTo(call) => self.spend_up_to(*call)?,
            Op::SpendMany { limit, ids, cost } => self.many(*limit, ids, *cost)?,
            Op::Batch(what, members) => self.batch(*what, &members.0)?,
            Op::Settled(call, actual) => self.settled(*call, *actual)?,
            Op::Block(limit, id, time) => self.block(*limit, *id, *time)?,
            Op::Unblock(limit, id) => self.unblock(*limit, *id)?,
            Op::Reload(spec, debt) => self.reload(spec, *debt)?,
            Op::Sweep(cells) => {
                let _ = self.limiter.sweep(*cells);
                self.oracle.swept();
            }
            Op::SweepAll => {
                while !self.limiter.sweep(1 << 20).finished {}
                self.oracle.swept();
            }
            Op::Enable(enabled) => {
                self.limiter.set_enabled(*enabled);
                self.oracle.enabled = *enabled;
            }
            Op::Snapshot => self.snapshot()?,
            Op::Restore(spec, debt) => self.restore(spec, *debt)?,
            Op::Reserve(..) | Op::Cancel(_) | Op::Keep(_) | Op::Charge(_) | Op::Settle(..) => {
                return Err("an operation without an exact answer".into());
            }
        }
        Ok(())
    }

    /// Compares every bucket once more at the end of a run.
    fn check_all(&mut self) -> Result<(), String> {
        self.apply(&Op::Enable(true))?;
        for (limit, known) in KNOWN.iter().enumerate() {
            for id in 0..known.ids.len() {
                self.one(CallKind::Check, Call { limit, id, cost: 0, factor: ONE })?;
                let Some(handle) = &self.handles[limit] else { continue };
                let left =
                    handle.blocked(known.id(id)).unwrap().map(|left| left.as_nanos() as i128);
                let expected = self.oracle.blocked(limit, id);
                if left != expected {
                    return Err(format!(
                        "{} is blocked: {left:?}, expected {expected:?}",
                        known.ids[id]
                    ));
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, kind: CallKind, call: Call) -> Result<(), String> {
        let Some(handle) = &self.handles[call.limit] else { return Ok(()) };
        let (id, cost) = (KNOWN[call.limit].id(call.id), call.cost);
        let answer = if call.factor == ONE {
            match kind {
                CallKind::Spend => handle.spend(id, cost),
                CallKind::Check => handle.check(id, cost),
                CallKind::Refund => handle.refund(id, cost),
                CallKind::Reset => handle.reset(id),
                CallKind::Drain => handle.drain(id, cost),
                CallKind::SpendUpTo => unreachable!("it also returns units"),
            }
        } else {
            let scaled = handle.scaled(Factor::from_millionths(call.factor));
            match kind {
                CallKind::Spend => scaled.spend(id, cost),
                CallKind::Check => scaled.check(id, cost),
                CallKind::Refund => scaled.refund(id, cost),
                CallKind::Reset => scaled.reset(id),
                CallKind::Drain => scaled.drain(id, cost),
                CallKind::SpendUpTo => unreachable!("it also returns units"),
            }
        };
        let expected = self.oracle.call(kind, call);
        self.same(answer, expected, || format!("{kind:?} {} {id}", KNOWN[call.limit].name))
    }

    fn spend_up_to(&mut self, call: Call) -> Result<(), String> {
        let Some(handle) = &self.handles[call.limit] else { return Ok(()) };
        let (id, most) = (KNOWN[call.limit].id(call.id), call.cost);
        let (units, answer) = match call.factor {
            ONE => handle.spend_up_to(id, most),
            factor => handle.scaled(Factor::from_millionths(factor)).spend_up_to(id, most),
        }
        .map_err(|error| format!("{call:?}: {error}"))?;
        let (expected, expected_units) = self.oracle.spend_up_to(call);
        let what = || format!("SpendUpTo {} {id}", KNOWN[call.limit].name);
        if units != expected_units {
            return Err(format!("{}: {units} units in place of {expected_units}", what()));
        }
        self.same(Ok(answer), Ok(expected), what)
    }

    fn many(&mut self, limit: usize, ids: &List<usize>, cost: u64) -> Result<(), String> {
        let Some(handle) = &self.handles[limit] else { return Ok(()) };
        let mut answer = Vec::new();
        handle.spend_many(ids.0.iter().map(|&id| KNOWN[limit].id(id)), cost, &mut answer);
        if answer.len() != ids.0.len() {
            return Err(format!("{} answers for {} ids", answer.len(), ids.0.len()));
        }
        for (answer, &id) in answer.into_iter().zip(&ids.0) {
            let expected = self.oracle.call(CallKind::Spend, Call { limit, id, cost, factor: ONE });
            self.same(answer, expected, || format!("one of many: {}", KNOWN[limit].id(id)))?;
        }
        Ok(())
    }

    fn batch(&mut self, what: BatchCall, calls: &[(Call, MemberMode)]) -> Result<(), String> {
        let is_known = |(call, _): &&(Call, MemberMode)| self.handles[call.limit].is_some();
        let calls: Vec<(Call, MemberMode)> = calls.iter().filter(is_known).copied().collect();
        let members: Vec<_> = calls
            .iter()
            .filter_map(|&(call, mode)| {
                let handle = self.handles[call.limit].as_ref()?;
                let id = KNOWN[call.limit].id(call.id);
                let factor = Factor::from_millionths(call.factor);
                Some(handle.member(id).cost(call.cost).mode(mode).factor(factor))
            })
            .collect();
        let batch = self.limiter.batch(&members);
        let mut each_answer = Vec::new();
        let answer = match what {
            BatchCall::SpendAll => batch.spend(),
            BatchCall::SpendEach => batch.spend_each(&mut each_answer),
            BatchCall::CheckAll => batch.check(),
            BatchCall::RefundAll => batch.refund(),
            BatchCall::ResetAll => batch.reset(),
        };
        let (expected, each) = match self.oracle.batch(what, &calls) {
            Ok((answer, each)) => (Ok(answer), each),
            Err(error) => (Err(error), Vec::new()),
        };
        self.same(answer, expected, || format!("{what:?}"))?;
        if what == BatchCall::SpendEach && expected.is_ok() {
            for ((each_answer, expected), (call, _)) in each_answer.iter().zip(&each).zip(&calls) {
                self.same(Ok(*each_answer), Ok(*expected), || {
                    format!("{what:?}: member {call:?}")
                })?;
            }
        }
        Ok(())
    }

    fn settled(&mut self, call: Call, actual: u64) -> Result<(), String> {
        let call = Call { factor: ONE, ..call };
        let spec = self.oracle.terms.spec.limit(call.limit);
        let is_shadow = spec.is_some_and(|limit| limit.shadow);
        let Some(handle) = self.handles[call.limit].as_ref().filter(|_| !is_shadow) else {
            return Ok(());
        };
        let charged = handle.spend_estimate(KNOWN[call.limit].id(call.id), call.cost);
        let expected = self.oracle.settled(call, actual);
        let (answer, receipt) = match charged {
            Ok((answer, receipt)) => (Ok(answer), receipt),
            Err(error) => (Err(error), None),
        };
        self.same(answer, expected.map(|expected| expected.0), || format!("charge {call:?}"))?;
        match (receipt, expected.ok().and_then(|expected| expected.1)) {
            (Some(receipt), Some(expected)) => {
                let after = receipt.settle(actual);
                self.same(Ok(after), Ok(expected), || format!("settle {call:?} as {actual}"))
            }
            (None, None) => Ok(()),
            (receipt, expected) => Err(format!("{receipt:?}, expected {expected:?}")),
        }
    }

    fn block(&mut self, limit: usize, id: usize, time: u64) -> Result<(), String> {
        let Some(handle) = &self.handles[limit] else { return Ok(()) };
        let answer = handle.block(KNOWN[limit].id(id), Duration::from_nanos(time));
        match (answer, self.oracle.block(limit, id, time.into())) {
            (Ok(answer), Some(left)) if answer.as_nanos() as i128 == left => Ok(()),
            (Err(error), None) if error.is_invalid_block() => Ok(()),
            (answer, expected) => Err(format!("block: {answer:?}, expected {expected:?} ns")),
        }
    }

    fn unblock(&mut self, limit: usize, id: usize) -> Result<(), String> {
        let Some(handle) = &self.handles[limit] else { return Ok(()) };
        let answer = handle.unblock(KNOWN[limit].id(id)).unwrap();
        let expected = self.oracle.unblock(limit, id);
        if answer == expected {
            Ok(())
        } else {
            Err(format!("unblock: {answer}, expected {expected}"))
        }
    }

    fn reload(&mut self, spec: &Spec, debt: CarryOver) -> Result<(), String> {
        let before = SystemTime::now();
        let reloaded = self.limiter.reload_with(spec.build(self.began_s), debt);
        let after = SystemTime::now();
        let reloaded = reloaded.map_err(|error| format!("reload: {error}"))?;
        self.find_handles();
        if reloaded.changed {
            let terms = self.with_ends(spec, self.oracle.now, (before, after));
            self.oracle.reload(terms, debt);
        } else {
            for (limit, known) in KNOWN.iter().enumerate() {
                let of = |spec: &Spec| spec.limit(limit).cloned();
                let (old, new) = (of(&self.oracle.terms.spec), of(spec));
                let has_numbers = |spec: &super::spec::LimitSpec| {
                    spec.default.is_some() || !spec.overrides.0.is_empty()
                };
                if old.filter(has_numbers) != new.filter(has_numbers) {
                    return Err(format!(
                        "the reload says that nothing has changed of {}",
                        known.name
                    ));
                }
            }
        }
        Ok(())
    }

    fn file(&mut self) -> PathBuf {
        self.folder.get_or_insert_with(folder).path().join("buckets")
    }

    fn snapshot(&mut self) -> Result<(), String> {
        let file = self.file();
        self.limiter.snapshot(file).map_err(|error| format!("snapshot: {error}"))?;
        self.saved = Some(self.oracle.clone());
        Ok(())
    }

    fn restore(&mut self, spec: &Spec, debt: CarryOver) -> Result<(), String> {
        // No document defines the fate of a block whose limit was removed.
        let saved = self.saved.clone().filter(|saved| !saved.blocks_more_than(spec));
        let Some(saved) = saved else { return Ok(()) };
        let (clock, hand) = Clock::manual();
        let engine = if self.on == On::Exact { Engine::Exact } else { Engine::LockFree };
        let options = options(self.cap, clock, engine);
        let file = self.file();
        let before = SystemTime::now();
        let restored = Limiter::restore_with(spec.build(self.began_s), options, file, debt);
        let after = SystemTime::now();
        let (limiter, restored) = restored.map_err(|error| format!("restore: {error}"))?;
        let elapsed = restored.elapsed.as_nanos() as i128;
        (self.limiter, self.hand, self.oracle) = (limiter, hand, saved);
        self.base = self.oracle.now + elapsed;
        self.find_handles();
        let terms = self.with_ends(spec, self.base, (before, after));
        self.oracle.restore(terms, debt, self.base);
        // A snapshot of fingerprints can be restored into the lock-free engine only.
        if self.on == On::Both {
            self.on = On::LockFree;
        }
        let steps = elapsed / RESTORE_STEP_NS + 1;
        self.set_now(self.base - elapsed + steps * RESTORE_STEP_NS);
        self.oracle.floor = self.oracle.now;
        Ok(())
    }

    /// Compares an answer with the oracle's.
    fn same(
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
        let now = self.oracle.now;
        let answer = answer.map(|answer| figures(&answer));
        Err(format!("{} at {now}: answer {answer:?}\n    expected {expected:?}", of()))
    }
}
