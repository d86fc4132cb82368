//! The table's part of snapshots: reads every word while calls go on, and makes the table that a
//! restore fills.

use std::collections::HashSet;

use super::epoch::pin;
use super::fingerprint::{Fingerprint, Seeds};
use super::segment::{Lookup, Segment, claims_to_grow, slots_of};
use super::shard::{Shard, ShardView};
use super::slot::{Slot, SlotContents};
use super::{Guard, Rules, Table};
use crate::store::StoreSize;
use crate::store::cell::Word;
use crate::store::hash::HashKeys;
use crate::store::key::LimitTag;
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

impl Table {
    /// Makes a table with the seeds of another.
    pub(crate) fn from_seeds(size: StoreSize, bits: HashKeys) -> Table {
        Table::with_seeds(size, Seeds::from_bits(bits))
    }

    pub(crate) fn seeds(&self) -> HashKeys {
        self.seeds.bits()
    }

    /// Returns the number of parts of a [`scan`](Table::scan).
    pub(crate) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// Calls `visit` with every word of one part that is not 0. The word is the key's word at some
    /// time during the call, in the units of the limit that the tag names.
    ///
    /// A key may be visited twice if its word comes to another slot during the call. That happens if
    /// the key is dropped and inserted again, or if its override ends.
    ///
    /// The scan may leave out a key that had no debt at some time during the call: a key that
    /// another call inserts after the scan began, or a key that a sweep drops meanwhile. A dropped
    /// key owed nothing at the eviction time floor, and the caller reads the floor after the call.
    ///
    /// The scan writes nothing. It pins the thread until it returns.
    pub(crate) fn scan(&self, part: usize, visit: &mut dyn FnMut(Fingerprint, LimitTag, u64)) {
        let guard = pin();
        let shard = &self.shards[part];
        let view = shard.view(&guard);
        let Some(newest) = view.newest() else { return };
        // The newest segment comes first. If a migration moves a word to a slot there that this
        // scan has passed, the scan still meets the key in the old segment: live, or frozen with
        // the word that moves.
        let mut visited = HashSet::new();
        for (fingerprint, slot, word) in words(newest) {
            visit(fingerprint, slot.tag(), word);
            if view.is_migrating() {
                visited.insert(fingerprint);
            }
        }
        let Some(old) = view.old() else { return };
        for (fingerprint, slot, word) in
            words(old).filter(|(fingerprint, ..)| !visited.contains(fingerprint))
        {
            if let Some((slot, word)) = moving(&guard, shard, view, fingerprint, (slot, word)) {
                visit(fingerprint, slot.tag(), word);
            }
        }
    }

    /// Makes room for `keys` keys in a table that no other thread uses yet.
    pub(crate) fn make_room(&self, keys: usize, rules: &impl Rules) {
        let keys_a_shard = (keys / self.shards.len()) as u64;
        if keys_a_shard == 0 {
            return;
        }
        // Some shards get more keys than others. With room for four standard deviations above the
        // mean, few shards need to grow.
        let wanted = keys_a_shard + 4 * keys_a_shard.isqrt();
        let fits = |log2: &u32| claims_to_grow(slots_of(*log2)) >= wanted;
        let log2 = (self.first_log2..self.max_log2).find(fits).unwrap_or(self.max_log2);
        let log2 = log2.max(self.first_log2);
        let guard = pin();
        for shard in &self.shards {
            let view = shard.view(&guard);
            if view.newest().is_none() {
                self.create_first_segment(shard, view, log2, rules);
            }
        }
    }

    /// Raises the eviction time floor to that of the table whose buckets this table takes over.
    pub(crate) fn set_floor(&self, floor_ns: u64) {
        self.raise_floor(floor_ns);
    }
}

/// Returns the fingerprint, the slot and the word of each key of a segment whose word is not 0,
/// live or frozen.
///
/// When an override ends, the word of its key moves forward in the key's search: from slot to slot
/// up to the end of the segment, and on from the first slot. So the slots of each key are read in
/// this order, and no move escapes the scan:
///
/// 1. All slots are read for the keys whose home is this slot or an earlier one.
/// 2. The first slots are read once more, for the keys whose search went past the end.
fn words<'g>(segment: Segment<'g>) -> impl Iterator<Item = (Fingerprint, &'g Slot, u64)> {
    let slots = move || (0..segment.slots()).map(move |at| (at, segment.slot(0, at)));
    let is_wrapped = move |at, fingerprint: Fingerprint| {
        !fault::active(Fault::ScanInOrder) && fingerprint.home(segment.log2()) > at
    };
    let before_the_end = words_of(slots()).filter(move |&(at, it)| !is_wrapped(at, it.0));
    // A search ends at the first vacant slot, so a key whose search went past the end is in front of
    // that slot. If a word moves to that slot meanwhile, the scan has read it in its old slot.
    let from_the_start = slots().take_while(|(_, slot)| slot.contents() != SlotContents::Vacant);
    let wrapped = words_of(from_the_start).filter(move |&(at, it)| is_wrapped(at, it.0));
    let wrapped = wrapped.inspect(|_| coverage::hit(Race::ScannedWrapped));
    before_the_end.chain(wrapped).map(|(_, it)| it)
}

fn words_of<'g>(
    slots: impl Iterator<Item = (usize, &'g Slot)>,
) -> impl Iterator<Item = (usize, (Fingerprint, &'g Slot, u64))> {
    slots.filter_map(|(at, slot)| {
        let SlotContents::Key(fingerprint) = slot.contents() else { return None };
        let word = match slot.word() {
            Word::Live(word) => word,
            Word::Frozen(_) if fault::active(Fault::ScanSkipsMoved) => 0,
            Word::Frozen(word) => word,
        };
        (word != 0).then_some((at, (fingerprint, slot, word)))
    })
}

/// Returns the current slot and word of a key; `met` is the slot and the word in which the scan has
/// found the key in the old segment. `None` if the key has been dropped since.
fn moving<'g>(
    guard: &'g Guard,
    shard: &Shard,
    view: ShardView<'g>,
    fingerprint: Fingerprint,
    met: (&'g Slot, u64),
) -> Option<(&'g Slot, u64)> {
    let arrived = || match view.newest()?.find(fingerprint) {
        Lookup::Live(_, 0) | Lookup::Moved(_, 0) | Lookup::Absent => None,
        Lookup::Live(slot, word) | Lookup::Moved(slot, word) => Some((slot, word)),
    };
    arrived().or_else(|| {
        // The pointer is the same, so the migration is still under way, and no sweep has dropped a
        // cell of the successor. So the word has not arrived yet, or a sweep has dropped the cell of
        // the old segment since: its bucket was full. Either way the word in the old segment is right.
        if fault::active(Fault::OldWordUnchecked) || shard.view(guard).is_same(view) {
            coverage::hit(Race::ScannedMoving);
            return Some(met);
        }
        // The migration is over, so the word has arrived. If the key is not in the successor, its
        // bucket was full, and a sweep has dropped the cell.
        arrived()
    })
}
