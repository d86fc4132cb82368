//! Bounds the calls to the store that a node has under way.
//!
//! A node can be called more often than it can ask its store, or than the store can answer. Then its callers would wait for each
//! other, and the last ones longer than the store's timeout. So a call begins only while few enough are under way; another one is
//! denied at once. One id may have at most a quarter of them under way, so that a flood of its calls leaves room for other ids. A
//! call of an id that was denied within the last second begins only while less than half of them are under way, so that a flood of
//! many such ids leaves room as well.
//!
//! How many a node can ask in time depends on its processors, its server and the network. So the number falls when calls have
//! no answer in time: by a quarter if others had one meanwhile, else to the fewest. It grows again with those that have, and is whole
//! when it has not fallen for half a second: callers that come together, and seldom, would widen it slowly.
//!
//! A call without an answer in time is denied for overload if many others came meanwhile, or were under way when it came. A store
//! that stands still looks the same as one that is slower than its callers, but the slow one answers again when fewer calls are
//! under way. After a late call the link asks the store a question, which comes behind the calls that had begun before the number
//! fell: without an answer to it for two seconds, the link pauses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::RandomState;
use smallvec::{SmallVec, smallvec};

use crate::error::Error;
use crate::util::sync::{FigureUsize, Ordering};

/// The time that a node takes for a call when it has many, with a margin for slower processors: `speed_node.rs` measures 11 us
/// for both threads, and 16 us were measured on others.
const A_CALL: Duration = Duration::from_micros(25);
/// The bounds of the calls that may be under way at most.
const MOST: [usize; 2] = [64, 1_024];
/// The calls that may always be under way.
const FEWEST: usize = 4;
/// The time without a late call after which as many as possible may be under way.
const WHOLE_AFTER_MS: usize = 500;
/// The answers in time after which one call more may be under way.
const ANSWERS: usize = 8;
/// The parts into which ids are divided by a hash.
const PARTS: usize = 256;
/// The share of a part: one in this number.
const SHARE: usize = 4;
/// The calls that may be there at once and make none late.
const CROWD: usize = 8;

/// The calls to a store that are under way.
pub(crate) struct Gate {
    hasher: RandomState,
    most: usize,
    /// The calls that may be under way now.
    allowed: FigureUsize,
    /// The calls that had come when that number fell last, and the time then, in ms since the gate was made.
    narrowed: FigureUsize,
    narrowed_ms: FigureUsize,
    made: Instant,
    /// The answers in time, and the calls that the server did not answer in time.
    answers: FigureUsize,
    late: FigureUsize,
    /// The calls that have ever come, those among them that were not let in.
    came: FigureUsize,
    /// Whether the store was asked whether it answers, and has not answered yet: 1.
    waits: FigureUsize,
    under_way: Calls,
    /// The calls under way that admit nothing. They have longer for their answers, so they are not of the calls above, of which many
    /// are a crowd.
    returns: Calls,
    /// The calls of each part of the ids.
    parts: Box<[Calls]>,
}

/// A number of calls that are under way.
#[derive(Default)]
struct Calls(FigureUsize);

/// A call that is under way until this is dropped, in the gate of each server that it asks.
#[derive(Default)]
pub(crate) struct Passed {
    counts: SmallVec<[Counts; 1]>,
}

struct Counts {
    gate: Arc<Gate>,
    /// The calls that had come before this one, and those of them that had ended.
    before: usize,
    ended: usize,
    /// The answers in time before it, and the late calls.
    answers: usize,
    late: usize,
    /// The part of each of the call's buckets.
    parts: SmallVec<[u8; 8]>,
}

