//! Bounds the memory that a restore takes by the size of the file.

use std::fs::File;
use std::io;
use std::path::Path;

use super::format::{END_BYTES, FRAME_BYTES, Keys};
use super::frames::{FrameFault, ReadError};
use crate::util::open;

/// The number of unknown limits that a file of any size may have. Each may keep an index among the new limits.
const MIN_UNKNOWN_LIMITS: usize = 4096;
/// A larger file may have one unknown limit for this number of bytes.
const BYTES_PER_UNKNOWN_LIMIT: u64 = 4096;

/// Returns the maximum number of limits in a file of this size that the program does not have.
pub(super) fn max_unknown_limits(bytes: u64) -> usize {
    MIN_UNKNOWN_LIMITS.max((bytes / BYTES_PER_UNKNOWN_LIMIT) as usize)
}

/// Opens a regular file. Other kinds are refused, because the memory depends on the file's size. A directory is not
/// refused here: reading it fails.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = open::without_waiting().read(true).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() || metadata.is_dir() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a link to one"))
}

/// The bytes of a file that its declared records leave for other items. Memory for both never exceeds what the file's
/// size accounts for.
pub(super) struct ByteBudget {
    bytes: u64,
}

impl ByteBudget {
    pub(super) fn new(
        file_bytes: u64,
        keys: Keys,
        declared_records: u64,
    ) -> Result<ByteBudget, ReadError> {
        let records_bytes = declared_records.saturating_mul(keys.min_record_bytes() as u64);
        let budget = file_bytes.checked_sub(records_bytes).map(|bytes| ByteBudget { bytes });
        budget.ok_or_else(|| {
            let at = file_bytes.saturating_sub((FRAME_BYTES + END_BYTES) as u64);
            let text = format!(
                "the file is too short for the {declared_records} buckets that it declares"
            );
            ReadError::At(at, text)
        })
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<(), FrameFault> {
        self.bytes = self.bytes.checked_sub(bytes as u64).ok_or(FrameFault::Damaged)?;
        Ok(())
    }
}

/// A vector in chunks, which grows without copying its items.
pub(super) struct ChunkedVec<T>(Vec<Vec<T>>);

impl<T> Default for ChunkedVec<T> {
    fn default() -> ChunkedVec<T> {
        ChunkedVec(Vec::new())
    }
}

impl<T> ChunkedVec<T> {
    const CHUNK: usize = 1024;

    pub(super) fn push(&mut self, item: T) {
        match self.0.last_mut() {
            Some(chunk) if chunk.len() < Self::CHUNK => chunk.push(item),
            _ => {
                let mut chunk = Vec::with_capacity(Self::CHUNK);
                chunk.push(item);
                self.0.push(chunk);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        // All chunks before the last are full.
        let full = self.0.len().saturating_sub(1) * Self::CHUNK;
        full + self.0.last().map_or(0, Vec::len)
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        self.0.get(index / Self::CHUNK)?.get(index % Self::CHUNK)
    }
}
