//! How a file of buckets looks: docs/internals/snapshot.md. All numbers are little-endian.
//!
//! ```text
//! header    magic 8, version 4, engine 4, wall 8, now 8, seeds 64, check 16, sum 8
//! frame     kind 4, bytes 4, payload, sum 8
//! limits    name, format, largest factor 8; in the order of their indices
//! blocks    limit 4, until 8, id, has a reason 1, reason; right after the limits
//! numbers   limit 4, algorithm 1, shared 8, end 8, three parameters 24, name
//! records   lo 8, hi 8, word 8, numbers 4    or    id, word 8, numbers 4
//! end       records 8, floor 8
//! ```
//!
//! Text and ids are their length, 2 bytes, and their bytes.

use crate::store::SeedBits;

pub(super) const MAGIC: [u8; 8] = *b"TOLLGATE";
/// The version that is written, and the only one that there is.
pub(super) const VERSION: u32 = 2;

/// The most bytes of a frame's payload.
pub(super) const MAX_PAYLOAD: usize = 1 << 16;
/// What is around a payload.
pub(super) const FRAME_BYTES: usize = 4 + 4 + 8;
/// Of a fingerprint with its word.
pub(super) const PRINT_RECORD_BYTES: usize = 8 + 8 + 8 + 4;
/// The least of an id with its word: no id is empty.
pub(super) const MIN_ID_RECORD_BYTES: usize = 2 + 1 + 8 + 4;
/// The least of numbers: those without a name.
pub(super) const MIN_NUMBERS_BYTES: usize = 4 + 1 + 8 + 8 + 24 + 2;
/// Of the last frame's payload.
pub(super) const END_BYTES: usize = 8 + 8;

/// Which engine wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Fingerprints.
    Fingerprints = 1,
    /// Ids in normal form.
    Ids = 2,
}

impl Keys {
    /// The least that a record takes.
    pub(super) fn least_record_bytes(self) -> usize {
        match self {
            Keys::Fingerprints => PRINT_RECORD_BYTES,
            Keys::Ids => MIN_ID_RECORD_BYTES,
        }
    }

    pub(super) fn of_number(number: u32) -> Option<Keys> {
        [Keys::Fingerprints, Keys::Ids].into_iter().find(|keys| *keys as u32 == number)
    }
}

/// What is in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Limits = 1,
    Numbers = 2,
    Records = 3,
    End = 4,
    Blocks = 5,
}

impl Kind {
    pub(super) fn of_number(number: u32) -> Option<Kind> {
        let all = [Kind::Limits, Kind::Numbers, Kind::Records, Kind::End, Kind::Blocks];
        all.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// What a file begins with, after its magic and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) keys: Keys,
    /// Nanoseconds since 1970 when the file was begun.
    pub(super) wall_ns: u64,
    /// What the limiter's clock showed then.
    pub(super) now_ns: u64,
    /// Zeroes where ids are kept.
    pub(super) seeds: SeedBits,
    pub(super) check: [u64; 2],
}

impl Header {
    /// Before the magic and after the sum included.
    pub(super) const BYTES: usize = 8 + 4 + 4 + 8 + 8 + 64 + 16 + 8;
    /// After magic and version, before the sum.
    const REST_BYTES: usize = Header::BYTES - 8 - 4 - 8;

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.keys as u32).to_le_bytes());
        let numbers = [self.wall_ns, self.now_ns].into_iter().chain(self.seeds).chain(self.check);
        numbers.for_each(|number| out.extend(number.to_le_bytes()));
    }

    /// Of what is between the version and the sum; `None` if no engine wrote it.
    pub(super) fn read(rest: &[u8; Header::REST_BYTES]) -> Option<Header> {
        let mut fields = Fields(rest);
        let keys = Keys::of_number(fields.u32()?)?;
        let (wall_ns, now_ns) = (fields.u64()?, fields.u64()?);
        let mut words = [0; 10];
        for word in &mut words {
            *word = fields.u64()?;
        }
        let [a, b, c, d, e, f, g, h, lo, hi] = words;
        let (seeds, check) = ([a, b, c, d, e, f, g, h], [lo, hi]);
        Some(Header { keys, wall_ns, now_ns, seeds, check })
    }
}

