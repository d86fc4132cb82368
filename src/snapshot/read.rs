//! Reads limits and records from frames, and checks them.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use super::format::{FrameKind, Keys, Payload};
use super::frames::{FrameFault, FrameReader, ReadError};
use crate::algorithm::factor::Factor;
use crate::limits::Limits;
use crate::store::Fingerprint;

/// The maximum length of an id format's name, in this version and others.
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

#[derive(Clone, Copy, Debug)]
pub(super) enum RecordKey<'a> {
    Fingerprint(Fingerprint),
    /// The id in its limit's normal form.
    Id(&'a [u8]),
}

/// Reads the limits, which come first, and the first frame after them. Names must differ. At most `max_unknown` of the
/// limits may be unknown, because each takes some hundred times its size in the file.
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

pub(super) fn read_record<'a>(keys: Keys, payload: &mut Payload<'a>) -> Option<Record<'a>> {
    let key = match keys {
        Keys::Fingerprints => RecordKey::Fingerprint(Fingerprint::from_halves(payload.u64s()?)?),
        Keys::Ids => RecordKey::Id(payload.bytes()?),
    };
    Some(Record { key, word: payload.u64()?, parameters: payload.u32()? })
}
