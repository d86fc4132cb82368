//! The exact store: `DashMap`s of keys and cells, so that the keys can be listed.
//!
//! A look takes a shard's lock for reading, an insert for writing. A `DashMap` can only be swept whole. So the store is
//! divided into shelves, each a small `DashMap`: a sweep holds one lock at a time, for a part of the cells.

pub(crate) mod shelf;

use std::hash::{BuildHasher, Hash, Hasher};

use crate::store::capacity::Reservations;
use crate::store::exact::shelf::{Shelf, Tagged};
use crate::store::hash::{HashKeys, hash, new_keys};
use crate::store::key::{Key, KeyRef, LimitIndex, LimitTag};
use crate::store::next_room::NextRoom;
use crate::store::searches::Searches;
use crate::store::{
    Absent, CellKey, Change, Outdated, Rules, Size, StoreKey, StoreSize, Swept, UpdateError,
};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicU64, Figure, Ordering};

/// The exact store.
pub(crate) struct Exact {
    shelves: [Shelf; SHELVES],
    /// For each shelf the newest generation of limits that any of its cells is under.
    generations: [AtomicU64; SHELVES],
    hash_keys: HashKeys,
    /// See [`Store::floor_ns`](crate::store::Store::floor_ns).
    floor_ns: AtomicU64,
    /// The shelf that the sweeper's next step begins with.
    next_of_sweeper: AtomicU64,
    /// The shelf that the next sweep of a call begins with, so that each pass of the sweeper looks at all shelves.
    next_of_calls: AtomicU64,
    dropped: Figure,
    reservations: Reservations,
}

/// The most cells that a call looks at, under shards' locks for reading, to compute when there is room. Each call that a full
/// table denies does so, so this must stay cheap in a flood.
const LOOKS_AT_CAP: usize = 256;

/// The exact store as an engine holds it.
pub(crate) type Boxed = Box<Exact>;

/// The number of shelves, a power of two. More shelves would make a sweep's steps shorter, but their locks would not
/// fit in the first-level cache: with 128 a check of one of 100,000 keys took 10 % longer. At 4 million keys a sweep
/// holds a lock over 62,500 cells, for about 200 us.
const SHELVES: usize = if cfg!(tollgate_loom) { 1 } else { 32 };

impl Exact {
    pub(crate) fn new(StoreSize { max_keys, reserved }: StoreSize) -> Exact {
        let hash_keys = new_keys();
        Exact {
            shelves: std::array::from_fn(|_| {
                Shelf::new(KeyHashers(hash_keys), reserved.min(max_keys) / SHELVES)
            }),
            generations: std::array::from_fn(|_| AtomicU64::new(0)),
            hash_keys,
            floor_ns: AtomicU64::new(0),
            next_of_sweeper: AtomicU64::new(0),
            next_of_calls: AtomicU64::new(0),
            dropped: Figure::new(0),
            reservations: Reservations::new(max_keys),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: KeyRef<'_>) -> u64 {
        hash(&self.hash_keys, key)[1]
    }
}

/// Hashes keys for a `DashMap`, which asks for them when it moves its entries.
#[derive(Clone)]
pub(crate) struct KeyHashers(HashKeys);

impl BuildHasher for KeyHashers {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { hash_keys: self.0, limit: LimitIndex(0), hash: 0 }
    }
}

/// Hashes one [`Key`]: first its limit, then its id.
pub(crate) struct KeyHasher {
    hash_keys: HashKeys,
    limit: LimitIndex,
    hash: u64,
}

impl Hasher for KeyHasher {
    fn write_u32(&mut self, limit: u32) {
        self.limit = LimitIndex(limit);
    }

    fn write(&mut self, id: &[u8]) {
        [_, self.hash] = hash(&self.hash_keys, KeyRef { limit: self.limit, id });
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let KeyRef { limit, id } = self.as_ref();
        state.write_u32(limit.0);
        state.write(id);
    }
}

/// Returns whether newer limits than the caller's have come to a shelf. The caller holds the lock of one of its
/// shards, or has held it.
fn is_newer(generation: &AtomicU64, rules: &impl Rules) -> bool {
    // Acquire: pairs with `raise`: a call that begins again finds the newer limits.
    generation.load(Ordering::Acquire) > rules.generation()
}

/// Records that the caller's limits come to a shelf, before any of its cells is under them. From then on calls with
/// older limits leave the shelf alone, once they have its lock.
fn raise(generation: &AtomicU64, rules: &impl Rules) {
    // Release: pairs with `is_newer`: the limits were published before.
    generation.fetch_max(rules.generation(), Ordering::Release);
}

