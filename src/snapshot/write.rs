//! Writes the debt of all buckets.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use super::format::{
    FINGERPRINT_RECORD_BYTES, FrameKind, Header, Keys, MAX_PAYLOAD, ParametersItem, write_bytes,
};
use super::frames::FrameWriter;
use super::{Snapshot, blocks, old_limit};
use crate::algorithm::factor::Factor;
use crate::core::state::LimiterState;
use crate::limits::Limits;
use crate::store::key::{KeyRef, LimitIndex, LimitTag, OwnedId};
use crate::store::{PersistedCell, PersistedKey, pin};

/// Writes all buckets of a limiter. The caller holds off reloads meanwhile.
pub(super) fn write<W: Write>(
    inner: &LimiterState,
    to: W,
    wall_ns: impl Fn() -> u64,
) -> io::Result<(W, Snapshot)> {
    // Read the limiter's clock first. The time between the two readings is then not taken for refill time.
    let now_ns = inner.clock.now_ns();
    let wall_ns = wall_ns();
    let seeds = inner.store.seeds();
    let keys = if seeds.is_some() { Keys::Fingerprints } else { Keys::Ids };
    let header = Header { keys, wall_ns, now_ns, seeds: seeds.unwrap_or_default() };
    let limits = SnapshotLimits::read(inner, now_ns);
    let frames = FrameWriter::begin(&header, BufWriter::with_capacity(2 * MAX_PAYLOAD, to))?;
    let mut writer = Writer {
        frames,
        limits: &limits,
        parameters: Vec::new(),
        records: Vec::new(),
        positions: HashMap::default(),
        last: None,
        buckets: 0,
    };
    writer.write_limits()?;
    let blocks = blocks::write(inner, now_ns, &mut writer.frames)?;
    writer.write_defaults()?;
    writer.write_owed()?;
    let mut kept = Vec::new();
    for part in 0..inner.store.parts() {
        // Copy the part first, so that no pin or lock is held while the thread waits for the disk.
        {
            let guard = pin();
            inner.store.scan(part, now_ns, &inner.view(&guard), &mut kept);
        }
        for kept in kept.drain(..) {
            writer.write_record(&kept)?;
        }
    }
    // The floor is read after all buckets: it covers those that a sweep dropped meanwhile.
    writer.end(inner.store.floor_ns(), blocks)
}

/// The limits, largest factors and overflow buckets at the start of a snapshot, with everything that was charged before.
struct SnapshotLimits {
    limits: Arc<Limits>,
    factors: Vec<Factor>,
    overflow: Vec<u64>,
    /// The overrides of limits whose untracked keys have debts. The word is the debt that the override's id has from the
    /// time when it was untracked itself, 0 for none.
    owed: Vec<(LimitTag, u64, OwnedId)>,
}

impl SnapshotLimits {
    fn read(inner: &LimiterState, now_ns: u64) -> SnapshotLimits {
        let guard = pin();
        let generation = inner.generation.get(&guard);
        let limits = generation.limits.clone();
        let (factors, overflow): (_, Vec<u64>) = limits
            .by_index()
            .map(|(index, _)| {
                // The word of the overflow bucket has not moved to a newer generation, because reloads are held off.
                let overflow = generation.overflow_word(index).unwrap_or(0);
                (generation.largest_factors.get(index), overflow)
            })
            .unzip();
        let mut owed = Vec::new();
        if generation.has_owed() || overflow.iter().any(|&word| word != 0) {
            owed.extend(limits.overrides_by_id().filter_map(|given| {
                let key = KeyRef { limit: given.limit, id: given.id };
                // `None`: by its override the id has no limit, and no debt.
                let tag = limits.tag_of(key, now_ns);
                if tag.is_some_and(|tag| !tag.is_of_override()) {
                    return None;
                }
                let word = tag.map_or(0, |tag| generation.owed_by_override(key, tag));
                let has_overflow =
                    overflow.get(given.limit.0 as usize).is_some_and(|&word| word != 0);
                let tag = tag.unwrap_or(given.tag);
                (word != 0 || has_overflow).then(|| (tag, word, OwnedId::new(given.id)))
            }));
        }
        SnapshotLimits { limits, factors, overflow, owed }
    }

    /// Returns the parameters of a limit tag. `None` if it has no limit, or one whose buckets are in no snapshot.
    fn parameters(&self, tag: LimitTag) -> Option<ParametersItem<'_>> {
        let LimitIndex(limit) = tag.limit()?;
        let parameters = old_limit::encode(self.limits.limit_at(tag)?)?;
        let overflow = if tag.terms() == 0 { self.overflow.get(limit as usize) } else { None };
        let overflow = overflow.copied().unwrap_or(0);
        let end_ns = self.limits.end_ns(tag).unwrap_or(0);
        Some(ParametersItem { limit, overflow, end_ns, parameters })
    }
}

struct Writer<'s, W: Write> {
    frames: FrameWriter<BufWriter<W>>,
    limits: &'s SnapshotLimits,
    /// Payloads of the next frames. The frame of parameters is written before that of the records which refer to it.
    parameters: Vec<u8>,
    records: Vec<u8>,
    /// The position in the file of each limit tag's parameters.
    positions: HashMap<u64, u32>,
    /// The last tag that was looked up, with its position.
    last: Option<(LimitTag, u32)>,
    buckets: u64,
}

