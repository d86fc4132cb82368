//! What was given back of charges from beneath others', and places that wait for it.
//!
//! A word does not say who is behind a charge. Who takes a charge back reckons by the word: so it has to
//! know by how much others have lowered it, too, between its own charge and now. Buckets share a few
//! sums; what was lowered elsewhere only makes a caller give back less.

use ahash::RandomState;

use crate::algorithm::Charge;
use crate::key::{Key, KeyRef, LimitIndex};
use crate::probe::{Fault, broken};
use crate::store::{Fingerprint, StoreKey};
use crate::sync::{AtomicU64, Locked, Ordering};

/// The sums of a limiter.
pub(crate) struct Lowered {
    slots: Box<[Slot]>,
    hasher: RandomState,
}

/// A power of two. Two buckets of which charges are being settled share one in 256 of all cases.
const SLOTS: usize = if cfg!(tollgate_loom) { 1 } else { 256 };

/// Of some of the buckets.
pub(crate) struct Slot {
    /// By how much words were lowered from beneath others' charges, since ever: in ns, or units.
    sum: AtomicU64,
    /// Places that were given up while others were behind them. Held while a place is given up, so that
    /// of two that are, each sees the other's.
    vacated: Locked<Vec<Vacated>>,
}

/// A place that was given up, and is not given back as long as others stand on it.
pub(crate) struct Vacated {
    pub(crate) key: Key,
    pub(crate) charge: Charge,
    /// As it was before the charge: see [`Slot::sum`].
    pub(crate) lowered: u64,
    /// The number of the limits that the words are under.
    pub(crate) generation: u64,
    /// When it would have been granted: from then on nothing is given back.
    pub(crate) granted_at_ns: u64,
}

/// So many are kept in a slot; more stay taken until their time has come.
const MOST_VACATED: usize = 1024;

impl Lowered {
    pub(crate) fn new() -> Lowered {
        let slot = || Slot { sum: AtomicU64::new(0), vacated: Locked::new(Vec::new()) };
        Lowered { slots: (0..SLOTS).map(|_| slot()).collect(), hasher: RandomState::new() }
    }

    /// The one of a key's own bucket.
    pub(crate) fn of(&self, key: &StoreKey<'_>) -> &Slot {
        if key.print == Fingerprint::NONE {
            self.at_hash(key.key)
        } else {
            self.at(key.print.bits())
        }
    }

    /// The one of the bucket that the newcomers of a limit share.
    pub(crate) fn of_shared(&self, limit: LimitIndex) -> &Slot {
        self.at_hash(KeyRef { limit, id: &[] })
    }

    fn at_hash(&self, key: KeyRef<'_>) -> &Slot {
        self.at(self.hasher.hash_one(key))
    }

    fn at(&self, bits: u64) -> &Slot {
        &self.slots[bits as usize % SLOTS]
    }
}

impl Slot {
    pub(crate) fn sum(&self) -> u64 {
        // Relaxed: read before a charge. An earlier sum than that which the charge's swap comes after
        // only makes more of what was lowered since.
        self.sum.load(Ordering::Relaxed)
    }

    /// By how much words were lowered since the sum was so much, at most.
    pub(crate) fn since(&self, sum: u64) -> u64 {
        // Relaxed: asked after the word was read, with Acquire, and so after the sums of all that has
        // lowered it: each was added before the Release of its swap.
        self.sum.load(Ordering::Relaxed).wrapping_sub(sum)
    }

    /// Before a word is lowered by so much: called once for each attempt, so that who has charged before
    /// the word was read counts it, and whoever comes in between makes the attempt fail.
    pub(crate) fn add(&self, by: u64) {
        if broken(Fault::LoweringNotCounted) {
            return;
        }
        // Relaxed: published by the word's swap.
        self.sum.fetch_add(by, Ordering::Relaxed);
    }

    /// Calls `then` with the places that were given up, while nobody else gives one up; those whose time
    /// has come are gone.
    pub(crate) fn with_vacated<R>(
        &self,
        now_ns: u64,
        then: impl FnOnce(&mut Vec<Vacated>) -> R,
    ) -> R {
        self.vacated.with(|vacated| {
            vacated.retain(|place| place.granted_at_ns >= now_ns);
            let result = then(vacated);
            vacated.truncate(MOST_VACATED);
            result
        })
    }
}
