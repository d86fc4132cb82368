//! Writing what buckets owe.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use super::format::{
    Header, Keys, Kind, MAX_PAYLOAD, NumbersItem, PRINT_RECORD_BYTES, Parameters, write_bytes,
};
use super::frames::Frames;
use super::{Snapshot, blocks};
use crate::algorithm::factor::Factor;
use crate::core::state::SharedState;
use crate::limit::Limit;
use crate::limits::Limits;
use crate::store::key::{LimitIndex, LimitTag};
use crate::store::{Kept, Whose, pin};

/// Writes all buckets of a limiter, of which no reload goes on meanwhile.
pub(super) fn write<W: Write>(
    inner: &SharedState,
    to: W,
    wall_ns: impl Fn() -> u64,
) -> io::Result<(W, Snapshot)> {
    // The limiter's clock first: what passes between the two has not passed for the buckets.
    let now_ns = inner.clock.now_ns();
    let wall_ns = wall_ns();
    let seeds = inner.store.seeds();
    let keys = if seeds.is_some() { Keys::Fingerprints } else { Keys::Ids };
    let (seeds, check) = seeds.unwrap_or_default();
    let header = Header { keys, wall_ns, now_ns, seeds, check };
    let standing = Standing::of(inner);
    let frames = Frames::begin(&header, BufWriter::with_capacity(2 * MAX_PAYLOAD, to))?;
    let mut writer = Writer {
        frames,
        standing: &standing,
        numbers: Vec::new(),
        records: Vec::new(),
        places: HashMap::default(),
        last: None,
        count: 0,
        blocks: 0,
    };
    writer.limits()?;
    writer.blocks = blocks::write(inner, now_ns, &mut writer.frames)?;
    writer.defaults()?;
    let mut kept = Vec::new();
    for part in 0..inner.store.parts() {
        // Copied first: nothing is pinned or locked while the disk is waited for.
        {
            let guard = pin();
            inner.store.scan(part, now_ns, &inner.view(&guard), &mut kept);
        }
        for kept in kept.drain(..) {
            writer.word(&kept)?;
        }
    }
    writer.end(inner.store.floor_ns())
}

/// What stands while a snapshot is written. As it is at its start: what was dropped or shared before is
/// told by it.
struct Standing {
    limits: Arc<Limits>,
    factors: Vec<Factor>,
    shared: Vec<u64>,
}

impl Standing {
    fn of(inner: &SharedState) -> Standing {
        let guard = pin();
        let generation = inner.generation.get(&guard);
        let limits = generation.limits.clone();
        let (factors, shared) = limits
            .by_index()
            .map(|(index, _)| {
                // There is no newer generation that it could have moved on to.
                let shared = generation.shared_word(index).unwrap_or(0);
                (generation.largest_factors.of(index), shared)
            })
            .unzip();
        Standing { limits, factors, shared }
    }
}

struct Writer<'s, W: Write> {
    frames: Frames<BufWriter<W>>,
    standing: &'s Standing,
    /// Payloads of the frames to come. Numbers come before the records that are in their units.
    numbers: Vec<u8>,
    records: Vec<u8>,
    /// Where in the file the numbers are that a note says.
    places: HashMap<u64, u32>,
    /// The one that was asked for last.
    last: Option<(LimitTag, u32)>,
    count: u64,
    blocks: u64,
}

