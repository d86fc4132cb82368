//! Reads limits, debts of overrides and records from frames. The restorer checks the words.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use super::format::{FrameKind, Keys, Payload};
use super::frames::{FrameFault, FrameReader, ReadError};
use crate::algorithm::factor::Factor;
use crate::limits::{Limits, STRING_MAX_BYTES};
use crate::store::Fingerprint;

/// The maximum length of an id format's name. Other versions of this crate may have longer names than this one.
const MAX_FORMAT_BYTES: usize = 64;

/// A limit's name, its id format as text, and the largest factor with which it was charged.
#[derive(Clone, Debug)]
pub(super) struct LimitItem {
    pub(super) name: Arc<str>,
    pub(super) format: Box<str>,
    pub(super) factor: Factor,
}

/// A bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) key: RecordKey<'a>,
    pub(super) word: u64,
    /// The position of its limit's parameters in the file.
    pub(super) parameters: u32,
}

/// What the id of an override owes for calls that it made while the table had no room for its bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwedItem<'a> {
    /// The position of the override's parameters in the file; if `word` is 0, that of any parameters of the same limit.
    pub(super) parameters: u32,
    /// 0 if it owes nothing.
    pub(super) word: u64,
    /// In normal form; an account's number for an override of an account.
    pub(super) id: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RecordKey<'a> {
    Fingerprint(Fingerprint),
    /// The id in its limit's normal form.
    Id(&'a [u8]),
}

/// Reads the limits, which come first, and the first frame after them. Names must differ. At most `max_unknown` limits may be
/// unknown to the program, because each takes in memory some hundred times the bytes that it has in the file.
pub(super) fn read_limits<R: Read>(
    frames: &mut FrameReader<R>,
    max_unknown: usize,
    is_known: impl Fn(&str) -> bool,
) -> Result<Vec<LimitItem>, ReadError> {
    let (mut limits, mut names, mut unknown) = (Vec::new(), HashSet::new(), 0);
    loop {
        frames.next()?;
        let (FrameKind::Limits, payload) = frames.frame() else { return Ok(limits) };
        let mut payload = Payload(payload);
        while !payload.is_empty() {
            let item = read_limit(&mut payload).filter(|item| names.insert(item.name.clone()));
            let item = item.ok_or_else(|| frames.damaged())?;
            unknown += usize::from(!is_known(&item.name));
            if unknown > max_unknown {
                return Err(frames.error(FrameFault::Refused(format!(
                    "more than {max_unknown} limits that are not among the new ones, the maximum for a file of this size"
                ))));
            }
            limits.push(item);
        }
    }
}

fn read_limit(payload: &mut Payload<'_>) -> Option<LimitItem> {
    let (name, format) = (payload.text()?, payload.text()?);
    let factor = Factor::from_millionths(payload.u64()?);
    let is_valid = Limits::is_name_in_file(name) && (1..=MAX_FORMAT_BYTES).contains(&format.len());
    is_valid.then(|| LimitItem { name: name.into(), format: format.into(), factor })
}

/// Reads the debt of an override's id.
pub(super) fn read_owed<'a>(payload: &mut Payload<'a>) -> Option<OwedItem<'a>> {
    let (parameters, word, id) = (payload.u32()?, payload.u64()?, payload.bytes()?);
    let is_good = (1..=STRING_MAX_BYTES).contains(&id.len());
    is_good.then_some(OwedItem { parameters, word, id })
}

pub(super) fn read_record<'a>(keys: Keys, payload: &mut Payload<'a>) -> Option<Record<'a>> {
    let key = match keys {
        Keys::Fingerprints => RecordKey::Fingerprint(Fingerprint::from_halves(payload.u64s()?)?),
        Keys::Ids => RecordKey::Id(payload.bytes()?),
    };
    Some(Record { key, word: payload.u64()?, parameters: payload.u32()? })
}
