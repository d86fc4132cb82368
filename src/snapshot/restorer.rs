//! Fills a new limiter with the blocks and buckets of a file.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::Restored;
use super::blocks;
use super::blocks::BlockItem;
use super::budget::{ByteBudget, ChunkedVec};
use super::format::{MIN_PARAMETERS_BYTES, ParametersItem};
use super::frames::FrameFault;
use super::old_limit::OldLimit;
use super::read::{LimitItem, OwedItem, Record, RecordKey};
use super::times::Times;
use crate::clock::MAX_NOW_NS;
use crate::core::generation::ById;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limits::{IdFormat, Limits, account_of};
use crate::store::key::{KeyRef, LimitIndex, OwnedId};
use crate::store::{Absent, CellKey, Change, Rules, StoreKey, UpdateError, pin};

/// The buckets that a file may have above `max_keys`, if that is less.
const MIN_BESIDE: usize = 1_000;

/// A limit of the file.
struct FileLimit {
    item: LimitItem,
    /// Its index among the new limits. `None` if it is gone.
    index: Option<LimitIndex>,
    is_reported_gone: bool,
}

impl FileLimit {
    /// Adds the name to `gone` once, unless it is a name that callers do not see.
    fn report_gone(&mut self, gone: &mut Vec<String>) {
        if !self.is_reported_gone && !Limits::is_hidden(&self.item.name) {
            gone.push(self.item.name.as_ref().into());
        }
        self.is_reported_gone = true;
    }

    /// Checks that the id format is still the one in the file.
    fn check_format(&self, format: IdFormat) -> Result<(), FrameFault> {
        let LimitItem { name, format: old, .. } = &self.item;
        if format.to_string() == **old {
            return Ok(());
        }
        Err(FrameFault::Refused(format!("the ids of {name} are {old} there, not {format}")))
    }
}

/// Parameters in the file, to which records refer.
struct FileParameters {
    old: OldLimit,
    /// The latest time at which they applied, by the old limiter's clock.
    until_ns: u64,
    limit: Option<LimitIndex>,
}

/// A word of untracked keys in the file.
#[derive(Clone, Copy)]
struct UntrackedWord {
    /// The position of its parameters in the file.
    parameters: u32,
    word: u64,
}

/// The debts in the file that ids have from the time when they were untracked. The overrides of the new limits begin with
/// them.
#[derive(Default)]
struct UntrackedDebts {
    /// The overflow bucket of each limit.
    overflow: HashMap<LimitIndex, UntrackedWord>,
    /// Those of the file's overrides, which have no part in the overflow bucket. Only of ids and accounts that have an
    /// override in the new limits.
    by_override: HashMap<(LimitIndex, OwnedId), UntrackedWord>,
    /// The ids and the accounts with an override in the new limits; made with the first override of the file.
    wanted: Option<HashSet<(LimitIndex, OwnedId)>>,
}

impl UntrackedDebts {
    fn is_wanted(&mut self, limits: &Limits, key: KeyRef<'_>) -> bool {
        let wanted = self.wanted.get_or_insert_with(|| {
            let ids = limits.overrides_by_id().flat_map(|given| {
                let ids = [Some(given.id), account_of(given.format, given.id)];
                ids.into_iter().flatten().map(move |id| (given.limit, OwnedId::new(id)))
            });
            ids.collect()
        });
        wanted.contains(&(key.limit, OwnedId::new(key.id)))
    }

    /// Returns the word for a key, by the limit that applied to the key in the file.
    fn of(&self, key: KeyRef<'_>, format: IdFormat) -> Option<UntrackedWord> {
        let ids = [Some(key.id), account_of(format, key.id)];
        let mut ids = ids.into_iter().flatten();
        let by_override = ids.find_map(|id| self.by_override.get(&(key.limit, OwnedId::new(id))));
        by_override.or_else(|| self.overflow.get(&key.limit)).copied()
    }
}

/// A limiter that no caller has yet, while it is filled.
pub(super) struct Restorer {
    limiter: Limiter,
    restored: Restored,
    times: Times,
    carry_over: CarryOver,
    limits: Vec<FileLimit>,
    parameters: ChunkedVec<FileParameters>,
    untracked: UntrackedDebts,
    budget: ByteBudget,
    /// The new limits of ids with overrides.
    ids: ById,
    max_keys: usize,
}

