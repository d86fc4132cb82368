//! Writes forged files, with valid checksums.

use crc::{CRC_64_XZ, Crc};

static CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);

/// The maximum size of a frame's payload.
const MAX_PAYLOAD: usize = 1 << 16;

/// The kind of a frame.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum FrameKind {
    Limits = 1,
    Parameters = 2,
    End = 4,
}

pub(crate) struct File {
    bytes: Vec<u8>,
    sum: u64,
}

impl File {
    /// Begins a file with ids, which needs no seeds.
    pub(crate) fn begin() -> File {
        let mut bytes = b"TOLLGATE".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend([0; 32]);
        let sum = sum(0, &bytes);
        bytes.extend(sum.to_le_bytes());
        File { bytes, sum }
    }

    pub(crate) fn frame(&mut self, kind: FrameKind, payload: &[u8]) {
        assert!(payload.len() <= MAX_PAYLOAD);
        let at = self.bytes.len();
        self.bytes.extend((kind as u32).to_le_bytes());
        self.bytes.extend((payload.len() as u32).to_le_bytes());
        self.bytes.extend(payload);
        self.sum = sum(self.sum, &self.bytes[at..]);
        self.bytes.extend(self.sum.to_le_bytes());
    }

    /// As many frames as these things take.
    pub(crate) fn frames(&mut self, kind: FrameKind, items: impl Iterator<Item = Vec<u8>>) {
        let mut payload = Vec::new();
        for item in items {
            if payload.len() + item.len() > MAX_PAYLOAD {
                self.frame(kind, &payload);
                payload.clear();
            }
            payload.extend(item);
        }
        self.frame(kind, &payload);
    }

    /// Writes limits with these names and id formats.
    pub(crate) fn limits<'f>(&mut self, limits: impl Iterator<Item = (String, &'f str)>) {
        let item = |(name, format): (String, &str)| {
            let mut item = text(&name);
            item.extend(text(format));
            item.extend(1_000_000_u64.to_le_bytes());
            item
        };
        self.frames(FrameKind::Limits, limits.map(item));
    }

    pub(crate) fn end(&mut self, records: u64) {
        let payload = [records.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        self.frame(FrameKind::End, &payload);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns a text with its length before it.
pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u16).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn sum(before: u64, part: &[u8]) -> u64 {
    let mut digest = CRC.digest();
    digest.update(&before.to_le_bytes());
    digest.update(part);
    digest.finalize()
}
