//! Making a limiter of a file.

use std::collections::HashSet;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use super::Restored;
use super::blocks;
use super::blocks::BlockItem;
use super::format::{Header, Keys, MAX_PAYLOAD, MIN_NUMBERS_BYTES, NumbersItem, Parameters};
use super::frames;
use super::frames::{Damage, FrameReader, Wrong};
use super::read;
use super::read::{LimitItem, Record, Who};
use super::room;
use super::room::{Pieces, Room};
use crate::algorithm::packed::Packed;
use crate::algorithm::rule::Rule;
use crate::clock::MAX_NOW_NS;
use crate::core::generation::ById;
use crate::error::Error;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;
use crate::limiter::Limiter;
use crate::limiter::options::LimiterOptions;
use crate::limits::{IdFormat, Limits};
use crate::store::Engine;
use crate::store::key::{KeyRef, LimitIndex};
use crate::store::{Absent, CellKey, Change, Rules, Store, StoreKey, Undone, pin};

/// The latest time at which a restored limiter begins: 2.3 years. Words that count whole milliseconds have
/// room for 17.4 years, and windows that began in the last 2.3 are told exactly.
const LATEST_NS: u64 = 1 << 56;
const NS_PER_MS: u64 = 1_000_000;

pub(super) fn restore(
    limits: Limits,
    options: LimiterOptions,
    path: &Path,
    debt: CarryOver,
    wall_ns: u64,
) -> Result<(Limiter, Restored), Damage> {
    let mut file = room::open(path).map_err(Damage::Io)?;
    let bytes = file.metadata().map_err(Damage::Io)?.len();
    let said_records = frames::said_records(&mut file).map_err(Damage::Io)?;
    let from = BufReader::with_capacity(2 * MAX_PAYLOAD, file);
    let (header, mut frames) = FrameReader::begin(from)?;
    let room = Room::of(bytes, header.keys, said_records)?;
    let times = Times::of(&header, wall_ns);
    let clock = options.clock.clone().unwrap_or_default().going_on_at(times.now_ns);
    let store = store_for(&header, &options)?;
    let is_known = |name: &str| limits.place_of(name).is_some();
    let items = read::limits(&mut frames, room::most_unknown(bytes), is_known)?;
    let now_ns = times.at_ns + times.elapsed_ns;
    let blocks = blocks::read(&mut frames, items.len(), now_ns, options.max_blocks)?;
    let is_gone: Vec<bool> =
        items.iter().map(|item| limits.place_of(&item.name).is_none()).collect();
    let kept: HashSet<u32> = blocks.iter().map(|block| block.limit).collect();
    let kept = |place: usize| {
        kept.get(&(place as u32)).and_then(|_| blocks::format_of(&items[place].format))
    };
    let limits = limits.in_places_of(items.iter().map(|item| &*item.name), kept);
    let max_keys = options.max_keys;
    let limiter = Limiter::with_store(limits, store, options.clock(clock), debt);
    let mut restoring = Restoring::new(limiter, times, debt, items, max_keys, room);
    restoring.blocks(blocks, &is_gone).map_err(|wrong| frames.wrong(wrong))?;
    restoring.make_room(usize::try_from(said_records).unwrap_or(usize::MAX).min(max_keys));
    read::rest(header.keys, frames, &mut restoring)?;
    Ok((restoring.limiter, restoring.restored))
}

/// A store that tells keys as the file does, if it tells them by anything but their ids.
fn store_for(header: &Header, options: &LimiterOptions) -> Result<Store, Damage> {
    let refused = |text: &str| Err(Damage::At(12, text.into()));
    match (header.keys, options.engine) {
        (Keys::Ids, _) => Ok(Store::new(options.engine, options.max_keys)),
        (Keys::Fingerprints, Engine::Exact) => {
            refused("it has fingerprints of ids, not the ids: Engine::LockFree is allowed")
        }
        (Keys::Fingerprints, Engine::LockFree) => {
            let store = Store::of_seeds(options.max_keys, header.seeds);
            if store.seeds() != Some((header.seeds, header.check)) {
                return refused(
                    "its fingerprints are of another hash function: only a program with the same version of ahash, on a processor with the same instructions for it, is allowed",
                );
            }
            Ok(store)
        }
    }
}

