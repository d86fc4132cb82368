//! Counts the users of a thing, and closes the count when there are none.

use crate::util::sync::{FigureUsize, Ordering};

/// The number of users of a thing. A closed count has none and takes none.
///
/// All changes are of one atomic, so that each meets the count open or closed. That is why it is one that loom does not
/// explore: models would take many steps more.
#[derive(Debug)]
pub(crate) struct UserCount(FigureUsize);

impl UserCount {
    const CLOSED: usize = 1 << (usize::BITS - 1);

    /// Makes an open count of no users.
    pub(crate) const fn new() -> UserCount {
        UserCount(FigureUsize::new(0))
    }

    /// Counts one more user. Returns false, and counts none, if the count is closed.
    pub(crate) fn add(&self) -> bool {
        // Acquire: pairs with `reopen`. Relaxed: a load decides nothing. Repeats only if another thread has changed the
        // count.
        let added = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, |count| {
            (count != Self::CLOSED).then_some(count + 1)
        });
        added.is_ok()
    }

    /// Counts one more user. The caller is a user, so that the count is open.
    pub(crate) fn add_beside(&self) {
        // Relaxed: publishes nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether there are users.
    pub(crate) fn is_used(&self) -> bool {
        // Relaxed: only a first look; `close` decides.
        !matches!(self.0.load(Ordering::Relaxed), 0 | Self::CLOSED)
    }

    /// Counts one user less.
    pub(crate) fn remove(&self) {
        // Release: pairs with `close`, which then comes after all that the user did.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Closes the count if there are no users. Returns whether this call has closed it.
    pub(crate) fn close(&self) -> bool {
        // Acquire: pairs with `remove`. Relaxed: a failure decides nothing about the users' work.
        self.0.compare_exchange(0, Self::CLOSED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Opens a count that this thread has closed.
    pub(crate) fn reopen(&self) {
        // Release: pairs with `add`, which then comes after all that was done while the count was closed.
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::util::sync::Switch;

    #[test]
    fn a_count_closes_only_without_users() {
        let count = UserCount::new();
        assert!(count.add());
        count.add_beside();
        count.remove();
        assert!(!count.close());
        count.remove();
        assert!(count.close());
        assert!(!count.close() && !count.add());
        count.reopen();
        assert!(count.add());
    }

    /// A thread that is a user never finds the count closed by another.
    #[test]
    fn no_user_beside_a_closed_count() {
        let (count, closed, stop) = (UserCount::new(), Switch::new(false), Switch::new(false));
        let is_used = Switch::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        if count.add() {
                            is_used.store(true, Ordering::Relaxed);
                            assert!(!closed.load(Ordering::Acquire), "a user while closed");
                            count.remove();
                        }
                    }
                });
            }
            let (mut rounds, began) = (0, Instant::now());
            // A busy machine may start the users late.
            let is_late =
                || !is_used.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(60);
            while rounds < crate::full_size::full_size(500, 20_000) || is_late() {
                rounds += 1;
                if count.close() {
                    closed.store(true, Ordering::Release);
                    thread::yield_now();
                    closed.store(false, Ordering::Release);
                    count.reopen();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(is_used.load(Ordering::Relaxed));
    }
}
