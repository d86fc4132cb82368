//! Runs a list of operations on several nodes and compares their answers with the oracle's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ops::Op;
use super::spec::Spec;
use super::world::World;

/// The engines of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    LockFree,
    Exact,
}

/// The limits and the time at which a run begins, and the number of nodes.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) spec: Spec,
    pub(crate) now: u64,
    pub(crate) nodes: usize,
}

/// A wrong answer, and the index of its operation.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// Runs the list. A panic is a failure.
pub(crate) fn run(on: On, start: &Start, ops: &[Op]) -> Result<(), Failure> {
    let mut at = 0;
    let all = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(on, start);
        for op in ops {
            world.apply(op)?;
            at += 1;
        }
        world.check_all()
    }));
    let text = match all {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(text)) => text,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or("?"))
        }
    };
    Err(Failure { at, text })
}
