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
use super::read::{read_limits, read_owed, read_record};
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
        has_blocks.then(|| items[position].format.parse().ok()).flatten()
    };
    let limits = limits.in_places_of(items.iter().map(|item| &*item.name), format_to_keep);
    let max_keys = options.max_keys;
    let limiter = Limiter::with_store(limits, store, options.clock(clock), carry_over)
        .map_err(|error| frames.error(FrameFault::Refused(error.to_string())))?;
    let mut restorer = Restorer::new(limiter, times, carry_over, items, max_keys, budget);
    restorer.add_blocks(blocks, &is_gone).map_err(|fault| frames.error(fault))?;
    restorer.reserve(usize::try_from(declared_records).unwrap_or(usize::MAX).min(max_keys));
    read_buckets(header.keys, &mut frames, &mut restorer)?;
    restorer.finish().map_err(|fault| frames.error(fault))
}

/// Makes a store for the keys of the file. Fingerprints need a store with the seeds of the old one.
fn store_for(header: &Header, options: &LimiterOptions) -> Result<Store, ReadError> {
    match (header.keys, options.engine) {
        (Keys::Ids, _) => Ok(Store::new(options.engine, options.size())),
        #[cfg(feature = "exact")]
        (Keys::Fingerprints, Engine::Exact) => Err(ReadError::At(
            12,
            "the file has fingerprints, not ids: Engine::LockFree is allowed".into(),
        )),
        (Keys::Fingerprints, Engine::LockFree) => {
            Ok(Store::from_seeds(options.size(), header.seeds))
        }
    }
}

/// Reads parameters and records, from the current frame to the end of the file.
fn read_buckets<R: Read>(
    keys: Keys,
    frames: &mut FrameReader<R>,
    restorer: &mut Restorer,
) -> Result<(), ReadError> {
    let mut records = 0;
    loop {
        let (kind, payload) = frames.frame();
        let mut payload = Payload(payload);
        let read = match kind {
            FrameKind::Parameters => add_parameters(&mut payload, restorer),
            FrameKind::Owed => add_owed(&mut payload, restorer),
            FrameKind::Records => add_records(keys, &mut payload, &mut records, restorer),
            FrameKind::End => end(&mut payload, records, restorer),
            FrameKind::Limits | FrameKind::Blocks => Err(FrameFault::Damaged),
        };
        read.map_err(|fault| frames.error(fault))?;
        if kind == FrameKind::End {
            return frames.end();
        }
        frames.next()?;
    }
}

fn add_parameters(payload: &mut Payload<'_>, restorer: &mut Restorer) -> Result<(), FrameFault> {
    while !payload.is_empty() {
        restorer.add_parameters(payload.parameters().ok_or(FrameFault::Damaged)?)?;
    }
    Ok(())
}

fn add_owed(payload: &mut Payload<'_>, restorer: &mut Restorer) -> Result<(), FrameFault> {
    while !payload.is_empty() {
        let owed = read_owed(payload).ok_or(FrameFault::Damaged)?;
        restorer.add_owed(owed)?;
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
    let [count, floor_ns] = payload.u64s().ok_or(FrameFault::Damaged)?;
    if count != records || !payload.is_empty() {
        return Err(FrameFault::Damaged);
    }
    restorer.set_floor(floor_ns);
    Ok(())
}
