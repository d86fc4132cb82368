//! How much memory a file may take while it is read: bounds that follow from its size.

use std::fs::File;
use std::io;
use std::path::Path;

use super::format::{END_BYTES, FRAME_BYTES, Keys};
use super::frames::{Damage, Wrong};
use crate::util::open;

/// Limits that a file may have and the program has not: so many, or one for so many bytes of the file. Each
/// may keep a place among those that the program has.
const MAX_UNKNOWN: usize = 4096;
const BYTES_FOR_AN_UNKNOWN: u64 = 4096;

/// How many limits a file of so many bytes may have that the program has not.
pub(super) fn most_unknown(bytes: u64) -> usize {
    MAX_UNKNOWN.max((bytes / BYTES_FOR_AN_UNKNOWN) as usize)
}

/// Opens a file, and nothing that only looks like one: its size is what the memory that it takes depends on.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = open::without_waiting().read(true).open(path)?;
    let found = file.metadata()?;
    if found.is_file() || found.is_dir() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a link to one"))
}

/// What a file has room for beside the records that it says it has. So there is never more memory for both
/// than the file's size accounts for.
pub(super) struct Room {
    bytes: u64,
}

impl Room {
    pub(super) fn of(bytes: u64, keys: Keys, said_records: u64) -> Result<Room, Damage> {
        let records_bytes = said_records.saturating_mul(keys.least_record_bytes() as u64);
        let room = bytes.checked_sub(records_bytes).map(|bytes| Room { bytes });
        room.ok_or_else(|| {
            let text =
                format!("it says that it has {said_records} buckets: it is too short for them");
            Damage::At(bytes.saturating_sub((FRAME_BYTES + END_BYTES) as u64), text)
        })
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Wrong> {
        self.bytes = self.bytes.checked_sub(bytes as u64).ok_or(Wrong::Damaged)?;
        Ok(())
    }
}

/// Things by their places: in pieces, so that more of them copy none.
pub(super) struct Pieces<T>(Vec<Vec<T>>);

impl<T> Default for Pieces<T> {
    fn default() -> Pieces<T> {
        Pieces(Vec::new())
    }
}

impl<T> Pieces<T> {
    const PIECE: usize = 1024;

    pub(super) fn push(&mut self, thing: T) {
        match self.0.last_mut() {
            Some(piece) if piece.len() < Self::PIECE => piece.push(thing),
            _ => {
                let mut piece = Vec::with_capacity(Self::PIECE);
                piece.push(thing);
                self.0.push(piece);
            }
        }
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        let place = place as usize;
        self.0.get(place / Self::PIECE)?.get(place % Self::PIECE)
    }
}
