//! Runs a function again and again on a named thread, until the handle drops.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::util::lock::{Mutex, MutexGuard};

/// The handle of the thread. Dropping it wakes the thread and joins it.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// The requests to the thread, and the condition variable that wakes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<(Mutex<Requests>, Condvar)>);

#[derive(Debug, Default)]
struct Requests {
    /// The thread shall end.
    stop: bool,
    /// The next tick shall come before the interval is over.
    tick: bool,
}

impl Stop {
    /// Returns whether the handle was dropped. A long tick asks this between its steps.
    pub(crate) fn requested(&self) -> bool {
        self.0.0.lock().stop
    }

    fn request(&self) {
        self.0.0.lock().stop = true;
        self.0.1.notify_all();
    }

    /// Starts the next tick at once, or right after the tick that is running.
    #[cfg(feature = "watch")]
    pub(crate) fn hasten(&self) {
        self.0.0.lock().tick = true;
        self.0.1.notify_all();
    }

    /// Sleeps for `interval` within a tick, or until the handle drops. Returns whether the handle was dropped.
    #[cfg(feature = "watch")]
    pub(crate) fn rest(&self, interval: Duration) -> bool {
        self.wait(interval, |requests| !requests.stop).stop
    }

    /// Sleeps for `interval`, or until the handle drops or [`hasten`](Self::hasten) is called. Returns whether the
    /// handle was dropped.
    fn sleep(&self, interval: Duration) -> bool {
        let mut requests = self.wait(interval, |requests| !requests.stop && !requests.tick);
        requests.tick = false;
        requests.stop
    }

    /// Waits for `interval` at most, while the requests are as `while_so` says.
    fn wait(
        &self,
        interval: Duration,
        while_so: impl Fn(&Requests) -> bool,
    ) -> MutexGuard<'_, Requests> {
        let held = self.0.0.lock();
        let waited = self.0.1.wait_timeout_while(held, interval, |requests| while_so(requests));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Ticker {
    /// Starts the thread. It calls `tick` at once, then again `interval` after each return, or sooner after
    /// [`Stop::hasten`]. It ends when `tick` returns `Break` or the handle drops.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        mut tick: impl FnMut(&Stop) -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<Ticker> {
        let stop = Stop::default();
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || while tick(&stopped).is_continue() && !stopped.sleep(interval) {})?;
        Ok(Ticker { stop, thread: Some(thread) })
    }

    /// See [`Stop::hasten`].
    #[cfg(feature = "watch")]
    pub(crate) fn hasten(&self) {
        self.stop.hasten();
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take()
            // The thread itself may drop the last owner of this handle. It cannot join itself.
            && thread.thread().id() != thread::current().id()
        {
            // An error here means that a tick panicked, which ended the thread. The drop does not panic.
            let _ = thread.join();
        }
    }
}
