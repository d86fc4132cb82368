//! Custom rules through which a test acts in the middle of a call: it stops the call, panics, or makes other
//! calls first.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::{Decision, Limit};

/// A call of a [`hooked`] rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleCall {
    Spend {
        now_ns: u64,
        cost: u64,
    },
    Refund,
    /// A reload asks for the name, among others.
    Name,
}

/// Decides like `limit`, and calls `hook` before each spend, each refund, and when it is asked for its name.
pub(crate) fn hooked(limit: Limit, hook: impl Fn(RuleCall) + Send + Sync + 'static) -> Limit {
    Limit::custom(Arc::new(Hooked { limit, hook: Box::new(hook) })).unwrap()
}

struct Hooked {
    limit: Limit,
    hook: Box<dyn Fn(RuleCall) + Send + Sync>,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Algorithm for Hooked {
    fn spend(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        (self.hook)(RuleCall::Spend { now_ns, cost });
        self.limit.spend(word, now_ns, cost)
    }

    fn refund(&self, word: u64, now_ns: u64, cost: u64) -> Outcome {
        (self.hook)(RuleCall::Refund);
        self.limit.refund(word, now_ns, cost)
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        self.limit.is_full(word, now_ns)
    }

    fn full(&self, now_ns: u64) -> u64 {
        self.limit.full(now_ns)
    }

    fn max_cost(&self) -> u64 {
        self.limit.max_cost()
    }

    fn name(&self) -> &'static str {
        (self.hook)(RuleCall::Name);
        "hooked"
    }

    fn unit_ns(&self) -> u64 {
        self.limit.unit_ns()
    }
}

/// Makes a rule whose first refund stands still until the returned value is dropped.
pub(crate) fn stands_in_refund() -> (Limit, StoppedThread) {
    let (point, stopped) = stop_point();
    let has_stopped = AtomicBool::new(false);
    let rule = hooked(super::hourly(10), move |call| {
        if call == RuleCall::Refund && !has_stopped.swap(true, Ordering::Relaxed) {
            point.stop();
        }
    });
    (rule, stopped)
}

/// Allows a spend if `is_allowed` returns true. A bucket is full again after 1 ns.
pub(crate) fn scripted(is_allowed: impl Fn() -> bool + Send + Sync + 'static) -> Limit {
    Limit::custom(Arc::new(Scripted(Box::new(is_allowed)))).unwrap()
}

struct Scripted(Box<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Algorithm for Scripted {
    fn spend(&self, _: u64, now_ns: u64, _: u64) -> Outcome {
        let is_allowed = (self.0)();
        let wait = Duration::from_nanos(u64::from(!is_allowed));
        let decision = Decision::for_spend(is_allowed, 1, wait, wait);
        Outcome { word: is_allowed.then_some(now_ns + 1), decision }
    }

    fn refund(&self, _: u64, _: u64, _: u64) -> Outcome {
        Outcome { word: None, decision: Decision::for_refund(false, 1, Duration::ZERO) }
    }

    fn is_full(&self, word: u64, now_ns: u64) -> bool {
        word <= now_ns
    }

    fn full(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn max_cost(&self) -> u64 {
        1
    }
}

/// A place in a hook where a thread stops, and the test's end of it.
pub(crate) fn stop_point() -> (StopPoint, StoppedThread) {
    let ((reach, reached), (release, released)) = (channel(), channel());
    (StopPoint { reach, released: Mutex::new(released) }, StoppedThread { reached, release })
}

pub(crate) struct StopPoint {
    reach: Sender<()>,
    released: Mutex<Receiver<()>>,
}

impl StopPoint {
    /// Stops the calling thread until the test drops its [`StoppedThread`].
    pub(crate) fn stop(&self) {
        // Either call fails once the other end is dropped, which releases the thread.
        let _ = self.reach.send(());
        let _ = self.released.lock().unwrap().recv();
    }
}

/// Releases the stopped thread when it is dropped.
pub(crate) struct StoppedThread {
    reached: Receiver<()>,
    #[expect(dead_code, reason = "it is dropped with this")]
    release: Sender<()>,
}

impl StoppedThread {
    /// Waits until a thread has stopped.
    pub(crate) fn wait(&self) {
        self.reached.recv().unwrap();
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.reached.try_recv().is_ok()
    }
}
