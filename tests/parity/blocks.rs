//! Blocks of ids.

use std::time::Duration;

use super::run::{Checks, Machine};
use super::spec::KNOWN;

impl Machine {
    pub(crate) fn block(&mut self, limit: usize, id: usize, time: u64) -> Result<(), String> {
        let Some(handle) = &self.handles[limit] else { return Ok(()) };
        let answer = handle.block(KNOWN[limit].id(id), Duration::from_nanos(time));
        match (answer, self.oracle.block(limit, id, time.into())) {
            (Ok(answer), Some(left)) if answer.as_nanos() as i128 == left => Ok(()),
            (Err(error), None) if error.is_invalid_block() => Ok(()),
            (_, _) if self.checks != Checks::All => Ok(()),
            (answer, expected) => Err(format!("block: {answer:?}, expected {expected:?} ns")),
        }
    }

    pub(crate) fn unblock(&mut self, limit: usize, id: usize) -> Result<(), String> {
        let Some(handle) = &self.handles[limit] else { return Ok(()) };
        let answer = handle.unblock(KNOWN[limit].id(id)).unwrap();
        let expected = self.oracle.unblock(limit, id);
        if answer == expected || self.checks != Checks::All {
            Ok(())
        } else {
            Err(format!("unblock: {answer}, expected {expected}"))
        }
    }
}
