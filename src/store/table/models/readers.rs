//! Models of readers beside a freeing thread and beside each other.
//!
//! loom has no fence that one thread makes for another, so each reader makes its own. The models
//! show that both halves of the fence are needed.

#![expect(unsafe_code, reason = "frees as the table does")]

use super::super::epoch::Guard;
use super::super::memory::Memory;
use super::super::readers::{Reader, Readers};
use super::super::retired::{Retired, When};
use super::super::segment::{Segment, Unlinked};
use super::super::shard::{SegmentPointer, Shard};
use super::*;

/// Readers, a list of retired segments, and a shard with a migration from an empty segment to
/// another that no thread has completed.
struct ReaderBench {
    readers: Readers,
    retired: Retired<RetiredValue>,
    shard: Shard,
}

/// A retired value: a segment, or nothing.
type RetiredValue = Option<Unlinked>;

impl ReaderBench {
    fn new() -> Arc<ReaderBench> {
        let (guard, shard, memory) = (epoch::pin(), Shard::new(), Memory::default());
        assert!(
            shard.publish(shard.view(&guard), Segment::new(&memory, 1, SegmentPointer::NONE, 0, 0))
        );
        let first = shard.view(&guard);
        assert!(shard.publish(first, Segment::new(&memory, 1, first.pointer(), 0, 0)));
        Arc::new(ReaderBench { readers: Readers::new(), retired: Retired::default(), shard })
    }

    /// Joins, looks for the old segment `times` times and reads it if it is there, and releases the
    /// record. Returns whether the segment was there.
    fn read(&self, times: usize) -> bool {
        let reader = self.readers.join();
        let was_there = (0..times).fold(false, |was_there, _| self.read_once(reader) | was_there);
        reader.release();
        was_there
    }

    fn read_once(&self, reader: &Reader) -> bool {
        assert!(reader.enter());
        let guard = epoch::pin();
        let view = self.shard.view(&guard);
        // A nested call, which ends first: it pins.
        if reader.enter() {
            reader.leave();
        }
        let old = view.old();
        if let Some(old) = old {
            assert_eq!(old.header().moved_bound, 0);
        }
        reader.leave();
        old.is_some()
    }

    /// Unlinks the old segment and frees it once no thread reads it. Returns whether it waited for
    /// a reader.
    fn free(&self) -> bool {
        let guard = epoch::pin();
        let view = self.shard.view(&guard);
        let old = view.old().expect("no thread has completed it");
        assert!(self.shard.complete(view));
        let mut active = self.readers.active().expect("a fence");
        let mut waited = false;
        while !active.are_over() {
            waited = true;
            loom::thread::yield_now();
        }
        // SAFETY: unlinked, and no thread reads it any more, which this model shows.
        drop(unsafe { old.into_block() });
        waited
    }

    /// Unlinks the old segment and retires it. Returns the number of values that this call freed.
    fn retire(&self) -> usize {
        let guard = epoch::pin();
        let view = self.shard.view(&guard);
        let old = view.old().expect("no thread has completed it");
        assert!(self.shard.complete(view));
        // SAFETY: unlinked, and freed once no thread reads it, which this model shows.
        self.retired.push(1, Some(unsafe { Unlinked::new(old) }));
        self.collect()
    }

    /// Frees the values that no reader can have. Returns their number.
    fn collect(&self) -> usize {
        self.retired.collect(&Guard::none(), When::Any, || self.readers.active()).len()
    }
}

/// Excluded: a reader reads a segment that was freed meanwhile.
fn reader_vs_free_model(read: &Tally, waited: &Tally) {
    let bench = ReaderBench::new();
    let reading = bench.clone();
    let reader = loom::thread::spawn(move || reading.read(2));
    if bench.free() {
        waited.add();
    }
    if reader.join().unwrap() {
        read.add();
    }
}

#[test]
fn reader_vs_free() {
    let (read, waited) = (Tally::default(), Tally::default());
    let (in_read, in_waited) = (read.clone(), waited.clone());
    explore_bounded(None, move || reader_vs_free_model(&in_read, &in_waited));
    assert!(read.get() > 0 && waited.get() > 0, "read {}, waited {}", read.get(), waited.get());
    let faults = [Fault::ReaderUnfenced, Fault::NoBarrier, Fault::EnterRelaxed, Fault::EnterNested];
    for fault in faults {
        fails_bounded(None, fault, "Concurrent read and write accesses", || {
            reader_vs_free_model(&Tally::default(), &Tally::default());
        });
    }
}

