//! Cancels places: charges that were reserved for a time to come. docs/internals/rollback.md has the rule ("Cancels").
//!
//! A place goes back whole if no other place is behind it. Then the places in front of it that were cancelled earlier
//! go back as well. So of two cancels of one bucket one has to see the other's place. A cancel pushes its place to its
//! slot's stack, and processes the stack if no other thread does. A thread that has processed the stack looks at it
//! once more after it has released the lock. So no cancel waits, and no place stays in the stack.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ahash::RandomState;

use crate::algorithm::Charge;
use crate::core::ledger::LedgerMark;
use crate::core::spent::{ChargedTo, Spent};
use crate::core::state::SharedState;
use crate::core::view::LimitsView;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::key::{Key, KeyRef, LimitTag};
use crate::store::{Outdated, Stack, StoreKey};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicUsize, Ordering, TryLock, fence};

/// A cancelled place.
pub(crate) struct Cancel {
    /// The key that has the place, and the tag of its limit.
    pub(crate) key: Key,
    pub(crate) tag: LimitTag,
    /// The generation of limits in whose units the charge's words are.
    pub(crate) generation: u64,
    pub(crate) charge: Charge,
    pub(crate) to: ChargedTo,
    pub(crate) ledger_mark: LedgerMark,
    /// The time of the place. From then on it counts as used, and does not go back.
    pub(crate) granted_at_ns: u64,
}

/// The cancelled places of a limiter, in slots by their bucket.
pub(crate) struct Cancels {
    slots: Box<[Slot]>,
    hasher: RandomState,
}

/// A power of two.
const SLOTS: usize = if cfg!(tollgate_loom) { 1 } else { 256 };

/// The cancelled places of some of the buckets.
struct Slot {
    /// Places that are not processed yet.
    pending: Stack<Cancel>,
    /// The number of places in `pending`, at most [`MAX_PLACES`].
    pending_count: AtomicUsize,
    /// Places that had another place behind them when they were cancelled. The thread that has the lock processes
    /// `pending`.
    vacated: TryLock<Vec<Cancel>>,
}

/// The largest number of places in each list of a slot. A cancel beyond it has no effect: its place stays taken until
/// its time.
const MAX_PLACES: usize = 1024;

impl Cancels {
    pub(crate) fn new() -> Cancels {
        let slot = || Slot {
            pending: Stack::new(),
            pending_count: AtomicUsize::new(0),
            vacated: TryLock::default(),
        };
        Cancels { slots: (0..SLOTS).map(|_| slot()).collect(), hasher: RandomState::new() }
    }

    fn slot(&self, bucket: KeyRef<'_>) -> &Slot {
        &self.slots[self.hasher.hash_one(bucket) as usize % SLOTS]
    }
}

