//! Reading a file item by item, and nothing of it that cannot be.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use super::format::{Fields, Keys, Kind};
use super::frames::{Damage, FrameReader, Wrong};
use super::restore::Restoring;
use crate::algorithm::factor::Factor;
use crate::limits::Limits;
use crate::store::Fingerprint;

/// More than the name of any format of ids has, of other versions as well.
const MAX_FORMAT_BYTES: usize = 64;

/// A limit's name, the format of its ids as it is written, and the largest factor that it was charged with.
#[derive(Clone, Debug)]
pub(super) struct LimitItem {
    pub(super) name: Arc<str>,
    pub(super) format: Box<str>,
    pub(super) factor: Factor,
}

/// One bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) who: Who<'a>,
    pub(super) word: u64,
    /// The place of its numbers.
    pub(super) numbers: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Who<'a> {
    Fingerprint(Fingerprint),
    /// In its limit's normal form.
    Id(&'a [u8]),
}

/// Reads all limits, which come first, and the first frame after them. No two have one name, and at most
/// `most_unknown` are not `known`: each costs some hundred times what it takes in the file.
pub(super) fn limits<R: Read>(
    frames: &mut FrameReader<R>,
    most_unknown: usize,
    is_known: impl Fn(&str) -> bool,
) -> Result<Vec<LimitItem>, Damage> {
    let (mut limits, mut names, mut unknown) = (Vec::new(), HashSet::new(), 0);
    loop {
        frames.next()?;
        let (Kind::Limits, payload) = frames.frame() else { return Ok(limits) };
        let mut fields = Fields(payload);
        while !fields.is_empty() {
            let item = limit(&mut fields).filter(|item| names.insert(item.name.clone()));
            let item = item.ok_or_else(|| frames.damaged())?;
            unknown += usize::from(!is_known(&item.name));
            if unknown > most_unknown {
                return Err(frames.wrong(Wrong::Refused(format!(
                    "more than {most_unknown} limits that are not among the new ones: a file of this size may have so many"
                ))));
            }
            limits.push(item);
        }
    }
}

/// Reads the rest, from the frame that was read last on.
pub(super) fn rest<R: Read>(
    keys: Keys,
    mut frames: FrameReader<R>,
    restoring: &mut Restoring,
) -> Result<(), Damage> {
    let mut records = 0;
    loop {
        let (kind, payload) = frames.frame();
        let mut fields = Fields(payload);
        let took = match kind {
            Kind::Numbers => numbers(&mut fields, restoring),
            Kind::Records => buckets(keys, &mut fields, &mut records, restoring),
            Kind::End => end(&mut fields, records, restoring),
            Kind::Limits | Kind::Blocks => Err(Wrong::Damaged),
        };
        took.map_err(|wrong| frames.wrong(wrong))?;
        if kind == Kind::End {
            return frames.end();
        }
        frames.next()?;
    }
}

fn numbers(fields: &mut Fields<'_>, restoring: &mut Restoring) -> Result<(), Wrong> {
    while !fields.is_empty() {
        restoring.numbers(fields.numbers().ok_or(Wrong::Damaged)?)?;
    }
    Ok(())
}

fn buckets(
    keys: Keys,
    fields: &mut Fields<'_>,
    records: &mut u64,
    restoring: &mut Restoring,
) -> Result<(), Wrong> {
    while !fields.is_empty() {
        restoring.record(record(keys, fields).ok_or(Wrong::Damaged)?)?;
        *records += 1;
    }
    Ok(())
}

fn end(fields: &mut Fields<'_>, records: u64, restoring: &mut Restoring) -> Result<(), Wrong> {
    let count = fields.u64().ok_or(Wrong::Damaged)?;
    let floor_ns = fields.u64().ok_or(Wrong::Damaged)?;
    if count != records || !fields.is_empty() {
        return Err(Wrong::Damaged);
    }
    restoring.floor(floor_ns);
    Ok(())
}

fn limit(fields: &mut Fields<'_>) -> Option<LimitItem> {
    let (name, format) = (fields.text()?, fields.text()?);
    let factor = Factor::from_millionths(fields.u64()?);
    let is_one = Limits::is_name_in_file(name) && (1..=MAX_FORMAT_BYTES).contains(&format.len());
    is_one.then(|| LimitItem { name: name.into(), format: format.into(), factor })
}

fn record<'a>(keys: Keys, fields: &mut Fields<'a>) -> Option<Record<'a>> {
    let who = match keys {
        Keys::Fingerprints => {
            Who::Fingerprint(Fingerprint::from_halves([fields.u64()?, fields.u64()?])?)
        }
        Keys::Ids => Who::Id(fields.bytes()?),
    };
    Some(Record { who, word: fields.u64()?, numbers: fields.u32()? })
}
