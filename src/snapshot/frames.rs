//! Reads and writes frames. Each frame has a checksum over itself and the checksum before it, so that the last one covers
//! the whole file: a part that is changed, moved or left out is found.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crc::{CRC_64_XZ, Crc, Table};

use super::format::{
    END_BYTES, FRAME_BYTES, FrameKind, Header, MAGIC, MAX_PAYLOAD, Payload, VERSION,
};

/// CRC-64 finds every change within 64 consecutive bits, and all but one in 2^64 of the others.
static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);

/// Computes the checksum of `parts` after the checksum `before`.
fn sum(before: u64, parts: &[&[u8]]) -> u64 {
    let mut digest = CRC.digest();
    digest.update(&before.to_le_bytes());
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

/// Writes a header and frames.
pub(super) struct FrameWriter<W> {
    to: W,
    sum: u64,
    bytes: u64,
}

impl<W: Write> FrameWriter<W> {
    pub(super) fn begin(header: &Header, mut to: W) -> io::Result<FrameWriter<W>> {
        let mut bytes = Vec::with_capacity(Header::BYTES);
        header.write(&mut bytes);
        let sum = sum(0, &[&bytes]);
        bytes.extend(sum.to_le_bytes());
        to.write_all(&bytes)?;
        Ok(FrameWriter { to, sum, bytes: bytes.len() as u64 })
    }

    /// Writes a frame.
    pub(super) fn write(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        debug_assert!(payload.len() <= MAX_PAYLOAD, "{kind:?} of {} bytes", payload.len());
        let (kind, len) = ((kind as u32).to_le_bytes(), (payload.len() as u32).to_le_bytes());
        self.sum = sum(self.sum, &[&kind, &len, payload]);
        for part in [&kind, &len, payload, &self.sum.to_le_bytes()] {
            self.to.write_all(part)?;
        }
        self.bytes += (FRAME_BYTES + payload.len()) as u64;
        Ok(())
    }

    /// Appends an item to a frame's payload. If there is no room, writes the frame first and starts the next one.
    pub(super) fn push(
        &mut self,
        kind: FrameKind,
        payload: &mut Vec<u8>,
        item: &[u8],
    ) -> io::Result<()> {
        if payload.len() + item.len() > MAX_PAYLOAD {
            self.flush(kind, payload)?;
        }
        payload.extend(item);
        Ok(())
    }

    /// Writes a frame and clears its payload. An empty payload is not written.
    pub(super) fn flush(&mut self, kind: FrameKind, payload: &mut Vec<u8>) -> io::Result<()> {
        if !payload.is_empty() {
            self.write(kind, payload)?;
            payload.clear();
        }
        Ok(())
    }

    /// Returns the writer and the number of bytes written.
    pub(super) fn end(self) -> (W, u64) {
        (self.to, self.bytes)
    }
}

/// The reason why a file cannot be restored.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The system's error.
    Io(io::Error),
    /// The byte, and the fault there.
    At(u64, String),
}

/// A fault of a frame's content.
#[derive(Debug)]
pub(super) enum FrameFault {
    /// No limiter has written this content.
    Damaged,
    /// The content does not fit the new limits or options, for this reason.
    Refused(String),
}

/// Reads a header and frames. Only one frame is in memory at a time, whatever sizes the file gives.
pub(super) struct FrameReader<R> {
    from: R,
    sum: u64,
    /// The position of the next frame.
    next_at: u64,
    /// The position, kind and payload (with the checksum) of the current frame.
    frame_at: u64,
    kind: FrameKind,
    payload: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    pub(super) fn begin(mut from: R) -> Result<(Header, FrameReader<R>), ReadError> {
        let mut bytes = [0; Header::BYTES];
        let found = read_up_to(&mut from, &mut bytes)?;
        if !bytes.starts_with(&MAGIC) {
            return Err(ReadError::At(0, "this is not a snapshot of buckets".into()));
        }
        // Check the version before the checksum, which another version may compute differently.
        let [version, ..] = bytes[MAGIC.len()..].as_chunks().0 else { return Err(ends_at(0)) };
        let version = u32::from_le_bytes(*version);
        if found >= MAGIC.len() + 4 && version != VERSION {
            let text = format!("version {version}: {VERSION} is allowed");
            return Err(ReadError::At(MAGIC.len() as u64, text));
        }
        if found < bytes.len() {
            return Err(ends_at(found as u64));
        }
        let (known, recorded) = bytes.split_at(Header::BYTES - 8);
        let sum = sum(0, &[known]);
        if sum.to_le_bytes() != recorded {
            return Err(ReadError::At(0, "the header is damaged".into()));
        }
        let rest = known[MAGIC.len() + 4..].first_chunk();
        let header = rest.and_then(Header::read);
        let header = header.ok_or_else(|| ReadError::At(12, "the engine is unknown".into()))?;
        let next_at = Header::BYTES as u64;
        let (frame_at, kind, payload) = (0, FrameKind::Limits, Vec::new());
        Ok((header, FrameReader { from, sum, next_at, frame_at, kind, payload }))
    }

    /// Returns the current frame's kind and payload.
    pub(super) fn frame(&self) -> (FrameKind, &[u8]) {
        (self.kind, self.payload.split_last_chunk::<8>().map_or(&[], |(payload, _)| payload))
    }

    /// Reads the next frame. The file must have one.
    pub(super) fn next(&mut self) -> Result<(), ReadError> {
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
        let Some(kind) = FrameKind::from_number(number(kind)) else {
            return Err(self.damaged());
        };
        self.sum = sum;
        self.kind = kind;
        self.next_at += (FRAME_BYTES + payload_bytes) as u64;
        Ok(())
    }

    /// Checks that the file ends after the current frame.
    pub(super) fn end(&mut self) -> Result<(), ReadError> {
        match read_up_to(&mut self.from, &mut [0])? {
            0 => Ok(()),
            _ => Err(ReadError::At(self.next_at, "there is more after the end".into())),
        }
    }

    /// Returns the error that the current frame is damaged.
    pub(super) fn damaged(&self) -> ReadError {
        self.error(FrameFault::Damaged)
    }

    /// Returns the error for a fault of the current frame.
    pub(super) fn error(&self, fault: FrameFault) -> ReadError {
        let text = match fault {
            FrameFault::Damaged => "the file is damaged from here on".into(),
            FrameFault::Refused(text) => text,
        };
        ReadError::At(self.frame_at, text)
    }
}

/// Reads the number of records from the end of a file, without a check of its checksums. 0 if the last frame is invalid,
/// which the full read finds later. Seeks to the file's start afterwards.
pub(super) fn declared_records(file: &mut (impl Read + Seek)) -> io::Result<u64> {
    let mut end = [0; FRAME_BYTES + END_BYTES];
    let start = file.seek(SeekFrom::End(0))?.checked_sub(end.len() as u64);
    let Some(start) = start.filter(|start| *start >= Header::BYTES as u64) else {
        file.rewind()?;
        return Ok(0);
    };
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut end)?;
    file.rewind()?;
    let mut fields = Payload(&end);
    let is_end =
        fields.u32() == Some(FrameKind::End as u32) && fields.u32() == Some(END_BYTES as u32);
    Ok(fields.u64().filter(|_| is_end).unwrap_or(0))
}

fn ends_at(at: u64) -> ReadError {
    ReadError::At(at, "the file ends here, before its last frame".into())
}

/// Reads until `bytes` is full or the file ends. Returns the number of bytes read.
fn read_up_to(from: &mut impl Read, bytes: &mut [u8]) -> Result<usize, ReadError> {
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadError::Io(error)),
        }
    }
    Ok(filled)
}