/// When things were, and are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    /// What the old limiter's clock showed when the file was begun.
    at_ns: u64,
    elapsed_ns: u64,
    /// The origin is so much later than the old one: whole milliseconds.
    by_ns: u64,
    /// What the new limiter's clock shows at first.
    now_ns: u64,
}

impl Times {
    fn of(header: &Header, wall_ns: u64) -> Times {
        let at_ns = header.now_ns.clamp(1, MAX_NOW_NS);
        // After so long as there is time at all, all is full.
        let elapsed_ns = wall_ns.saturating_sub(header.wall_ns).min(MAX_NOW_NS);
        let now_ns = at_ns + elapsed_ns;
        let by_ns = now_ns.saturating_sub(LATEST_NS).next_multiple_of(NS_PER_MS);
        Times { at_ns, elapsed_ns, by_ns, now_ns: now_ns - by_ns }
    }
}

/// A limit of the file.
struct KeptLimit {
    item: LimitItem,
    /// Where it is among the limits as they are now; its place in the file is the same.
    index: Option<LimitIndex>,
    is_known_as_gone: bool,
}

impl KeptLimit {
    /// Adds its name to those of limits that are gone, unless it is there, or callers have no name for it.
    fn note_gone(&mut self, gone: &mut Vec<String>) {
        if !self.is_known_as_gone && !Limits::is_hidden(&self.item.name) {
            gone.push(self.item.name.as_ref().into());
        }
        self.is_known_as_gone = true;
    }

    /// Whether its ids are still of the format that they have in the file.
    fn check_format(&self, format: IdFormat) -> Result<(), Wrong> {
        let LimitItem { name, format: old, .. } = &self.item;
        if format.to_string() == **old {
            return Ok(());
        }
        Err(Wrong::Refused(format!("the ids of {name} are {old} there, not {format}")))
    }
}

/// Numbers of the file.
struct KeptNumbers {
    old: Old,
    /// When they ceased to apply, at the latest: by the old limiter's clock.
    until_ns: u64,
    limit: Option<LimitIndex>,
}

enum Old {
    Limit(Limit),
    /// A rule of one's own, by its name.
    Custom(Box<str>),
}

/// A limiter that nobody else has yet.
pub(super) struct Restoring {
    limiter: Limiter,
    restored: Restored,
    times: Times,
    debt: CarryOver,
    limits: Vec<KeptLimit>,
    numbers: Pieces<KeptNumbers>,
    room: Room,
    /// What applies now to ids with overrides.
    ids: ById,
    max_keys: usize,
}

impl Restoring {
    fn new(
        limiter: Limiter,
        times: Times,
        debt: CarryOver,
        items: Vec<LimitItem>,
        max_keys: usize,
        room: Room,
    ) -> Restoring {
        let guard = pin();
        let view = limiter.inner.view(&guard);
        let generation = view.generation;
        let of_item = |item: LimitItem| {
            let index = generation.limits.place_of(&item.name);
            if let Some(index) = index {
                generation.largest_factors.note(index, item.factor);
            }
            KeptLimit { item, index, is_known_as_gone: false }
        };
        let limits = items.into_iter().map(of_item).collect();
        let ids = ById::of(&generation.limits, &limiter.inner.store);
        drop(guard);
        let elapsed = Duration::from_nanos(times.elapsed_ns);
        let restored =
            Restored { buckets: 0, full: 0, dropped: 0, blocks: 0, gone: Vec::new(), elapsed };
        let numbers = Pieces::default();
        Restoring { limiter, restored, times, debt, limits, numbers, room, ids, max_keys }
    }

