//! A named thread that does one thing again and again until its handle drops.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Owns the thread: dropping it wakes and joins it.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is asked for, and the bell that wakes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<(Mutex<Asked>, Condvar)>);

#[derive(Debug, Default)]
struct Asked {
    /// To end.
    stop: bool,
    /// To tick before the interval is over.
    tick: bool,
}

impl Stop {
    /// Whether the handle was dropped: a long tick asks between its steps.
    pub(crate) fn requested(&self) -> bool {
        self.0.0.lock().stop
    }

    fn request(&self) {
        self.0.0.lock().stop = true;
        self.0.1.notify_all();
    }

    /// Has the next tick come at once; within a tick, as soon as that is over.
    #[cfg(feature = "watch")]
    pub(crate) fn hasten(&self) {
        self.0.0.lock().tick = true;
        self.0.1.notify_all();
    }

    /// Sleeps for `interval`, within a tick, or until the handle drops; returns whether it did.
    #[cfg(feature = "watch")]
    pub(crate) fn rest(&self, interval: Duration) -> bool {
        let mut asked = self.0.0.lock();
        self.0.1.wait_while_for(&mut asked, |asked| !asked.stop, interval);
        asked.stop
    }

    /// Sleeps for `interval`, or until the handle drops or the next tick is wanted; returns whether the
    /// handle did.
    fn sleep(&self, interval: Duration) -> bool {
        let mut asked = self.0.0.lock();
        self.0.1.wait_while_for(&mut asked, |asked| !asked.stop && !asked.tick, interval);
        asked.tick = false;
        asked.stop
    }
}

impl Ticker {
    /// Calls `tick` at once and then every `interval` after it returned, or sooner where that is asked
    /// for, until it breaks or the handle drops.
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
            // What the thread holds may be the last owner of this handle: it cannot join itself.
            && thread.thread().id() != thread::current().id()
        {
            // A tick that panicked has ended the thread; that is no reason to panic here.
            let _ = thread.join();
        }
    }
}
