//! Lists the callers that sleep until a bucket has room: streams that wait for places, and batches that wait for permits. A
//! caller that leaves room wakes one of them.
//!
//! Each waiting caller also has a timer. So a wake in vain, or a missing wake, costs only time, and no bound depends on wakes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::task::Waker;

use crate::core::state::LimiterState;
use crate::store::key::KeyRef;
use crate::util::lock::Mutex;
use crate::util::sync::{FigureUsize, Ordering};

/// A bucket of any limiter: a hash of the limiter and the key. If two buckets have the same hash, a wake may go to a
/// caller of the other bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bucket(u64);

impl Bucket {
    pub(crate) fn new(limiter: &LimiterState, key: KeyRef<'_>) -> Bucket {
        let mut hasher = DefaultHasher::new();
        (std::ptr::from_ref(limiter) as usize, key).hash(&mut hasher);
        Bucket(hasher.finish())
    }

    fn list(self) -> &'static Mutex<List> {
        &LISTS[self.0 as usize % LISTS.len()]
    }

    /// Wakes the stream whose place is the last in the bucket. The stream moves to the place that another caller has left. Its old
    /// place does not become vacant, because no charge is behind that place.
    #[cfg_attr(not(feature = "io"), allow(dead_code, reason = "only streams move to places"))]
    pub(crate) fn wake_last(self) {
        self.wake(|turns| turns.next_back());
    }

    /// Wakes the caller that has waited longest.
    pub(crate) fn wake_first(self) {
        self.wake(|turns| turns.next());
    }

    fn wake(self, choose: impl FnOnce(&mut dyn DoubleEndedIterator<Item = Turn>) -> Option<Turn>) {
        if !is_any() {
            return;
        }
        let waker = {
            let mut list = self.list().lock();
            let sleeps = |(&turn, waker): (&Turn, &Option<Waker>)| waker.is_some().then_some(turn);
            let turn = choose(&mut list.range(self.turns()).filter_map(sleeps));
            turn.and_then(|turn| list.get_mut(&turn)?.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn turns(self) -> RangeInclusive<Turn> {
        let first = Turn { bucket: self, since_ns: 0, number: 0 };
        let last = Turn { bucket: self, since_ns: u64::MAX, number: u64::MAX };
        first..=last
    }

    /// Whether a caller was woken and has not acted yet.
    pub(crate) fn has_woken(self) -> bool {
        is_any() && self.list().lock().range(self.turns()).any(|(_, waker)| waker.is_none())
    }
}

/// The position of a caller that waits. Those of one bucket are in the order of their times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    bucket: Bucket,
    /// For a stream the time of its place, for a batch the time at which its wait began.
    since_ns: u64,
    number: u64,
}

/// The callers, with their wakers while they sleep. A caller that was woken stays until it enters again or leaves.
type List = BTreeMap<Turn, Option<Waker>>;

/// A bucket's callers are in one list. A call locks it only if any caller waits.
static LISTS: [Mutex<List>; 64] = [const { Mutex::new(BTreeMap::new()) }; 64];

/// The number of all callers in the lists, and the number that the next one gets.
static WAITING: FigureUsize = FigureUsize::new(0);
static NEXT: FigureUsize = FigureUsize::new(0);

/// Whether any caller waits, for any bucket.
#[inline]
pub(crate) fn is_any() -> bool {
    // Relaxed: a caller that enters now looks at its bucket afterwards; if it misses the change, its timer wakes it.
    WAITING.load(Ordering::Relaxed) > 0
}

/// The position of one caller, if it waits. Dropping the entry removes the caller from the list.
#[derive(Default)]
pub(crate) struct Entry(Option<Turn>);

impl Entry {
    /// Enters the caller, or the waker of its last poll.
    pub(crate) fn enter(&mut self, bucket: Bucket, since_ns: u64, waker: &Waker) {
        let turn = *self.0.get_or_insert_with(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed) as u64;
            Turn { bucket, since_ns, number }
        });
        // A custom waker may do anything when it is cloned or dropped, so neither is done under the lock.
        let new = waker.clone();
        let mut list = turn.bucket.list().lock();
        let replaced = list.insert(turn, Some(new));
        if replaced.is_none() {
            WAITING.fetch_add(1, Ordering::Relaxed);
        }
        drop(list);
    }

    /// Whether the caller was woken, and has not entered again.
    pub(crate) fn is_woken(&self) -> bool {
        self.0.is_some_and(|turn| matches!(turn.bucket.list().lock().get(&turn), Some(None)))
    }

    /// Removes the caller from the list. Returns whether it was woken for room that another caller has left.
    pub(crate) fn leave(&mut self) -> bool {
        let Some(turn) = self.0.take() else { return false };
        let mut list = turn.bucket.list().lock();
        let removed = list.remove(&turn);
        WAITING.fetch_sub(1, Ordering::Relaxed);
        // A custom waker may do anything when it is dropped.
        drop(list);
        matches!(removed, Some(None))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}
