//! Counters that threads do not share: each has a stripe of its own, as far as there are stripes.

use std::cell::Cell;

use parking_lot::Mutex;

use crate::decision::Decision;
use crate::util::sync::{Figure, Ordering};

/// As many as there are bits for in [`TAKEN`]. The first is for all threads that find no other.
const STRIPES: usize = 32;
const SHARED: usize = 0;

/// The counters of one limit, in stripes.
#[derive(Default)]
pub(crate) struct Stripes([Stripe; STRIPES]);

/// What the threads of one stripe have counted, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    allowed: Figure,
    denied: Figure,
    near: Figure,
    cost: Figure,
}

/// What all threads have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) near: u64,
    pub(crate) cost: u64,
}

impl Stripes {
    /// Counts an allowed call, after which its bucket is as `decision` says.
    #[inline(always)]
    pub(crate) fn count_allowed(&self, decision: &Decision, burst: u64, cost: u64) {
        let is_near = decision.is_near(burst);
        let slot = own_slot();
        let stripe = &self.0[slot];
        if slot == SHARED {
            return stripe.add_shared([1, 0, u64::from(is_near), cost]);
        }
        // Nobody else writes these: a load and a store cost a tenth of what the locked instruction does.
        // Whose stripe it was before has written under `TAKEN`'s lock last.
        add(&stripe.allowed, 1);
        add(&stripe.cost, cost);
        if is_near {
            add(&stripe.near, 1);
        }
    }

    #[inline]
    pub(crate) fn count_denied(&self) {
        let slot = own_slot();
        let stripe = &self.0[slot];
        if slot == SHARED {
            return stripe.add_shared([0, 1, 0, 0]);
        }
        add(&stripe.denied, 1);
    }

    /// What there is now; of counts that go on meanwhile some may be in it, and some not.
    pub(crate) fn sum(&self) -> Counted {
        // Relaxed: figures for people.
        let read = |figure: &Figure| figure.load(Ordering::Relaxed);
        self.0.iter().fold(Counted::default(), |sum, stripe| Counted {
            allowed: sum.allowed.wrapping_add(read(&stripe.allowed)),
            denied: sum.denied.wrapping_add(read(&stripe.denied)),
            near: sum.near.wrapping_add(read(&stripe.near)),
            cost: sum.cost.wrapping_add(read(&stripe.cost)),
        })
    }
}

impl Stripe {
    #[cold]
    fn add_shared(&self, more: [u64; 4]) {
        for (figure, more) in [&self.allowed, &self.denied, &self.near, &self.cost].iter().zip(more)
        {
            // Relaxed: figures for people.
            figure.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// Adds to a figure of this thread's own.
#[inline(always)]
fn add(figure: &Figure, more: u64) {
    // Relaxed: figures for people.
    figure.store(figure.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// Which stripes have a thread, as bits; the shared one counts as taken.
static TAKEN: Mutex<u32> = Mutex::new(1);

thread_local! {
    /// The stripe of this thread; `STRIPES` as long as that is not known. It outlives `OWNED`.
    static SLOT: Cell<usize> = const { Cell::new(STRIPES) };
    static OWNED: OwnedSlot = OwnedSlot::claim();
}

/// A stripe that is this thread's until it ends.
struct OwnedSlot(usize);

impl OwnedSlot {
    fn claim() -> OwnedSlot {
        let mut taken = TAKEN.lock();
        let free = (!*taken).trailing_zeros();
        if free as usize >= STRIPES {
            return OwnedSlot(SHARED);
        }
        *taken |= 1 << free;
        OwnedSlot(free as usize)
    }
}

impl Drop for OwnedSlot {
    fn drop(&mut self) {
        // What this thread still counts while it ends goes to the shared stripe.
        SLOT.set(SHARED);
        if self.0 != SHARED {
            *TAKEN.lock() &= !(1 << self.0);
        }
    }
}

#[inline(always)]
fn own_slot() -> usize {
    let slot = SLOT.get();
    if slot < STRIPES { slot } else { claim_slot() }
}

#[cold]
fn claim_slot() -> usize {
    let slot = OWNED.try_with(|owned| owned.0).unwrap_or(SHARED);
    SLOT.set(slot);
    slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn no_count_is_lost_with_or_without_stripes() {
        const THREADS: usize = 3 * STRIPES;
        const CALLS: u64 = 2_000;
        let stripes = Stripes::default();
        // All at once, so that some find no stripe; and again, so that stripes change hands.
        for _ in 0..2 {
            let together = Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        together.wait();
                        for _ in 0..CALLS {
                            stripes.count_denied();
                            stripes.count_allowed(&Decision::UNLIMITED, 1, 3);
                        }
                        together.wait();
                    });
                }
            });
        }
        let calls = 2 * THREADS as u64 * CALLS;
        let counted = Counted { allowed: calls, denied: calls, near: 0, cost: 3 * calls };
        assert_eq!(stripes.sum(), counted);
        assert!(stripes.0[SHARED].denied.load(Ordering::Relaxed) > 0, "some had no stripe");
        let owned = stripes.0.iter().skip(1).filter(|it| it.denied.load(Ordering::Relaxed) > 0);
        assert!(owned.count() > STRIPES / 2, "most stripes had a thread");
    }
}
