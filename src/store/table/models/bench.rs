//! The table, the clock and the limits that the models of the table share.

use std::sync::Arc;

use super::super::fingerprint::{Fingerprint, Seeds};
use super::super::migration::MigrationGoal;
use super::super::segment::Segment;
use super::super::{Table, epoch};
use crate::store::key::{KeyRef, LimitIndex, LimitTag, Stamp};
use crate::store::{Absent, CellKey, Change, Outdated, Rules, StoreKey, Swept, UpdateError};
use crate::util::sync::{AtomicU64, Ordering};

pub(super) const UNIT_NS: u64 = 10;
pub(super) const BURST_NS: u64 = 20;

pub(super) const K: Fingerprint = Fingerprint { lo: 0x12, hi: 0x1002 };
/// The same low half as K.
pub(super) const K_LOW: Fingerprint = Fingerprint { lo: 0x12, hi: 0x2002 };
pub(super) const L: Fingerprint = Fingerprint { lo: 0x22, hi: 0x3002 };
pub(super) const M: Fingerprint = Fingerprint { lo: 0x32, hi: 0x4002 };

/// A key whose limit is not in the next generation.
pub(super) const WITHOUT_LIMIT: Fingerprint = Fingerprint { lo: 0x62, hi: 0x7002 };

/// A key whose override is its own: its place is beside the cap until the override ends.
pub(super) const OWN: Fingerprint = Fingerprint { lo: 0x92, hi: 0xa002 };

pub(super) const LAST: Fingerprint = Fingerprint { lo: 0x52, hi: 0x6002 };
/// A key whose search begins at the third of four slots.
pub(super) const LATE: Fingerprint = Fingerprint { lo: 0x42, hi: 1 << 63 | 0x5202 };
/// Two keys whose search begins at the seventh of eight slots: the second has the last slot, and its next slot is the
/// first.
pub(super) const NEXT_TO_LAST: Fingerprint = Fingerprint { lo: 0x72, hi: 3 << 62 | 0x8002 };
pub(super) const WRAPPED: Fingerprint = Fingerprint { lo: 0x82, hi: 3 << 62 | 0x9002 };

/// A table, its clock, and its limits.
pub(super) struct Bench {
    pub(super) table: Table,
    pub(super) now_ns: AtomicU64,
    /// The newest generation of limits.
    pub(super) newest: AtomicU64,
}

/// The limits that a caller has. In each generation a unit takes twice the time of the generation
/// before.
///
/// Each key has an override, which ends; then the override of its account, which ends as well; then
/// the default. With each end a debt triples.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) generation: u64,
    /// The number of ends that have passed.
    pub(super) ends: u32,
}

impl Limits {
    pub(super) fn of_generation(generation: u64) -> Limits {
        Limits { generation, ends: 0 }
    }

    pub(super) fn tag(self, fingerprint: Fingerprint) -> LimitTag {
        let numbers = [fingerprint.hi as u32, 1, 0][self.ends as usize];
        let tag = Stamp::new(LimitIndex(0), self.generation).tag(numbers);
        if fingerprint == OWN && self.ends == 0 { tag.of_own() } else { tag }
    }

    pub(super) fn unit_ns(self) -> u64 {
        UNIT_NS << self.generation
    }

    /// Returns the word whose debt is `factor` times as large at the time 1, when the bench begins. The word of a cell without a
    /// charge, 0, stays.
    pub(super) fn times(word: u64, factor: u64) -> u64 {
        if word == 0 { 0 } else { 1 + (word - 1) * factor }
    }
}

