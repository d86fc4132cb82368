//! Restores a limiter from a file.

use std::collections::HashSet;
use std::io::{BufReader, Read};
use std::path::Path;

use super::Restored;
use super::blocks;
use super::budget;
use super::budget::ByteBudget;
use super::format::{FrameKind, Header, Keys, MAX_PAYLOAD, Payload};
use super::frames;
use super::frames::{FrameFault, FrameReader, ReadError};
use super::read::{read_limits, read_record};
use super::restorer::Restorer;
use super::times::Times;
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::Limits;
use crate::store::{Engine, Store};

pub(super) fn restore(
    limits: Limits,
    options: LimiterOptions,
    path: &Path,
    carry_over: CarryOver,
    wall_ns: u64,
) -> Result<(Limiter, Restored), ReadError> {
    let mut file = budget::open(path).map_err(ReadError::Io)?;
    let bytes = file.metadata().map_err(ReadError::Io)?.len();
    let declared_records = frames::declared_records(&mut file).map_err(ReadError::Io)?;
    let from = BufReader::with_capacity(2 * MAX_PAYLOAD, file);
    let (header, mut frames) = FrameReader::begin(from)?;
    let budget = ByteBudget::new(bytes, header.keys, declared_records)?;
    let times = Times::new(&header, wall_ns);
    let clock = options.clock.clone().unwrap_or_default().resumed_at(times.now_ns);
    let store = store_for(&header, &options)?;
    let is_known = |name: &str| limits.place_of(name).is_some();
    let items = read_limits(&mut frames, budget::max_unknown_limits(bytes), is_known)?;
    let now_ns = times.at_ns + times.elapsed_ns;
    let blocks = blocks::read(&mut frames, items.len(), now_ns, options.max_blocks)?;
    let is_gone: Vec<bool> = items.iter().map(|item| !is_known(&item.name)).collect();
    // A limit that is gone keeps its index if it has blocks and this program knows its id format.
    let blocked: HashSet<u32> = blocks.iter().map(|block| block.limit).collect();
    let format_to_keep = |position: usize| {
        let has_blocks = blocked.contains(&(position as u32));
        has_blocks.then(|| blocks::format_by_name(&items[position].format)).flatten()
    };
    let limits = limits.in_places_of(items.iter().map(|item| &*item.name), format_to_keep);
    let max_keys = options.max_keys;
    let limiter = Limiter::with_store(limits, store, options.clock(clock), carry_over);
    let mut restorer = Restorer::new(limiter, times, carry_over, items, max_keys, budget);
    restorer.add_blocks(blocks, &is_gone).map_err(|fault| frames.error(fault))?;
    restorer.reserve(usize::try_from(declared_records).unwrap_or(usize::MAX).min(max_keys));
    read_buckets(header.keys, frames, &mut restorer)?;
    Ok(restorer.finish())
}

/// Makes a store for the keys of the file. Fingerprints need a store with the seeds of the old one.
fn store_for(header: &Header, options: &LimiterOptions) -> Result<Store, ReadError> {
    let refused = |text: &str| Err(ReadError::At(12, text.into()));
    match (header.keys, options.engine) {
        (Keys::Ids, _) => Ok(Store::new(options.engine, options.max_keys)),
        (Keys::Fingerprints, Engine::Exact) => {
            refused("the file has fingerprints, not ids: Engine::LockFree is allowed")
        }
        (Keys::Fingerprints, Engine::LockFree) => {
            let store = Store::from_seeds(options.max_keys, header.seeds);
            if store.seeds() != Some((header.seeds, header.check)) {
                return refused(
                    "the fingerprints are of another hash function: only a program with the same version of ahash, on a processor with the same instructions for it, can read them",
                );
            }
            Ok(store)
        }
    }
}

