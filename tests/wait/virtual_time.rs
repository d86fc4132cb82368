//! An executor and timers on a manual clock, which count every poll.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::clock::ManualClock;
use tollgate::reserve::Timer;

/// The time, and the tasks that sleep.
#[derive(Clone)]
pub(crate) struct World(Rc<RefCell<Inner>>);

struct Inner {
    hand: ManualClock,
    /// Nanoseconds since the clock's origin.
    now_ns: u64,
    sleepers: BTreeMap<(u64, u64), Waker>,
    sleeps: u64,
}

impl World {
    pub(crate) fn new(hand: ManualClock) -> World {
        let inner = Inner { hand, now_ns: 0, sleepers: BTreeMap::new(), sleeps: 0 };
        World(Rc::new(RefCell::new(inner)))
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.0.borrow().now_ns
    }

    /// Moves the clock without waking a task.
    pub(crate) fn advance(&self, by: Duration) {
        let mut inner = self.0.borrow_mut();
        inner.now_ns += by.as_nanos() as u64;
        inner.hand.set(Duration::from_nanos(inner.now_ns));
    }

    /// Moves the clock, and wakes the tasks whose times have come.
    pub(crate) fn advance_and_wake(&self, by: Duration) {
        self.advance(by);
        let now_ns = self.now_ns();
        while self.0.borrow().sleepers.first_key_value().is_some_and(|(key, _)| key.0 <= now_ns) {
            let _ = self.wake_next();
        }
    }

    /// Moves the clock to the next sleeper's time and wakes it. Returns `None` if no task sleeps.
    fn wake_next(&self) -> Option<()> {
        let mut inner = self.0.borrow_mut();
        let ((at_ns, _), waker) = inner.sleepers.pop_first()?;
        inner.now_ns = inner.now_ns.max(at_ns);
        inner.hand.set(Duration::from_nanos(inner.now_ns));
        drop(inner);
        waker.wake();
        Some(())
    }

    /// Returns a future that is ready once `time` has passed.
    pub(crate) fn sleep_for(&self, time: Duration) -> Sleep {
        let until_ns = self.now_ns() + time.as_nanos() as u64;
        Sleep { world: self.clone(), until_ns, slept: None }
    }

    /// The number of times that a task went to sleep.
    pub(crate) fn sleeps(&self) -> u64 {
        self.0.borrow().sleeps
    }
}

impl Timer for World {
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        self.sleep_for(time)
    }
}

pub(crate) struct Sleep {
    world: World,
    until_ns: u64,
    slept: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.world.now_ns() >= self.until_ns {
            return Poll::Ready(());
        }
        let mut inner = self.world.0.borrow_mut();
        inner.sleeps += 1;
        let number = inner.sleeps;
        inner.sleepers.insert((self.until_ns, number), context.waker().clone());
        drop(inner);
        self.slept = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.slept {
            self.world.0.borrow_mut().sleepers.remove(&(self.until_ns, number));
        }
    }
}

/// A future and the number of its polls.
pub(crate) struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: Arc<Woken>,
    pub(crate) polls: u32,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'a, T> Task<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + 'a) -> Task<'a, T> {
        Task { future: Box::pin(future), woken: Arc::new(Woken(AtomicBool::new(true))), polls: 0 }
    }

    /// Polls the future if it was woken or never polled.
    pub(crate) fn poll(&mut self) -> Poll<T> {
        if !self.woken.0.swap(false, Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.polls += 1;
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// Runs all tasks to their ends. Returns for each, in the order of the ends, its index, the time, its
/// number of polls and its output.
pub(crate) fn run<T>(world: &World, tasks: Vec<Task<'_, T>>) -> Vec<(usize, u64, u32, T)> {
    let mut waiting: Vec<_> = tasks.into_iter().enumerate().collect();
    let mut done = Vec::new();
    loop {
        waiting.retain_mut(|(number, task)| match task.poll() {
            Poll::Ready(said) => {
                done.push((*number, world.now_ns(), task.polls, said));
                false
            }
            Poll::Pending => true,
        });
        if waiting.is_empty() {
            return done;
        }
        world.wake_next().expect("no task sleeps, and some are not done");
    }
}
