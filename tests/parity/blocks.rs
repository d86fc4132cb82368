//! Blocks of ids.

use std::time::Duration;

use super::run::{Checks, Machine};
use super::spec::KNOWN;

impl Machine {
    pub(crate) fn block(&mut self, limit: usize, id: usize, time: u64) -> Result<(), String> {
        let (id_of, duration) = (KNOWN[limit].id(id), Duration::from_nanos(time));
        let answer = match (&self.handles[limit], self.permits.handle(limit)) {
            (Some(handle), _) => handle.block(id_of, duration),
            (None, Some(handle)) => handle.block(id_of, duration),
            (None, None) => return Ok(()),
        };
        match (answer, self.oracle.block(limit, id, time.into())) {
            (Ok(answer), Some(left)) if answer.as_nanos() as i128 == left => Ok(()),
            (Err(error), None) if error.is_invalid_block() => Ok(()),
            (_, _) if self.checks != Checks::All => Ok(()),
            (answer, expected) => Err(format!("block: {answer:?}, expected {expected:?} ns")),
        }
    }

    pub(crate) fn unblock(&mut self, limit: usize, id: usize) -> Result<(), String> {
        let answer = match (&self.handles[limit], self.permits.handle(limit)) {
            (Some(handle), _) => handle.unblock(KNOWN[limit].id(id)).unwrap(),
            (None, Some(handle)) => handle.unblock(KNOWN[limit].id(id)).unwrap(),
            (None, None) => return Ok(()),
        };
        let expected = self.oracle.unblock(limit, id);
        if answer == expected || self.checks != Checks::All {
            Ok(())
        } else {
            Err(format!("unblock: {answer}, expected {expected}"))
        }
    }
}
