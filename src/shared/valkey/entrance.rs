//! Lets calls to one server in: spends at once or not at all, returns in turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout, timeout_at};

use crate::limits::StoreOptions;
use crate::shared::protocol::gate::{Gate, PassedReturn};

/// The longest time for which a call that admits nothing waits for a place in the gate.
pub(super) const PLACE_WITHIN: Duration = Duration::from_secs(5);
/// The time between two attempts to get one.
const ATTEMPT: Duration = Duration::from_millis(1);

pub(super) struct Entrance {
    pub(super) gate: Arc<Gate>,
    /// Is held by the first call that waits for a place in the gate: the others stand in line behind it.
    line: Mutex<()>,
    /// Tells the first call that a place may be free.
    freed: Arc<Notify>,
}

impl Entrance {
    pub(super) fn new(options: &StoreOptions) -> Entrance {
        let gate = Arc::new(Gate::new(options.answers_within()));
        Entrance { gate, line: Mutex::default(), freed: Arc::default() }
    }

    /// Waits for a place in the gate; `None` if there was none in time. `is_open`: whether calls may begin.
    pub(super) async fn place(
        &self,
        until: Instant,
        is_open: impl Fn() -> bool,
    ) -> Option<PlaceOfReturn> {
        let _in_line = self.gate.stand_in_line();
        let _first = timeout_at(until, self.line.lock()).await.ok()?;
        loop {
            if is_open()
                && let Some(passed) = self.gate.pass_return()
            {
                return Some(PlaceOfReturn { passed: Some(passed), freed: self.freed.clone() });
            }
            if Instant::now() >= until {
                return None;
            }
            // The gate widens without a word.
            let _ = timeout(ATTEMPT, self.freed.notified()).await;
        }
    }
}

/// The place of a call that admits nothing.
pub(super) struct PlaceOfReturn {
    passed: Option<PassedReturn>,
    freed: Arc<Notify>,
}

impl PlaceOfReturn {
    /// Notes that the call has its answer in time.
    pub(super) fn note_answer(&self) {
        self.passed.iter().for_each(PassedReturn::note_answer);
    }
}

impl Drop for PlaceOfReturn {
    fn drop(&mut self) {
        self.passed = None;
        self.freed.notify_one();
    }
}