/// The outcome of a step on a cell.
enum StepOutcome {
    /// The step was made.
    Done,
    /// Cells of the shelf are under newer limits than the caller's.
    Outdated,
    /// The cell's word is in the units of another limit than the one that applies to the key.
    Retag,
}

impl Exact {
    /// Returns the shelf of a key with this hash, and the shelf's generation. It uses bits that the `DashMap` does
    /// not: the 8th from the top picks the shard, the lowest pick the slot, the highest seven are the slot's tag.
    #[inline]
    fn shelf_at(&self, hash: u64) -> (&Shelf, &AtomicU64) {
        let at = (hash >> 48) as usize % SHELVES;
        (&self.shelves[at], &self.generations[at])
    }

    /// Returns the word of `key`: 0 if it was never charged, `None` if it has no cell.
    pub(crate) fn look(
        &self,
        key: &StoreKey<'_>,
        rules: &impl Rules,
    ) -> Result<Option<u64>, Outdated> {
        let hash = self.hash(key.key);
        let (shelf, generation) = self.shelf_at(hash);
        let look = |tagged: &Tagged| {
            if is_newer(generation, rules) {
                return Err(Outdated);
            }
            // `update` for its Acquire: the caller reads the eviction time floor and the clock after the word's last
            // charge.
            let (word, ()) = tagged.cell.update(|_| (None, ()));
            if word == 0 || tagged.tag == key.tag {
                return Ok(word);
            }
            rules.converted(key.cell_key(), tagged.tag, word, key.tag)
        };
        match shelf.find(hash, key.key, look) {
            Some(word) => word.map(Some),
            // Newer limits have come to the shelf: the caller's limits no longer decide calls for its keys.
            None if is_newer(generation, rules) => Err(Outdated),
            None => Ok(None),
        }
    }

    /// See [`Store::update`](crate::store::Store::update).
    pub(crate) fn update(
        &self,
        change: Change<'_>,
        rules: &impl Rules,
        mut step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        let key = change.key;
        let hash = self.hash(key.key);
        let (shelf, generation) = self.shelf_at(hash);
        let mut make_step = |tagged: &Tagged| {
            if is_newer(generation, rules) && !fault::active(Fault::ChargeBeforeRenewal) {
                coverage::hit(Race::Outdated);
                return StepOutcome::Outdated;
            }
            if tagged.tag != key.tag && !fault::active(Fault::ChargeBeforeRenewal) {
                return StepOutcome::Retag;
            }
            tagged.cell.update(|word| (step(word), ()));
            StepOutcome::Done
        };
        // Repeats only after this call has retagged the cell, or another call has retagged or dropped it.
        loop {
            let outcome = match shelf.find(hash, key.key, &mut make_step) {
                Some(outcome) => outcome,
                None => self.update_new(hash, change, rules, &mut make_step)?,
            };
            match outcome {
                StepOutcome::Done => return Ok(()),
                StepOutcome::Outdated => return Err(UpdateError::Outdated),
                StepOutcome::Retag => self.retag(hash, key, rules)?,
            }
        }
    }

    /// Makes the step for a key without a cell: on a trial cell first. Inserts a cell only if the step charges it.
    fn update_new(
        &self,
        hash: u64,
        Change { key, absent, now_ns }: Change<'_>,
        rules: &impl Rules,
        make_step: &mut impl FnMut(&Tagged) -> StepOutcome,
    ) -> Result<StepOutcome, UpdateError> {
        let (shelf, generation) = self.shelf_at(hash);
        let fresh = Tagged::new(key.tag);
        let outcome = make_step(&fresh);
        let is_charged = fresh.cell.load() != 0 && absent == Absent::Insert;
        if !matches!(outcome, StepOutcome::Done) || !is_charged {
            return Ok(outcome);
        }
        let reserve = || self.reservations.reserve(key.tag);
        let reservation = reserve().or_else(|| {
            let searches = &self.reservations.searches;
            searches.search(now_ns, || self.sweep_when_full(now_ns, rules, reserve))
        });
        let Some(reservation) = reservation else {
            // The key may have got a cell meanwhile.
            return shelf.find(hash, key.key, make_step).ok_or(UpdateError::TableFull);
        };
        // A cell under these limits is inserted next.
        raise(generation, rules);
        let mut outcome = StepOutcome::Done;
        if shelf.find_or_insert(hash, key.key, key.tag, |tagged| outcome = make_step(tagged)) {
            reservation.hand_over();
        }
        Ok(outcome)
    }