/// Reads parameters and records, from the current frame to the end of the file.
fn read_buckets<R: Read>(
    keys: Keys,
    mut frames: FrameReader<R>,
    restorer: &mut Restorer,
) -> Result<(), ReadError> {
    let mut records = 0;
    loop {
        let (kind, payload) = frames.frame();
        let mut payload = Payload(payload);
        let read = match kind {
            FrameKind::Parameters => add_parameters(&mut payload, restorer),
            FrameKind::Records => add_records(keys, &mut payload, &mut records, restorer),
            FrameKind::End => end(&mut payload, records, restorer),
            FrameKind::Limits | FrameKind::Blocks => Err(FrameFault::Damaged),
        };
        read.map_err(|fault| frames.error(fault))?;
        if kind == FrameKind::End {
            return frames.end();
        }
        self.restored.blocks = inner.blocks.all(now_ns).len() as u64;
        for (limit, is_gone) in self.limits.iter_mut().zip(is_gone) {
            limit.index = limit.index.filter(|_| !is_gone);
        }
        Ok(())
    }

    fn make_room(&self, keys: usize) {
        let inner = &*self.limiter.inner;
        let guard = pin();
        inner.store.make_room(keys, &inner.view(&guard));
    }

    /// Some numbers. Their places are in their order.
    pub(super) fn numbers(&mut self, item: NumbersItem<'_>) -> Result<(), Wrong> {
        self.room.take(MIN_NUMBERS_BYTES)?;
        let old = Old::of(&item.numbers)?;
        let at_ns = self.times.at_ns;
        let until_ns = if item.end_ns == 0 { at_ns } else { item.end_ns.min(at_ns) };
        let limit = self.limits.get_mut(item.limit as usize).ok_or(Wrong::Damaged)?;
        let Some(index) = limit.index else {
            limit.note_gone(&mut self.restored.gone);
            self.numbers.push(KeptNumbers { old, until_ns, limit: None });
            return Ok(());
        };
        let guard = pin();
        let generation = self.limiter.inner.view(&guard).generation;
        let entry = generation.limits.entry(index);
        limit.check_format(entry.format)?;
        if let Some(new) = entry.any_limit()
            && self.debt != CarryOver::Afresh
            && !old.can_become(new)
        {
            return Err(Wrong::Refused(format!(
                "{}: what its buckets owe by {} cannot be told to {}: CarryOver::Afresh is allowed",
                entry.name,
                old.name(),
                new.algorithm()
            )));
        }
        let numbers = KeptNumbers { old, until_ns, limit: Some(index) };
        if item.shared != 0
            && let Some(tag) = generation.limits.default_tag(index)
            && let Some(new) = generation.limits.limit_at(tag)
            && let Some(word) = self.carried(&numbers, new, item.shared)?
        {
            // There are no newer limits.
            let _ = generation.update_shared(index, |_| Some(word));
            self.limiter.inner.overflow.note_restored();
        }
        self.numbers.push(numbers);
        Ok(())
    }

    /// A bucket. Its numbers came before it.
    pub(super) fn record(&mut self, record: Record<'_>) -> Result<(), Wrong> {
        let numbers = self.numbers.get(record.numbers).ok_or(Wrong::Damaged)?;
        let inner = &*self.limiter.inner;
        let guard = pin();
        let view = inner.view(&guard);
        let limits = &view.generation.limits;
        let cell_key = match record.who {
            Who::Fingerprint(fingerprint) => CellKey::Fingerprint(fingerprint),
            Who::Id(id) => CellKey::Id(id),
        };
        let found = numbers.limit.and_then(|limit| {
            let now_ns = self.times.now_ns;
            let tag = view.generation.applying(cell_key, limit, &self.ids, now_ns)?;
            let (fingerprint, id) = match record.who {
                Who::Fingerprint(fingerprint) => (fingerprint, &[][..]),
                Who::Id(id) => (view.store_key(KeyRef { limit, id }, tag).fingerprint, id),
            };
            let key = KeyRef { limit, id };
            Some((StoreKey { key, fingerprint, tag }, limits.limit_at(tag)?))
        });
        if !numbers.old.has_word(record.word) {
            return Err(Wrong::Damaged);
        }
        let Some((key, new)) = found else {
            self.restored.dropped += 1;
            return Ok(());
        };
        let Some(word) = self.carried(numbers, new, record.word)? else {
            self.restored.dropped += 1;
            return Ok(());
        };
        let now_ns = self.times.now_ns;
        if view.owed(cell_key, key.tag, word, now_ns).is_none() {
            self.restored.full += 1;
            return Ok(());
        }
        let mut is_new = true;
        let change = Change { key: &key, absent: Absent::Insert, now_ns };
        let charged = inner.store.update(change, &view, |found| {
            // Of a key that was met twice the later word, or the one that owes more: both were its word
            // while the file was written.
            is_new = found == 0;
            (found < word).then_some(word)
        });
        if charged == Err(Undone::AtCap) {
            let most = self.max_keys;
            return Err(Wrong::Refused(format!("it has more buckets than max_keys {most} allows")));
        }
        self.restored.buckets += u64::from(is_new);
        Ok(())
    }

    /// The time that the last bucket was dropped at: who owes nothing in the file owed nothing then.
    pub(super) fn floor(&mut self, floor_ns: u64) {
        let floor_ns = floor_ns.saturating_sub(self.times.by_ns);
        self.limiter.inner.store.set_floor(floor_ns.min(MAX_NOW_NS));
    }

    /// The word under new numbers and at the time as it is now. `None`: nothing is left of it.
    fn carried(&self, numbers: &KeptNumbers, new: &Limit, word: u64) -> Result<Option<u64>, Wrong> {
        if !numbers.old.has_word(word) {
            return Err(Wrong::Damaged);
        }
        let Some(word) = numbers.old.converted(self.debt, new, word, numbers.until_ns) else {
            return Ok(None);
        };
        if self.times.by_ns == 0 {
            return Ok(Some(word));
        }
        Ok(new.rule().shifted(word, self.times.by_ns, self.times.now_ns))
    }
}

fn add_parameters(payload: &mut Payload<'_>, restorer: &mut Restorer) -> Result<(), FrameFault> {
    while !payload.is_empty() {
        restorer.add_parameters(payload.parameters().ok_or(FrameFault::Damaged)?)?;
    }
    Ok(())
}

fn add_records(
    keys: Keys,
    payload: &mut Payload<'_>,
    records: &mut u64,
    restorer: &mut Restorer,
) -> Result<(), FrameFault> {
    while !payload.is_empty() {
        restorer.add_record(read_record(keys, payload).ok_or(FrameFault::Damaged)?)?;
        *records += 1;
    }
    Ok(())
}

fn end(payload: &mut Payload<'_>, records: u64, restorer: &mut Restorer) -> Result<(), FrameFault> {
    let count = payload.u64().ok_or(FrameFault::Damaged)?;
    let floor_ns = payload.u64().ok_or(FrameFault::Damaged)?;
    if count != records || !payload.is_empty() {
        return Err(FrameFault::Damaged);
    }
    restorer.set_floor(floor_ns);
    Ok(())
}
