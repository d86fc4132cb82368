//! A lock-free stack. Any thread pushes values, and any thread takes all of them.
//!
//! No thread pops a single node. A node is freed by the thread that took the whole stack, when no
//! other thread can reach it. So no thread reads a freed node, and no swap compares a pointer that
//! was used again.

use std::marker::PhantomData;
use std::ptr;

use crate::util::fault::{self, Fault};
use crate::util::sync::{AtomicPtr, Ordering};

pub(crate) struct Stack<T: Send> {
    head: AtomicPtr<Node<T>>,
    /// One thread owns a value at a time, as with a lock: if `T` can be sent, the stack can be
    /// shared.
    owned: PhantomData<std::sync::Mutex<T>>,
}

struct Node<T> {
    value: T,
    next: *mut Node<T>,
}

impl<T: Send> Stack<T> {
    pub(crate) fn new() -> Stack<T> {
        Stack { head: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }

    #[expect(unsafe_code, reason = "writes to a node before it is shared")]
    pub(crate) fn push(&self, value: T) {
        let node = Box::into_raw(Box::new(Node { value, next: ptr::null_mut() }));
        // Relaxed: this call does not read the head's node.
        let mut head = self.head.load(Ordering::Relaxed);
        // Repeats only when another thread has pushed a value or taken all.
        loop {
            // SAFETY: made above and not pushed yet, so that no other thread has it.
            unsafe { (*node).next = head };
            if fault::active(Fault::PushByStore) {
                return self.head.store(node, Ordering::Release);
            }
            // Release: pairs with `take_all`, which reads the node. Relaxed on failure: as for the
            // load.
            let (pushed, lost) = (Ordering::Release, Ordering::Relaxed);
            match self.head.compare_exchange(head, node, pushed, lost) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all values, in the order in which they were pushed.
    #[expect(unsafe_code, reason = "takes the nodes that `push` made")]
    pub(crate) fn take_all(&self) -> Vec<T> {
        // Acquire: pairs with `push`: the nodes are made.
        let mut node = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        let mut values = Vec::new();
        while !node.is_null() {
            // SAFETY: from `Box::into_raw` in `push`. Only the head led to it, and this thread has
            // emptied the head by one swap, so that no other thread has it.
            let taken = unsafe { Box::from_raw(node) };
            node = taken.next;
            values.push(taken.value);
        }
        values.reverse();
        values
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: this reads no node. Callers make the fence.
        self.head.load(Ordering::Relaxed).is_null()
    }
}

impl<T: Send> Drop for Stack<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn takes_all_values_once_and_in_order() {
        let stack = Stack::new();
        assert!(stack.is_empty() && stack.take_all().is_empty());
        (0..3).for_each(|n| stack.push(n));
        assert!(!stack.is_empty());
        assert_eq!(stack.take_all(), [0, 1, 2]);
        assert!(stack.take_all().is_empty());
    }

    #[test]
    fn drop_frees_the_values_that_are_left() {
        let value = Arc::new(());
        let stack = Stack::new();
        (0..3).for_each(|_| stack.push(value.clone()));
        drop(stack);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn loses_nothing_between_threads() {
        let stack = Stack::new();
        let taken: Vec<u64> = thread::scope(|scope| {
            let pushers: Vec<_> =
                (0..3).map(|_| scope.spawn(|| (0..1000).for_each(|n| stack.push(n)))).collect();
            let mut taken = Vec::new();
            while !pushers.iter().all(|pusher| pusher.is_finished()) {
                taken.append(&mut stack.take_all());
            }
            taken.append(&mut stack.take_all());
            taken
        });
        assert_eq!(taken.len(), 3000);
        assert_eq!(taken.iter().sum::<u64>(), 3 * 999 * 1000 / 2);
    }
}
