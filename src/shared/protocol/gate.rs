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
//!
//! Calls that admit nothing are called returns here. They wait for a place, and have longer for their answers. They have places
//! beside those of other calls. The number of their places halves when a spend behind them is late, and grows slowly. Such a spend
//! is denied for overload as well, if the store has answered lately.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::RandomState;
use smallvec::{SmallVec, smallvec};

use crate::error::Error;
use crate::util::sync::{Figure, FigureUsize, Ordering};

/// The time that a node takes for a call when it has many, with a margin for slower processors: `speed_node.rs` measures 11 us
/// for both threads, and 16 us were measured on others.
const A_CALL: Duration = Duration::from_micros(25);
/// The bounds of the calls that may be under way at most.
const MOST: [usize; 2] = [64, 1_024];
/// The calls that may always be under way.
const FEWEST: usize = 4;
/// The time without a late call after which as many as possible may be under way.
const WHOLE_AFTER_US: u64 = 500_000;
/// The answers in time after which one call more may be under way.
const ANSWERS: usize = 8;
/// The parts into which ids are divided by a hash.
const PARTS: usize = 256;
/// The share of a part: one in this number.
const SHARE: usize = 4;
/// The calls that may be there at once and make none late.
const CROWD: usize = 8;
/// The time after an answer within which a late call is not taken for an outage if a crowd of returns is there.
const LATELY_US: u64 = 100_000;
/// The rounds of answers to returns after which one more may be under way.
const ROUNDS: usize = 2;
/// The time without a spend late behind returns after which as many of them as possible may be under way, if none waits for a place.
const RETURNS_WHOLE_AFTER_US: u64 = 2_000_000;

/// The calls to a store that are under way.
pub(crate) struct Gate {
    hasher: RandomState,
    most: usize,
    /// The calls that may be under way now.
    allowed: FigureUsize,
    /// The calls that had come when that number fell last.
    narrowed: FigureUsize,
    /// When that number fell last, and the time of the last answer, in us since the gate was made.
    narrowed_us: Figure,
    answered_us: Figure,
    made: Instant,
    /// The calls with an answer in time, returns apart, and all calls that the server did not answer in time.
    answers: FigureUsize,
    late: FigureUsize,
    /// The calls that have ever come, those among them that were not let in.
    came: FigureUsize,
    /// Whether the store was asked whether it answers, and has not answered yet: 1.
    waits: FigureUsize,
    under_way: Calls,
    /// The returns under way. They have longer for their answers, so they are not counted with the calls above.
    returns: Calls,
    /// How many of them may be under way now, at most half as many as other calls.
    returns_allowed: FigureUsize,
    /// When that number fell last, and the answers since it has changed.
    returns_narrowed_us: Figure,
    returns_answered: FigureUsize,
    /// Those that wait for a place, and those that have ever come.
    in_line: Calls,
    returns_came: FigureUsize,
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
    /// When it came, in us since the gate was made.
    came_us: u64,
    /// The late calls before it.
    late: usize,
    /// The returns that had come before it and ended.
    returns_ended: usize,
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
            narrowed_us: Figure::new(0),
            answered_us: Figure::new(0),
            made: Instant::now(),
            answers: FigureUsize::new(0),
            late: FigureUsize::new(0),
            came: FigureUsize::new(0),
            waits: FigureUsize::new(0),
            under_way: Calls::default(),
            returns: Calls::default(),
            returns_allowed: FigureUsize::new(most / 2),
            returns_narrowed_us: Figure::new(0),
            returns_answered: FigureUsize::new(0),
            in_line: Calls::default(),
            returns_came: FigureUsize::new(0),
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
        let came_us = self.now_us();
        let allowed = self.allowed_at(came_us);
        let beside = self.under_way.enter(if was_denied { allowed / 2 } else { allowed })?;
        let ended = before.wrapping_sub(beside);
        // If it returns early from here on, the drop of `passed` lowers the counts again.
        let late = self.late.load(Ordering::Relaxed);
        let returns = [&self.returns, &self.in_line].map(|it| it.0.load(Ordering::Relaxed));
        let returns_came = self.returns_came.load(Ordering::Relaxed);
        let returns_ended = returns_came.wrapping_sub(returns.iter().sum());
        let (gate, parts) = (self.clone(), SmallVec::new());
        let mut passed = Counts { gate, before, ended, came_us, late, returns_ended, parts };
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

