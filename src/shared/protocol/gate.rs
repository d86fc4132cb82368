//! Bounds the calls to the store that a node has under way.
//!
//! A node can be called more often than it can ask its store, or than the store can answer. Then its callers would wait for each
//! other, and the last ones longer than the store's timeout. So a call begins only while few enough are under way; another one is
//! denied at once. One id may have at most half of them under way, so that a flood of its calls leaves room for other ids. A
//! call of an id that was denied within the last second begins only while less than half of them are under way, and less than a
//! quarter for its id, so that a flood of many such ids leaves room as well.
//!
//! How many a node can ask in time depends on its processors, its server and the network. So the number falls when calls have
//! no answer in time: to three quarters of those that had one meanwhile. It grows again with those that have, and is whole
//! when none was late for half a second: callers that come together, and seldom, would widen it slowly. If none had an answer, the
//! server stands still, and half of the number is back when it answers again: callers that come together were denied for as long
//! as the server stood still now and then. A few late calls narrow no whole gate: their number is not why they are late.
//!
//! A late call is denied for overload: it says nothing about the store, which may only be slower than its callers. After one, the
//! link asks the store a question, again and again. If neither it nor a call is answered in time for two seconds, the link pauses,
//! and the policy of each limit decides.
//!
//! Calls that admit nothing are called returns here. They wait for a place, and have longer for their answers. They have places
//! beside those of other calls. The number of their places halves when an answer to one of them takes longer than a spend may, or
//! a spend beside them is late. It grows slowly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};
use tokio::sync::{Mutex, Notify};
use tokio::time::{self, timeout, timeout_at};

use crate::shared::protocol::hash_of_key;
use crate::store::hash::{HashKeys, new_keys};
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
/// The share of a part: one in this number; for a call of an id that was denied lately, half as much.
const SHARE: usize = 2;
/// The calls of a part that may always be under way.
const FEWEST_OF_PART: usize = 2;
/// The calls that may be under way at once and make none late.
const CROWD: usize = 8;
/// The rounds of answers to returns after which one more may be under way.
const ROUNDS: usize = 2;
/// The time since the number of returns has fallen after which as many returns as possible may be under way, if none waits for a place.
const RETURNS_WHOLE_AFTER_US: u64 = 2_000_000;

/// The time between two attempts of a return to get a place.
const ATTEMPT: Duration = Duration::from_millis(1);

/// The calls to a server that are under way.
pub(crate) struct Gate {
    hash_keys: HashKeys,
    most: usize,
    /// The time in which a call has its answer.
    in_time_us: u64,
    /// The calls that may be under way now.
    allowed: FigureUsize,
    /// How many may be when the server answers again; 0 unless it stands still.
    allowed_after_stall: FigureUsize,
    /// When a call was last late, in us since the gate was made.
    late_us: Figure,
    made: Instant,
    /// The answers in time.
    answers: FigureUsize,
    under_way: Calls,
    /// The returns under way. They have longer for their answers, so they are not counted with the calls above.
    returns: Calls,
    /// How many of them may be under way now, at most half as many as other calls.
    returns_allowed: FigureUsize,
    /// When that number fell last, and their answers in time since it has changed.
    returns_narrowed_us: Figure,
    returns_answered: FigureUsize,
    /// Those that wait for a place.
    in_line: Calls,
    /// Is held by the first of them: the others stand in line behind it.
    line: Mutex<()>,
    /// Tells the first one that a place may be free.
    freed: Notify,
    /// The calls of each part of the ids.
    parts: Box<[Calls]>,
}

/// A number of calls that are under way.
#[derive(Default)]
struct Calls(FigureUsize);

/// A call that is under way until this is dropped, in the gate of each server that it asks.
pub(crate) type Passed = SmallVec<[Counts; 1]>;

/// A call that is under way in one gate.
pub(crate) struct Counts {
    gate: Arc<Gate>,
    /// The part of each of the call's buckets.
    parts: SmallVec<[u8; 8]>,
}

