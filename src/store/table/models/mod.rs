//! Loom models of the table, each named after its race, with a broken twin: of inserts, sweeps and the
//! cap here, of migrations in `migration.rs`.
//!
//! They run the table itself, with one shard, segments of 0, 2, 4 and 8 slots, and chunks of one slot.
//! All keys begin their search at the same slot. The clock is a modelled atomic read Relaxed, monotone
//! only along happens-before. A unit is 10 ns, a bucket holds two, if nothing else is said.

mod carried;
mod migration;
mod readers;
mod reload;
mod renumber;
#[cfg(feature = "snapshot")]
mod scan;

use std::sync::Arc;

use super::fingerprint::{Fingerprint, Seeds};
use super::migration::Room;
use super::segment::Segment;
use super::{Table, epoch};
use crate::models::{Tally, explore_bounded, fails_bounded};
use crate::store::key::{KeyRef, LimitIndex, LimitTag, Stamp};
use crate::store::{Absent, CellKey, Change, Outdated, Rules, StoreKey, Swept, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::Fault;
use crate::util::sync::{AtomicU64, Ordering};

/// The bound for models of three threads: loom's authors' advice, and what fits into the gate.
const SOME: Option<usize> = Some(2);

/// For the longer ones.
const FEW: Option<usize> = Some(1);

const UNIT_NS: u64 = 10;
const BURST_NS: u64 = 20;

const K: Fingerprint = Fingerprint { lo: 0x12, hi: 0x1002 };
/// As K in its low half.
const K_LOW: Fingerprint = Fingerprint { lo: 0x12, hi: 0x2002 };
const L: Fingerprint = Fingerprint { lo: 0x22, hi: 0x3002 };
const M: Fingerprint = Fingerprint { lo: 0x32, hi: 0x4002 };

/// A key whose limit the next generation does not have.
const GONE: Fingerprint = Fingerprint { lo: 0x62, hi: 0x7002 };

const LAST: Fingerprint = Fingerprint { lo: 0x52, hi: 0x6002 };
/// Its search begins at the third of four slots.
const LATE: Fingerprint = Fingerprint { lo: 0x42, hi: 1 << 63 | 0x5202 };

/// A table and its clock.
struct Bench {
    table: Table,
    now_ns: AtomicU64,
    /// The generation of limits that calls find.
    newest: AtomicU64,
}

/// Limits as a caller finds them. In each generation a unit takes twice the time that it took in the one before.
/// Each key has an override, which ends; then that of its account applies, which ends as well; then the default. A debt
/// is thrice that under the numbers before.
#[derive(Clone, Copy)]
struct Limits {
    generation: u64,
    /// How many ends have passed.
    ends: u32,
}

impl Limits {
    fn of(generation: u64) -> Limits {
        Limits { generation, ends: 0 }
    }

    fn noted(self, fingerprint: Fingerprint) -> LimitTag {
        let numbers = [fingerprint.hi as u32, 1, 0][self.ends as usize];
        Stamp::new(LimitIndex(0), self.generation).tag(numbers)
    }

    fn unit_ns(self) -> u64 {
        UNIT_NS << self.generation
    }

    /// What is owed of a word, so many times.
    fn times(word: u64, factor: u64) -> u64 {
        1 + (word - 1) * factor
    }
}

impl Rules for Limits {
    fn owed(
        &self,
        _: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        (word > at_ns).then_some((tag, word))
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn migrated(&self, key: CellKey<'_>, tag: LimitTag, word: u64) -> Option<(LimitTag, u64)> {
        if tag.is_of_generation(self.generation) {
            return Some((tag, word));
        }
        let CellKey::Fingerprint(fingerprint) = key else { unreachable!("a cell has no id") };
        // The one that a reload leaves without a limit.
        (fingerprint != GONE)
            .then(|| (Limits::of(self.generation).noted(fingerprint), Limits::times(word, 2)))
    }

    fn converted(
        &self,
        _: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated> {
        let is_current = tag.is_of_generation(self.generation);
        let word = if is_current { word } else { Limits::times(word, 2) };
        let ends = |tag: LimitTag| match tag.numbers() {
            0 => 2,
            1 => 1,
            _ => 0_u32,
        };
        match ends(to).checked_sub(ends(tag)) {
            Some(passed) => Ok(Limits::times(word, 3_u64.pow(passed))),
            None => Err(Outdated),
        }
    }

    fn record_end(&self, _: LimitTag) {}
}

impl Table {
    /// Begins a migration of the one shard, with room for so many more, if none goes on, and helps it to
    /// its end.
    pub(crate) fn migrate(&self, room: u64, rules: &impl Rules) {
        let guard = epoch::pin();
        let shard = &self.shards[0];
        self.start(shard, shard.view(&guard), Room::More(room), rules);
        self.help_to_the_end(&guard, shard, shard.view(&guard), rules);
    }
}

impl Bench {
    /// A table whose first segment has `1 << first_log2` slots.
    fn new(max_keys: usize, first_log2: u32) -> Arc<Bench> {
        let table = Table::with_shape(max_keys, 1, first_log2, Seeds::new());
        Arc::new(Bench { table, now_ns: AtomicU64::new(1), newest: AtomicU64::new(0) })
    }

    /// The limits that a call finds.
    fn limits(&self) -> Limits {
        Limits::of(self.newest.load(Ordering::Acquire))
    }

    fn update(
        &self,
        fingerprint: Fingerprint,
        absent: Absent,
        step: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        self.update_by(Limits::of(0), fingerprint, absent, step)
    }

    fn update_by(
        &self,
        limits: Limits,
        fingerprint: Fingerprint,
        absent: Absent,
        mut step: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Result<(), UpdateError> {
        let key = KeyRef { limit: LimitIndex(0), id: &[] };
        let key = StoreKey { key, fingerprint, tag: limits.noted(fingerprint) };
        let now_ns = self.now_ns();
        let change = Change { key: &key, absent, now_ns };
        self.table.update(change, &limits, &mut |word| {
            let at_ns = if word == 0 { now_ns.max(self.table.floor_ns()) } else { now_ns };
            step(word, at_ns)
        })
    }

    /// Gives the shard its first segment.
    fn begin(&self) {
        let shard = &self.table.shards[0];
        self.table.begin(shard, shard.view(&epoch::pin()), self.table.first_log2, &Limits::of(0));
    }

    /// One unit; whether it was there. `Err` at the cap.
    fn try_spend(&self, fingerprint: Fingerprint) -> Result<bool, UpdateError> {
        let mut allowed = false;
        self.update(fingerprint, Absent::Insert, |word, at_ns| {
            let spent = word.max(at_ns) + UNIT_NS;
            allowed = spent <= at_ns + BURST_NS;
            allowed.then_some(spent)
        })?;
        Ok(allowed)
    }

    fn spend(&self, fingerprint: Fingerprint) -> bool {
        self.try_spend(fingerprint).expect("there is room")
    }

    /// Gives one unit back.
    fn refund(&self, fingerprint: Fingerprint) {
        let _ = self.update(fingerprint, Absent::Leave, |word, at_ns| {
            let given = word.saturating_sub(UNIT_NS).max(at_ns);
            (word > at_ns).then_some(given)
        });
    }

    fn reset(&self, fingerprint: Fingerprint) {
        let _ =
            self.update(fingerprint, Absent::Leave, |word, at_ns| (word > at_ns).then_some(at_ns));
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// The key's word, 0 if it has none.
    fn word(&self, fingerprint: Fingerprint) -> u64 {
        self.word_by(Limits::of(0), fingerprint).expect("there was no reload")
    }

    fn word_by(&self, limits: Limits, fingerprint: Fingerprint) -> Result<u64, Outdated> {
        let key = KeyRef { limit: LimitIndex(0), id: &[] };
        let key = StoreKey { key, fingerprint, tag: limits.noted(fingerprint) };
        Ok(self.table.look(&key, &limits)?.unwrap_or(0))
    }

    /// What the bucket owes, in ns.
    fn debt(&self, fingerprint: Fingerprint) -> u64 {
        self.word(fingerprint).saturating_sub(self.now_ns())
    }

    /// Begins a migration if none goes on.
    fn start(&self) {
        self.start_by(Limits::of(0));
    }

    fn start_by(&self, limits: Limits) {
        let guard = epoch::pin();
        let shard = &self.table.shards[0];
        self.table.start(shard, shard.view(&guard), Room::More(1), &limits);
    }

    fn migrate(&self) {
        self.table.migrate(1, &Limits::of(0));
    }

    /// Helps with one chunk.
    fn help(&self) {
        self.help_by(Limits::of(0));
    }

    fn help_by(&self, limits: Limits) {
        let guard = epoch::pin();
        let shard = &self.table.shards[0];
        self.table.help(&guard, shard, shard.view(&guard), &limits);
    }

    fn sweep(&self) -> Swept {
        self.table.sweep(8, self.now_ns(), &Limits::of(0))
    }

    fn advance_to(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
    }

    fn is_at_rest(&self) -> bool {
        !self.table.shards[0].view(&epoch::pin()).is_migrating()
    }

    /// A table at rest in which these keys have spent one unit each.
    fn with_spent(first_log2: u32, prints: &[Fingerprint]) -> Arc<Bench> {
        let bench = Bench::new(8, first_log2);
        for &fingerprint in prints {
            assert!(bench.spend(fingerprint));
        }
        while !bench.is_at_rest() {
            bench.help();
        }
        bench
    }

    /// The slots of the newest segment that are claimed.
    fn claimed(&self) -> u64 {
        let guard = epoch::pin();
        self.table.shards[0].view(&guard).newest().map_or(0, Segment::used)
    }

    /// The places that are reserved.
    fn taken(&self) -> usize {
        self.table.written.reservations.taken()
    }
}

fn spawn<T: 'static>(
    bench: &Arc<Bench>,
    run: impl FnOnce(&Bench) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let bench = bench.clone();
    loom::thread::spawn(move || run(&bench))
}

fn assert_reached(places: &[Race]) {
    for &place in places {
        assert!(coverage::count(place) > 0, "{place:?} was not reached");
        println!("{place:?}: {}", coverage::count(place));
    }
}

/// Excluded: two callers that insert one key make two cells, or lose a spend.
fn insert_vs_insert_same_key_model() {
    let bench = Bench::new(8, 2);
    bench.begin();
    let other = spawn(&bench, |bench| bench.spend(K));
    let third = spawn(&bench, |bench| bench.spend(K));
    assert!(other.join().unwrap() && third.join().unwrap(), "there was room for both");
    assert_eq!(bench.taken(), 1, "one cell for one key");
    assert_eq!(bench.claimed(), 1, "one claim for one cell");
    assert_eq!(bench.debt(K), 2 * UNIT_NS, "both are charged");
}

#[test]
fn insert_vs_insert_same_key() {
    explore_bounded(SOME, insert_vs_insert_same_key_model);
    assert_reached(&[Race::InsertLost]);
    fails_bounded(SOME, Fault::InsertBlindly, "one cell", insert_vs_insert_same_key_model);
    fails_bounded(SOME, Fault::ClaimLeaked, "one claim", insert_vs_insert_same_key_model);
}

/// Excluded: of two keys with the same low half one gets the other's cell.
fn insert_vs_insert_same_low_half_model() {
    let bench = Bench::new(8, 2);
    bench.begin();
    let other = spawn(&bench, |bench| bench.spend(K));
    let third = spawn(&bench, |bench| bench.spend(K_LOW) && bench.spend(K_LOW));
    assert!(other.join().unwrap() && third.join().unwrap(), "a cell for each");
    assert_eq!(bench.taken(), 2, "a cell for each");
    assert_eq!(bench.debt(K), UNIT_NS, "K owes its own");
    assert_eq!(bench.debt(K_LOW), 2 * UNIT_NS, "the other owes its own");
}

#[test]
fn insert_vs_insert_same_low_half() {
    explore_bounded(SOME, insert_vs_insert_same_low_half_model);
    fails_bounded(
        SOME,
        Fault::TakeByStore,
        "a cell for each",
        insert_vs_insert_same_low_half_model,
    );
}

/// Excluded: a bucket is buried that has just been spent from; one that comes back starts before the time
/// that it was dropped at.
fn spend_vs_bury_model(dropped: &Tally) {
    let bench = Bench::with_spent(3, &[K]);
    bench.advance_to(11);
    let sweeper = spawn(&bench, |bench| bench.sweep().dropped);
    let spender = spawn(&bench, |bench| bench.spend(K) && bench.spend(K));
    if sweeper.join().unwrap() > 0 {
        dropped.add();
    }
    assert!(spender.join().unwrap(), "the bucket was full");
    assert!(!bench.spend(K), "spent twice");
}

#[test]
fn spend_vs_bury() {
    let dropped = Tally::default();
    let in_dropped = dropped.clone();
    explore_bounded(SOME, move || spend_vs_bury_model(&in_dropped));
    assert!(dropped.get() > 0, "nothing was dropped");
    assert_reached(&[Race::Buried]);
    fails_bounded(SOME, Fault::BuryByStore, "spent twice", || {
        spend_vs_bury_model(&Tally::default());
    });
}

/// Excluded: a helper that stood still while its key was carried by others, reset, buried and charged
/// again brings the old word back.
fn late_seed_vs_bury_model() {
    let bench = Bench::with_spent(2, &[K]);
    assert!(bench.spend(K));
    let helper = spawn(&bench, Bench::migrate);
    let operator = spawn(&bench, |bench| {
        bench.migrate();
        bench.reset(K);
        bench.sweep();
        bench.debt(K)
    });
    helper.join().unwrap();
    assert_eq!(operator.join().unwrap(), 0, "it was reset");
    assert_eq!(bench.debt(K), 0, "the old word came back");
}

#[test]
fn late_seed_vs_bury() {
    explore_bounded(SOME, late_seed_vs_bury_model);
    assert_reached(&[Race::Buried, Race::SeededBefore]);
    let because = "the old word came back";
    fails_bounded(SOME, Fault::SeedPassesBuried, because, late_seed_vs_bury_model);
}

/// Excluded: who is told that a bucket was reset, while it was being carried, is denied by the debt that
/// it had before, because it was dropped since where it was carried to.
fn check_vs_completion_and_sweep_model() {
    let bench = Bench::with_spent(2, &[K]);
    bench.start();
    bench.reset(K);
    let checker = spawn(&bench, |bench| bench.word(K));
    let sweeper = spawn(&bench, |bench| {
        while !bench.is_at_rest() {
            bench.help();
        }
        bench.sweep();
    });
    assert!(checker.join().unwrap() <= 1, "the debt from before the reset");
    sweeper.join().unwrap();
}

#[test]
fn check_vs_completion_and_sweep() {
    explore_bounded(SOME, check_vs_completion_and_sweep_model);
    assert_reached(&[Race::Buried]);
    let because = "the debt from before";
    fails_bounded(SOME, Fault::OldWordUnchecked, because, check_vs_completion_and_sweep_model);
}

/// Excluded: a segment that shrinks has no room for keys that come back while it does.
fn shrink_vs_returning_keys_model() {
    let bench = Bench::with_spent(2, &[K, L]);
    bench.advance_to(11);
    let sweeper = spawn(&bench, Bench::sweep);
    let returning = spawn(&bench, |bench| bench.spend(K));
    assert!(returning.join().unwrap());
    sweeper.join().unwrap();
    assert_eq!(bench.debt(K), UNIT_NS, "K's spend is kept");
    assert!((1..=2).contains(&bench.taken()), "L's may be gone: {}", bench.taken());
}

#[test]
fn shrink_vs_returning_keys() {
    explore_bounded(SOME, shrink_vs_returning_keys_model);
    assert_reached(&[Race::Buried, Race::Completed]);
    for fault in [Fault::SizedByFew, Fault::NoSeal, Fault::ClaimSealed] {
        fails_bounded(SOME, fault, "no room for a cell that moves", shrink_vs_returning_keys_model);
    }
}

/// Excluded: three keys get in where there is room for two; or the places do not add up.
fn cap_vs_three_inserts_model(full: &Tally) {
    let bench = Bench::new(2, 2);
    bench.begin();
    let spenders =
        [K, L].map(|fingerprint| spawn(&bench, move |bench| bench.try_spend(fingerprint).is_ok()));
    let third = bench.try_spend(M).is_ok();
    let admitted = spenders.map(|spender| spender.join().unwrap());
    let count = admitted.into_iter().chain([third]).filter(|&admitted| admitted).count();
    assert_eq!(count, 2, "two places were there");
    assert_eq!(bench.taken(), 2, "two are taken");
    full.add();
}

#[test]
fn cap_vs_three_inserts() {
    let full = Tally::default();
    let in_full = full.clone();
    explore_bounded(FEW, move || cap_vs_three_inserts_model(&in_full));
    assert!(full.get() > 0);
    fails_bounded(FEW, Fault::CapUnreserved, "two places were there", || {
        cap_vs_three_inserts_model(&Tally::default());
    });
}

/// Excluded: the place of a cell that was never charged is given back twice, or never.
fn cap_vs_migration_model() {
    let bench = Bench::with_spent(2, &[L]);
    // K's cell is there, and has no word.
    let starter = spawn(&bench, |bench| {
        let guard = epoch::pin();
        let view = bench.table.shards[0].view(&guard);
        let newest = view.newest().expect("L is there");
        let reservation = bench.table.written.reservations.reserve().expect("there is room");
        if let super::segment::Claim::Granted(_) = newest.claim(view.is_migrating()) {
            match bench.table.settle(newest, K) {
                Some(settled) if settled.is_new => reservation.hand_over(),
                _ => newest.give_back(),
            }
        }
    });
    let migrator = spawn(&bench, Bench::migrate);
    let helper = spawn(&bench, Bench::help);
    starter.join().unwrap();
    migrator.join().unwrap();
    helper.join().unwrap();
    bench.sweep();
    assert_eq!(bench.taken(), 1, "L's place alone");
}

#[test]
fn cap_vs_migration() {
    explore_bounded(SOME, cap_vs_migration_model);
    assert_reached(&[Race::UnchargedDropped]);
    fails_bounded(SOME, Fault::EveryoneReleases, "L's place alone", cap_vs_migration_model);
}
