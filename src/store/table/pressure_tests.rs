//! Tests of the memory bound under migrations that only calls for known keys help, without inserts
//! and sweeps.

use super::epoch::pin;
use super::migration::{FIRST_LOG2, MigrationGoal};
use super::segment::Lookup;
use super::{Change, Fingerprint, KeyRef, LimitTag, Rules, Seeds, StoreKey, Table};
use crate::full_size::full_size;
use crate::own_process::in_own_process;
use crate::store::key::{LimitIndex, Stamp};
use crate::store::{Absent, CellKey, Outdated, UpdateError};

/// One limit of one generation. A bucket is full at the time of its word.
pub(super) struct OneLimit;

impl OneLimit {
    fn tag() -> LimitTag {
        Stamp::new(LimitIndex(0), 0).tag(0)
    }
}

impl Rules for OneLimit {
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
        0
    }

    fn migrated(&self, _: CellKey<'_>, tag: LimitTag, word: u64) -> Option<(LimitTag, u64)> {
        Some((tag, word))
    }

    fn converted(
        &self,
        _: CellKey<'_>,
        _: LimitTag,
        word: u64,
        _: LimitTag,
    ) -> Result<u64, Outdated> {
        Ok(word)
    }

    fn record_end(&self, _: LimitTag) {}
}

pub(super) fn store_key<'a>(table: &Table, id: &'a [u8]) -> StoreKey<'a> {
    let key = KeyRef { limit: LimitIndex(0), id };
    StoreKey { key, fingerprint: table.fingerprint(key), tag: OneLimit::tag() }
}

const SHARDS: usize = 8;

struct Bench {
    table: Table,
    /// The keys of each shard.
    keys: [Vec<u64>; SHARDS],
}

impl Bench {
    /// Makes a table in which `keys` keys have spent, without a migration.
    fn new(keys: u64) -> Bench {
        let table = Table::with_shape(1 << 20, SHARDS, FIRST_LOG2, Seeds::new());
        let mut bench = Bench { table, keys: Default::default() };
        for id in 0..keys {
            let shard = bench.key(id).shard(SHARDS);
            bench.keys[shard].push(id);
        }
        (0..keys).for_each(|key| assert_eq!(bench.spend(key), Ok(())));
        // Some more migrations free the segments that growth has retired.
        (0..20).for_each(|round| assert!(bench.migrate(round % SHARDS)));
        bench
    }

    fn key(&self, id: u64) -> Fingerprint {
        self.table.fingerprint(KeyRef { limit: LimitIndex(0), id: &id.to_le_bytes() })
    }

    fn spend(&self, id: u64) -> Result<(), UpdateError> {
        let id_bytes = id.to_le_bytes();
        let key = store_key(&self.table, &id_bytes);
        let change = Change { key: &key, absent: Absent::Insert, now_ns: 1 };
        self.table.update(change, &OneLimit, &mut |word| Some(word.max(1) + 1))
    }

    fn word(&self, id: u64) -> u64 {
        let id_bytes = id.to_le_bytes();
        let key = store_key(&self.table, &id_bytes);
        self.table.look(&key, &OneLimit).unwrap().unwrap_or(0)
    }

    /// Begins a migration of a shard. Returns whether one is under way.
    fn start(&self, shard: usize) -> bool {
        let guard = pin();
        let shard = &self.table.shards[shard];
        self.table.start_migration(shard, shard.view(&guard), MigrationGoal::Fit, &OneLimit)
    }

    fn is_migrating(&self, shard: usize) -> bool {
        self.table.shards[shard].view(&pin()).is_migrating()
    }

    /// Runs a migration of a shard if one can begin, by calls for known keys that move a chunk
    /// each.
    fn migrate(&self, shard: usize) -> bool {
        if !self.start(shard) {
            return false;
        }
        for &id in self.keys[shard].iter().cycle() {
            if !self.is_migrating(shard) {
                return true;
            }
            assert_eq!(self.spend(id), Ok(()));
        }
        unreachable!("each shard has keys")
    }

    /// Drops a key's cell as a sweep drops a full one, in a shard without a migration.
    fn evict(&self, id: u64) {
        let guard = pin();
        let fingerprint = self.key(id);
        assert!(!self.table.shard(fingerprint).view(&guard).is_migrating());
        let segment = self.table.shard(fingerprint).view(&guard).newest().expect("it was charged");
        if let Lookup::Live(slot, word) = segment.find(fingerprint)
            && slot.cell.evict(word)
        {
            self.table.count_dropped(slot.tag());
            segment.count_dead();
        }
    }

    fn slots(&self) -> usize {
        let guard = pin();
        let newest = self.table.shards.iter().filter_map(|shard| shard.view(&guard).newest());
        newest.map(|segment| segment.slots()).sum()
    }

    fn bytes(&self) -> usize {
        self.table.memory().bytes()
    }

    fn largest_segment(&self) -> usize {
        let guard = pin();
        let newest = self.table.shards.iter().filter_map(|shard| shard.view(&guard).newest());
        newest.map(|segment| segment.header().block.bytes()).max().unwrap_or(0)
    }
}

/// The bytes of a batch of retired segments, and of those that may gather while it waits for pins.
const LATE_BYTES: usize = 3 << 20;