/// Which numbers some words are in the units of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NumbersItem<'a> {
    /// The limit's place in the file.
    pub(super) limit: u32,
    /// The word that newcomers share: of a default; else 0.
    pub(super) shared: u64,
    /// When they end or have ended, by the old limiter's clock, if they do; else 0.
    pub(super) end_ns: u64,
    pub(super) numbers: Parameters<'a>,
}

/// An algorithm and its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parameters<'a> {
    Gcra { burst: u64, count: u64, period_ns: u64 },
    FixedWindow { limit: u64, window_ms: u64 },
    TokenBucket { limit: u64, window_ms: u64, burst: u64 },
    LeakyBucket { size: u64, drip_rate_ms: u64, drip_size: u64 },
    Custom(&'a str),
}

impl NumbersItem<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (algorithm, parameters, name) = match self.numbers {
            Parameters::Custom(name) => (0, [0; 3], name),
            Parameters::Gcra { burst, count, period_ns } => (1, [burst, count, period_ns], ""),
            Parameters::FixedWindow { limit, window_ms } => (2, [limit, window_ms, 0], ""),
            Parameters::TokenBucket { limit, window_ms, burst } => {
                (3, [limit, window_ms, burst], "")
            }
            Parameters::LeakyBucket { size, drip_rate_ms, drip_size } => {
                (4, [size, drip_rate_ms, drip_size], "")
            }
        };
        out.extend(self.limit.to_le_bytes());
        out.push(algorithm);
        out.extend(self.shared.to_le_bytes());
        out.extend(self.end_ns.to_le_bytes());
        parameters.iter().for_each(|number| out.extend(number.to_le_bytes()));
        write_bytes(name.as_bytes(), out);
    }
}

/// Bytes with their length. What is longer than a length can say is cut; nothing here is.
pub(super) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}

/// What is left of a payload. Each call takes its field from the front; `None` if it is not all there.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
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

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(u16::from_le_bytes(self.chunk()?));
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Numbers, or nothing that this version writes.
    pub(super) fn numbers(&mut self) -> Option<NumbersItem<'a>> {
        let limit = self.u32()?;
        let algorithm = self.u8()?;
        let (shared, end_ns) = (self.u64()?, self.u64()?);
        let [a, b, c] = [self.u64()?, self.u64()?, self.u64()?];
        let name = self.text()?;
        let numbers = match algorithm {
            0 => Parameters::Custom(name),
            1 => Parameters::Gcra { burst: a, count: b, period_ns: c },
            2 => Parameters::FixedWindow { limit: a, window_ms: b },
            3 => Parameters::TokenBucket { limit: a, window_ms: b, burst: c },
            4 => Parameters::LeakyBucket { size: a, drip_rate_ms: b, drip_size: c },
            _ => return None,
        };
        Some(NumbersItem { limit, shared, end_ns, numbers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back() {
        let header = Header {
            keys: Keys::Fingerprints,
            wall_ns: 1,
            now_ns: 2,
            seeds: [3, 4, 5, 6, 7, 8, 9, 10],
            check: [11, 12],
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        assert_eq!(bytes.len() + 8, Header::BYTES);
        let rest = bytes[12..].first_chunk().unwrap();
        assert_eq!(Header::read(rest), Some(header));
        bytes[12] = 3;
        assert_eq!(Header::read(bytes[12..].first_chunk().unwrap()), None);
    }

    #[test]
    fn numbers_read_back_and_truncated_ones_fail() {
        let all = [
            Parameters::Custom("a rule"),
            Parameters::Gcra { burst: 1, count: 2, period_ns: 3 },
            Parameters::FixedWindow { limit: 1, window_ms: 2 },
            Parameters::TokenBucket { limit: 1, window_ms: 2, burst: 3 },
            Parameters::LeakyBucket { size: 1, drip_rate_ms: 2, drip_size: 3 },
        ];
        for numbers in all {
            let item = NumbersItem { limit: 9, shared: 5, end_ns: 6, numbers };
            let mut bytes = Vec::new();
            item.write(&mut bytes);
            assert!(bytes.len() >= MIN_NUMBERS_BYTES);
            let mut fields = Fields(&bytes);
            assert_eq!(fields.numbers().as_ref(), Some(&item));
            assert!(fields.is_empty());
            for len in 0..bytes.len() {
                assert_eq!(Fields(&bytes[..len]).numbers(), None, "{len} bytes of {item:?}");
            }
        }
    }
}