impl Calls {
    /// Lets a call in, and returns the number of those beside it; `None` if they are too many.
    fn enter(&self, most: usize) -> Option<usize> {
        // Relaxed, here and below: the counts guard no other memory.
        let beside = self.0.fetch_add(1, Ordering::Relaxed);
        if beside >= most {
            self.leave();
            return None;
        }
        Some(beside)
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    /// Makes the gate of a store whose answers may take this long: it lets as many calls in as a node can make meanwhile.
    pub(crate) fn new(answer_timeout: Duration) -> Gate {
        let in_time = (answer_timeout.as_nanos() / A_CALL.as_nanos()) as usize;
        let most = in_time.clamp(MOST[0], MOST[1]);
        Gate {
            hasher: RandomState::new(),
            most,
            allowed: FigureUsize::new(most),
            narrowed: FigureUsize::new(0),
            narrowed_ms: FigureUsize::new(0),
            made: Instant::now(),
            answers: FigureUsize::new(0),
            late: FigureUsize::new(0),
            came: FigureUsize::new(0),
            waits: FigureUsize::new(0),
            under_way: Calls::default(),
            returns: Calls::default(),
            parts: (0..PARTS).map(|_| Calls::default()).collect(),
        }
    }

    /// Lets a call in that names these buckets; `None` if too many are under way. `was_denied`: the store
    /// has denied a call for one of the buckets lately.
    pub(crate) fn pass<'k>(
        self: &Arc<Gate>,
        keys: impl Iterator<Item = &'k str>,
        was_denied: bool,
    ) -> Option<Passed> {
        let before = self.came.fetch_add(1, Ordering::Relaxed);
        let allowed = self.allowed_at(self.now_ms());
        let beside = self.under_way.enter(if was_denied { allowed / 2 } else { allowed })?;
        let ended = before.wrapping_sub(beside);
        // If it returns early from here on, the drop of `passed` lowers the counts again.
        let [answers, late] = [&self.answers, &self.late].map(|it| it.load(Ordering::Relaxed));
        let gate = self.clone();
        let mut passed = Counts { gate, before, ended, answers, late, parts: SmallVec::new() };
        for key in keys {
            let part = self.hasher.hash_one(key) as u8;
            // Two buckets of a batch in one part have one place.
            if !passed.parts.contains(&part) {
                self.parts[usize::from(part)].enter(allowed / SHARE)?;
                passed.parts.push(part);
            }
        }
        Some(Passed { counts: smallvec![passed] })
    }

    /// Lets a call in that admits nothing, beside half as many as other calls; `None` if too many are under way.
    pub(crate) fn pass_return(self: &Arc<Gate>) -> Option<PassedReturn> {
        self.returns.enter(self.allowed_at(self.now_ms()) / 2)?;
        Some(PassedReturn(self.clone()))
    }

    /// Waits, until the result is dropped, for a store that had answered a call late: at its fewest calls, the gate lets none in before the
    /// store has come to those that it has. Else many nodes, each at its fewest, could ask more than a store can ever answer in time.
    pub(crate) fn wait_for_answers(&self) -> Waiting<'_> {
        self.waits.store(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Returns the number of calls that may be under way.
    fn allowed_at(&self, now_ms: usize) -> usize {
        let allowed = self.allowed.load(Ordering::Relaxed);
        if allowed <= FEWEST && self.waits.load(Ordering::Relaxed) == 1 {
            return 0;
        }
        let whole_at_ms = self.narrowed_ms.load(Ordering::Relaxed) + WHOLE_AFTER_MS;
        if allowed < self.most && now_ms >= whole_at_ms {
            self.allowed.store(self.most, Ordering::Relaxed);
            return self.most;
        }
        allowed
    }

    fn now_ms(&self) -> usize {
        self.made.elapsed().as_millis() as usize
    }

    /// Notes that the server did not answer a call in time.
    pub(crate) fn note_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a call has its answer in time.
    fn widen(&self) {
        let answers = self.answers.fetch_add(1, Ordering::Relaxed);
        if answers.is_multiple_of(ANSWERS) && self.allowed.load(Ordering::Relaxed) < self.most {
            self.allowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a call had no answer in time because of others. Those that were under way with it say the same, and count as one.
    fn narrow(&self, call: &Counts) {
        let narrowed = self.narrowed.load(Ordering::Relaxed);
        let is_new = call.before.wrapping_sub(narrowed) <= usize::MAX / 2;
        let came = self.came.load(Ordering::Relaxed);
        let swap =
            || self.narrowed.compare_exchange(narrowed, came, Ordering::Relaxed, Ordering::Relaxed);
        if is_new && swap().is_ok() {
            let under_way = self.under_way.0.load(Ordering::Relaxed);
            let allowed = self.allowed.load(Ordering::Relaxed).min(under_way);
            let is_answering = self.answers.load(Ordering::Relaxed) != call.answers;
            let allowed = if is_answering { allowed * 3 / 4 } else { FEWEST };
            self.narrowed_ms.store(self.now_ms(), Ordering::Relaxed);
            self.allowed.store(allowed.max(FEWEST), Ordering::Relaxed);
        }
    }
}

/// The time in which a gate at its fewest calls lets none in.
pub(crate) struct Waiting<'g>(&'g Gate);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Waiting(gate) = self;
        // No call was late meanwhile, but none was let in: this time does not count towards `WHOLE_AFTER_MS`.
        gate.narrowed_ms.store(gate.now_ms(), Ordering::Relaxed);
        gate.waits.store(0, Ordering::Relaxed);
    }
}

