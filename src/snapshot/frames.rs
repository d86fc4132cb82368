//! The frames of a file, each with a sum over itself and the sum before it: so the last one is a sum over
//! all, and no part can be changed, moved or left out.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crc::{CRC_64_XZ, Crc, Table};

use super::format::{END_BYTES, FRAME_BYTES, Fields, Header, Kind, MAGIC, MAX_PAYLOAD, VERSION};

/// CRC-64: finds every change of up to 64 bits in a row, and others but for one in 2^64.
static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);

/// The sum of a part that comes after `before`.
fn sum(before: u64, parts: &[&[u8]]) -> u64 {
    let mut digest = CRC.digest();
    digest.update(&before.to_le_bytes());
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

/// Writes a header and frames.
pub(super) struct Frames<W> {
    to: W,
    sum: u64,
    bytes: u64,
}

impl<W: Write> Frames<W> {
    pub(super) fn begin(header: &Header, mut to: W) -> io::Result<Frames<W>> {
        let mut bytes = Vec::with_capacity(Header::BYTES);
        header.write(&mut bytes);
        let sum = sum(0, &[&bytes]);
        bytes.extend(sum.to_le_bytes());
        to.write_all(&bytes)?;
        Ok(Frames { to, sum, bytes: bytes.len() as u64 })
    }

    /// Adds a frame.
    pub(super) fn add(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        debug_assert!(payload.len() <= MAX_PAYLOAD, "{kind:?} of {} bytes", payload.len());
        let (kind, len) = ((kind as u32).to_le_bytes(), (payload.len() as u32).to_le_bytes());
        self.sum = sum(self.sum, &[&kind, &len, payload]);
        for part in [&kind, &len, payload, &self.sum.to_le_bytes()] {
            self.to.write_all(part)?;
        }
        self.bytes += (FRAME_BYTES + payload.len()) as u64;
        Ok(())
    }

    /// What was written, and how many bytes that were.
    pub(super) fn end(self) -> (W, u64) {
        (self.to, self.bytes)
    }
}

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) enum Damage {
    /// The system's word.
    Io(io::Error),
    /// What is wrong at which byte.
    At(u64, String),
}

/// Why what is in a frame is not taken.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It cannot have been written.
    Damaged,
    /// It does not go with the limits or the options, in words.
    Refused(String),
}

/// Reads a header and frames. No more is kept of a file than one frame, whatever the file says.
pub(super) struct FrameReader<R> {
    from: R,
    sum: u64,
    /// Where the next frame begins.
    next_at: u64,
    /// The frame that was read last: where it began, what it is, and its payload with the sum.
    frame_at: u64,
    kind: Kind,
    payload: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    pub(super) fn begin(mut from: R) -> Result<(Header, FrameReader<R>), Damage> {
        let mut bytes = [0; Header::BYTES];
        let found = read_up_to(&mut from, &mut bytes)?;
        if !bytes.starts_with(&MAGIC) {
            return Err(Damage::At(0, "it is no file of buckets: it does not begin as one".into()));
        }
        // Before the sum: another version may have another.
        let [version, ..] = bytes[MAGIC.len()..].as_chunks().0 else { return Err(ends_at(0)) };
        let version = u32::from_le_bytes(*version);
        if found >= MAGIC.len() + 4 && version != VERSION {
            let text = format!("version {version}: {VERSION} is allowed");
            return Err(Damage::At(MAGIC.len() as u64, text));
        }
        if found < bytes.len() {
            return Err(ends_at(found as u64));
        }
        let (known, recorded) = bytes.split_at(Header::BYTES - 8);
        let sum = sum(0, &[known]);
        if sum.to_le_bytes() != recorded {
            return Err(Damage::At(0, "the header is damaged".into()));
        }
        let rest = known[MAGIC.len() + 4..].first_chunk();
        let header = rest.and_then(Header::read);
        let header = header.ok_or_else(|| Damage::At(12, "an engine that is not known".into()))?;
        let next_at = Header::BYTES as u64;
        let (frame_at, kind, payload) = (0, Kind::Limits, Vec::new());
        Ok((header, FrameReader { from, sum, next_at, frame_at, kind, payload }))
    }

    /// What the frame is that was read last, and its payload.
    pub(super) fn frame(&self) -> (Kind, &[u8]) {
        (self.kind, self.payload.split_last_chunk::<8>().map_or(&[], |(payload, _)| payload))
    }

    /// Reads the next frame; the file has to have one.
    pub(super) fn next(&mut self) -> Result<(), Damage> {
        self.frame_at = self.next_at;
        let mut start = [0; 8];
        let found = read_up_to(&mut self.from, &mut start)?;
        if found < start.len() {
            return Err(ends_at(self.frame_at + found as u64));
        }
        let (kind, len) = start.split_at(4);
        let number = |bytes: &[u8]| bytes.iter().rfold(0, |sum, &byte| sum << 8 | u32::from(byte));
        let payload_bytes = number(len) as usize;
        if payload_bytes > MAX_PAYLOAD {
            return Err(self.damaged());
        }
        self.payload.resize(payload_bytes + 8, 0);
        let found = read_up_to(&mut self.from, &mut self.payload)?;
        if found < self.payload.len() {
            return Err(ends_at(self.frame_at + (start.len() + found) as u64));
        }
        let (payload, recorded) = self.payload.split_at(payload_bytes);
        let sum = sum(self.sum, &[kind, len, payload]);
        if sum.to_le_bytes() != recorded {
            return Err(self.damaged());
        }
        let Some(kind) = Kind::of_number(number(kind)) else {
            return Err(self.damaged());
        };
        self.sum = sum;
        self.kind = kind;
        self.next_at += (FRAME_BYTES + payload_bytes) as u64;
        Ok(())
    }

    /// Nothing may come after the end.
    pub(super) fn end(&mut self) -> Result<(), Damage> {
        match read_up_to(&mut self.from, &mut [0])? {
            0 => Ok(()),
            _ => Err(Damage::At(self.next_at, "there is more after the end".into())),
        }
    }

    /// The frame that was read last says what cannot be.
    pub(super) fn damaged(&self) -> Damage {
        Damage::At(self.frame_at, "it is damaged from here on".into())
    }

    /// What the frame that was read last has in it does not go with the rest.
    pub(super) fn wrong(&self, wrong: Wrong) -> Damage {
        match wrong {
            Wrong::Damaged => self.damaged(),
            Wrong::Refused(text) => Damage::At(self.frame_at, text),
        }
    }
}

/// How many records a file says that it has, at its end; 0 if it does not end as a file does, which reading
/// it finds out. Nothing is known of its sums yet. Leaves the file at its start.
pub(super) fn said_records(file: &mut (impl Read + Seek)) -> io::Result<u64> {
    let mut end = [0; FRAME_BYTES + END_BYTES];
    let start = file.seek(SeekFrom::End(0))?.checked_sub(end.len() as u64);
    let Some(start) = start.filter(|start| *start >= Header::BYTES as u64) else {
        file.rewind()?;
        return Ok(0);
    };
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut end)?;
    file.rewind()?;
    let mut fields = Fields(&end);
    let is_end = fields.u32() == Some(Kind::End as u32) && fields.u32() == Some(END_BYTES as u32);
    Ok(fields.u64().filter(|_| is_end).unwrap_or(0))
}

fn ends_at(at: u64) -> Damage {
    Damage::At(at, "it ends here, before its end".into())
}

/// Fills `bytes` as far as the file goes; returns how far.
fn read_up_to(from: &mut impl Read, bytes: &mut [u8]) -> Result<usize, Damage> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Damage::Io(error)),
        }
    }
    Ok(filled)
}
