//! Gives the rollbacks of a bucket their turns, so that at most one thread at a time rolls charges of a bucket back.
//!
//! No thread waits for its turn. A thread that finds another one at it leaves its rollback in a stack, and returns. A
//! thread that has ended its turn makes the rollbacks that were left, and then looks at the stack once more. So no
//! rollback stays in the stack. docs/internals/rollback.md says why rollbacks take turns ("Turns").

use std::time::{Duration, Instant};

use ahash::RandomState;

use crate::store::Stack;
use crate::store::key::KeyRef;
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicUsize, Ordering, TryLock, fence};

/// The turns of all buckets. `L` is a rollback that was left to another thread; `S` is what rollbacks of one slot share.
pub(crate) struct Turns<L: Send, S> {
    slots: Box<[Slot<L, S>]>,
    hasher: RandomState,
}

/// A power of two.
const SLOTS: usize = if cfg!(tollgate_loom) { 1 } else { 256 };

/// The turns of some of the buckets.
pub(crate) struct Slot<L: Send, S> {
    /// Rollbacks that are not made yet.
    left: Stack<L>,
    /// The number of rollbacks in `left`, at most [`MAX_LEFT`].
    left_count: AtomicUsize,
    shared: TryLock<S>,
}

/// The largest number of rollbacks that a slot's threads leave to others: about 2 MB. A thread that has lost its
/// processor for some milliseconds in its turn finds thousands of them, if all other threads settle charges of one key.
const MAX_LEFT: usize = 8192;

/// How long a thread yields the processor while a slot has [`MAX_LEFT`] rollbacks. After that its rollback is not made,
/// and the charge stays: the thread whose turn it is has been suspended for long.
const PATIENCE: Duration = Duration::from_millis(10);

impl<L: Send, S: Default> Turns<L, S> {
    pub(crate) fn new() -> Turns<L, S> {
        let slot = || Slot {
            left: Stack::new(),
            left_count: AtomicUsize::new(0),
            shared: TryLock::default(),
        };
        Turns { slots: (0..SLOTS).map(|_| slot()).collect(), hasher: RandomState::new() }
    }

    /// Returns the slot of a bucket. A shared bucket has the empty id.
    pub(crate) fn slot(&self, bucket: KeyRef<'_>) -> &Slot<L, S> {
        &self.slots[self.hasher.hash_one(bucket) as usize % SLOTS]
    }
}

impl<L: Send, S> Slot<L, S> {
    /// Calls `roll_back` if no other thread is at its turn. Then makes the rollbacks that others have left meanwhile,
    /// with `make`, also if `roll_back` panics. `make` must not panic.
    pub(crate) fn take<R>(
        &self,
        make: impl Fn(L, &mut S),
        roll_back: impl FnOnce(&mut S) -> R,
    ) -> Option<R> {
        let _after_turn = MadeOnDrop { slot: self, make };
        self.shared.try_with(roll_back)
    }

    /// Leaves a rollback to the thread that is at its turn, or makes it if there is none.
    pub(crate) fn leave(&self, rollback: L, make: impl Fn(L, &mut S)) {
        // Relaxed: it only bounds the memory.
        let is_full = || {
            let is_full = self.left_count.fetch_add(1, Ordering::Relaxed) >= MAX_LEFT;
            if is_full {
                self.left_count.fetch_sub(1, Ordering::Relaxed);
            }
            is_full
        };
        // Repeats while other threads leave rollbacks faster than one makes them, or while that thread is not running.
        let mut began = None;
        while is_full() {
            if began.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return;
            }
            std::thread::yield_now();
            self.make_left(&make);
        }
        self.left.push(rollback);
        self.make_left(make);
    }

    /// Makes the rollbacks that were left, unless another thread is at its turn.
    fn make_left(&self, make: impl Fn(L, &mut S)) {
        // Repeats only if another thread has pushed while this thread had the lock.
        loop {
            // SeqCst: the push, or the release of the lock, comes before the look that follows. So a thread that finds
            // the lock taken has pushed before the thread that has it looks again.
            fence(Ordering::SeqCst);
            if self.left.is_empty() {
                return;
            }
            let is_made = self.shared.try_with(|shared| {
                let taken = self.left.take_all();
                // Relaxed: as in `leave`.
                self.left_count.fetch_sub(taken.len(), Ordering::Relaxed);
                taken.into_iter().for_each(|rollback| make(rollback, shared));
            });
            if is_made.is_none() {
                coverage::hit(Race::RollbackLeft);
                return;
            }
            if fault::active(Fault::LeftNotLookedForAgain) {
                return;
            }
        }
    }
}

/// Makes the rollbacks that were left when it is dropped.
struct MadeOnDrop<'a, L: Send, S, M: Fn(L, &mut S)> {
    slot: &'a Slot<L, S>,
    make: M,
}

impl<L: Send, S, M: Fn(L, &mut S)> Drop for MadeOnDrop<'_, L, S, M> {
    fn drop(&mut self) {
        self.slot.make_left(&self.make);
    }
}