impl Restorer {
    pub(super) fn new(
        limiter: Limiter,
        times: Times,
        carry_over: CarryOver,
        items: Vec<LimitItem>,
        max_keys: usize,
        budget: ByteBudget,
    ) -> Restorer {
        let guard = pin();
        let view = limiter.inner.view(&guard);
        let generation = view.generation;
        let file_limit = |item: LimitItem| {
            let index = generation.limits.place_of(&item.name);
            if let Some(index) = index {
                generation.largest_factors.record(index, item.factor);
            }
            FileLimit { item, index, is_reported_gone: false }
        };
        let limits = items.into_iter().map(file_limit).collect();
        let ids = ById::new(&generation.limits, &limiter.inner.store);
        // While the file is read, each limit may have all places. The limiter that wrote the file can have had more buckets
        // than `max_keys`, by overrides that these limits do not have.
        let max_keys = max_keys.saturating_add(max_keys.max(MIN_BESIDE));
        limiter.inner.store.open(max_keys, generation.limits.count());
        drop(guard);
        let elapsed = Duration::from_nanos(times.elapsed_ns);
        let restored =
            Restored { buckets: 0, full: 0, dropped: 0, blocks: 0, gone: Vec::new(), elapsed };
        Restorer {
            limiter,
            restored,
            times,
            carry_over,
            limits,
            parameters: ChunkedVec::default(),
            untracked: UntrackedDebts::default(),
            budget,
            ids,
            max_keys,
        }
    }

    /// Adds the blocks. A block of a limit that is gone stays for the time when the limit comes back. `is_gone` tells for
    /// each limit of the file whether it is gone.
    pub(super) fn add_blocks(
        &mut self,
        items: Vec<BlockItem>,
        is_gone: &[bool],
    ) -> Result<(), FrameFault> {
        let inner = &*self.limiter.inner;
        let Times { now_ns, by_ns, .. } = self.times;
        let limits = self.limiter.limits();
        for item in items {
            let limit = self.limits.get_mut(item.limit as usize).ok_or(FrameFault::Damaged)?;
            if Limits::is_hidden(&limit.item.name) {
                return Err(FrameFault::Damaged);
            }
            let Some(index) = limit.index else {
                // This program does not know the limit's id format.
                limit.report_gone(&mut self.restored.gone);
                continue;
            };
            limit.check_format(limits.entry(index).format)?;
            let block = item.into_block(index, by_ns);
            let hash = inner.bin_hash(block.key.as_ref());
            let max = inner.blocks.max();
            inner.blocks.block(hash, block, now_ns).map_err(|_full| blocks::too_many(max))?;
        }
        self.restored.blocks = inner.blocks.all(now_ns).len() as u64;
        for (limit, is_gone) in self.limits.iter_mut().zip(is_gone) {
            limit.index = limit.index.filter(|_| !is_gone);
        }
        Ok(())
    }

    /// Grows the table for this number of keys.
    pub(super) fn reserve(&self, keys: usize) {
        let inner = &*self.limiter.inner;
        let guard = pin();
        inner.store.make_room(keys, &inner.view(&guard));
    }

    /// Adds parameters. Records refer to them by the order in which they come.
    pub(super) fn add_parameters(&mut self, item: ParametersItem<'_>) -> Result<(), FrameFault> {
        self.budget.take(MIN_PARAMETERS_BYTES)?;
        let old = OldLimit::decode(&item.parameters)?;
        let at_ns = self.times.at_ns;
        let until_ns = if item.end_ns == 0 { at_ns } else { item.end_ns.min(at_ns) };
        let limit = self.limits.get_mut(item.limit as usize).ok_or(FrameFault::Damaged)?;
        let Some(index) = limit.index else {
            limit.report_gone(&mut self.restored.gone);
            self.parameters.push(FileParameters { old, until_ns, limit: None });
            return Ok(());
        };
        let guard = pin();
        let generation = self.limiter.inner.view(&guard).generation;
        let entry = generation.limits.entry(index);
        limit.check_format(entry.format)?;
        if let Some(new) = entry.any_limit()
            && self.carry_over != CarryOver::Afresh
            && !old.can_become(new)
        {
            return Err(FrameFault::Refused(format!(
                "{}: the debt of its buckets cannot be converted from {} to {}: CarryOver::Afresh is allowed",
                entry.public_name(),
                old.algorithm(),
                new.algorithm()
            )));
        }
        let parameters = FileParameters { old, until_ns, limit: Some(index) };
        if item.overflow != 0 {
            self.set_overflow(&parameters, index, item.overflow)?;
            let position = self.parameters.len() as u32;
            let word = UntrackedWord { parameters: position, word: item.overflow };
            self.untracked.overflow.insert(index, word);
        }
        self.parameters.push(parameters);
        Ok(())
    }

    /// Sets a limit's overflow bucket to a word of the file. It does nothing if the limit has no default.
    fn set_overflow(
        &self,
        parameters: &FileParameters,
        index: LimitIndex,
        word: u64,
    ) -> Result<(), FrameFault> {
        let guard = pin();
        let generation = self.limiter.inner.view(&guard).generation;
        let default = generation.limits.default_tag(index);
        if let Some(new) = default.and_then(|tag| generation.limits.limit_at(tag))
            && let Some(word) = self.convert(parameters, new, word)?
        {
            generation.restore_overflow(index, word, self.limiter.inner.clock.now_ns());
            self.limiter.inner.overflow.note_restored();
        }
        Ok(())
    }