    /// Converts the word of a key to the limit that applies to it.
    fn retag(&self, hash: u64, key: &StoreKey<'_>, rules: &impl Rules) -> Result<(), Outdated> {
        let (shelf, generation) = self.shelf_at(hash);
        raise(generation, rules);
        let retag = |tagged: &mut Tagged| {
            let word = tagged.cell.load();
            if is_newer(generation, rules) {
                return Err(Outdated);
            }
            let old = tagged.tag;
            *tagged = match word {
                0 => Tagged::new(key.tag),
                _ => {
                    let word = rules.converted(key.cell_key(), old, word, key.tag)?;
                    coverage::hit(Race::Renumbered);
                    rules.record_end(old);
                    Tagged::with_word(key.tag, word)
                }
            };
            self.recount(old, key.tag);
            Ok(())
        };
        shelf.find_mut(hash, key.key, retag).unwrap_or(Ok(()))
    }

    /// Converts all words to the limits of `rules`, one shelf at a time.
    pub(crate) fn renew(&self, rules: &impl Rules) {
        for (shelf, generation) in self.shelves.iter().zip(&self.generations) {
            raise(generation, rules);
            shelf.retain(|key, tagged| {
                if tagged.tag.is_of_generation(rules.generation()) {
                    return true;
                }
                coverage::hit(Race::ShardRenewed);
                let word = tagged.cell.load();
                let id = CellKey::Id(key.as_ref().id);
                let migrated = (word != 0).then(|| rules.migrated(id, tagged.tag, word)).flatten();
                match migrated {
                    Some((tag, word)) => {
                        self.recount(tagged.tag, tag);
                        *tagged = Tagged::with_word(tag, word);
                    }
                    None => self.reservations.release(tagged.tag),
                }
                migrated.is_some()
            });
        }
    }

    /// Moves the place of a cell whose tag changes. The caller holds the shard's lock for writing.
    fn recount(&self, old: LimitTag, new: LimitTag) {
        if old.room() != new.room() {
            self.reservations.reserve_another(new).hand_over();
            self.reservations.release(old);
        }
    }

    /// See [`Store::floor_ns`](crate::store::Store::floor_ns).
    #[inline]
    pub(crate) fn floor_ns(&self) -> u64 {
        // Relaxed: a call that has found a cell, or none, has held the shard's lock after the sweep that dropped the
        // cell before it. That sweep raised the floor before it took the lock.
        self.floor_ns.load(Ordering::Relaxed)
    }

    /// Sweeps whole shelves until it has looked at `cells` cells or reached the last shelf.
    pub(crate) fn sweep(&self, cells: usize, now_ns: u64, rules: &impl Rules) -> Swept {
        let mut swept = Swept::default();
        while swept.looked_at < cells.max(1) && !swept.finished {
            self.sweep_shelf(&self.next_of_sweeper, now_ns, rules, &mut swept);
        }
        swept
    }

