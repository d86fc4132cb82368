//! The loom model of reclamation: segments and a shard's pointer with the real crossbeam-epoch.
//!
//! `RUSTFLAGS="--cfg tollgate_loom --cfg crossbeam_loom" cargo test -p tollgate --release --lib
//! reclaim_model`. Under loom a freed segment is marked and its memory is kept: loom reports a read beside
//! the freeing, and the mark fails a later read.

#![expect(unsafe_code, reason = "retires as the table does")]

use crossbeam_epoch::Collector;
use loom::sync::Arc;

use super::epoch::Guard;
use super::memory::Memory;
use super::readers::ActiveReaders;
use super::retired::{Retired, When};
use super::segment::{Segment, Unlinked};
use super::shard::{SegmentPointer, Shard};
use crate::util::sync::{Figure, Ordering};

// Counted over all executions of the model.
static READ_OLD: Figure = Figure::new(0);
static FREED: Figure = Figure::new(0);

/// Makes a shard that migrates from one segment without cells to another. No thread has completed
/// the migration.
fn migrating(guard: &Guard) -> Shard {
    let (shard, memory) = (Shard::new(), Memory::default());
    let none = shard.view(guard);
    assert!(shard.publish(none, Segment::new(&memory, 1, SegmentPointer::NONE, 0, 0)));
    let first = shard.view(guard);
    assert!(shard.publish(first, Segment::new(&memory, 1, first.pointer(), 0, 0)));
    shard
}

/// A reader finds the old segment through the shard while another thread retires it. The model fails if the reader reads it after
/// it was freed.
fn read_vs_retire_model(retire_first: bool) {
    let collector = Collector::new();
    let main = collector.register();
    let (shard, retired) = (Arc::new(migrating(&Guard::from_handle(&main))), Retired::default());
    let (read, in_reader) = (shard.clone(), collector.clone());
    let reader = loom::thread::spawn(move || {
        let handle = in_reader.register();
        let guard = Guard::from_handle(&handle);
        let view = read.view(&guard);
        if let Some(old) = view.old() {
            assert_eq!(old.header().moved_bound, 0);
            READ_OLD.fetch_add(1, Ordering::Relaxed);
        }
    });
    let collect = |guard: &Guard| {
        let free = retired.collect(guard, When::Any, || Some(ActiveReaders::none()));
        FREED.fetch_add(free.len() as u64, Ordering::Relaxed);
    };
    {
        let guard = Guard::from_handle(&main);
        let view = shard.view(&guard);
        let old = view.old().expect("no thread has completed it");
        let retire = || {
            // SAFETY: `complete` has unlinked the segment, except in the twin (`retire_first`), whose
            // fault loom must report. `retired` keeps the segment until all current pins have ended,
            // which this model checks.
            retired.push(1, unsafe { Unlinked::new(old) });
            collect(&guard);
        };
        if retire_first {
            retire();
        }
        assert!(shard.complete(view));
        if !retire_first {
            retire();
        }
    }
    // Each round advances the epoch at most once.
    for _ in 0..3 {
        collect(&Guard::from_handle(&main));
    }
    reader.join().unwrap();
}

#[test]
fn read_vs_retire() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(|| read_vs_retire_model(false));
    let (read, freed) = (READ_OLD.load(Ordering::Relaxed), FREED.load(Ordering::Relaxed));
    assert!(
        read > 0 && freed > 0,
        "the old segment was read {read} times, and freed {freed} times"
    );
    println!("the old segment was read {read} times, and freed {freed} times");
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn retiring_before_unlinking_is_detected() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(|| read_vs_retire_model(true));
}
