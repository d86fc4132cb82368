//! The model of the reserved blocks that threads take and put back.

use std::sync::Arc;

use loom::cell::Cell;

use super::super::arena::FreeBlocks;
use crate::models::{explore_bounded, fails_bounded};
use crate::util::fault::Fault;

/// A reserved block, whose content loom watches.
struct Block(Cell<u64>);

// SAFETY: a block belongs to the thread that has taken it.
#[expect(unsafe_code, reason = "the model of memory that a thread owns")]
unsafe impl Sync for Block {}

/// Excluded: two threads have one block; a thread takes a block and does not see it cleared.
fn take_vs_put() {
    let (free, block) = (Arc::new(FreeBlocks::new(1)), Arc::new(Block(Cell::new(0))));
    let use_block = |free: &FreeBlocks, block: &Block| {
        let Some(at) = free.take() else { return false };
        assert_eq!(block.0.get(), 0, "a block that is taken is not cleared");
        block.0.set(1);
        block.0.set(0);
        free.put(at);
        true
    };
    let other = {
        let (free, block) = (free.clone(), block.clone());
        loom::thread::spawn(move || use_block(&free, &block))
    };
    let one = use_block(&free, &block);
    let other = other.join().unwrap();
    assert!(one || other, "the block was free for one of them");
    assert!(use_block(&free, &block), "a block is lost");
}

#[test]
fn take_vs_put_of_a_reserved_block() {
    explore_bounded(None, take_vs_put);
    fails_bounded(None, Fault::TakeBlockRelaxed, "Concurrent read and write accesses", take_vs_put);
    fails_bounded(None, Fault::PutBlockRelaxed, "Concurrent read and write accesses", take_vs_put);
}