impl Rules for Limits {
    fn owed(
        &self,
        _: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        (word > at_ns).then_some((tag, word))
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn migrated(&self, key: CellKey<'_>, tag: LimitTag, word: u64) -> Option<(LimitTag, u64)> {
        if tag.is_of_generation(self.generation) {
            return Some((tag, word));
        }
        let CellKey::Fingerprint(fingerprint) = key else { unreachable!("a cell has no id") };
        // `WITHOUT_LIMIT` loses its limit, and so its word.
        (fingerprint != WITHOUT_LIMIT).then(|| {
            (Limits::of_generation(self.generation).tag(fingerprint), Limits::times(word, 2))
        })
    }

    fn converted(
        &self,
        _: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated> {
        let is_current = tag.is_of_generation(self.generation);
        let word = if is_current { word } else { Limits::times(word, 2) };
        let ends = |tag: LimitTag| match tag.terms() {
            0 => 2,
            1 => 1,
            _ => 0_u32,
        };
        match ends(to).checked_sub(ends(tag)) {
            Some(passed) => Ok(Limits::times(word, 3_u64.pow(passed))),
            None => Err(Outdated),
        }
    }

    fn record_end(&self, _: LimitTag) {}
}

impl Table {
    /// Begins a migration of the one shard with room for `room` more keys, if none is under way,
    /// and finishes it.
    pub(crate) fn migrate(&self, room: u64, rules: &impl Rules) {
        let guard = epoch::pin();
        let shard = &self.shards[0];
        self.start_migration(shard, shard.view(&guard), MigrationGoal::Grow(room), rules);
        self.finish_migration(&guard, shard, shard.view(&guard), rules);
    }
}

impl Bench {
    /// Makes a table whose first segment has `1 << first_log2` slots.
    pub(super) fn new(max_keys: usize, first_log2: u32) -> Arc<Bench> {
        let table = Table::with_shape(max_keys, 1, first_log2, Seeds::new());
        Arc::new(Bench { table, now_ns: AtomicU64::new(1), newest: AtomicU64::new(0) })
    }

    /// Returns the newest limits.
    pub(super) fn limits(&self) -> Limits {
        Limits::of_generation(self.newest.load(Ordering::Acquire))
    }

    pub(super) fn update(
        &self,
        fingerprint: Fingerprint,
        absent: Absent,
        step: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        self.update_by(Limits::of_generation(0), fingerprint, absent, step)
    }

    pub(super) fn update_by(
        &self,
        limits: Limits,
        fingerprint: Fingerprint,
        absent: Absent,
        mut step: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        let key = KeyRef { limit: LimitIndex(0), id: &[] };
        let key = StoreKey { key, fingerprint, tag: limits.tag(fingerprint) };
        let now_ns = self.now_ns();
        let change = Change { key: &key, absent, now_ns };
        self.table.update(change, &limits, &mut |word| {
            let at_ns = if word == 0 { now_ns.max(self.table.floor_ns()) } else { now_ns };
            step(word, at_ns)
        })
    }

    /// Gives the shard its first segment.
    pub(super) fn begin(&self) {
        let shard = &self.table.shards[0];
        self.table.create_first_segment(
            shard,
            shard.view(&epoch::pin()),
            self.table.first_log2,
            &Limits::of_generation(0),
        );
    }

    /// Spends one unit. Returns whether the bucket had it; `Err` if the table is full.
    pub(super) fn try_spend(&self, fingerprint: Fingerprint) -> Result<bool, UpdateError> {
        let mut allowed = false;
        self.update(fingerprint, Absent::Insert, |word, at_ns| {
            let spent = word.max(at_ns) + UNIT_NS;
            allowed = spent <= at_ns + BURST_NS;
            allowed.then_some(spent)
        })?;
        Ok(allowed)
    }

    pub(super) fn spend(&self, fingerprint: Fingerprint) -> bool {
        self.try_spend(fingerprint).expect("there is room")
    }

    /// Refunds one unit.
    pub(super) fn refund(&self, fingerprint: Fingerprint) {
        let _ = self.update(fingerprint, Absent::Leave, |word, at_ns| {
            let given = word.saturating_sub(UNIT_NS).max(at_ns);
            (word > at_ns).then_some(given)
        });
    }

    pub(super) fn reset(&self, fingerprint: Fingerprint) {
        let _ =
            self.update(fingerprint, Absent::Leave, |word, at_ns| (word > at_ns).then_some(at_ns));
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Returns the key's word, or 0 if it has none.
    pub(super) fn word(&self, fingerprint: Fingerprint) -> u64 {
        self.word_by(Limits::of_generation(0), fingerprint).expect("there was no reload")
    }

    pub(super) fn word_by(
        &self,
        limits: Limits,
        fingerprint: Fingerprint,
    ) -> Result<u64, Outdated> {
        let key = KeyRef { limit: LimitIndex(0), id: &[] };
        let key = StoreKey { key, fingerprint, tag: limits.tag(fingerprint) };
        Ok(self.table.look(&key, &limits)?.unwrap_or(0))
    }

    /// Returns the bucket's debt in ns.
    pub(super) fn debt(&self, fingerprint: Fingerprint) -> u64 {
        self.word(fingerprint).saturating_sub(self.now_ns())
    }

    /// Begins a migration if none is under way.
    pub(super) fn start(&self) {
        self.start_by(Limits::of_generation(0));
    }

    pub(super) fn start_by(&self, limits: Limits) {
        let guard = epoch::pin();
        let shard = &self.table.shards[0];
        self.table.start_migration(shard, shard.view(&guard), MigrationGoal::Grow(1), &limits);
    }

    pub(super) fn migrate(&self) {
        self.table.migrate(1, &Limits::of_generation(0));
    }

    /// Migrates one chunk.
    pub(super) fn help(&self) {
        self.help_by(Limits::of_generation(0));
    }

    pub(super) fn help_by(&self, limits: Limits) {
        let guard = epoch::pin();
        let shard = &self.table.shards[0];
        self.table.help_migrate(&guard, shard, shard.view(&guard), &limits);
    }

    pub(super) fn sweep(&self) -> Swept {
        self.table.sweep(8, self.now_ns(), &Limits::of_generation(0))
    }

    pub(super) fn advance_to(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(super) fn is_at_rest(&self) -> bool {
        !self.table.shards[0].view(&epoch::pin()).is_migrating()
    }

    /// Makes a table without a migration in which these keys have spent one unit each.
    pub(super) fn with_spent(first_log2: u32, keys: &[Fingerprint]) -> Arc<Bench> {
        let bench = Bench::new(8, first_log2);
        for &fingerprint in keys {
            assert!(bench.spend(fingerprint));
        }
        while !bench.is_at_rest() {
            bench.help();
        }
        bench
    }

    /// Returns the number of claimed slots of the newest segment.
    pub(super) fn claimed(&self) -> u64 {
        let guard = epoch::pin();
        self.table.shards[0].view(&guard).newest().map_or(0, Segment::used)
    }

    /// Returns the number of reservations.
    pub(super) fn taken(&self) -> usize {
        self.table.written.reservations.taken()
    }

    /// Returns the number of reservations beside the cap.
    pub(super) fn taken_beside_cap(&self) -> u64 {
        self.table.written.reservations.taken_beside_cap()
    }
}