/// A call that admits nothing, under way until this is dropped.
pub(crate) struct PassedReturn(Arc<Gate>);

impl PassedReturn {
    /// Notes that the call has its answer in time. One without narrows nothing.
    pub(crate) fn note_answer(&self) {
        self.0.widen();
    }
}

impl Drop for PassedReturn {
    fn drop(&mut self) {
        self.0.returns.leave();
    }
}

impl Passed {
    /// Adds the places of a call in the gates of other servers.
    pub(crate) fn and(mut self, other: Passed) -> Passed {
        self.counts.extend(other.counts);
        self
    }

    /// Notes the answer of a call. Says of one without an answer in time that it was one of a crowd, if it was: then it is no outage.
    /// Otherwise a flood could bring about what `on_error: allow` admits.
    pub(crate) fn noted<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        let error = match answer {
            Ok(answer) => {
                self.counts.iter().for_each(|call| call.gate.widen());
                return Ok(answer);
            }
            Err(error) => error,
        };
        // A call that was not sent has waited too long in the node.
        let is_late = error.is_late() || error.is_unsent();
        // A batch over several servers is late because of one of them.
        let is_one = self.counts.len() == 1;
        let of_late = self.counts.iter().filter(|call| is_late && (is_one || call.met_late_ones()));
        let crowded = of_late.filter(|call| call.is_in_crowd());
        let crowds = crowded.map(|call| call.gate.narrow(call)).count();
        Err(if crowds > 0 { error.in_a_crowd() } else { error })
    }
}

impl Counts {
    /// Whether many calls were there at any time of this one, itself among them: under way, or not let in. The first call of a crowd
    /// begins alone, and the last to end ends alone, and they may be the same.
    fn is_in_crowd(&self) -> bool {
        let came = self.gate.came.load(Ordering::Relaxed);
        came.wrapping_sub(self.ended) > CROWD
    }

