//! Readers beside who frees, and beside each other. loom's readers make a fence of their own, for it knows
//! none that is made in another's place: what is shown is what needs both halves of it.

#![expect(unsafe_code, reason = "frees as the table does")]

use super::super::memory::Memory;
use super::super::readers::{Reader, Readers};
use super::super::segment::Segment;
use super::super::shard::{Packed, Shard};
use super::super::unread::{Free, Unread};
use super::*;

/// Readers, what waits for them, and a shard with a migration from an empty segment to another, which
/// nobody has completed.
struct Library {
    unread: Unread,
    shard: Shard,
}

impl Library {
    fn new() -> Arc<Library> {
        let (guard, shard, memory) = (epoch::pin(), Shard::new(), Memory::default());
        assert!(shard.publish(shard.view(&guard), Segment::new(&memory, 1, Packed::NONE, 0, 0)));
        let first = shard.view(&guard);
        assert!(shard.publish(first, Segment::new(&memory, 1, first.as_old(), 0, 0)));
        Arc::new(Library { unread: Unread::new(), shard })
    }

    fn readers(&self) -> &Readers {
        self.unread.readers()
    }

    /// Joins, reads so many times the old segment if it is to be found, and parts. Returns whether it was.
    fn read(&self, times: usize) -> bool {
        let reader = self.readers().join();
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
        let mut in_calls = self.readers().in_calls().expect("a fence");
        let mut waited = false;
        while !in_calls.are_over() {
            waited = true;
            loom::thread::yield_now();
        }
        // SAFETY: unlinked, and nobody reads it any more: that is what is shown here.
        drop(unsafe { old.into_block() });
        waited
    }

    /// Unlinks the old segment, and has it freed by whoever finds that nobody reads it. Returns it if the
    /// lock is taken.
    fn retire(&self) -> Result<(), Free> {
        let guard = epoch::pin();
        let view = self.shard.view(&guard);
        let (header, log2) = view.old().expect("nobody has completed it").parts();
        assert!(self.shard.complete(view));
        // SAFETY: unlinked, and freed once nobody reads it: that is what is shown here. In a model all is
        // one system thread's.
        let free =
            unsafe { Free::new(1, move || drop(Segment::from_parts(header, log2).into_block())) };
        self.unread.push(free)
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
    let mut in_calls = library.readers().in_calls().expect("a fence");
    assert!(in_calls.are_over(), "a record is left in a call");
    if library.readers().count() == 1 {
        reached(Place::RecordTakenOver);
    }
}

#[test]
fn reader_vs_reader() {
    let read = Tally::default();
    let in_read = read.clone();
    explore_bounded(SOME, move || reader_vs_reader_model(&in_read));
    assert!(read.get() > 0, "nobody read");
    assert!(probe::count(Place::RecordTakenOver) > 0, "nobody took a record over");
    fails_bounded(SOME, Fault::RecordRelaxed, "left in a call", || {
        reader_vs_reader_model(&Tally::default());
    });
}

/// What became of the segment in one execution of [`retire_vs_look_model`].
#[derive(Clone, Default)]
struct Fates {
    /// The one who retired it found the lock taken.
    kept: Tally,
    /// It was left for later: a look found readers, or was not for it.
    waited: Tally,
    /// A look found none.
    freed: Tally,
}

/// Excluded: a look for readers, begun before a segment was unlinked, lets it go.
fn retire_vs_look_model(fates: &Fates) {
    let library = Library::new();
    // SAFETY: it frees nothing. What waits already is what the other one looks for.
    let before = unsafe { Free::new(1, || ()) };
    assert!(library.unread.push(before).is_ok());
    let reading = library.clone();
    let reader = loom::thread::spawn(move || reading.read(1));
    let retiring = library.clone();
    let retirer = loom::thread::spawn(move || retiring.retire());
    library.unread.free_some();
    let kept = retirer.join().unwrap();
    match kept {
        Err(_) => fates.kept.add(),
        Ok(()) if library.unread.is_any() => fates.waited.add(),
        Ok(()) => fates.freed.add(),
    }
    reader.join().unwrap();
    drop(kept);
    library.unread.free_some();
    assert!(!library.unread.is_any(), "nobody reads, and something waits");
}

#[test]
fn retire_vs_look() {
    let fates = Fates::default();
    let in_fates = fates.clone();
    explore_bounded(SOME, move || retire_vs_look_model(&in_fates));
    let Fates { kept, waited, freed } = &fates;
    let all = [kept, waited, freed].map(Tally::get);
    assert!(all.iter().all(|&fate| fate > 0), "kept, waited, freed: {all:?}");
    fails_bounded(SOME, Fault::LooksTooEarly, "Concurrent read and write accesses", || {
        retire_vs_look_model(&Fates::default());
    });
}