impl<W: Write> Writer<'_, W> {
    /// All names, in the order of their indices.
    fn limits(&mut self) -> io::Result<()> {
        let standing = self.standing;
        let mut payload = Vec::new();
        for ((index, entry), factor) in standing.limits.by_index().zip(&standing.factors) {
            let mut item = Vec::new();
            write_bytes(standing.limits.name_in_file(index).as_bytes(), &mut item);
            write_bytes(entry.format.to_string().as_bytes(), &mut item);
            item.extend(factor.millionths().to_le_bytes());
            if payload.len() + item.len() > MAX_PAYLOAD {
                self.frames.add(Kind::Limits, &payload)?;
                payload.clear();
            }
            payload.extend(item);
        }
        self.frames.add(Kind::Limits, &payload)
    }

    /// The numbers of every default, with what newcomers share.
    fn defaults(&mut self) -> io::Result<()> {
        let standing = self.standing;
        for (index, _) in standing.limits.by_index() {
            if let Some(tag) = standing.limits.default_tag(index) {
                self.place(tag)?;
            }
        }
        Ok(())
    }

    /// Adds a bucket, unless there is no limit for it any more.
    fn word(&mut self, Kept { whose, tag, word }: &Kept) -> io::Result<()> {
        let Some(place) = self.place(*tag)? else { return Ok(()) };
        let longest = match whose {
            Whose::Fingerprint(_) => PRINT_RECORD_BYTES,
            Whose::Key(key) => PRINT_RECORD_BYTES + key.as_ref().id.len(),
        };
        if self.records.len() + longest > MAX_PAYLOAD {
            self.flush()?;
        }
        match whose {
            Whose::Fingerprint(fingerprint) => {
                let halves = fingerprint.halves();
                halves.iter().for_each(|half| self.records.extend(half.to_le_bytes()));
            }
            Whose::Key(key) => write_bytes(key.as_ref().id, &mut self.records),
        }
        self.records.extend(word.to_le_bytes());
        self.records.extend(place.to_le_bytes());
        self.count += 1;
        Ok(())
    }

    /// Where in the file the numbers are that a note says; they are added if they are new to it.
    fn place(&mut self, tag: LimitTag) -> io::Result<Option<u32>> {
        if let Some((_, place)) = self.last.filter(|(last, _)| *last == tag) {
            return Ok(Some(place));
        }
        let place = match self.places.get(&tag.bits()) {
            Some(&place) => place,
            None => {
                let Some(item) = self.standing.numbers(tag) else { return Ok(None) };
                let mut bytes = Vec::new();
                item.write(&mut bytes);
                if self.numbers.len() + bytes.len() > MAX_PAYLOAD {
                    self.frames.add(Kind::Numbers, &self.numbers)?;
                    self.numbers.clear();
                }
                self.numbers.extend(bytes);
                let place = self.places.len() as u32;
                self.places.insert(tag.bits(), place);
                place
            }
        };
        self.last = Some((tag, place));
        Ok(Some(place))
    }

    fn flush(&mut self) -> io::Result<()> {
        for (kind, payload) in
            [(Kind::Numbers, &mut self.numbers), (Kind::Records, &mut self.records)]
        {
            if !payload.is_empty() {
                self.frames.add(kind, payload)?;
                payload.clear();
            }
        }
        Ok(())
    }

    /// `floor_ns` is the floor after all was read.
    fn end(mut self, floor_ns: u64) -> io::Result<(W, Snapshot)> {
        self.flush()?;
        let mut payload = Vec::new();
        payload.extend(self.count.to_le_bytes());
        payload.extend(floor_ns.to_le_bytes());
        self.frames.add(Kind::End, &payload)?;
        let (to, bytes) = self.frames.end();
        let to = to.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((to, Snapshot { buckets: self.count, blocks: self.blocks, bytes }))
    }
}

impl Standing {
    fn numbers(&self, tag: LimitTag) -> Option<NumbersItem<'_>> {
        let LimitIndex(limit) = tag.limit()?;
        let numbers = parameters(self.limits.limit_at(tag)?);
        let shared = if tag.numbers() == 0 { self.shared.get(limit as usize) } else { None };
        let shared = shared.copied().unwrap_or(0);
        let end_ns = self.limits.end_ns(tag).unwrap_or(0);
        Some(NumbersItem { limit, shared, end_ns, numbers })
    }
}

/// Out of whole milliseconds, fewer than 2^39.
fn ms_of_duration(time: Duration) -> u64 {
    time.as_millis() as u64
}

fn parameters(limit: &Limit) -> Parameters<'_> {
    use crate::limit::Parameters as Of;
    match limit.parameters() {
        Of::Gcra { burst, count, period } => {
            // Out of a u64 of nanoseconds.
            Parameters::Gcra { burst, count, period_ns: period.as_nanos() as u64 }
        }
        Of::FixedWindow { limit, window } => {
            Parameters::FixedWindow { limit, window_ms: ms_of_duration(window) }
        }
        Of::TokenBucket { limit, window, burst } => {
            Parameters::TokenBucket { limit, window_ms: ms_of_duration(window), burst }
        }
        Of::LeakyBucket { size, drip_rate, drip_size } => {
            Parameters::LeakyBucket { size, drip_rate_ms: ms_of_duration(drip_rate), drip_size }
        }
        Of::Custom(rule) => Parameters::Custom(rule.name()),
    }
}
