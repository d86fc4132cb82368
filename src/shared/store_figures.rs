//! Counts the calls to a store of shared limits, their errors, and the steps of the store's clock.

use std::time::{Duration, Instant};

use crate::error::Error;
use crate::observe::store_counters::{ClockSteps, StoreErrors};
use crate::util::lock::Mutex;
use crate::util::sync::{Figure, FigureUsize, Ordering};

/// The difference between two answers' clocks from which it counts as a step, in ns.
const STEP_NS: i128 = 100_000_000;
/// Clocks may run at speeds that differ by one part in this number.
const SPEED_PARTS: i128 = 1_000;

/// Why the store has not decided a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFault {
    Timeout,
    NoConnection,
    Paused,
    Refused,
    UnknownText,
    Overload,
}

/// The figures of a store, for all limiters of the process that use it.
#[derive(Debug)]
pub(crate) struct StoreFigures {
    calls: Figure,
    /// By [`StoreFault`].
    errors: [Figure; 6],
    /// Answers that cannot be used: their faults are of two kinds, which have other errors as well.
    unusable: Figure,
    scripts_sent: Figure,
    paused: FigureUsize,
    last_error: Mutex<Option<String>>,
    began: Instant,
    clock: Mutex<ClockWatch>,
}

impl Default for StoreFigures {
    fn default() -> StoreFigures {
        StoreFigures {
            calls: Figure::default(),
            errors: Default::default(),
            unusable: Figure::default(),
            scripts_sent: Figure::default(),
            paused: FigureUsize::new(0),
            last_error: Mutex::default(),
            began: Instant::now(),
            clock: Mutex::default(),
        }
    }
}

// Relaxed, here and below: figures for operators.
impl StoreFigures {
    pub(crate) fn count_calls(&self, calls: usize) {
        self.calls.fetch_add(calls as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_error(&self, fault: StoreFault) {
        self.errors[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer that cannot be used, and logs some of them.
    #[cold]
    pub(crate) fn count_unusable(&self, fault: StoreFault, error: &Error) {
        self.count_error(fault);
        self.note_error(error);
        let count = self.unusable.fetch_add(1, Ordering::Relaxed) + 1;
        #[cfg(feature = "tracing")]
        crate::shared::events::unusable_answer(error, count);
        #[cfg(not(feature = "tracing"))]
        let _ = (error, count);
    }

    /// Keeps the text of the last error: of a call, or of a connection.
    #[cold]
    pub(crate) fn note_error(&self, error: &Error) {
        *self.last_error.lock() = Some(error.to_string());
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// Counts a script whose text was sent, because the server did not know it.
    pub(crate) fn count_script_sent(&self) {
        self.scripts_sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a server is not asked for a time.
    pub(crate) fn begin_pause(&self) {
        self.paused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_pause(&self) {
        self.paused.fetch_sub(1, Ordering::Relaxed);
    }

    /// Compares the store's time in an answer with the monotonic clock of this node. `sent`: before the call was sent.
    pub(crate) fn note_time(&self, sent: Instant, unix_ns: u64) {
        let since_ns = |at: Instant| at.saturating_duration_since(self.began).as_nanos() as i128;
        self.clock.lock().note(since_ns(sent), since_ns(Instant::now()), unix_ns.into());
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn errors(&self) -> StoreErrors {
        let count = |fault: StoreFault| self.errors[fault as usize].load(Ordering::Relaxed);
        StoreErrors {
            timeout: count(StoreFault::Timeout),
            no_connection: count(StoreFault::NoConnection),
            paused: count(StoreFault::Paused),
            refused: count(StoreFault::Refused),
            unknown_text: count(StoreFault::UnknownText),
            overload: count(StoreFault::Overload),
        }
    }

    pub(crate) fn scripts_sent(&self) -> u64 {
        self.scripts_sent.load(Ordering::Relaxed)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed) > 0
    }

    /// Returns the steps ahead and those back.
    pub(crate) fn clock_steps(&self) -> (ClockSteps, ClockSteps) {
        let clock = self.clock.lock();
        (clock.ahead, clock.back)
    }
}

/// Finds steps of the store's clock.
#[derive(Debug, Default)]
struct ClockWatch {
    last: Option<Offset>,
    ahead: ClockSteps,
    back: ClockSteps,
}

/// The least and the most by which the store's clock can be ahead of the node's, by one answer, in ns: the store read its
/// clock after the call was sent and before the answer came.
#[derive(Clone, Copy, Debug)]
struct Offset {
    min_ns: i128,
    max_ns: i128,
    at_ns: i128,
}

impl ClockWatch {
    fn note(&mut self, sent_ns: i128, answered_ns: i128, unix_ns: i128) {
        let new =
            Offset { min_ns: unix_ns - answered_ns, max_ns: unix_ns - sent_ns, at_ns: answered_ns };
        let Some(last) = self.last.replace(new) else { return };
        let drift_ns = (new.at_ns - last.at_ns).abs() / SPEED_PARTS;
        for (steps, by_ns) in [
            (&mut self.ahead, new.min_ns - last.max_ns),
            (&mut self.back, last.min_ns - new.max_ns),
        ] {
            if by_ns > STEP_NS + drift_ns {
                steps.count += 1;
                steps.last = Duration::from_nanos(u64::try_from(by_ns).unwrap_or(u64::MAX));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i128 = 1_000_000;

    fn steps(answers: &[(i128, i128, i128)]) -> ((u64, u128), (u64, u128)) {
        let mut clock = ClockWatch::default();
        for (sent_ms, answered_ms, unix_ms) in answers {
            clock.note(sent_ms * MS, answered_ms * MS, unix_ms * MS);
        }
        let figures = |steps: ClockSteps| (steps.count, steps.last.as_millis());
        (figures(clock.ahead), figures(clock.back))
    }

    #[test]
    fn late_answers_are_no_steps() {
        let none = (0, 0);
        assert_eq!(steps(&[(0, 2, 9_001), (10, 12, 9_011)]), (none, none));
        assert_eq!(steps(&[(0, 900, 9_000), (10, 12, 9_011)]), (none, none), "slow to come back");
        assert_eq!(steps(&[(0, 900, 9_900), (10, 12, 9_011)]), (none, none), "slow to arrive");
        assert_eq!(steps(&[(10, 12, 9_011), (0, 900, 9_900)]), (none, none), "in another order");
        assert_eq!(steps(&[(0, 0, 9_000), (1, 1, 9_101)]), (none, none), "too small");
        let hour = 3_600_000;
        assert_eq!(steps(&[(0, 0, 9_000), (hour, hour, 12_600)]).0, none);
        assert_eq!(steps(&[(0, 0, 9_000), (hour, hour, 9_000 + hour + 3_600)]), (none, none));
    }

    #[test]
    fn steps_are_counted_with_their_size() {
        assert_eq!(steps(&[(0, 0, 9_000), (1, 1, 9_102)]), ((1, 101), (0, 0)));
        assert_eq!(steps(&[(0, 2, 9_001), (10, 12, 69_011)]).0, (1, 59_998));
        let there_and_back = [(0, 0, 9_000), (1, 1, 69_001), (2, 2, 9_002), (3, 3, 9_003)];
        assert_eq!(steps(&there_and_back), ((1, 60_000), (1, 60_000)));
    }
}
