//! The model of the stack on which threads leave values for one thread to take.

use std::sync::Arc;

use super::super::stack::Stack;
use crate::models::{explore_bounded, fails_bounded};
use crate::util::fault::Fault;
use crate::util::sync::{AtomicU64, Ordering};

/// Excluded: a thread takes a value and does not see what its pusher had written before; a pushed value is lost.
fn push_vs_take_all() {
    let (stack, written) = (Arc::new(Stack::new()), Arc::new(AtomicU64::new(0)));
    stack.push(0);
    let pusher = {
        let (stack, written) = (stack.clone(), written.clone());
        loom::thread::spawn(move || {
            // Relaxed: the push publishes it.
            written.store(1, Ordering::Relaxed);
            stack.push(1);
        })
    };
    let mut taken = stack.take_all();
    if taken.contains(&1) {
        assert_eq!(written.load(Ordering::Relaxed), 1, "the taker does not see the pusher's write");
    }
    pusher.join().unwrap();
    taken.extend(stack.take_all());
    taken.sort_unstable();
    assert_eq!(taken, [0, 1], "a value is lost, or taken twice");
}

#[test]
fn push_vs_take_all_loses_nothing() {
    explore_bounded(Some(3), push_vs_take_all);
    fails_bounded(Some(3), Fault::PushByStore, "a value is lost", push_vs_take_all);
}