impl Calls {
    /// Lets a call in; `None` if there are too many.
    fn enter(&self, most: usize) -> Option<()> {
        // Relaxed, here and below: the counts guard no other memory.
        if self.0.fetch_add(1, Ordering::Relaxed) >= most {
            self.leave();
            return None;
        }
        Some(())
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
            hash_keys: new_keys(),
            most,
            in_time_us: answer_timeout.as_micros() as u64,
            allowed: FigureUsize::new(most),
            allowed_after_stall: FigureUsize::new(0),
            late_us: Figure::new(0),
            made: Instant::now(),
            answers: FigureUsize::new(0),
            under_way: Calls::default(),
            returns: Calls::default(),
            returns_allowed: FigureUsize::new(most / 2),
            returns_narrowed_us: Figure::new(0),
            returns_answered: FigureUsize::new(0),
            in_line: Calls::default(),
            line: Mutex::default(),
            freed: Notify::new(),
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
        let allowed = self.allowed_at(self.now_us());
        let allowed = if was_denied { allowed / 2 } else { allowed };
        self.under_way.enter(allowed)?;
        // If it returns early from here on, the drop of `passed` lowers the counts again.
        let mut passed = Counts { gate: self.clone(), parts: SmallVec::new() };
        for key in keys {
            let part = (hash_of_key(&self.hash_keys, key) >> 56) as u8;
            // Two buckets of a batch in one part have one place.
            if !passed.parts.contains(&part) {
                self.parts[usize::from(part)].enter((allowed / SHARE).max(FEWEST_OF_PART))?;
                passed.parts.push(part);
            }
        }
        Some(smallvec![passed])
    }

    /// Waits for a place of a call that admits nothing; `None` if there was none in time. `is_open`: whether calls may begin.
    pub(crate) async fn place(
        self: &Arc<Gate>,
        until: time::Instant,
        is_open: impl Fn() -> bool,
    ) -> Option<PassedReturn> {
        let _in_line = self.stand_in_line();
        let _first = timeout_at(until, self.line.lock()).await.ok()?;
        loop {
            if is_open()
                && let Some(passed) = self.pass_return()
            {
                return Some(passed);
            }
            if time::Instant::now() >= until {
                return None;
            }
            // The gate widens without a word.
            let _ = timeout(ATTEMPT, self.freed.notified()).await;
        }
    }

