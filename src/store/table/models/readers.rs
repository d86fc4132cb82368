//! Readers beside who frees, and beside each other. loom's readers make a fence of their own, for it knows
//! none that is made in another's place: what is shown is what needs both halves of it.

#![expect(unsafe_code, reason = "frees as the table does")]

use super::super::epoch::Guard;
use super::super::memory::Memory;
use super::super::readers::{Reader, Readers};
use super::super::retired::{Retired, When};
use super::super::segment::{Segment, Unlinked};
use super::super::shard::{Packed, Shard};
use super::*;

/// Readers, what waits for them, and a shard with a migration from an empty segment to another, which
/// nobody has completed.
struct Library {
    readers: Readers,
    retired: Retired<Thing>,
    shard: Shard,
}

/// What waits for readers: a segment, or nothing.
type Thing = Option<Unlinked>;

impl Library {
    fn new() -> Arc<Library> {
        let (guard, shard, memory) = (epoch::pin(), Shard::new(), Memory::default());
        assert!(shard.publish(shard.view(&guard), Segment::new(&memory, 1, Packed::NONE, 0, 0)));
        let first = shard.view(&guard);
        assert!(shard.publish(first, Segment::new(&memory, 1, first.as_old(), 0, 0)));
        Arc::new(Library { readers: Readers::new(), retired: Retired::default(), shard })
    }

    /// Joins, reads so many times the old segment if it is to be found, and parts. Returns whether it was.
    fn read(&self, times: usize) -> bool {
        let reader = self.readers.join();
        let was_there = (0..times).fold(false, |was_there, _| self.read_once(reader) | was_there);
        reader.part();
        was_there
    }

    fn read_once(&self, reader: &Reader) -> bool {
        reader.enter();
        let guard = epoch::pin();
        let view = self.shard.view(&guard);
        // A call within the call, which ends first.
        reader.enter();
        reader.leave();
        let old = view.old();
        if let Some(old) = old {
            assert_eq!(old.header().moved_bound, 0);
        }
        reader.leave();
        old.is_some()
    }

    /// Unlinks the old segment, and frees it once nobody reads it. Returns whether somebody did.
    fn free(&self) -> bool {
        let guard = epoch::pin();
        let view = self.shard.view(&guard);
        let old = view.old().expect("nobody has completed it");
        assert!(self.shard.complete(view));
        let mut in_calls = self.readers.in_calls().expect("a fence");
        let mut waited = false;
        while !in_calls.are_over() {
            waited = true;
            loom::thread::yield_now();
        }
        // SAFETY: unlinked, and nobody reads it any more: that is what is shown here.
        drop(unsafe { old.into_block() });
        waited
    }

    /// Unlinks the old segment, and has it freed by any thread that finds that no reader has it. Returns
    /// whether this call took what waits, and how many things it freed.
    fn retire(&self) -> usize {
        let guard = epoch::pin();
        let view = self.shard.view(&guard);
        let old = view.old().expect("nobody has completed it");
        assert!(self.shard.complete(view));
        // SAFETY: unlinked, and freed once nobody reads it: that is what is shown here.
        self.retired.push(1, Some(unsafe { Unlinked::new(old) }));
        self.collect()
    }

    /// Frees what waits for no reader any more; how many things.
    fn collect(&self) -> usize {
        self.retired.collect(&Guard::none(), When::Any, || self.readers.in_calls()).len()
    }
}

/// Excluded: a reader reads a segment that was freed meanwhile.
fn reader_vs_free_model(read: &Tally, waited: &Tally) {
    let library = Library::new();
    let reading = library.clone();
    let reader = loom::thread::spawn(move || reading.read(2));
    if library.free() {
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
    for fault in [Fault::ReaderUnfenced, Fault::NoBarrier, Fault::EnterRelaxed] {
        fails_bounded(None, fault, "Concurrent read and write accesses", || {
            reader_vs_free_model(&Tally::default(), &Tally::default());
        });
    }
}

/// Excluded: a record is taken over in a state from before its owner's last call, and then stays in it.
fn reader_vs_reader_model(read: &Tally) {
    let library = Library::new();
    let others: Vec<_> = (0..2)
        .map(|_| {
            let reading = library.clone();
            loom::thread::spawn(move || reading.read(1))
        })
        .collect();
    library.free();
    for other in others {
        if other.join().unwrap() {
            read.add();
        }
    }
    let mut in_calls = library.readers.in_calls().expect("a fence");
    assert!(in_calls.are_over(), "a record is left in a call");
    if library.readers.count() == 1 {
        coverage::hit(Race::RecordTakenOver);
    }
}

#[test]
fn reader_vs_reader() {
    let read = Tally::default();
    let in_read = read.clone();
    explore_bounded(SOME, move || reader_vs_reader_model(&in_read));
    assert!(read.get() > 0, "nobody read");
    assert!(coverage::count(Race::RecordTakenOver) > 0, "nobody took a record over");
    fails_bounded(SOME, Fault::RecordRelaxed, "left in a call", || {
        reader_vs_reader_model(&Tally::default());
    });
}

/// What became of the segment in one execution of [`retire_vs_look_model`].
#[derive(Clone, Default)]
struct Fates {
    /// It was left for later: a look found readers, was not for it, or another thread had the lock.
    waited: Tally,
    /// A look found none.
    freed: Tally,
}

/// Excluded: a look for readers, begun before a segment was unlinked, lets it go.
fn retire_vs_look_model(fates: &Fates) {
    let library = Library::new();
    // What waits already is what the other thread looks for.
    library.retired.push(1, None);
    let reading = library.clone();
    let reader = loom::thread::spawn(move || reading.read(1));
    let retiring = library.clone();
    let retirer = loom::thread::spawn(move || retiring.retire());
    let freed = library.collect() + retirer.join().unwrap();
    if freed < 2 {
        fates.waited.add()
    } else {
        fates.freed.add()
    }
    reader.join().unwrap();
    // What the first look found, and what came after it.
    let rest = library.collect() + library.collect();
    assert_eq!(freed + rest, 2, "nobody reads, and something waits");
}

#[test]
fn retire_vs_look() {
    let fates = Fates::default();
    let in_fates = fates.clone();
    explore_bounded(SOME, move || retire_vs_look_model(&in_fates));
    let Fates { waited, freed } = &fates;
    let all = [waited, freed].map(Tally::get);
    assert!(all.iter().all(|&fate| fate > 0), "waited, freed: {all:?}");
    fails_bounded(SOME, Fault::LooksTooEarly, "Concurrent read and write accesses", || {
        retire_vs_look_model(&Fates::default());
    });
}

/// Excluded: of two threads that retire at once one loses the other's thing, or both free it.
fn retire_vs_retire_model(both: &Tally) {
    let library = Library::new();
    let other = library.clone();
    let other = loom::thread::spawn(move || {
        other.retired.push(1, None);
        other.collect()
    });
    library.retired.push(1, None);
    let freed = library.collect();
    if freed == 2 {
        both.add();
    }
    let freed = freed + other.join().unwrap() + library.collect();
    assert_eq!(freed, 2, "each is freed once");
}

#[test]
fn retire_vs_retire() {
    let both = Tally::default();
    let in_both = both.clone();
    explore_bounded(None, move || retire_vs_retire_model(&in_both));
    assert!(both.get() > 0, "neither freed the other's");
    fails_bounded(None, Fault::PushByStore, "each is freed once", || {
        retire_vs_retire_model(&Tally::default());
    });
}