impl<W: Write> Writer<'_, W> {
    /// Writes all limits in the order of their indices.
    fn write_limits(&mut self) -> io::Result<()> {
        let SnapshotLimits { limits, factors, .. } = self.limits;
        let mut payload = Vec::new();
        for ((index, entry), factor) in limits.by_index().zip(factors) {
            let mut item = Vec::new();
            write_bytes(limits.name_in_file(index).as_bytes(), &mut item);
            write_bytes(entry.format.to_string().as_bytes(), &mut item);
            item.extend(factor.millionths().to_le_bytes());
            self.frames.push(FrameKind::Limits, &mut payload, &item)?;
        }
        // Written even if it is empty: each file has a frame of limits.
        self.frames.write(FrameKind::Limits, &payload)
    }

    /// Writes the parameters of all defaults, with their overflow buckets.
    fn write_defaults(&mut self) -> io::Result<()> {
        let limits = &self.limits.limits;
        for (index, _) in limits.by_index() {
            if let Some(tag) = limits.default_tag(index) {
                self.position(tag)?;
            }
        }
        Ok(())
    }

    /// Writes the debts that the ids of overrides have from the time when they were untracked.
    fn write_owed(&mut self) -> io::Result<()> {
        let owed = &self.limits.owed;
        let mut positions = Vec::with_capacity(owed.len());
        for (tag, ..) in owed {
            let position = match self.position(*tag)? {
                // An override without a limit has no parameters. Its id has no debt, so any parameters will do.
                None => self.default_position(*tag)?,
                position => position,
            };
            positions.push(position);
        }
        // The parameters come first.
        self.flush()?;
        let mut payload = Vec::new();
        for ((_, word, id), position) in owed.iter().zip(positions) {
            let Some(position) = position else { continue };
            let mut item = Vec::new();
            item.extend(position.to_le_bytes());
            item.extend(word.to_le_bytes());
            write_bytes(id.as_bytes(), &mut item);
            self.frames.push(FrameKind::Owed, &mut payload, &item)?;
        }
        self.frames.flush(FrameKind::Owed, &mut payload)
    }

    /// Writes a bucket, unless its limit no longer exists or is in no snapshot.
    fn write_record(&mut self, PersistedCell { key, tag, word }: &PersistedCell) -> io::Result<()> {
        let Some(position) = self.position(*tag)? else { return Ok(()) };
        let max_bytes = match key {
            PersistedKey::Fingerprint(_) => FINGERPRINT_RECORD_BYTES,
            PersistedKey::Key(key) => FINGERPRINT_RECORD_BYTES + key.as_ref().id.len(),
        };
        if self.records.len() + max_bytes > MAX_PAYLOAD {
            self.flush()?;
        }
        match key {
            PersistedKey::Fingerprint(fingerprint) => {
                let halves = fingerprint.halves();
                halves.iter().for_each(|half| self.records.extend(half.to_le_bytes()));
            }
            PersistedKey::Key(key) => write_bytes(key.as_ref().id, &mut self.records),
        }
        self.records.extend(word.to_le_bytes());
        self.records.extend(position.to_le_bytes());
        self.buckets += 1;
        Ok(())
    }

    /// Returns the position in the file of a tag's parameters, and writes them at the first call. `None` if the tag has no
    /// limit.
    fn position(&mut self, tag: LimitTag) -> io::Result<Option<u32>> {
        if let Some((_, position)) = self.last.filter(|(last, _)| *last == tag) {
            return Ok(Some(position));
        }
        let position = match self.positions.get(&tag.bits()) {
            Some(&position) => position,
            None => {
                let Some(item) = self.limits.parameters(tag) else { return Ok(None) };
                let mut bytes = Vec::new();
                item.write(&mut bytes);
                self.frames.push(FrameKind::Parameters, &mut self.parameters, &bytes)?;
                let position = self.positions.len() as u32;
                self.positions.insert(tag.bits(), position);
                position
            }
        };
        self.last = Some((tag, position));
        Ok(Some(position))
    }

    /// Returns the position of the default of a tag's limit, if it has one.
    fn default_position(&mut self, tag: LimitTag) -> io::Result<Option<u32>> {
        match tag.limit().and_then(|limit| self.limits.limits.default_tag(limit)) {
            Some(default) => self.position(default),
            None => Ok(None),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.frames.flush(FrameKind::Parameters, &mut self.parameters)?;
        self.frames.flush(FrameKind::Records, &mut self.records)
    }

    /// Writes the last frame, with the eviction time floor.
    fn end(mut self, floor_ns: u64, blocks: u64) -> io::Result<(W, Snapshot)> {
        self.flush()?;
        let payload = [self.buckets.to_le_bytes(), floor_ns.to_le_bytes()].concat();
        self.frames.write(FrameKind::End, &payload)?;
        let (to, bytes) = self.frames.end();
        let to = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((to, Snapshot { buckets: self.buckets, blocks, bytes }))
    }
}
