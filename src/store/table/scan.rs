//! Reading every word of the table while calls go on, and filling a new one: for files of buckets.

use std::collections::HashSet;

use ahash::RandomState;

use super::epoch::pin;
use super::fingerprint::{Fingerprint, SeedBits, Seeds};
use super::segment::{Found, Segment, enough_claims, slots_of};
use super::shard::{Shard, View};
use super::slot::{Holds, Slot};
use super::{Guard, Rules, Table, migration};
use crate::store::cell::Word;
use crate::store::key::LimitTag;
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

impl Table {
    /// A table with the seeds of another.
    pub(crate) fn of_seeds(max_keys: usize, bits: SeedBits) -> Table {
        Table::with_seeds(max_keys, Seeds::of_bits(bits))
    }

    pub(crate) fn seeds(&self) -> SeedBits {
        self.seeds.bits()
    }

    /// By which another program can tell whether it has the same fingerprints for the same seeds.
    pub(crate) fn check(&self) -> [u64; 2] {
        self.seeds.check()
    }

    /// The number of parts that [`scan`](Table::scan) is done in.
    pub(crate) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// Puts every word of one part to `visit` that is not 0: each is what its key's word was at some time
    /// during the call, in the units of the numbers beside it. A key that is dropped and comes back may be
    /// visited twice.
    ///
    /// Left out is what owed nothing: keys that are new since, or that were dropped since by the floor as it
    /// is after the call. Reads only; pins the thread for the part.
    pub(crate) fn scan(&self, part: usize, visit: &mut dyn FnMut(Fingerprint, LimitTag, u64)) {
        let guard = pin();
        let shard = &self.shards[part];
        let view = shard.view(&guard);
        let Some(newest) = view.newest() else { return };
        // A key that is in the newest segment stays in its slot there. What is not there yet when its slot
        // is passed is still in the old one, or on its way: then its slot there tells what moves.
        let mut visited = HashSet::with_hasher(RandomState::default());
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

    /// Makes room for so many keys in a table that nobody else has yet.
    pub(crate) fn make_room(&self, keys: usize, rules: &impl Rules) {
        let keys_a_shard = (keys / self.shards.len()) as u64;
        if keys_a_shard == 0 {
            return;
        }
        // Some shards get more than others: by four times the spread, few outgrow their room.
        let wanted = keys_a_shard + 4 * keys_a_shard.isqrt();
        let fits = |log2: &u32| enough_claims(slots_of(*log2)) >= wanted;
        let log2 = (migration::FIRST_LOG2..self.most_log2).find(fits).unwrap_or(self.most_log2);
        let guard = pin();
        for shard in &self.shards {
            let view = shard.view(&guard);
            if view.newest().is_none() {
                self.begin(shard, view, log2, rules);
            }
        }
    }

    /// Says that things were dropped at this time, as another table did.
    pub(crate) fn set_floor(&self, floor_ns: u64) {
        self.raise_floor(floor_ns);
    }
}

/// The keys of a segment, with words that are not 0: as they are, or as they were when they moved on.
fn words<'g>(segment: Segment<'g>) -> impl Iterator<Item = (Fingerprint, &'g Slot, u64)> {
    (0..segment.slots()).filter_map(move |at| {
        let slot = segment.slot(0, at);
        let Holds::Key(fingerprint) = slot.holds() else { return None };
        let word = match slot.word() {
            Word::Live(word) => word,
            Word::Frozen(_) if fault::active(Fault::ScanSkipsMoved) => 0,
            Word::Frozen(word) => word,
        };
        (word != 0).then_some((fingerprint, slot, word))
    })
}

/// The word of a key that was met in a segment that is being left, where it is by now. `None`: it was
/// dropped since.
fn moving<'g>(
    guard: &'g Guard,
    shard: &Shard,
    view: View<'g>,
    fingerprint: Fingerprint,
    met: (&'g Slot, u64),
) -> Option<(&'g Slot, u64)> {
    let arrived = || match view.newest()?.find(fingerprint) {
        Found::Live(_, 0) | Found::Moved(_, 0) | Found::Absent => None,
        Found::Live(slot, word) | Found::Moved(slot, word) => Some((slot, word)),
    };
    arrived().or_else(|| {
        // While the migration goes on nothing is dropped where it goes to: it had not arrived.
        if fault::active(Fault::OldWordUnchecked) || shard.view(guard).is(view) {
            coverage::hit(Race::ScannedMoving);
            return Some(met);
        }
        // All has arrived by now: what is not there was full, and was dropped.
        arrived()
    })
}