impl Slot {
    /// Adds a place if there is room, and returns whether there was.
    fn push(&self, cancel: Cancel) -> bool {
        // Relaxed: it only bounds the memory.
        if self.pending_count.fetch_add(1, Ordering::Relaxed) >= MAX_PLACES {
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

    /// Processes the pushed places, unless another thread does.
    fn process(&self, inner: &SharedState) {
        // Repeats only if another thread has pushed while this thread had the lock.
        loop {
            // SeqCst: the push, or the release of the lock, comes before the look that follows. So a thread that finds
            // the lock taken has pushed before the thread that has it looks again.
            fence(Ordering::SeqCst);
            if self.pending.is_empty() {
                return;
            }
            let is_processed = self.vacated.try_with(|vacated| {
                for cancel in self.take_all() {
                    cancel.roll_back(inner, vacated);
                }
                vacated.truncate(MAX_PLACES);
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

/// The outcome of [`Cancel::undo`].
enum Undo {
    /// No charge was behind this one. It was undone, which left this word.
    Done(u64),
    /// Other charges are behind this one.
    ChargesBehind,
    /// The word was lowered since the charge, and does not say whether charges are behind it.
    Unknown,
}

impl Cancel {
    /// Cancels the place, in this thread or in one that processes the same slot.
    pub(crate) fn submit(self, inner: &SharedState) {
        let slot = inner.cancels.slot(self.bucket());
        if fault::active(Fault::VacateUnlocked) {
            // Decides without the places that were cancelled before, and adds its own place later.
            let mut own = Vec::new();
            self.roll_back(inner, &mut own);
            let _ = slot.vacated.try_with(|vacated| vacated.append(&mut own));
            return;
        }
        if slot.push(self) {
            slot.process(inner);
        }
    }

    /// Returns the key of the charged bucket; a shared bucket has the empty id.
    fn bucket(&self) -> KeyRef<'_> {
        let key = self.key.as_ref();
        match self.to {
            ChargedTo::Shared => KeyRef { limit: key.limit, id: &[] },
            ChargedTo::OwnCell | ChargedTo::Nothing => key,
        }
    }

    /// Returns the charge in the form that rollbacks take.
    fn spent(&self) -> Spent {
        let (charge, to, ledger_mark) = (Some(self.charge), self.to, self.ledger_mark);
        Spent { decision: Decision::UNLIMITED, charge, to, ledger_mark, is_part: false }
    }

    /// Rolls the charge back, or adds the place to `vacated` if other charges are behind it.
    ///
    /// The thread may have come with a place of another limit. So a panic of this limit's rule is caught here, and the
    /// place stays taken.
    fn roll_back(self, inner: &SharedState, vacated: &mut Vec<Cancel>) {
        let is_vacated = catch_unwind(AssertUnwindSafe(|| {
            // `None`: the key has no limit any more or another one, or the place's time has come.
            self.with_bucket(inner, |view, key, limit, now_ns| {
                vacated.retain(|place| place.granted_at_ns >= now_ns);
                self.roll_back_in(view, key, limit, vacated)
            })
        }));
        match is_vacated {
            Ok(Some(true)) => vacated.push(self),
            Ok(Some(false) | None) => {}
            Err(_) => inner.sweeps.count_rule_panic(),
        }
    }

    /// Calls `then` with the bucket if its word is still in the units of the charge, and the place's time has not come.
    fn with_bucket<R>(
        &self,
        inner: &SharedState,
        mut then: impl FnMut(LimitsView<'_>, &StoreKey<'_>, &Limit, u64) -> Result<R, Outdated>,
    ) -> Option<R> {
        inner.with_view(|view| {
            let key = self.key.as_ref();
            let entry = view.generation.limits.entry(key.limit);
            let limit = entry.limit_for(key.id, view.limits_now_ns());
            let Some((limit, tag)) = limit else { return Ok(None) };
            let now_ns = view.inner.clock.now_after_loads_ns();
            let is_same = view.generation.number == self.generation && tag == self.tag;
            if !is_same || self.granted_at_ns < now_ns {
                return Ok(None);
            }
            then(view, &view.store_key(key, tag), limit, now_ns).map(Some)
        })
    }

    /// Rolls the charge back, with cancelled places in front of it. Returns whether other charges are behind it, so
    /// that it stays.
    fn roll_back_in(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
        vacated: &mut Vec<Cancel>,
    ) -> Result<bool, Outdated> {
        match self.undo(view, key, limit)? {
            Undo::Done(mut word) => {
                // The place in front of it is the last now. If that was cancelled before, it goes back as well.
                while let Some(at) = vacated.iter().position(|place| {
                    place.charge.after == word
                        && place.generation == self.generation
                        && place.bucket() == self.bucket()
                }) {
                    match vacated.swap_remove(at).undo(view, key, limit)? {
                        Undo::Done(left) => word = left,
                        Undo::ChargesBehind | Undo::Unknown => break,
                    }
                    coverage::hit(Race::VacatedLater);
                }
            }
            Undo::ChargesBehind => {
                coverage::hit(Race::VacatedBeneath);
                return Ok(true);
            }
            Undo::Unknown => view.roll_back(key, limit, &self.spent())?,
        }
        Ok(false)
    }

    /// Undoes the charge if no charge is behind it.
    fn undo(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        limit: &Limit,
    ) -> Result<Undo, Outdated> {
        let (spent, mut undo) = (self.spent(), Undo::ChargesBehind);
        let entry = view.entry(key, &spent);
        view.change_charged(key, &spent, |word| {
            // The entry is read after the word, so that it has every lowering that the word contains.
            let lowered = entry.lowered_since(self.ledger_mark);
            let charge = Charge { lowered, ..self.charge };
            if entry.is_refunded_since(self.ledger_mark) || !charge.is_last(word) {
                let is_known = lowered == 0 && !entry.is_refunded_since(self.ledger_mark);
                undo = if is_known { Undo::ChargesBehind } else { Undo::Unknown };
                return None;
            }
            let left = limit.rule().roll_back(word, charge, || charge.now_ns);
            undo = left.map_or(Undo::ChargesBehind, Undo::Done);
            left
        })?;
        Ok(undo)
    }
}
