//! Reads and writes the blocks in a file.

use std::io::{self, Read, Write};

use super::format::{FrameKind, Payload, write_bytes};
use super::frames::{FrameFault, FrameReader, FrameWriter, ReadError};
use crate::clock::MAX_NOW_NS;
use crate::core::block_list::Block;
use crate::core::state::LimiterState;
use crate::limiter::blocks::REASON_MAX_BYTES;
use crate::limits::STRING_MAX_BYTES;
use crate::store::key::{Key, KeyRef, LimitIndex};

/// A block in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BlockItem {
    /// The limit's position in the file.
    pub(super) limit: u32,
    /// The block's end by the old limiter's clock.
    pub(super) until_ns: u64,
    /// The id in its limit's normal form.
    pub(super) id: Box<[u8]>,
    pub(super) reason: Option<Box<str>>,
}

const NO_REASON: u8 = 0;
const REASON: u8 = 1;

impl BlockItem {
    fn write(block: &Block, out: &mut Vec<u8>) {
        let KeyRef { limit, id } = block.key.as_ref();
        out.extend(limit.0.to_le_bytes());
        out.extend(block.until_ns.to_le_bytes());
        write_bytes(id, out);
        match &block.reason {
            None => out.push(NO_REASON),
            Some(reason) => {
                out.push(REASON);
                write_bytes(reason.as_bytes(), out);
            }
        }
    }

    /// Reads a block. `None` if no limiter has written it.
    fn read(fields: &mut Payload<'_>) -> Option<BlockItem> {
        let (limit, until_ns, id) = (fields.u32()?, fields.u64()?, fields.bytes()?);
        let reason = match fields.u8()? {
            NO_REASON => None,
            REASON => Some(fields.text()?),
            _ => return None,
        };
        let is_good = (1..=STRING_MAX_BYTES).contains(&id.len())
            && reason.is_none_or(|reason| reason.len() <= REASON_MAX_BYTES);
        is_good.then(|| BlockItem { limit, until_ns, id: id.into(), reason: reason.map(Box::from) })
    }

    /// Converts to a block of the limit that now has this index, on a clock whose origin is `by_ns` later.
    pub(super) fn into_block(self, index: LimitIndex, by_ns: u64) -> Block {
        let key = Key::new(KeyRef { limit: index, id: &self.id });
        let until_ns = self.until_ns.saturating_sub(by_ns).min(MAX_NOW_NS);
        Block { key, until_ns, reason: self.reason }
    }
}

/// Writes the blocks that last beyond `now_ns`. Returns their number.
pub(super) fn write<W: Write>(
    inner: &LimiterState,
    now_ns: u64,
    frames: &mut FrameWriter<W>,
) -> io::Result<u64> {
    let blocks = inner.blocks.all(now_ns);
    let mut payload = Vec::new();
    for block in &blocks {
        let mut item = Vec::new();
        BlockItem::write(block, &mut item);
        frames.push(FrameKind::Blocks, &mut payload, &item)?;
    }
    frames.flush(FrameKind::Blocks, &mut payload)?;
    Ok(blocks.len() as u64)
}

/// Reads the frames of blocks, from the current frame on, and the first frame after them. `limits` is the number of limits
/// in the file. Returns the blocks that end after `now_ns` by the old limiter's clock, at most `max`.
pub(super) fn read<R: Read>(
    frames: &mut FrameReader<R>,
    limits: usize,
    now_ns: u64,
    max: usize,
) -> Result<Vec<BlockItem>, ReadError> {
    let mut blocks = Vec::new();
    while let (FrameKind::Blocks, payload) = frames.frame() {
        let mut fields = Payload(payload);
        while !fields.is_empty() {
            let item = BlockItem::read(&mut fields).filter(|item| (item.limit as usize) < limits);
            let item = item.ok_or_else(|| frames.damaged())?;
            if item.until_ns <= now_ns {
                continue;
            }
            if blocks.len() == max {
                return Err(frames.error(too_many(max)));
            }
            blocks.push(item);
        }
        frames.next()?;
    }
    Ok(blocks)
}

/// Returns the fault of a file with more than `max` blocks.
pub(super) fn too_many(max: usize) -> FrameFault {
    FrameFault::Refused(format!("it has more blocks than max_blocks {max} allows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(bytes: &[u8]) -> Option<BlockItem> {
        let mut fields = Payload(bytes);
        BlockItem::read(&mut fields).filter(|_| fields.is_empty())
    }

    fn written(id: &[u8], reason: Option<&str>) -> Vec<u8> {
        let key = Key::new(KeyRef { limit: LimitIndex(3), id });
        let mut bytes = Vec::new();
        let block = Block { key, until_ns: 77, reason: reason.map(Box::from) };
        BlockItem::write(&block, &mut bytes);
        bytes
    }

    #[test]
    fn a_block_reads_back_and_a_part_fails() {
        for reason in [None, Some(""), Some("ticket 4711")] {
            let bytes = written(b"mallory", reason);
            let item = read_back(&bytes).unwrap();
            assert_eq!((item.limit, item.until_ns, &*item.id), (3, 77, &b"mallory"[..]));
            assert_eq!(item.reason.as_deref(), reason);
            for len in 0..bytes.len() {
                assert_eq!(read_back(&bytes[..len]), None, "{len} bytes");
            }
        }
    }

    #[test]
    fn an_invalid_block_is_not_read() {
        let (id, reason) = ([b'x'; STRING_MAX_BYTES + 1], "x".repeat(REASON_MAX_BYTES + 1));
        assert!(read_back(&written(&id[1..], Some(&reason[1..]))).is_some());
        assert_eq!(read_back(&written(&id, None)), None);
        assert_eq!(read_back(&written(b"", None)), None);
        assert_eq!(read_back(&written(b"x", Some(&reason))), None);
        let mut flagged = written(b"x", None);
        *flagged.last_mut().unwrap() = 2;
        assert_eq!(read_back(&flagged), None);
    }
}
