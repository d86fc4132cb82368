//! Lists the streams that wait, so that one of them takes the place that another stream leaves.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::task::Waker;

use crate::limiter::handle::KeyedLimit;
use crate::store::key::KeyRef;
use crate::util::lock::Mutex;

/// A bucket, of whichever throttle: a hash of its limiter and its key. If two buckets have the same one, a wake may go to a
/// stream of the other bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bucket(u64);

impl Bucket {
    pub(super) fn new(limit: &KeyedLimit, key: KeyRef<'_>) -> Bucket {
        let mut hasher = DefaultHasher::new();
        (Arc::as_ptr(&limit.limiter.inner) as usize, key).hash(&mut hasher);
        Bucket(hasher.finish())
    }

    fn list(self) -> &'static Mutex<List> {
        &LISTS[self.0 as usize % LISTS.len()]
    }

    /// Wakes the stream of the bucket whose place is the latest. It moves to the place that was left, and leaves none itself,
    /// because no charge is behind its own.
    pub(super) fn wake_last(self) {
        let waker = {
            let mut list = self.list().lock();
            let first = Turn { bucket: self, granted_at_ns: 0, number: 0 };
            let last = Turn { bucket: self, granted_at_ns: u64::MAX, number: u64::MAX };
            let turn = list.waiting.range(first..=last).next_back().map(|(&turn, _)| turn);
            turn.and_then(|turn| list.waiting.remove(&turn))
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The position of a stream that waits. Those of one bucket are in the order of their places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    bucket: Bucket,
    granted_at_ns: u64,
    number: u64,
}

struct List {
    waiting: BTreeMap<Turn, Waker>,
    last_number: u64,
}

/// A bucket's streams are in one list. A call locks it only if a stream waits or leaves a place.
static LISTS: [Mutex<List>; 64] =
    [const { Mutex::new(List { waiting: BTreeMap::new(), last_number: 0 }) }; 64];

/// The position of one stream, if it waits. Dropping the entry removes the stream from the list.
#[derive(Default)]
pub(super) struct Entry(Option<Turn>);

impl Entry {
    /// Enters the stream, or the waker of its last poll.
    pub(super) fn enter(&mut self, bucket: Bucket, granted_at_ns: u64, waker: &Waker) {
        let mut list = bucket.list().lock();
        let turn = *self.0.get_or_insert_with(|| {
            list.last_number += 1;
            Turn { bucket, granted_at_ns, number: list.last_number }
        });
        let replaced = match list.waiting.get_mut(&turn) {
            Some(before) if before.will_wake(waker) => return,
            _ => list.waiting.insert(turn, waker.clone()),
        };
        // A custom waker may do anything when it is dropped.
        drop(list);
        drop(replaced);
    }

    /// Removes the stream from the list. Returns whether it was woken for a place that was left.
    pub(super) fn leave(&mut self) -> bool {
        let Some(turn) = self.0.take() else { return false };
        let removed = turn.bucket.list().lock().waiting.remove(&turn);
        removed.is_none()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}
