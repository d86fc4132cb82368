//! Plants faults that a sanitizer must report, and beside each the same accesses without the fault, which
//! it must not report. `tests/sanitize.sh` requires both before it believes a run without a report. The
//! file is empty without its cfg.
//!
//! Only the limiter publishes what one thread passes to the other: one thread writes a value beside the
//! table and spends, the other waits until it sees the bucket empty and reads. So the clean half also shows
//! that the sanitizer follows the table's orderings, and the faulty half that it reports the same two
//! accesses when nothing orders them.
#![cfg(tollgate_planted)]
#![expect(unsafe_code, reason = "the faults are what safe code cannot have")]

use std::cell::UnsafeCell;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tollgate::options::Engine;
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, LimiterOptions, Limits};

/// A number that any thread may read and write, without an ordering.
struct SharedNumber(UnsafeCell<u64>);

// SAFETY: not sound, on purpose: its users order their accesses, or the sanitizer must report them.
unsafe impl Sync for SharedNumber {}

/// A block of memory that any thread may read and free.
struct Block(*mut u64);

// SAFETY: as above.
unsafe impl Sync for Block {}

impl SharedNumber {
    #[inline(never)]
    fn write(&self, number: u64) {
        // SAFETY: the callers' order, where there is one.
        unsafe { self.0.get().write_volatile(number) };
    }

    #[inline(never)]
    fn read(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.get().read_volatile() }
    }
}

impl Block {
    fn new(number: u64) -> Block {
        Block(Box::into_raw(Box::new(number)))
    }

    #[inline(never)]
    fn read(&self) -> u64 {
        // SAFETY: the callers' order, where there is one.
        unsafe { self.0.read_volatile() }
    }

    #[inline(never)]
    fn free(&self) {
        // SAFETY: made by `new`, and freed by one of the callers, once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// The number of rounds, so that no single schedule hides a fault.
const ROUNDS: u64 = 200;

/// Buckets of one unit, in a table that migrates while they are used.
fn buckets() -> KeyedLimit {
    let (clock, _hand) = Clock::manual();
    let limit = Limit::new(1, 1, Duration::from_secs(1)).unwrap();
    let limits = Limits::builder().limit("A", IdFormat::RegId, limit).unwrap().build();
    let options = LimiterOptions::default().clock(clock).engine(Engine::LockFree);
    Limiter::with_options(limits, options).unwrap().limit("A").unwrap()
}

fn publish(buckets: &KeyedLimit, id: u64) {
    assert!(buckets.spend(id, 1).unwrap().allowed());
}

/// Waits until the other thread has spent the one unit that there is.
fn wait_until_published(buckets: &KeyedLimit, id: u64) {
    while buckets.check(id, 1).unwrap().allowed() {
        thread::yield_now();
    }
}

/// Runs both closures for every round, each in its own thread. `one` waits for `other` after each round: if
/// it ran ahead, its later work, such as a migration, would add an ordering of its own.
fn together(one: impl Fn(u64) + Send, other: impl Fn(u64) + Send) {
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..ROUNDS {
                one(round);
                is_done.recv().expect("the other has not failed");
            }
        });
        scope.spawn(move || {
            for round in 0..ROUNDS {
                other(round);
                done.send(()).expect("the other has not failed");
            }
        });
    });
}

fn places() -> Vec<SharedNumber> {
    (0..ROUNDS).map(|_| SharedNumber(UnsafeCell::new(0))).collect()
}

fn blocks() -> Vec<Block> {
    (0..ROUNDS).map(Block::new).collect()
}

#[test]
fn clean_write_before_it_is_published() {
    let (buckets, places) = (buckets(), places());
    let write = |id| {
        places[id as usize].write(7);
        publish(&buckets, id);
    };
    let read = |id| {
        wait_until_published(&buckets, id);
        assert_eq!(places[id as usize].read(), 7);
    };
    together(write, read);
}

#[test]
fn planted_write_after_it_was_published() {
    let (buckets, places) = (buckets(), places());
    let write = |id| {
        publish(&buckets, id);
        places[id as usize].write(7);
    };
    let read = |id| {
        wait_until_published(&buckets, id);
        assert!([0, 7].contains(&places[id as usize].read()));
    };
    together(write, read);
}

#[test]
fn clean_free_after_the_last_read() {
    let (buckets, blocks) = (buckets(), blocks());
    let read = |id| {
        assert_eq!(blocks[id as usize].read(), id);
        publish(&buckets, id);
    };
    let free = |id| {
        wait_until_published(&buckets, id);
        blocks[id as usize].free();
    };
    together(read, free);
}

#[test]
fn planted_read_after_it_was_freed() {
    let (buckets, blocks) = (buckets(), blocks());
    let free = |id| {
        blocks[id as usize].free();
        publish(&buckets, id);
    };
    let read = |id| {
        wait_until_published(&buckets, id);
        std::hint::black_box(blocks[id as usize].read());
    };
    together(free, read);
}
