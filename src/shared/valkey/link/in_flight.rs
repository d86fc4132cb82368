//! Bounds the calls that one server has not answered yet, those among them for which nobody waits any more.
//!
//! A server that is slower than its callers comes to a call long after its time is over. Without a bound its nodes could send it
//! seconds of work at once, and it would look like one that answers nothing. So a call waits in the node while as many as a window
//! allows are on their way. One without an answer in time keeps its place until the server has answered a question behind it, and
//! when a few have none, no other call is sent before that answer.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::util::lock::Mutex;
use crate::util::sync::{Ordering, Switch};

/// The window at first, and after late calls.
const WINDOW: usize = 128;
/// The window at most: what a network with a long round trip may have on its way.
const WIDEST: usize = 1_024;
/// The calls without an answer in time after which no other is sent before the server has come to them.
const MOST_LATE: usize = 4;

pub(super) struct InFlight {
    free: Semaphore,
    state: Mutex<State>,
    /// Whether no call is sent before the server has come to those that are late.
    is_behind: Switch,
}

struct State {
    window: usize,
    /// The calls without an answer in time that the server may not have come to yet.
    late: usize,
    /// The free places that were taken because there were too many of them.
    taken: usize,
}

impl InFlight {
    pub(super) fn new() -> InFlight {
        InFlight {
            free: Semaphore::new(WINDOW),
            state: Mutex::new(State { window: WINDOW, late: 0, taken: 0 }),
            is_behind: Switch::new(false),
        }
    }

    /// Waits for a place until a time; `None` if there was none.
    pub(super) async fn place(&self, until: Instant) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.free.try_acquire() {
            return Some(place);
        }
        timeout_at(until, self.free.acquire()).await.ok()?.ok()
    }

    /// Notes that a call was answered in time: the window may be wider if calls wait for a place.
    pub(super) fn note_answer(&self) {
        if self.free.available_permits() == 0 {
            let mut state = self.state.lock();
            if state.late == 0 && state.window < WIDEST {
                state.window += 1;
                self.free.add_permits(1);
            }
        }
    }

    /// Notes that the call at a place had no answer in time.
    pub(super) fn note_late(&self, place: SemaphorePermit<'_>) {
        place.forget();
        let mut state = self.state.lock();
        state.late += 1;
        if state.late >= MOST_LATE {
            state.taken += self.free.forget_permits(usize::MAX);
            self.is_behind.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the server has come to all late calls, or that they are lost with their connection.
    pub(super) fn free_late(&self) {
        let mut state = self.state.lock();
        let (late, taken) = (std::mem::take(&mut state.late), std::mem::take(&mut state.taken));
        let window = state.window.saturating_sub(late).max(WINDOW);
        self.free.add_permits(taken + late - (state.window - window));
        state.window = window;
        self.is_behind.store(false, Ordering::Relaxed);
    }

    /// Whether a new call would wait for the server to come to those that are late.
    pub(super) fn is_behind(&self) -> bool {
        // Relaxed: a call that does not see it waits as well.
        self.is_behind.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn places(calls: &InFlight) -> Vec<SemaphorePermit<'_>> {
        std::iter::from_fn(|| calls.free.try_acquire().ok()).collect()
    }

    /// Late calls keep their places, and narrow a window that has grown.
    #[test]
    fn late_calls_keep_their_places() {
        let calls = InFlight::new();
        let mut all = places(&calls);
        assert_eq!(all.len(), WINDOW);
        (0..10).for_each(|_| calls.note_answer());
        assert_eq!(places(&calls).len(), 1, "one that nobody has taken is enough");
        for _ in 0..10 {
            all.extend(places(&calls));
            calls.note_answer();
        }
        all.extend(places(&calls));
        assert_eq!(all.len(), WINDOW + 11);
        all.drain(..15).for_each(|place| calls.note_late(place));
        calls.note_answer();
        assert!(places(&calls).is_empty());
        calls.free_late();
        drop(all);
        assert_eq!(places(&calls).len(), WINDOW);
        for late in 1..=MOST_LATE {
            calls.note_late(calls.free.try_acquire().unwrap());
            let free = if late < MOST_LATE { WINDOW - late } else { 0 };
            assert_eq!(places(&calls).len(), free);
        }
        calls.free_late();
        assert_eq!(places(&calls).len(), WINDOW);
        calls.free_late();
        assert_eq!(places(&calls).len(), WINDOW);
    }
}
