//! Counts without contention: each thread owns a stripe of the counters, as long as there are free stripes.

use std::cell::Cell;

use super::shared::{OutcomeCounts, Outcomes};
use crate::decision::Decision;
use crate::util::lock::Mutex;
use crate::util::sync::{Figure, Ordering};

/// The number of bits in [`TAKEN`].
const STRIPES: usize = 32;
/// The stripe of all threads that find no free one.
pub(crate) const SHARED: usize = 0;

/// The counters of one limit, in stripes.
#[derive(Default)]
pub(crate) struct Stripes(pub(crate) [Stripe; STRIPES]);

/// The counters of one stripe, on their own cache line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Stripe {
    allowed: Figure,
    denied: Figure,
    near: Figure,
    cost: Figure,
    pub(crate) by_lease: Outcomes,
}

/// The sum over all stripes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) near: u64,
    pub(crate) cost: u64,
    pub(crate) by_lease: OutcomeCounts,
}

impl Stripes {
    /// Counts an allowed call that got `decision`.
    #[inline(always)]
    pub(crate) fn count_allowed(&self, decision: &Decision, burst: u64, cost: u64) {
        let is_near = decision.is_near(burst);
        let slot = own_slot();
        let stripe = &self.0[slot];
        if slot == SHARED {
            return stripe.add_shared([1, 0, u64::from(is_near), cost]);
        }
        // No other thread writes these: a load and a store cost a tenth of a locked instruction. An earlier owner of
        // the stripe stopped writing before it took `TAKEN`'s lock to release the stripe.
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

    /// Sums the stripes. Counts that other threads add meanwhile may be in the sum or not.
    pub(crate) fn sum(&self) -> Counted {
        // Relaxed: figures for operators.
        let read = |figure: &Figure| figure.load(Ordering::Relaxed);
        self.0.iter().fold(Counted::default(), |sum, stripe| Counted {
            allowed: sum.allowed.wrapping_add(read(&stripe.allowed)),
            denied: sum.denied.wrapping_add(read(&stripe.denied)),
            near: sum.near.wrapping_add(read(&stripe.near)),
            cost: sum.cost.wrapping_add(read(&stripe.cost)),
            by_lease: sum.by_lease.plus(stripe.by_lease.read()),
        })
    }
}

impl Stripe {
    #[cold]
    fn add_shared(&self, more: [u64; 4]) {
        for (figure, more) in [&self.allowed, &self.denied, &self.near, &self.cost].iter().zip(more)
        {
            // Relaxed: figures for operators.
            figure.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// Adds to a figure that only this thread writes.
#[inline(always)]
pub(crate) fn add(figure: &Figure, more: u64) {
    // Relaxed: figures for operators.
    figure.store(figure.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The stripes that a thread owns, as bits. The shared stripe's bit is set.
static TAKEN: Mutex<u32> = Mutex::new(1);

thread_local! {
    /// This thread's stripe; `STRIPES` until the thread has claimed one. It outlives `OWNED`.
    static SLOT: Cell<usize> = const { Cell::new(STRIPES) };
    static OWNED: OwnedSlot = OwnedSlot::claim();
}

/// Owns a stripe until the thread ends.
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
        // Counts by later destructors of this thread go to the shared stripe.
        SLOT.set(SHARED);
        if self.0 != SHARED {
            *TAKEN.lock() &= !(1 << self.0);
        }
    }
}

#[inline(always)]
pub(crate) fn own_slot() -> usize {
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
        // All threads at once, so that some find no stripe; and twice, so that stripes change owners.
        for _ in 0..2 {
            let together = Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        together.wait();
                        for _ in 0..CALLS {
                            stripes.count_denied();
                            #[cfg(feature = "valkey")]
                            stripes.count_by_lease(true);
                            stripes.count_allowed(&Decision::UNLIMITED, 1, 3);
                        }
                        together.wait();
                    });
                }
            });
        }
        let calls = 2 * THREADS as u64 * CALLS;
        let counted = Counted {
            allowed: calls,
            denied: calls,
            cost: 3 * calls,
            #[cfg(feature = "valkey")]
            by_lease: OutcomeCounts(calls, 0),
            ..Counted::default()
        };
        assert_eq!(stripes.sum(), counted);
        assert!(stripes.0[SHARED].denied.load(Ordering::Relaxed) > 0, "some threads had no stripe");
        let owned = stripes.0.iter().skip(1).filter(|it| it.denied.load(Ordering::Relaxed) > 0);
        assert!(owned.count() > STRIPES / 2, "most stripes had a thread");
    }
}