/// Excluded: a thread takes a record over with the state from before the last owner's last call,
/// and the record stays in a call.
fn reader_vs_reader_model(read: &Tally) {
    let bench = ReaderBench::new();
    let others: Vec<_> = (0..2)
        .map(|_| {
            let reading = bench.clone();
            loom::thread::spawn(move || reading.read(1))
        })
        .collect();
    bench.free();
    for other in others {
        if other.join().unwrap() {
            read.add();
        }
    }
    let mut active = bench.readers.active().expect("a fence");
    assert!(active.are_over(), "a record is left in a call");
    if bench.readers.count() == 1 {
        coverage::hit(Race::RecordTakenOver);
    }
}

#[test]
fn reader_vs_reader() {
    let read = Tally::default();
    let in_read = read.clone();
    explore_bounded(PREEMPTIONS_2, move || reader_vs_reader_model(&in_read));
    assert!(read.get() > 0, "no thread read");
    assert!(coverage::count(Race::RecordTakenOver) > 0, "no thread took a record over");
    fails_bounded(PREEMPTIONS_2, Fault::RecordRelaxed, "left in a call", || {
        reader_vs_reader_model(&Tally::default());
    });
}

/// The outcomes over all executions of [`retire_vs_look_model`].
#[derive(Clone, Default)]
struct Outcomes {
    /// The segment was left for later: a look found readers or was not for this segment, or another
    /// thread had the lock.
    waited: Tally,
    /// A look found no readers.
    freed: Tally,
}

/// Excluded: a look for readers that began before a segment was unlinked frees it.
fn retire_vs_look_model(outcomes: &Outcomes) {
    let bench = ReaderBench::new();
    // A value is retired already, so that this thread looks for its readers.
    bench.retired.push(1, None);
    let reading = bench.clone();
    let reader = loom::thread::spawn(move || reading.read(1));
    let retiring = bench.clone();
    let retirer = loom::thread::spawn(move || retiring.retire());
    let freed = bench.collect() + retirer.join().unwrap();
    if freed < 2 {
        outcomes.waited.add()
    } else {
        outcomes.freed.add()
    }
    reader.join().unwrap();
    // The values of the first look, then those that came after it.
    let rest = bench.collect() + bench.collect();
    assert_eq!(freed + rest, 2, "no thread reads, and a value is left");
}

#[test]
fn retire_vs_look() {
    let outcomes = Outcomes::default();
    let in_outcomes = outcomes.clone();
    explore_bounded(PREEMPTIONS_2, move || retire_vs_look_model(&in_outcomes));
    let Outcomes { waited, freed } = &outcomes;
    let all = [waited, freed].map(Tally::get);
    assert!(all.iter().all(|&count| count > 0), "waited, freed: {all:?}");
    fails_bounded(
        PREEMPTIONS_2,
        Fault::LooksTooEarly,
        "Concurrent read and write accesses",
        || {
            retire_vs_look_model(&Outcomes::default());
        },
    );
}

/// Excluded: of two threads that retire at once, one loses the other's value, or both free it.
fn retire_vs_retire_model(both: &Tally) {
    let bench = ReaderBench::new();
    let other = bench.clone();
    let other = loom::thread::spawn(move || {
        other.retired.push(1, None);
        other.collect()
    });
    bench.retired.push(1, None);
    let freed = bench.collect();
    if freed == 2 {
        both.add();
    }
    let freed = freed + other.join().unwrap() + bench.collect();
    assert_eq!(freed, 2, "each is freed once");
}

#[test]
fn retire_vs_retire() {
    let both = Tally::default();
    let in_both = both.clone();
    explore_bounded(None, move || retire_vs_retire_model(&in_both));
    assert!(both.get() > 0, "no thread freed both");
    fails_bounded(None, Fault::PushByStore, "each is freed once", || {
        retire_vs_retire_model(&Tally::default());
    });
}
