//! Runs a list of operations on one engine, compares its answers with the oracle's, and checks the bound.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::clock::ManualClock;
use tollgate::limit::Factor;
use tollgate::options::{AtCap, Engine};
use tollgate::reload::{CarryOver, ReloadOptions};
use tollgate::{Clock, Decision, Error, KeyedLimit, Limit, Limiter, Limits};

use super::answers::{figures, folder, ns, options};
use super::ends::{PutInPlace, terms_of};
use super::held::{Claim, Held};
use super::ledger::Ledger;
use super::ops::{Call, ONE, Op, call};
use super::oracle::{Answer, CallError, CallKind, Oracle, Terms};
use super::permits::Permits;
use super::receipts::BatchReceipt;
use super::returns::{BatchPlace, Open};
use super::several::leaving;
use super::spec::{ADDRESSES, DENIES, FIRST_IDS, KNOWN, LARGEST_FACTOR, NETWORKS, Spec};
use super::support::rules::scripted;

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

/// What a run checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// Every answer, and the bound.
    All,
    /// The bound alone: answers of a full table depend on hashes.
    Bound,
    /// The bound alone, of a limiter that returns one unit twice.
    BoundOfPlantedFault,
}

/// A wrong answer, and the index of its operation.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// Runs the list. A panic is a failure.
pub(crate) fn run(on: On, checks: Checks, start: &Start, ops: &[Op]) -> Result<(), Failure> {
    let mut at = 0;
    let all = catch_unwind(AssertUnwindSafe(|| {
        let mut machine = Machine::new(on, checks, start);
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

/// Whether a spend was allowed and a limit applies.
pub(crate) fn is_charged(answer: &Decision) -> bool {
    answer.allowed() && answer.remaining().is_some()
}

pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("?"))
}

pub(crate) struct Machine {
    on: On,
    pub(crate) checks: Checks,
    pub(crate) cap: Option<(usize, AtCap)>,
    /// The limits and ids that have had an override, whose buckets are beside the cap.
    beside: BTreeSet<(usize, usize)>,
    began_s: i64,
    pub(crate) limiter: Limiter,
    pub(crate) handles: Vec<Option<KeyedLimit>>,
    hand: ManualClock,
    /// The limiter's time when the manual clock is at its origin.
    base: i128,
    pub(crate) oracle: Oracle,
    pub(crate) held: Held,
    /// The charges that callers of the limiter hold.
    pub(crate) open: Vec<Open>,
    pub(crate) places: Vec<BatchPlace>,
    pub(crate) receipts: Vec<BatchReceipt>,
    pub(crate) permits: Permits,
    pub(crate) ledger: Ledger,
    /// Whether the clock has gone back.
    has_back: bool,
    /// A limit that allows a batch that looks, and denies it when it is charged, and the number of times it was asked.
    denies: (Limit, Arc<AtomicU64>),
    folder: Option<tempfile::TempDir>,
    /// What the snapshot has.
    saved: Option<(Oracle, Ledger)>,
}

impl Machine {
    fn new(on: On, checks: Checks, start: &Start) -> Machine {
        let (clock, hand) = Clock::manual();
        let engine = if on == On::LockFree { Engine::LockFree } else { Engine::Exact };
        let now = i128::from(start.now);
        hand.set(ns(now - 1));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_s = since.as_secs() as i64;
        let asked = Arc::new(AtomicU64::new(0));
        let times = asked.clone();
        let denies = scripted(move || times.fetch_add(1, Ordering::Relaxed) == 0);
        let before = SystemTime::now();
        let options = options(start.cap, clock, engine);
        let limits = start.spec.build_with(began_s, Some(&denies));
        let limiter = Limiter::with_options(limits, options).unwrap();
        let terms = Terms::new(start.spec.clone());
        let mut machine = Machine {
            on,
            checks,
            cap: start.cap,
            beside: BTreeSet::new(),
            began_s,
            limiter,
            handles: Vec::new(),
            hand,
            base: 1,
            oracle: Oracle::new(terms, now),
            held: Held::default(),
            open: Vec::new(),
            places: Vec::new(),
            receipts: Vec::new(),
            permits: Permits::default(),
            ledger: Ledger::default(),
            has_back: false,
            denies: (denies, asked),
            folder: None,
            saved: None,
        };
        machine.find_handles();
        machine.oracle.terms = machine.with_ends(&start.spec, now, (before, SystemTime::now()));
        machine.note_rules(now);
        machine
    }

    /// Finds the handles of the limits that are there, and uses the largest factor with each.
    fn find_handles(&mut self) {
        let handle = |at: usize| self.limiter.limit(KNOWN[at].name).ok();
        self.handles = (0..KNOWN.len()).map(handle).collect();
        self.permits.find_handles(&self.limiter);
        let with_ids = self.handles.iter().zip(FIRST_IDS);
        for (handle, id) in with_ids.filter_map(|(handle, id)| Some((handle.as_ref()?, id))) {
            let _ = handle.scaled(Factor::from_millionths(LARGEST_FACTOR)).refund(id, 0).unwrap();
        }
        // Each network is a separate limit.
        for (handle, network) in
            self.handles[ADDRESSES].iter().flat_map(|it| NETWORKS.iter().map(move |of| (it, of)))
        {
            let scaled = handle.scaled(Factor::from_millionths(LARGEST_FACTOR));
            let _ = scaled.refund(network.first_id, 0).unwrap();
        }
    }

    /// Drops the open charges of networks that the limits no longer have: if such a network comes back, it depends on sweeps
    /// whether a limiter still has its buckets.
    fn forget_former(&mut self) {
        let terms = &self.oracle.terms;
        let is_former = |claim: &Option<Claim>| claim.is_some_and(|it| terms.is_former(it.key.0));
        self.open.retain(|open| !is_former(&open.claim));
        self.places.retain(|place| !place.claims().any(is_former));
        self.receipts.iter_mut().for_each(|receipt| receipt.let_go(is_former));
    }

    pub(crate) fn now(&self) -> i128 {
        self.oracle.now
    }

    pub(crate) fn handle(&self, limit: usize) -> Option<&KeyedLimit> {
        self.handles[limit].as_ref()
    }

    fn note_rules(&mut self, at: i128) {
        let terms = &self.oracle.terms;
        self.ledger.note_rules(at, |place, id| terms.rule_of((place, id), at));
        self.permits.note_lifts(terms, at);
    }

    /// Checks that the limiter has no more cells than the cap, and one for each id that has had an override.
    fn check_cap(&mut self) -> Result<(), String> {
        self.beside.extend(self.oracle.terms.spec.ids_with_overrides());
        let most = self.cap.map_or(1 << 20, |cap| cap.0 + self.beside.len());
        let cells = self.limiter.stats().cells;
        if cells <= most { Ok(()) } else { Err(format!("{cells} cells, at most {most} may be")) }
    }

    fn set_hand(&self, now: i128) {
        self.hand.set(ns((now - self.base).max(0)));
    }

    fn set_now(&mut self, now: i128) {
        let before = self.oracle.now;
        let now = now.clamp(self.oracle.floor, LATEST_NS);
        self.has_back |= now < before;
        let ends = self.oracle.terms.ends_within(before, now);
        self.oracle.set_now(now);
        self.set_hand(now);
        ends.into_iter().for_each(|end| self.note_rules(end));
    }

    fn with_ends(&self, spec: &Spec, at: i128, between: (SystemTime, SystemTime)) -> Terms {
        let began_s = self.began_s;
        let applies = &|limit: usize, id: &str| match self.permits.handle(limit) {
            Some(handle) => Some(handle.limit_for(id).unwrap()),
            None => self.handles[limit].as_ref().map(|handle| handle.limit_for(id).unwrap()),
        };
        let terms =
            terms_of(spec, PutInPlace { began_s, applies, at, between }, |at| self.set_hand(at));
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
            Op::Refund(call) => self.one_by_hand(CallKind::Refund, *call)?,
            Op::Reset(call) => self.one_by_hand(CallKind::Reset, *call)?,
            Op::Drain(call) => self.one(CallKind::Drain, *call)?,
            Op::SpendUpTo(call) => self.spend_up_to(*call)?,
            Op::SpendMany { limit, ids, cost } => self.many(*limit, ids, *cost)?,
            Op::Batch(what, members) => self.batch(*what, &members.0)?,
            Op::Denied(members) => self.denied(&members.0)?,
            Op::Charge(call) => self.charge(*call)?,
            Op::Settle(at, actual) => self.settle(*at, *actual)?,
            Op::ChargeBatch(members) => self.charge_batch(&members.0)?,
            Op::SettleBatch(at, actual) => self.settle_batch(*at, *actual)?,
            Op::SettleMember(at, member, actual) => self.settle_member(*at, *member, *actual)?,
            Op::Reserve(call, at_most) => self.reserve(*call, *at_most)?,
            Op::Cancel(at) => self.cancel(*at)?,
            Op::ReserveBatch(calls, at_most) => self.reserve_batch(&calls.0, *at_most)?,
            Op::CancelBatch(at) => self.cancel_batch(*at)?,
            Op::KeepBatch(at) => self.keep_batch(*at),
            Op::Keep(at) => self.keep(*at),
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
            Op::DropBatch(at) => self.drop_receipt(*at)?,
            Op::Acquire(_) | Op::CheckPermits(_) | Op::Release(_) | Op::SetMax(..) => {
                self.permit_op(op)?;
            }
            Op::Restore(spec, debt) => self.restore(spec, *debt)?,
        }
        self.check_cap()
    }

    /// Checks the bound, and compares every bucket once more at the end of a run.
    fn check_all(&mut self) -> Result<(), String> {
        // Calls that a full table allows are charged to no bucket.
        if self.cap.is_none_or(|cap| cap.1 != AtCap::Allow) {
            self.ledger.check_of(self.has_back)?;
        }
        self.apply(&Op::Enable(true))?;
        self.check_permits()?;
        if self.checks != Checks::All {
            return Ok(());
        }
        for (limit, known) in KNOWN.iter().enumerate() {
            for id in 0..known.ids.len() {
                self.one(CallKind::Check, call(limit, id, 0))?;
                let Some(handle) = &self.handles[limit] else { continue };
                let left =
                    handle.blocked_for(known.id(id)).unwrap().map(|left| left.as_nanos() as i128);
                let expected = self.oracle.blocked_for(limit, id);
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

    pub(crate) fn one(&mut self, kind: CallKind, call: Call) -> Result<(), String> {
        let Some(handle) = &self.handles[call.limit] else { return Ok(()) };
        let (id, cost) = (KNOWN[call.limit].id(call.id), call.cost);
        let answer = if call.leave > 0 {
            leaving(handle, kind, call)
        } else if call.factor == ONE {
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
        if kind == CallKind::Spend {
            self.note_spend(call, answer.as_ref().is_ok_and(is_charged));
        }
        let expected = self.oracle.call(kind, call);
        self.same(answer, expected, || format!("{kind:?} {} {id}", KNOWN[call.limit].name))
    }

    fn one_by_hand(&mut self, kind: CallKind, call: Call) -> Result<(), String> {
        self.by_hand(kind, &[call], |this| {
            let is_error = this.oracle.clone().call(kind, call).is_err();
            (this.one(kind, call), !is_error)
        })
    }

    /// Lets the next batch look at the limit that denies when it is charged.
    pub(crate) fn denier(&self) -> KeyedLimit {
        self.denies.1.store(0, Ordering::Relaxed);
        self.limiter.limit(DENIES).unwrap()
    }

    fn limits(&self, spec: &Spec) -> Limits {
        spec.build_with(self.began_s, Some(&self.denies.0))
    }

    fn reload(&mut self, spec: &Spec, debt: CarryOver) -> Result<(), String> {
        self.permits.let_go(spec);
        let before = SystemTime::now();
        let reloaded = self.limiter.reload_with(self.limits(spec), removing(debt));
        let after = SystemTime::now();
        let reloaded = reloaded.map_err(|error| format!("reload: {error}"))?;
        self.find_handles();
        if reloaded.changed {
            let terms = self.with_ends(spec, self.oracle.now, (before, after));
            let old = self.oracle.terms.clone();
            self.oracle.reload(terms, debt);
            self.held.reload(&old, &self.oracle.terms);
            self.forget_former();
            self.note_rules(self.oracle.now);
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
        self.saved = Some((self.oracle.clone(), self.ledger.clone()));
        Ok(())
    }

    fn restore(&mut self, spec: &Spec, debt: CarryOver) -> Result<(), String> {
        // No document defines the fate of a block whose limit was removed.
        let saved = self.saved.clone().filter(|saved| !saved.0.blocks_more_than(spec));
        let Some(saved) = saved else { return Ok(()) };
        let limits = self.limits(spec);
        let (clock, hand) = Clock::manual();
        let engine = if self.on == On::Exact { Engine::Exact } else { Engine::LockFree };
        let options = options(self.cap, clock, engine);
        let file = self.file();
        let before = SystemTime::now();
        let restored = Limiter::restore_with(limits, options, file, debt);
        let after = SystemTime::now();
        let (limiter, restored) = restored.map_err(|error| format!("restore: {error}"))?;
        let elapsed = restored.elapsed.as_nanos() as i128;
        (self.limiter, self.hand, (self.oracle, self.ledger)) = (limiter, hand, saved);
        // What callers hold belongs to the limiter before.
        (self.held, self.open, self.receipts) = (Held::default(), Vec::new(), Vec::new());
        self.places = Vec::new();
        self.permits = Permits::default();
        self.base = self.oracle.now + elapsed;
        self.find_handles();
        let terms = self.with_ends(spec, self.base, (before, after));
        self.oracle.restore(terms, debt, self.base);
        self.note_rules(self.base);
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
        if is_same || self.checks != Checks::All {
            return Ok(());
        }
        let now = self.oracle.now;
        let answer = answer.map(|answer| figures(&answer));
        Err(format!("{} at {now}: answer {answer:?}\n    expected {expected:?}", of()))
    }
}

/// The run's handles live as long as its limiter, so each reload that removes a limit does it on purpose.
fn removing(debt: CarryOver) -> ReloadOptions {
    ReloadOptions::from(debt).remove_missing(true)
}