    /// Whether the server was late for this call, or for others meanwhile.
    fn met_late_ones(&self) -> bool {
        self.gate.late.load(Ordering::Relaxed) != self.late
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        for &part in &self.parts {
            self.gate.parts[usize::from(part)].leave();
        }
        self.gate.under_way.leave();
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn pass(gate: &Arc<Gate>, keys: &[&str]) -> Option<Passed> {
        gate.pass(keys.iter().copied(), false)
    }

    /// A gate of 400 calls.
    fn wide() -> Arc<Gate> {
        Arc::new(Gate::new(Duration::from_millis(10)))
    }

    fn late() -> Result<(), Error> {
        Err(Error::new(crate::error::ErrorKind::StoreLate, "planted"))
    }

    /// Calls that are late together count once. A round leaves three quarters if the store has answered a call meanwhile.
    #[test]
    fn late_calls_narrow_the_gate() {
        let gate = wide();
        let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
        for (answers, expected) in [(true, 300), (true, 225), (false, 4), (true, 4), (false, 4)] {
            let calls: Vec<_> = ids.iter().filter_map(|id| pass(&gate, &[id])).collect();
            if answers {
                calls[0].noted(Ok(())).unwrap();
            }
            assert!(calls.iter().all(|call| call.noted(late()).is_err()));
            assert_eq!(gate.allowed.load(Ordering::Relaxed), expected);
        }
        for _ in 0..10 * ANSWERS {
            pass(&gate, &["a"]).unwrap().noted(Ok(())).unwrap();
        }
        assert_eq!(gate.allowed.load(Ordering::Relaxed), 14);
    }

    #[test]
    fn gate_is_whole_after_a_time() {
        let mut gate = Gate::new(Duration::from_millis(10));
        gate.made -= Duration::from_secs(10);
        for (narrowed_ms, expected) in [(9_501, FEWEST), (9_500, 400)] {
            gate.allowed.store(FEWEST, Ordering::Relaxed);
            gate.narrowed_ms.store(narrowed_ms, Ordering::Relaxed);
            assert_eq!(gate.allowed_at(10_000), expected);
        }
    }

    #[test]
    fn gate_of_fewest_waits_for_answers() {
        let mut gate = Gate::new(Duration::from_millis(10));
        gate.made -= Duration::from_secs(10);
        let gate = Arc::new(gate);
        let waiting = gate.wait_for_answers();
        assert!(pass(&gate, &["a"]).is_some(), "a wide one does not");
        gate.allowed.store(FEWEST, Ordering::Relaxed);
        assert!(pass(&gate, &["a"]).is_none());
        drop(waiting);
        assert!(pass(&gate, &["a"]).is_some());
        assert_eq!(gate.allowed_at(gate.now_ms()), FEWEST, "the wait says nothing of its width");
    }

    /// A gate that is wider than its crowd narrows to three quarters of the crowd.
    #[test]
    fn few_late_calls_narrow_a_wide_gate() {
        let gate = wide();
        let ids: Vec<_> = (0..20).map(|id| id.to_string()).collect();
        let calls: Vec<_> = ids.iter().map(|id| pass(&gate, &[id]).unwrap()).collect();
        calls[0].noted(Ok(())).unwrap();
        assert!(calls.iter().all(|call| call.noted(late()).is_err()));
        assert_eq!(gate.allowed.load(Ordering::Relaxed), 15);
    }

    #[test]
    fn lone_late_call_narrows_nothing() {
        let gate = wide();
        for _ in 0..20 {
            assert!(pass(&gate, &["a"]).unwrap().noted(late()).is_err());
        }
        assert_eq!(gate.allowed.load(Ordering::Relaxed), 400);
    }

    /// Calls that are not let in are of the crowd.
    #[test]
    fn late_call_beside_refused_ones_is_overload() {
        for (beside, is_crowded) in [(CROWD, true), (CROWD - 1, false)] {
            let gate = wide();
            gate.allowed.store(FEWEST, Ordering::Relaxed);
            let first = pass(&gate, &["hot"]).unwrap();
            assert!((0..beside).all(|_| pass(&gate, &["hot"]).is_none()));
            assert_eq!(first.noted(late()).unwrap_err().is_store_overload(), is_crowded);
        }
    }

    /// Otherwise its calls would never pass.
    #[test]
    fn buckets_of_one_part_have_one_place() {
        let gate = wide();
        gate.allowed.store(FEWEST, Ordering::Relaxed);
        let passed = pass(&gate, &["a", "a", "a"]).unwrap();
        assert!(pass(&gate, &["a"]).is_none());
        drop(passed);
        assert!(pass(&gate, &["a"]).is_some());
    }

    #[test]
    fn one_id_has_a_quarter_at_most() {
        let gate = wide();
        let mut passed: Vec<_> = (0..100).map(|_| pass(&gate, &["hot"]).unwrap()).collect();
        assert!(pass(&gate, &["hot"]).is_none() && pass(&gate, &["other", "hot"]).is_none());
        let others: Vec<_> = (0..300).filter_map(|id| pass(&gate, &[&id.to_string()])).collect();
        assert!(others.len() > 250, "{} of 300", others.len());
        passed.pop();
        assert!(pass(&gate, &["hot"]).is_some());
    }

    #[test]
    fn ids_that_were_denied_leave_half() {
        let gate = wide();
        let ids: Vec<_> = (0..1_000).map(|id| id.to_string()).collect();
        let pass = |was_denied| {
            let of = |id: &String| gate.pass(std::iter::once(&**id), was_denied);
            ids.iter().filter_map(of).collect::<Vec<_>>()
        };
        let denied = pass(true);
        assert_eq!(denied.len(), 200);
        assert_eq!(pass(false).len(), 200);
        drop(denied);
        assert_eq!(pass(true).len(), 200);
    }

    #[test]
    fn counts_come_back_to_zero() {
        let gate = Arc::new(Gate::new(Duration::ZERO));
        let ids = (0..1_000).map(|id| id.to_string());
        let passed: Vec<_> = ids.filter_map(|id| pass(&gate, &[&id, "a"])).collect();
        assert_eq!(passed.len(), MOST[0] / SHARE);
        drop(passed);
        let under_way = |calls: &Calls| calls.0.load(Ordering::Relaxed);
        assert_eq!(under_way(&gate.under_way), 0);
        assert!(gate.parts.iter().all(|part| under_way(part) == 0));
    }

    /// The first call of a crowd began alone, and ends when all others have ended; the last one began beside them all.
    #[test]
    fn first_and_last_call_is_of_crowd() {
        for (beside, is_crowded) in [(CROWD, true), (CROWD - 1, false)] {
            let gate = wide();
            let first = pass(&gate, &["a"]).unwrap();
            let others: Vec<_> = (1..beside).map(|_| pass(&gate, &["a"]).unwrap()).collect();
            let last = pass(&gate, &["b"]).unwrap();
            drop(others);
            for call in [first, last] {
                assert_eq!(call.counts[0].is_in_crowd(), is_crowded);
            }
            assert!(!pass(&gate, &["a"]).unwrap().counts[0].is_in_crowd());
        }
    }
}