    /// The blocks. Those of a limit that is gone stay, for when it comes back.
    fn blocks(&mut self, items: Vec<BlockItem>, is_gone: &[bool]) -> Result<(), Wrong> {
        let inner = &*self.limiter.inner;
        let Times { now_ns, by_ns, .. } = self.times;
        let limits = self.limiter.limits();
        for item in items {
            let limit = self.limits.get_mut(item.limit as usize).ok_or(Wrong::Damaged)?;
            if Limits::is_hidden(&limit.item.name) {
                return Err(Wrong::Damaged);
            }
            let Some(index) = limit.index else {
                // Its ids have a format that this program does not know.
                limit.note_gone(&mut self.restored.gone);
                continue;
            };
            limit.check_format(limits.entry(index).format)?;
            let block = item.block(index, by_ns);
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

impl Old {
    fn of(parameters: &Parameters<'_>) -> Result<Old, Wrong> {
        let ms = Duration::from_millis;
        // Fewer than 2^24, so that a number in floating point is the same.
        let count = |units: u64| u32::try_from(units).map_err(|_| Wrong::Damaged);
        let limit: Result<Limit, Error> = match *parameters {
            Parameters::Custom(name) => return Ok(Old::Custom(name.into())),
            Parameters::Gcra { burst, count, period_ns } => {
                Limit::new(burst, count, Duration::from_nanos(period_ns))
            }
            Parameters::FixedWindow { limit, window_ms } => {
                Limit::fixed_window(limit, ms(window_ms))
            }
            Parameters::TokenBucket { limit, window_ms, burst } => {
                Limit::token_bucket(limit, ms(window_ms), burst)
            }
            Parameters::LeakyBucket { size, drip_rate_ms, drip_size } => {
                Limit::leaky_bucket(count(size)?, ms(drip_rate_ms), count(drip_size)?)
            }
        };
        limit.map(Old::Limit).map_err(|_| Wrong::Damaged)
    }

    fn name(&self) -> &str {
        match self {
            Old::Limit(limit) => limit.algorithm(),
            Old::Custom(name) => name,
        }
    }

    /// Whether a word of this means anything to `new`.
    fn can_become(&self, new: &Limit) -> bool {
        match (self, new.rule()) {
            (Old::Custom(name), Rule::Custom(rule)) => **name == *rule.name(),
            (Old::Limit(_), Rule::Custom(_)) | (Old::Custom(_), _) => false,
            (Old::Limit(_), _) => true,
        }
    }

    /// Whether this can have written a word.
    fn has_word(&self, word: u64) -> bool {
        let is_timed = match self {
            Old::Limit(limit) if !matches!(limit.rule(), Rule::Gcra(_)) => {
                Packed::of_word(word).at_ms > 0
            }
            Old::Limit(_) | Old::Custom(_) => true,
        };
        word != 0 && word >> 63 == 0 && is_timed
    }

    fn converted(&self, debt: CarryOver, new: &Limit, word: u64, at_ns: u64) -> Option<u64> {
        match self {
            _ if !self.can_become(new) => None,
            Old::Limit(old) => debt.converted(old, new, word, at_ns),
            Old::Custom(_) => Some(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(at_ns: u64, then_ns: u64, wall_ns: u64) -> (u64, u64, u64) {
        let header = Header {
            keys: Keys::Ids,
            wall_ns: then_ns,
            now_ns: at_ns,
            seeds: [0; 8],
            check: [0; 2],
        };
        let times = Times::of(&header, wall_ns);
        assert_eq!(times.by_ns % NS_PER_MS, 0);
        assert_eq!(times.now_ns + times.by_ns, times.at_ns + times.elapsed_ns);
        (times.now_ns, times.by_ns, times.elapsed_ns)
    }

    #[test]
    fn time_goes_on_and_never_back() {
        assert_eq!(times(5, 100, 107), (12, 0, 7));
        assert_eq!(times(5, 100, 100), (5, 0, 0));
        assert_eq!(times(5, 100, 0), (5, 0, 0), "the clock went back");
        assert_eq!(times(5, 0, LATEST_NS - 5), (LATEST_NS, 0, LATEST_NS - 5));
        // One ns more: the origin moves by whole milliseconds.
        assert_eq!(
            times(5, 0, LATEST_NS - 4),
            (LATEST_NS + 1 - NS_PER_MS, NS_PER_MS, LATEST_NS - 4)
        );
        let (now_ns, _, elapsed_ns) = times(MAX_NOW_NS, 0, u64::MAX);
        assert!(now_ns <= LATEST_NS && elapsed_ns == MAX_NOW_NS);
        assert_eq!(times(0, 0, 0).0, 1, "no clock shows 0");
    }
}
