//! Lets calls to one server in: spends at once or not at all, returns in turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

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
}

impl Entrance {
    pub(super) fn new(options: &StoreOptions) -> Entrance {
        let gate = Arc::new(Gate::new(options.answers_within()));
        Entrance { gate, line: Mutex::default() }
    }

    /// Waits for a place in the gate; `None` if there was none in time.
    pub(super) async fn place(&self, until: Instant) -> Option<PassedReturn> {
        let _in_line = self.gate.stand_in_line();
        let _first = timeout_at(until, self.line.lock()).await.ok()?;
        loop {
            if let Some(passed) = self.gate.pass_return() {
                return Some(passed);
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(ATTEMPT).await;
        }
    }
}