    /// Adds the debt of an override's id. Its parameters must have come before.
    pub(super) fn add_owed(&mut self, item: OwedItem<'_>) -> Result<(), FrameFault> {
        let OwedItem { parameters: position, word, id } = item;
        let parameters = self.parameters.get(position).ok_or(FrameFault::Damaged)?;
        if word != 0 && !parameters.old.has_word(word) {
            return Err(FrameFault::Damaged);
        }
        let Some(limit) = parameters.limit else { return Ok(()) };
        let guard = pin();
        let limits = &self.limiter.inner.view(&guard).generation.limits;
        let key = KeyRef { limit, id };
        if self.untracked.is_wanted(limits, key) {
            let word = UntrackedWord { parameters: position, word };
            self.untracked.by_override.insert((limit, OwnedId::new(id)), word);
        }
        Ok(())
    }

    /// Adds a bucket, whose parameters must have come before.
    pub(super) fn add_record(&mut self, record: Record<'_>) -> Result<(), FrameFault> {
        let parameters = self.parameters.get(record.parameters).ok_or(FrameFault::Damaged)?;
        let inner = &*self.limiter.inner;
        let guard = pin();
        let view = inner.view(&guard);
        let limits = &view.generation.limits;
        let now_ns = self.times.now_ns;
        let cell_key = match record.key {
            RecordKey::Fingerprint(fingerprint) => CellKey::Fingerprint(fingerprint),
            RecordKey::Id(id) => CellKey::Id(id),
        };
        let applying = parameters.limit.and_then(|limit| {
            let tag = view.generation.tag_for_cell(cell_key, limit, &self.ids, now_ns)?;
            let (fingerprint, id) = match record.key {
                RecordKey::Fingerprint(fingerprint) => (fingerprint, &[][..]),
                RecordKey::Id(id) => (view.store_key(KeyRef { limit, id }, tag).fingerprint, id),
            };
            let key = KeyRef { limit, id };
            Some((StoreKey { key, fingerprint, tag }, limits.limit_at(tag)?))
        });
        if !parameters.old.has_word(record.word) {
            return Err(FrameFault::Damaged);
        }
        let Some((key, new)) = applying else {
            self.restored.dropped += 1;
            return Ok(());
        };
        let Some(word) = self.convert(parameters, new, record.word)? else {
            self.restored.dropped += 1;
            return Ok(());
        };
        if view.owed(cell_key, key.tag, word, now_ns).is_none() {
            self.restored.full += 1;
            return Ok(());
        }
        let mut is_new = true;
        let change = Change { key: &key, absent: Absent::Insert, now_ns };
        let updated = inner.store.update(change, &view, |state| {
            // A key may have two records, because both words were its state while the file was written. Keep the larger
            // word, which is the later one or the one with more debt.
            is_new = state == 0;
            (state < word).then_some(word)
        });
        if updated == Err(UpdateError::TableFull) {
            let max = self.max_keys;
            return Err(FrameFault::Refused(format!(
                "it has more buckets than the {max} that max_keys allows"
            )));
        }
        self.restored.buckets += u64::from(is_new);
        Ok(())
    }

    /// Sets the eviction time floor. A key without a record had no debt at that time.
    pub(super) fn set_floor(&mut self, floor_ns: u64) {
        let floor_ns = floor_ns.saturating_sub(self.times.by_ns);
        self.limiter.inner.store.set_floor(floor_ns.min(MAX_NOW_NS));
    }

    /// Returns the limiter, in which new cells of overrides begin with the debts of untracked keys.
    pub(super) fn finish(self) -> Result<(Limiter, Restored), FrameFault> {
        let guard = pin();
        let inner = &*self.limiter.inner;
        let generation = inner.view(&guard).generation;
        let mut owed = Vec::new();
        for given in generation.limits.overrides_by_id() {
            let key = KeyRef { limit: given.limit, id: given.id };
            let untracked = self.untracked.of(key, given.format).filter(|of| of.word != 0);
            if let Some(UntrackedWord { parameters, word }) = untracked
                && let Some(new) = generation.limits.limit_at(given.tag)
                && let Some(parameters) = self.parameters.get(parameters)
                && let Some(word) = self.convert(parameters, new, word)?
            {
                owed.push((key, given.tag, word));
            }
        }
        if !owed.is_empty() {
            generation.set_owed(owed.into_iter());
            inner.overflow.note_restored();
        }
        let parts = generation.limits.parts(inner.store.max_keys());
        inner.store.divide(&parts.map_err(|error| FrameFault::Refused(error.to_string()))?);
        drop(guard);
        Ok((self.limiter, self.restored))
    }

    /// Converts a word to the limit `new` and the new clock. `None` if nothing of its debt remains.
    fn convert(
        &self,
        parameters: &FileParameters,
        new: &Limit,
        word: u64,
    ) -> Result<Option<u64>, FrameFault> {
        let FileParameters { old, until_ns, .. } = parameters;
        if !old.has_word(word) {
            return Err(FrameFault::Damaged);
        }
        let Some(word) = old.convert(self.carry_over, new, word, *until_ns) else {
            return Ok(None);
        };
        if self.times.by_ns == 0 {
            return Ok(Some(word));
        }
        Ok(new.rule().shifted(word, self.times.by_ns, self.times.now_ns))
    }
}
