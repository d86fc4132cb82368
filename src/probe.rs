//! What the loom models switch and count in the real code. Outside of them all of it is nothing.
//!
//! A model is worth what it reaches: each counts the races it names, and has a twin, the same code with
//! one rule broken, that must fail.

/// A rule that a twin breaks.
#[cfg_attr(not(tollgate_loom), allow(dead_code, reason = "some are of what stands for a table"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A word is stored, not swapped.
    StoreForSwap,
    /// A decision on a fresh cell is made at the caller's time, however old.
    NoFloor,
    /// A sweep decides before it holds the lock.
    SweepBeforeLock,
    /// An insert does not look again once it holds the lock.
    InsertBlindly,
    /// A batch charges its members in the order in which they were given.
    CallersOrder,
    /// A denied batch leaves its charges.
    NoTakeBack,
    /// A denied batch gives its charges back as a refund would.
    RefundForTakeBack,
    /// Taking back pairs with nothing: the word is read and swapped without ordering.
    TakeBackRelaxed,
}

/// A place that a race has to reach.
#[cfg_attr(not(tollgate_loom), allow(dead_code, reason = "some are of what stands for a table"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// A swap that met another's word.
    SwapLost,
    /// A decision that the floor made later than the caller's clock.
    FloorUsed,
    /// An insert that found the key, once it held the lock.
    InsertLost,
    /// A charge taken back.
    TakenBack,
    /// A charge taken back from beneath another's.
    TakenBackBeneath,
}

#[cfg(not(all(test, tollgate_loom)))]
mod off {
    use super::{Fault, Place};

    #[inline(always)]
    pub(crate) fn broken(_: Fault) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn reached(_: Place) {}
}
#[cfg(not(all(test, tollgate_loom)))]
pub(crate) use off::{broken, reached};

#[cfg(all(test, tollgate_loom))]
mod on {
    use std::cell::{Cell, RefCell};
    use std::collections::HashMap;

    use super::{Fault, Place};

    // One test is one thread of the system's: loom runs its own threads on it in turns.
    thread_local! {
        static BROKEN: Cell<Option<Fault>> = const { Cell::new(None) };
        static REACHED: RefCell<HashMap<Place, u64>> = RefCell::default();
    }

    pub(crate) fn broken(fault: Fault) -> bool {
        BROKEN.get() == Some(fault)
    }

    pub(crate) fn reached(place: Place) {
        REACHED.with_borrow_mut(|reached| *reached.entry(place).or_default() += 1);
    }

    /// Breaks a rule in this test.
    pub(crate) fn break_rule(fault: Option<Fault>) {
        BROKEN.set(fault);
    }

    /// How often a place was reached in this test.
    pub(crate) fn count(place: Place) -> u64 {
        REACHED.with_borrow(|reached| reached.get(&place).copied().unwrap_or(0))
    }
}
#[cfg(all(test, tollgate_loom))]
pub(crate) use on::{break_rule, broken, count, reached};