#[test]
fn migrations_free_what_they_retire() {
    in_own_process(|| {
        // Blocks from the heap, from regions, and mappings.
        for keys in [200, 6000, 60_000] {
            let bench = Bench::new(keys);
            let (slots, at_rest) = (bench.slots(), bench.bytes());
            let words: Vec<u64> = (0..keys).map(|id| bench.word(id)).collect();
            let mut most = 0;
            for round in 0..full_size(100, 300) {
                assert!(bench.migrate(round % SHARDS), "{keys} keys: nothing is held back");
                most = most.max(bench.bytes());
            }
            let bound = at_rest + LATE_BYTES + 4 * bench.largest_segment();
            assert!(most <= bound, "{keys} keys: {at_rest} bytes at rest, at most {most}");
            assert_eq!(bench.slots(), slots, "{keys} keys: none grows without need");
            assert_eq!(bench.table.size().put_off, 0);
            let has_its_word = |(id, &word): (usize, &u64)| bench.word(id as u64) >= word;
            assert!(words.iter().enumerate().all(has_its_word), "{keys} keys: each has its word");
        }
    });
}

/// A pin holds back at most the bytes in use, or 16 MiB if that is more, and one segment. Above it,
/// no migration begins that live cells do not need. After the pin ends, each migration frees the
/// bytes that it retires.
#[test]
fn a_pin_holds_back_bounded_memory() {
    in_own_process(|| {
        for keys in [6000, 400_000] {
            let bench = Bench::new(keys);
            let (slots, at_rest) = (bench.slots(), bench.bytes());
            let guard = pin();
            let begun = (0..).take_while(|round| bench.migrate(round % SHARDS)).count();
            assert!(begun > 0 && bench.table.size().put_off > 0);
            let most = at_rest + at_rest.max(16 << 20) + 4 * bench.largest_segment();
            let held = bench.bytes();
            assert!(held <= most && held > at_rest, "{keys} keys: {at_rest} at rest, {held} held");
            assert_eq!(bench.slots(), slots, "{keys} keys: none grows without need");
            // Calls go on, and new keys are inserted as long as there is room for them.
            (0..100).for_each(|id| assert_eq!(bench.spend(id), Ok(())));
            (keys..keys + 8).for_each(|id| assert_eq!(bench.spend(id), Ok(())));
            assert!(bench.bytes() <= most);
            drop(guard);
            let is_begun = (0..4).any(|_| bench.migrate(0));
            assert!(is_begun, "{keys} keys: a look, and two pins for what it found");
            // Each migration frees at least the bytes that it retires, so the memory falls back to
            // the bound.
            let limit = |bench: &Bench| at_rest + LATE_BYTES + 4 * bench.largest_segment();
            let mut before = bench.bytes();
            for round in 0..20_000 {
                if before <= limit(&bench) {
                    break;
                }
                assert!(bench.migrate(round % SHARDS));
                let now = bench.bytes();
                assert!(now <= before + LATE_BYTES, "{keys} keys: {before} before, {now} now");
                before = before.min(now);
            }
            let (left, most) = (before, limit(&bench));
            assert!(
                left <= most,
                "{keys} keys: {at_rest} at rest, {held} held, {left} left of {most}"
            );
        }
    });
}

/// While a pin holds back memory, live cells get room. A segment full of dead cells stays as it is,
/// and inserts are refused as if the table were full until the pin ends.
#[test]
fn under_a_pin_only_live_cells_grow_segments() {
    in_own_process(|| {
        let bench = Bench::new(6000);
        let guard = pin();
        while bench.migrate(0) {}
        // Five times as many keys.
        (6000..30_000).for_each(|id| assert_eq!(bench.spend(id), Ok(()), "{id}"));
        assert!((0..30_000).all(|id| bench.word(id) > 0));
        // Keys that come and go use up slots, and no segment grows for them.
        let slots = bench.slots();
        let later = 1 << 20;
        let refused = (30_000..later).find(|&id| {
            let is_refused = bench.spend(id) == Err(UpdateError::TableFull);
            if id % 500 == 0 {
                while !bench.table.sweep(4096, 1 << 40, &OneLimit).finished {}
            }
            is_refused
        });
        assert!(refused.is_some(), "the slots are used up");
        assert!(bench.slots() <= slots);
        drop(guard);
        (0..100).for_each(|_| bench.table.free_unused());
        assert_eq!(bench.spend(later), Ok(()), "there is room again");
    });
}

/// A key that comes and goes leaves a dead slot each time. While a pin holds back memory, no
/// migration clears these out, and searches stay short all the same.
#[test]
fn searches_stay_short_under_a_pin() {
    in_own_process(|| {
        let bench = Bench::new(6000);
        let id = 1 << 20;
        let shard = bench.key(id).shard(SHARDS);
        // Few live cells, so that the segment need not grow for them. The migrations call for the
        // first keys.
        bench.keys[shard].iter().rev().take(450).for_each(|&id| bench.evict(id));
        assert!(bench.migrate(shard));
        let guard = pin();
        while bench.migrate(shard) {}
        let rounds = (0..1000).take_while(|_| {
            let is_inserted = bench.spend(id) == Ok(());
            bench.evict(id);
            is_inserted
        });
        let rounds = rounds.count();
        assert!((1..=64).contains(&rounds), "{rounds} dead slots");
        drop(guard);
        (0..100).for_each(|_| bench.table.free_unused());
        assert!((0..4).any(|_| bench.spend(id) == Ok(())), "there is room again");
    });
}