    /// Counts a call that admits nothing, and waits for a place until the result is dropped.
    pub(crate) fn stand_in_line(&self) -> InLine<'_> {
        self.in_line.0.fetch_add(1, Ordering::Relaxed);
        self.returns_came.fetch_add(1, Ordering::Relaxed);
        InLine(self)
    }

    /// Lets a call in that admits nothing; `None` if too many are under way.
    pub(crate) fn pass_return(self: &Arc<Gate>) -> Option<PassedReturn> {
        let now_us = self.now_us();
        let narrowed_us = self.returns_narrowed_us.load(Ordering::Relaxed);
        let has_line = self.in_line.0.load(Ordering::Relaxed) > 1;
        if now_us >= narrowed_us + RETURNS_WHOLE_AFTER_US && !has_line {
            self.returns_allowed.store(self.most / 2, Ordering::Relaxed);
        }
        let allowed = self.returns_allowed.load(Ordering::Relaxed);
        self.returns.enter(allowed.min(self.allowed_at(now_us) / 2))?;
        Some(PassedReturn(self.clone()))
    }

    /// Waits, until the result is dropped, for a store that had answered a call late: at its fewest calls, the gate lets none in
    /// before the store has come to those that it has. Else many nodes, each at its fewest, could ask more than a store can ever
    /// answer in time.
    pub(crate) fn wait_for_answers(&self) -> Waiting<'_> {
        self.waits.store(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Returns the number of calls that may be under way.
    fn allowed_at(&self, now_us: u64) -> usize {
        let allowed = self.allowed.load(Ordering::Relaxed);
        if allowed <= FEWEST && self.waits.load(Ordering::Relaxed) == 1 {
            return 0;
        }
        let whole_at_us = self.narrowed_us.load(Ordering::Relaxed) + WHOLE_AFTER_US;
        if now_us < whole_at_us {
            return allowed;
        }
        if allowed < self.most {
            self.allowed.store(self.most, Ordering::Relaxed);
        }
        self.most
    }

    fn now_us(&self) -> u64 {
        self.made.elapsed().as_micros() as u64
    }

    /// Notes that the server did not answer a call in time.
    pub(crate) fn note_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    fn note_answer(&self) {
        self.answered_us.store(self.now_us(), Ordering::Relaxed);
    }

    /// Notes that a call has its answer in time.
    fn widen(&self) {
        self.note_answer();
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
            let is_answering = self.answered_us.load(Ordering::Relaxed) >= call.came_us;
            let allowed = if is_answering { allowed * 3 / 4 } else { FEWEST };
            self.narrowed_us.store(self.now_us(), Ordering::Relaxed);
            self.allowed.store(allowed.max(FEWEST), Ordering::Relaxed);
        }
    }

    /// Notes that a call had no answer in time because of returns.
    fn narrow_returns(&self, call: &Counts) {
        // Spends that were under way together with it say the same, and count as one.
        if call.came_us >= self.returns_narrowed_us.load(Ordering::Relaxed) {
            let under_way = self.returns.0.load(Ordering::Relaxed);
            let allowed = self.returns_allowed.load(Ordering::Relaxed).min(under_way);
            self.returns_narrowed_us.store(self.now_us(), Ordering::Relaxed);
            self.returns_answered.store(0, Ordering::Relaxed);
            self.returns_allowed.store((allowed / 2).max(FEWEST), Ordering::Relaxed);
        }
    }

    /// Notes that a call that admits nothing has its answer in time.
    fn widen_returns(&self) {
        self.note_answer();
        let allowed = self.returns_allowed.load(Ordering::Relaxed);
        let answers = self.returns_answered.fetch_add(1, Ordering::Relaxed) + 1;
        if allowed < self.most / 2 && answers >= ROUNDS * allowed {
            self.returns_answered.store(0, Ordering::Relaxed);
            self.returns_allowed.store(allowed + 1, Ordering::Relaxed);
        }
    }
}

/// The time in which a gate at its fewest calls lets none in.
pub(crate) struct Waiting<'g>(&'g Gate);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Waiting(gate) = self;
        // No call was late meanwhile, but none was let in: this time does not count towards `WHOLE_AFTER_US`.
        gate.narrowed_us.store(gate.now_us(), Ordering::Relaxed);
        gate.waits.store(0, Ordering::Relaxed);
    }
}

/// A call that waits for a place.
pub(crate) struct InLine<'g>(&'g Gate);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.in_line.leave();
    }
}

/// A call that admits nothing, under way until this is dropped.
pub(crate) struct PassedReturn(Arc<Gate>);

impl PassedReturn {
    /// Notes that the call has its answer in time. One without an answer narrows nothing: only spends are short of time.
    pub(crate) fn note_answer(&self) {
        self.0.widen_returns();
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
        // A batch over several servers may be late because of one of them.
        let is_known = self.counts.iter().any(Counts::met_late_ones);
        let of_late = self.counts.iter().filter(|call| !is_known || call.met_late_ones());
        // Else the node was late itself, or the time was over between two servers.
        let narrows = is_known || self.counts.len() == 1;
        let crowds = of_late.filter(|call| is_late && call.is_late_by_others());
        let narrow = |call: &Counts| match call.calls_meanwhile() > CROWD {
            true if narrows => call.gate.narrow(call),
            false if narrows => call.gate.narrow_returns(call),
            _ => {}
        };
        Err(if crowds.map(narrow).count() > 0 { error.in_a_crowd() } else { error })
    }
}

impl Counts {
    /// Whether others are the reason that the call had no answer in time.
    fn is_late_by_others(&self) -> bool {
        self.calls_meanwhile() > CROWD || self.is_behind_returns()
    }

    /// Returns the calls that were there at any time of this one, itself among them: under way, or not let in. The first call of a
    /// crowd begins alone, and the last to end ends alone, and they may be the same.
    fn calls_meanwhile(&self) -> usize {
        self.gate.came.load(Ordering::Relaxed).wrapping_sub(self.ended)
    }

    /// Whether the call is of a crowd together with the returns of its time, and the server has answered lately: without answers, a
    /// few returns stay for long.
    fn is_behind_returns(&self) -> bool {
        let Gate { answered_us, returns_came, .. } = &*self.gate;
        let returns = returns_came.load(Ordering::Relaxed).wrapping_sub(self.returns_ended);
        let silent_us = self.gate.now_us().saturating_sub(answered_us.load(Ordering::Relaxed));
        silent_us < LATELY_US && self.calls_meanwhile() + returns > CROWD
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
mod tests;
