//! Defines the file format, which docs/internals/snapshot.md explains. All numbers are little-endian.
//!
//! ```text
//! header      magic 8, version 4, engine 4, wall 8, now 8, seeds 32, sum 8
//! frame       kind 4, bytes 4, payload, sum 8
//! limits      name, format, largest factor 8; in the order of their indices
//! blocks      limit 4, until 8, id, has a reason 1, reason; right after the limits
//! parameters  limit 4, algorithm 1, overflow 8, end 8, three numbers 24, name
//! owed        parameters 4, word 8, id; after the parameters
//! records     lo 8, hi 8, word 8, parameters 4    or    id, word 8, parameters 4
//! end         records 8, floor 8
//! ```
//!
//! A text or an id is its length in 2 bytes, and its bytes.

use crate::store::hash::HashKeys;

pub(super) const MAGIC: [u8; 8] = *b"TOLLGATE";
/// The only version that is written and read.
pub(super) const VERSION: u32 = 3;

/// The maximum size of a frame's payload.
pub(super) const MAX_PAYLOAD: usize = 1 << 16;
/// The size of a frame without its payload.
pub(super) const FRAME_BYTES: usize = 4 + 4 + 8;
/// The size of a record with a fingerprint.
pub(super) const FINGERPRINT_RECORD_BYTES: usize = 8 + 8 + 8 + 4;
/// The minimum size of a record with an id, which is never empty.
pub(super) const MIN_ID_RECORD_BYTES: usize = 2 + 1 + 8 + 4;
/// The minimum size of a limit's parameters, whose name may be empty.
pub(super) const MIN_PARAMETERS_BYTES: usize = 4 + 1 + 8 + 8 + 24 + 2;
/// The size of the last frame's payload.
pub(super) const END_BYTES: usize = 8 + 8;

/// The form of the keys in a file, which depends on the engine that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Fingerprints, by `Engine::LockFree`.
    Fingerprints = 1,
    /// Ids in normal form, by `Engine::Exact`.
    Ids = 2,
}

impl Keys {
    /// Returns the minimum size of a record.
    pub(super) fn min_record_bytes(self) -> usize {
        match self {
            Keys::Fingerprints => FINGERPRINT_RECORD_BYTES,
            Keys::Ids => MIN_ID_RECORD_BYTES,
        }
    }

    fn from_number(number: u32) -> Option<Keys> {
        [Keys::Fingerprints, Keys::Ids].into_iter().find(|keys| *keys as u32 == number)
    }
}

/// The kind of a frame's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    Limits = 1,
    Parameters = 2,
    Records = 3,
    End = 4,
    Blocks = 5,
    Owed = 6,
}

impl FrameKind {
    pub(super) fn from_number(number: u32) -> Option<FrameKind> {
        use FrameKind::{Blocks, End, Limits, Owed, Parameters, Records};
        let all = [Limits, Parameters, Records, End, Blocks, Owed];
        all.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// The content of a file's header after magic and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) keys: Keys,
    /// The wall clock's time in nanoseconds since 1970, when the snapshot began.
    pub(super) wall_ns: u64,
    /// The limiter's clock at the same time.
    pub(super) now_ns: u64,
    /// The seeds of the fingerprints; zeros in a file with ids.
    pub(super) seeds: HashKeys,
}

impl Header {
    /// The size of the header, with magic, version and sum.
    pub(super) const BYTES: usize = 8 + 4 + 4 + 8 + 8 + 32 + 8;
    /// The size of the part between the version and the sum.
    const REST_BYTES: usize = Header::BYTES - 8 - 4 - 8;

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.keys as u32).to_le_bytes());
        let numbers = [self.wall_ns, self.now_ns].into_iter().chain(self.seeds);
        numbers.for_each(|number| out.extend(number.to_le_bytes()));
    }

    /// Reads the part between the version and the sum. `None` if the engine is unknown.
    pub(super) fn read(rest: &[u8; Header::REST_BYTES]) -> Option<Header> {
        let mut fields = Payload(rest);
        let keys = Keys::from_number(fields.u32()?)?;
        let [wall_ns, now_ns] = fields.u64s()?;
        Some(Header { keys, wall_ns, now_ns, seeds: fields.u64s()? })
    }
}

/// The parameters of one limit, default or override, that records refer to by their position in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParametersItem<'a> {
    /// The limit's position in the file.
    pub(super) limit: u32,
    /// The word of the bucket that untracked keys share; 0 for an override, whose ids have no part in it.
    pub(super) overflow: u64,
    /// The override's end by the old limiter's clock; 0 without an end.
    pub(super) end_ns: u64,
    pub(super) parameters: Parameters<'a>,
}

/// An algorithm with its numbers. `old_limit.rs` gives their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters<'a> {
    pub(super) algorithm: u8,
    pub(super) numbers: [u64; 3],
    /// The name of a custom algorithm, else empty.
    pub(super) name: &'a str,
}

impl ParametersItem<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.limit.to_le_bytes());
        out.push(self.parameters.algorithm);
        out.extend(self.overflow.to_le_bytes());
        out.extend(self.end_ns.to_le_bytes());
        self.parameters.numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        write_bytes(self.parameters.name.as_bytes(), out);
    }
}

/// Writes bytes with their length. More than 65,535 bytes would be cut, but no text or id is that long.
pub(super) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}

/// The unread rest of a payload. Each method reads a field from its front; `None` if the field is incomplete.
#[derive(Clone, Copy)]
pub(super) struct Payload<'a>(pub(super) &'a [u8]);

impl<'a> Payload<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub(super) fn u64s<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.u64()?;
        }
        Some(numbers)
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(u16::from_le_bytes(self.chunk()?));
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn parameters(&mut self) -> Option<ParametersItem<'a>> {
        let limit = self.u32()?;
        let algorithm = self.u8()?;
        let ([overflow, end_ns], numbers) = (self.u64s()?, self.u64s()?);
        let parameters = Parameters { algorithm, numbers, name: self.text()? };
        Some(ParametersItem { limit, overflow, end_ns, parameters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back() {
        let header =
            Header { keys: Keys::Fingerprints, wall_ns: 1, now_ns: 2, seeds: [3, 4, 5, 6] };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        assert_eq!(bytes.len() + 8, Header::BYTES);
        let rest = bytes[12..].first_chunk().unwrap();
        assert_eq!(Header::read(rest), Some(header));
        bytes[12] = 3;
        assert_eq!(Header::read(bytes[12..].first_chunk().unwrap()), None);
    }

    #[test]
    fn parameters_read_back_and_a_part_fails() {
        for (algorithm, name) in [(0, "a rule"), (1, ""), (4, "")] {
            let parameters = Parameters { algorithm, numbers: [1, 2, 3], name };
            let item = ParametersItem { limit: 9, overflow: 5, end_ns: 6, parameters };
            let mut bytes = Vec::new();
            item.write(&mut bytes);
            assert_eq!(bytes.len(), MIN_PARAMETERS_BYTES + name.len());
            let mut payload = Payload(&bytes);
            assert_eq!(payload.parameters().as_ref(), Some(&item));
            assert!(payload.is_empty());
            for len in 0..bytes.len() {
                assert_eq!(Payload(&bytes[..len]).parameters(), None, "{len} bytes of {item:?}");
            }
        }
    }
}
