//! The model of the reserved blocks that threads take and put back.

use std::sync::Arc;

use loom::cell::Cell;

use super::super::arena::FreeBlocks;
use crate::models::{Tally, explore_bounded, fails_bounded};
use crate::util::fault::Fault;

/// A reserved block, whose content loom watches.
struct Block(Cell<u64>);

// SAFETY: a block belongs to the thread that has taken it.
#[expect(unsafe_code, reason = "the model of memory that a thread owns")]
unsafe impl Sync for Block {}

/// Excluded: two threads have one block; a thread takes a block and does not see it cleared.
///
/// `both` counts that one thread took the block after the other, `one` that a thread found none.
fn take_vs_put(both: &Tally, one: &Tally) {
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
    let this_took = use_block(&free, &block);
    let other_took = other.join().unwrap();
    assert!(this_took || other_took, "the block was free for one of them");
    if this_took && other_took {
        both.add()
    } else {
        one.add()
    }
    assert!(use_block(&free, &block), "a block is lost");
}

#[test]
fn take_vs_put_of_a_reserved_block() {
    let (both, one) = (Tally::default(), Tally::default());
    let (in_both, in_one) = (both.clone(), one.clone());
    explore_bounded(None, move || take_vs_put(&in_both, &in_one));
    assert!(both.get() > 0 && one.get() > 0, "both {}, one {}", both.get(), one.get());
    for fault in [Fault::TakeBlockRelaxed, Fault::PutBlockRelaxed] {
        fails_bounded(None, fault, "Concurrent read and write accesses", || {
            take_vs_put(&Tally::default(), &Tally::default());
        });
    }
}
