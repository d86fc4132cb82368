//! Places that are given up.
//!
//! A place goes back whole if no other stands on it, and then those that were given up before it and that
//! it stood on. So of two cancels of one bucket each has to see the other. A cancel pushes its place to a
//! list, and then looks through the list if no other thread does. A thread that looks through the list looks again
//! once it has let it go: no cancel waits, and none is left in the list.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ahash::RandomState;

use crate::algorithm::Charge;
use crate::core::ledger::Noted;
use crate::core::state::SharedState;
use crate::core::view::{ChargedTo, LimitsView, Spent};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::key::{Key, KeyRef, LimitTag};
use crate::store::{Outdated, Stack, StoreKey};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicUsize, Ordering, Tried, fence};

/// A place that is given up.
pub(crate) struct Cancel {
    /// The key that has the place, and which numbers applied to it.
    pub(crate) key: Key,
    pub(crate) tag: LimitTag,
    /// The number of the limits that the words are under.
    pub(crate) generation: u64,
    pub(crate) charge: Charge,
    pub(crate) to: ChargedTo,
    pub(crate) noted: Noted,
    /// When it would have been granted: from then on nothing is given back.
    pub(crate) granted_at_ns: u64,
}

/// The places that are given up of a limiter.
pub(crate) struct Cancels {
    slots: Box<[Slot]>,
    hasher: RandomState,
}

/// A power of two.
const SLOTS: usize = if cfg!(tollgate_loom) { 1 } else { 256 };

/// Of some of the buckets.
struct Slot {
    pending: Stack<Cancel>,
    /// The number of places in `pending`, at most [`MOST`].
    pending_count: AtomicUsize,
    /// Places that others stood on when they were given up. The thread that has it looks through `pending`.
    vacated: Tried<Vec<Cancel>>,
}

/// So many are kept in each list of a slot; more stay taken until their time has come.
const MOST: usize = 1024;

impl Cancels {
    pub(crate) fn new() -> Cancels {
        let slot = || Slot {
            pending: Stack::new(),
            pending_count: AtomicUsize::new(0),
            vacated: Tried::default(),
        };
        Cancels { slots: (0..SLOTS).map(|_| slot()).collect(), hasher: RandomState::new() }
    }

    fn slot(&self, bucket: KeyRef<'_>) -> &Slot {
        &self.slots[self.hasher.hash_one(bucket) as usize % SLOTS]
    }
}

impl Slot {
    /// Returns whether there was room.
    fn push(&self, cancel: Cancel) -> bool {
        // Relaxed: a bound on the memory, by which nothing else is decided.
        if self.pending_count.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.pending_count.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.pending.push(cancel);
        true
    }

    fn take_all(&self) -> Vec<Cancel> {
        let taken = self.pending.take_all();
        // Relaxed: as in `push`.
        self.pending_count.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    /// Gives back the places that were pushed, unless another thread has the list.
    fn process(&self, inner: &SharedState) {
        // Each time around another thread has pushed while this one had the list.
        loop {
            // SeqCst: the push, or the list let go, comes before the look that follows it. A thread that
            // finds the list taken has pushed before the one that has it looks again.
            fence(Ordering::SeqCst);
            if self.pending.is_empty() {
                return;
            }
            let is_processed = self.vacated.try_with(|vacated| {
                for cancel in self.take_all() {
                    cancel.give_back(inner, vacated);
                }
                vacated.truncate(MOST);
            });
            if is_processed.is_none() {
                coverage::hit(Race::CancelLeftToAnother);
                return;
            }
            if fault::active(Fault::CancelsNotLookedForAgain) {
                return;
            }
        }
    }
}

/// Whether other charges are behind one.
enum Behind {
    /// No: the charge was undone, and left this word.
    Nothing(u64),
    /// Yes: other charges came after it.
    Others,
    /// The word does not tell: it was lowered since the charge.
    Unknown,
}

impl Cancel {
    /// Gives the place up, by this thread or by one that is about another of its slot.
    pub(crate) fn give_up(self, inner: &SharedState) {
        let slot = inner.cancels.slot(self.bucket());
        if fault::active(Fault::VacateUnlocked) {
            // Decided with no place that was given up before, and noted later.
            let mut own = Vec::new();
            self.give_back(inner, &mut own);
            let _ = slot.vacated.try_with(|vacated| vacated.append(&mut own));
            return;
        }
        if slot.push(self) {
            slot.process(inner);
        }
    }