    /// Counts a call that admits nothing, and waits for a place until the result is dropped.
    fn stand_in_line(&self) -> InLine<'_> {
        self.in_line.0.fetch_add(1, Ordering::Relaxed);
        InLine(self)
    }

    /// Lets a call in that admits nothing; `None` if too many are under way.
    fn pass_return(self: &Arc<Gate>) -> Option<PassedReturn> {
        let now_us = self.now_us();
        let whole_at_us = self.returns_narrowed_us.load(Ordering::Relaxed) + RETURNS_WHOLE_AFTER_US;
        let has_line = self.in_line.0.load(Ordering::Relaxed) > 1;
        if now_us >= whole_at_us && !has_line {
            self.returns_allowed.store(self.most / 2, Ordering::Relaxed);
        }
        let allowed = self.returns_allowed.load(Ordering::Relaxed);
        self.returns.enter(allowed.min(self.allowed_at(now_us) / 2))?;
        Some(PassedReturn { gate: self.clone(), began_us: now_us })
    }

    /// Returns the number of calls that may be under way.
    fn allowed_at(&self, now_us: u64) -> usize {
        let allowed = self.allowed.load(Ordering::Relaxed);
        let whole_at_us = self.late_us.load(Ordering::Relaxed) + WHOLE_AFTER_US;
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

    /// Notes that so many calls have their answers.
    pub(crate) fn note_answers(&self, answers: usize) {
        let before = self.answers.fetch_add(answers, Ordering::Relaxed);
        // Of those, the ones whose number is a multiple of `ANSWERS`, from 0.
        let more = (before + answers).div_ceil(ANSWERS) - before.div_ceil(ANSWERS);
        let allowed = self.allowed.load(Ordering::Relaxed);
        if more > 0 && allowed < self.most {
            self.allowed.fetch_add(more.min(self.most - allowed), Ordering::Relaxed);
        }
    }

    /// Returns the number of answers that came in time.
    pub(crate) fn answers(&self) -> usize {
        self.answers.load(Ordering::Relaxed)
    }

    /// Notes that the server has come to the calls that were late. While it had not, none was late because none began.
    pub(crate) fn note_caught_up(&self) {
        self.late_us.store(self.now_us(), Ordering::Relaxed);
        let after_stall = self.allowed_after_stall.load(Ordering::Relaxed);
        self.allowed_after_stall.store(0, Ordering::Relaxed);
        self.allowed.fetch_max(after_stall, Ordering::Relaxed);
    }

    /// Notes that a call that began then, no return, had no answer in time. Those under way with it say the same, and count as one.
    /// `answered`: the answers that came in its time, which is how many the server can give in time; `None` if the call was not
    /// sent, because this node has too many.
    pub(crate) fn note_late(&self, began: Instant, answered: Option<usize>) {
        let began_us = began.saturating_duration_since(self.made).as_micros() as u64;
        if began_us < self.late_us.load(Ordering::Relaxed) {
            return;
        }
        self.late_us.store(self.now_us(), Ordering::Relaxed);
        let under_way = self.under_way.0.load(Ordering::Relaxed);
        let allowed = self.allowed.load(Ordering::Relaxed);
        if under_way > CROWD || allowed < self.most {
            if answered == Some(0) {
                self.allowed_after_stall.fetch_max(allowed / 2, Ordering::Relaxed);
            }
            let fewer = allowed.min(answered.unwrap_or(under_way)) * 3 / 4;
            self.allowed.store(fewer.max(FEWEST), Ordering::Relaxed);
        }
        if answered != Some(0) {
            self.narrow_returns(began_us);
        }
    }

    /// Notes that a call that began then had no answer in time beside returns, or is one.
    fn narrow_returns(&self, began_us: u64) {
        let under_way = self.returns.0.load(Ordering::Relaxed);
        if under_way > CROWD && began_us >= self.returns_narrowed_us.load(Ordering::Relaxed) {
            let allowed = self.returns_allowed.load(Ordering::Relaxed).min(under_way);
            self.returns_narrowed_us.store(self.now_us(), Ordering::Relaxed);
            self.returns_answered.store(0, Ordering::Relaxed);
            self.returns_allowed.store((allowed / 2).max(FEWEST), Ordering::Relaxed);
        }
    }

    /// Notes that a call that admits nothing has its answer as soon as a spend.
    fn widen_returns(&self) {
        let allowed = self.returns_allowed.load(Ordering::Relaxed);
        let answers = self.returns_answered.fetch_add(1, Ordering::Relaxed) + 1;
        if allowed < self.most / 2 && answers >= ROUNDS * allowed {
            self.returns_answered.store(0, Ordering::Relaxed);
            self.returns_allowed.store(allowed + 1, Ordering::Relaxed);
        }
    }
}

/// A call that waits for a place.
struct InLine<'g>(&'g Gate);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.in_line.leave();
    }
}

/// A call that admits nothing, under way until this is dropped.
pub(crate) struct PassedReturn {
    gate: Arc<Gate>,
    /// When it was let in, in us since the gate was made.
    began_us: u64,
}

impl PassedReturn {
    /// Notes that the call has its answer.
    pub(crate) fn note_answer(&self) {
        let PassedReturn { gate, began_us } = self;
        match gate.now_us() - began_us > gate.in_time_us {
            true => gate.narrow_returns(*began_us),
            false => gate.widen_returns(),
        }
    }
}

impl Drop for PassedReturn {
    fn drop(&mut self) {
        self.gate.returns.leave();
        self.gate.freed.notify_one();
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