    /// Sweeps the next shelf.
    fn sweep_shelf(&self, next: &AtomicU64, now_ns: u64, rules: &impl Rules, swept: &mut Swept) {
        // Relaxed: the shard's lock publishes it, see `floor_ns`. Raised before the first cell is dropped.
        let floor_ns = self.floor_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns);
        // Relaxed: two sweeps at once share a pass; each shelf has its own locks.
        let at = next.fetch_add(1, Ordering::Relaxed) as usize % SHELVES;
        let generation = &self.generations[at];
        let mut dropped = 0;
        swept.looked_at += self.shelves[at].retain(|key, tagged| {
            let word = tagged.cell.load();
            if word != 0 {
                // A cell of another generation stays: by its own limit it may not be full. The tag does not have all
                // bits of the generation.
                let id = CellKey::Id(key.as_ref().id);
                let is_own = tagged.tag.is_of_generation(rules.generation())
                    && !is_newer(generation, rules)
                    || fault::active(Fault::SweepByOldLimits);
                if !is_own || rules.owed(id, tagged.tag, word, floor_ns).is_some() {
                    return true;
                }
            }
            dropped += 1;
            self.reservations.release(tagged.tag);
            false
        });
        swept.dropped += dropped;
        swept.finished |= at == SHELVES - 1;
        // Relaxed: a figure for people.
        self.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
    }

    /// Drops full cells of the next shelves when the table is full, but only once in a while: it looks at whole
    /// shelves, under their locks.
    fn sweep_when_full<T>(
        &self,
        now_ns: u64,
        rules: &impl Rules,
        reserve: impl Fn() -> Option<T>,
    ) -> Option<T> {
        const MIN_CELLS: usize = 1024;
        let mut swept = Swept::default();
        for _ in 0..SHELVES {
            if swept.looked_at < MIN_CELLS && rules.may_sweep_at(now_ns) {
                self.sweep_shelf(&self.next_of_calls, now_ns, rules, &mut swept);
            }
        }
        reserve()
    }

    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// See [`Store::room_in_ns`](crate::store::Store::room_in_ns). Looks at the first cells of the shelves that the next
    /// sweep of a full table looks at.
    pub(crate) fn room_in_ns(&self, tag: LimitTag, now_ns: u64, rules: &impl Rules) -> Option<u64> {
        if !rules.may_sweep_at(now_ns) {
            return None;
        }
        let at_ns = now_ns.max(self.floor_ns());
        // Relaxed: only a position, as in `sweep_shelf`.
        let next = self.next_of_calls.load(Ordering::Relaxed) as usize;
        let mut room = NextRoom::new(&self.reservations, tag)?;
        let mut looks = 0;
        for nth in 0..SHELVES {
            if looks >= LOOKS_AT_CAP || room.is_now() {
                break;
            }
            looks += self.shelves[(next + nth) % SHELVES].look_at(
                LOOKS_AT_CAP - looks,
                |key, tagged| {
                    if !tagged.tag.is_of_generation(rules.generation()) {
                        return;
                    }
                    room.add(tagged.tag, || match tagged.cell.load() {
                        0 => Some(0),
                        word => {
                            rules.full_in_ns(CellKey::Id(key.as_ref().id), tagged.tag, word, at_ns)
                        }
                    });
                },
            );
        }
        // Calls sweep a full table once in a while only.
        let due_in_ns = self.reservations.searches.due_in_ns(now_ns);
        Some(match room.in_ns(looks < LOOKS_AT_CAP)? {
            0 => due_in_ns,
            // The next one that is due is in vain.
            full_ns => {
                let next_in_ns = if due_in_ns == 0 { Searches::PAUSE_NS } else { due_in_ns };
                full_ns.saturating_add(at_ns - now_ns).max(next_in_ns)
            }
        })
    }

    pub(crate) fn size(&self) -> Size {
        let bytes = self.shelves.iter().map(Shelf::bytes).sum::<usize>() + size_of::<Exact>();
        // Relaxed: a figure for people.
        let dropped = self.dropped.load(Ordering::Relaxed);
        Size { cells: self.reservations.taken(), bytes, dropped, ..Size::default() }
    }

    /// Calls `visit` with every key, under a shard's lock.
    pub(crate) fn for_each_key(&self, mut visit: impl FnMut(&Key)) {
        for shelf in self.shelves.iter() {
            shelf.for_each(|key, _| visit(key));
        }
    }
}

/// For snapshots.
#[cfg(feature = "snapshot")]
impl Exact {
    /// Returns the number of parts that [`scan`](Exact::scan) reads, one a call.
    pub(crate) fn parts(&self) -> usize {
        SHELVES
    }

    /// Calls `visit` with each key of one part whose word is not 0, with tag and word, under a lock for reading. Each
    /// word is its key's at some time during the scan.
    pub(crate) fn scan(&self, part: usize, visit: &mut dyn FnMut(&Key, LimitTag, u64)) {
        self.shelves[part].for_each(|key, tagged| {
            let word = tagged.cell.load();
            if word != 0 {
                visit(key, tagged.tag, word);
            }
        });
    }

    /// Raises the eviction time floor to another store's.
    pub(crate) fn set_floor(&self, floor_ns: u64) {
        // Relaxed: no other thread has the store yet.
        self.floor_ns.fetch_max(floor_ns, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use crate::limit::Limit;
    use crate::limiter::Limiter;
    use crate::limiter::options::LimiterOptions;
    use crate::limits::{IdFormat, Limits};
    use crate::store::Engine;

    /// A map that grows hashes its keys again, by another path than calls.
    #[test]
    fn maps_that_grow_keep_their_keys() {
        let limit = Limit::new(1, 1, Duration::from_secs(3_600)).unwrap();
        let limits = Limits::builder().limit("First", IdFormat::String, limit.clone()).unwrap();
        let limits = limits.limit("Second", IdFormat::String, limit).unwrap().build();
        let options = LimiterOptions::default().engine(Engine::Exact);
        let limiter = Limiter::with_options(limits, options).unwrap();
        for is_allowed in [true, false] {
            for name in ["First", "Second"] {
                let limit = limiter.limit(name).unwrap();
                for id in 0..4_000 {
                    let decision = limit.spend(&*id.to_string(), 1).unwrap();
                    assert_eq!(decision.allowed(), is_allowed, "{name} {id}");
                }
            }
        }
    }
}