    /// The key whose word was charged.
    fn bucket(&self) -> KeyRef<'_> {
        let key = self.key.as_ref();
        match self.to {
            ChargedTo::Shared => KeyRef { limit: key.limit, id: &[] },
            ChargedTo::OwnCell | ChargedTo::Nothing => key,
        }
    }

    /// The charge as a call's own.
    fn spent(&self) -> Spent {
        let (charge, to, noted) = (Some(self.charge), self.to, self.noted);
        Spent { decision: Decision::UNLIMITED, charge, to, noted, is_part: false }
    }

    /// Gives the place back, or notes it as one that others stand on. The calling thread may have come with
    /// another limit's place: it does not see a panic of this limit's rule. The place stays taken then.
    fn give_back(self, inner: &SharedState, vacated: &mut Vec<Cancel>) {
        let is_vacated = catch_unwind(AssertUnwindSafe(|| {
            // Its limit is gone, or is another.
            self.with_bucket(inner, |view, key, limit, now_ns| {
                vacated.retain(|place| place.granted_at_ns >= now_ns);
                self.give_back_now(view, key, limit, vacated)
            })
        }));
        match is_vacated {
            Ok(Some(true)) => vacated.push(self),
            Ok(Some(false) | None) => {}
            Err(_) => inner.sweeps.count_rule_panic(),
        }
    }

    /// Calls `then` with the bucket if its word is in the units of the charge still, and the place's time has
    /// not come.
    fn with_bucket<R>(
        &self,
        inner: &SharedState,
        mut then: impl FnMut(LimitsView<'_>, &StoreKey<'_>, &Limit, u64) -> Result<R, Outdated>,
    ) -> Option<R> {
        inner.with_view(|view| {
            let key = self.key.as_ref();
            let entry = view.generation.limits.entry(key.limit);
            let numbers = entry.limit_for(key.id, view.limits_now_ns());
            let Some((limit, tag)) = numbers else { return Ok(None) };
            let now_ns = view.inner.clock.now_after_loads_ns();
            let is_same = view.generation.number == self.generation && tag == self.tag;
            if !is_same || self.granted_at_ns < now_ns {
                return Ok(None);
            }
            then(view, &view.store_key(key, tag), limit, now_ns).map(Some)
        })
    }

    /// Returns whether others stand on the place.
    fn give_back_now(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        vacated: &mut Vec<Cancel>,
    ) -> Result<bool, Outdated> {
        match self.undo(view, key, limit)? {
            Behind::Nothing(mut word) => {
                // The place that it stood on is the last now. If that was given up before, it goes back.
                while let Some(at) = vacated.iter().position(|place| {
                    place.charge.after == word
                        && place.generation == self.generation
                        && place.bucket() == self.bucket()
                }) {
                    match vacated.swap_remove(at).undo(view, key, limit)? {
                        Behind::Nothing(left) => word = left,
                        Behind::Others | Behind::Unknown => break,
                    }
                    coverage::hit(Race::VacatedLater);
                }
            }
            Behind::Others => {
                coverage::hit(Race::VacatedBeneath);
                return Ok(true);
            }
            Behind::Unknown => view.roll_back(key, limit, &self.spent())?,
        }
        Ok(false)
    }

    /// Takes the charge back if nothing is behind it.
    fn undo(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
    ) -> Result<Behind, Outdated> {
        let (spent, mut behind) = (self.spent(), Behind::Others);
        let entry = view.entry(key, &spent);
        view.change_charged(key, &spent, |word| {
            // After the word was read: what has lowered it counts.
            let lowered = entry.lowered_since(self.noted);
            let charge = Charge { lowered, ..self.charge };
            if entry.is_refunded_since(self.noted) || !charge.is_last(word) {
                let is_known = lowered == 0 && !entry.is_refunded_since(self.noted);
                behind = if is_known { Behind::Others } else { Behind::Unknown };
                return None;
            }
            let left = limit.rule().roll_back(word, charge, || charge.now_ns);
            behind = left.map_or(Behind::Others, Behind::Nothing);
            left
        })?;
        Ok(behind)
    }
}
