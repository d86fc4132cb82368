//! Loom models of the table, each named after its race, with twins that break a rule and must fail.
//!
//! The models of inserts, sweeps and the cap are here. The models of the stack, the arena and the
//! readers run that part alone. All others run the table itself, with one shard, segments of 0, 2, 4
//! and 8 slots, and chunks of one slot. All keys begin their search at the same slot, unless their
//! comment says otherwise. The clock is an atomic of loom that is read Relaxed, and is monotone along
//! happens-before only. A unit is 10 ns, and a bucket holds two units.

mod arena;
mod bench;
mod clock;
mod migration;
mod readers;
mod reload;
mod renumber;
#[cfg(feature = "snapshot")]
mod scan;
mod stack;

use std::sync::Arc;

use self::bench::{
    Bench, K, K_LOW, L, LAST, LATE, Limits, M, NEXT_TO_LAST, OWN, UNIT_NS, WITHOUT_LIMIT, WRAPPED,
};
use super::epoch;
use super::fingerprint::Fingerprint;
use super::segment::{ClaimOutcome, Segment};
use crate::models::{Tally, explore_bounded, fails_bounded};
use crate::store::{Absent, UpdateError};
use crate::util::coverage::{self, Race};
use crate::util::fault::Fault;
use crate::util::sync::Ordering;

/// The bound that loom's authors advise for models of three threads.
const PREEMPTIONS_2: Option<usize> = Some(2);

/// The bound for models that take longer.
const PREEMPTIONS_1: Option<usize> = Some(1);

fn spawn<T: 'static>(
    bench: &Arc<Bench>,
    run: impl FnOnce(&Bench) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let bench = bench.clone();
    loom::thread::spawn(move || run(&bench))
}

fn assert_reached(races: &[Race]) {
    for &race in races {
        assert!(coverage::count(race) > 0, "{race:?} was not reached");
        println!("{race:?}: {}", coverage::count(race));
    }
}

/// Excluded: two callers that insert one key make two cells, or a spend is lost.
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
    explore_bounded(PREEMPTIONS_2, insert_vs_insert_same_key_model);
    assert_reached(&[Race::InsertLost]);
    fails_bounded(PREEMPTIONS_2, Fault::InsertBlindly, "one cell", insert_vs_insert_same_key_model);
    fails_bounded(PREEMPTIONS_2, Fault::ClaimLeaked, "one claim", insert_vs_insert_same_key_model);
}

/// Excluded: of two keys with the same low half, one gets the other's cell.
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
    explore_bounded(PREEMPTIONS_2, insert_vs_insert_same_low_half_model);
    fails_bounded(
        PREEMPTIONS_2,
        Fault::TakeByStore,
        "a cell for each",
        insert_vs_insert_same_low_half_model,
    );
}

/// Excluded: a sweep drops a bucket that a caller has just spent from; or a bucket that was dropped
/// and is inserted again starts before the time of the drop.
fn spend_vs_evict_model(dropped: &Tally) {
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
fn spend_vs_evict() {
    let dropped = Tally::default();
    let in_dropped = dropped.clone();
    explore_bounded(PREEMPTIONS_2, move || spend_vs_evict_model(&in_dropped));
    assert!(dropped.get() > 0, "nothing was dropped");
    assert_reached(&[Race::Evicted]);
    fails_bounded(PREEMPTIONS_2, Fault::EvictByStore, "spent twice", || {
        spend_vs_evict_model(&Tally::default());
    });
}

/// Excluded: a sweep that migrates drops a bucket that a caller has just spent from; or a caller that finds the bucket dropped
/// inserts it beside a second one, or before the time of the drop.
fn spend_vs_evict_and_migration_model() {
    let bench = Bench::with_spent(2, &[K]);
    bench.advance_to(11);
    bench.start();
    let sweeper = spawn(&bench, |bench| {
        bench.sweep();
    });
    let spender = spawn(&bench, |bench| bench.spend(K) && bench.spend(K));
    sweeper.join().unwrap();
    assert!(spender.join().unwrap(), "the bucket was full");
    assert!(!bench.spend(K), "spent twice");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn spend_vs_evict_and_migration() {
    explore_bounded(PREEMPTIONS_2, spend_vs_evict_and_migration_model);
    assert_reached(&[Race::EvictedMoving, Race::Completed, Race::HelpedTwice]);
    let because = "one cell";
    fails_bounded(PREEMPTIONS_2, Fault::EvictByStore, because, spend_vs_evict_and_migration_model);
}

/// Excluded: while a helper is stalled, others migrate its key, reset it, drop its cell and charge
/// it again; then the helper brings the old word back.
fn late_seed_vs_evict_model() {
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
fn late_seed_vs_evict() {
    explore_bounded(PREEMPTIONS_2, late_seed_vs_evict_model);
    assert_reached(&[Race::Evicted, Race::SeededBefore]);
    let because = "the old word came back";
    fails_bounded(PREEMPTIONS_2, Fault::SeedPassesDead, because, late_seed_vs_evict_model);
}

/// Excluded: a bucket is reset during a migration and dropped in the successor, and a caller that
/// comes after the reset sees the debt from before it, in the old segment.
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
    explore_bounded(PREEMPTIONS_2, check_vs_completion_and_sweep_model);
    assert_reached(&[Race::Evicted]);
    let because = "the debt from before";
    fails_bounded(
        PREEMPTIONS_2,
        Fault::OldWordUnchecked,
        because,
        check_vs_completion_and_sweep_model,
    );
}

/// Excluded: a segment that shrinks has no room for keys that are inserted again meanwhile.
fn shrink_vs_returning_keys_model() {
    let bench = Bench::with_spent(2, &[K, L]);
    bench.advance_to(11);
    let sweeper = spawn(&bench, Bench::sweep);
    let returning = spawn(&bench, |bench| bench.spend(K));
    assert!(returning.join().unwrap());
    sweeper.join().unwrap();
    assert_eq!(bench.debt(K), UNIT_NS, "K's spend is kept");
    assert!((1..=2).contains(&bench.taken()), "L's cell may be dropped: {}", bench.taken());
}

#[test]
fn shrink_vs_returning_keys() {
    explore_bounded(PREEMPTIONS_2, shrink_vs_returning_keys_model);
    assert_reached(&[Race::Evicted, Race::Completed]);
    for fault in [Fault::SizedByFew, Fault::NoSeal, Fault::ClaimSealed] {
        fails_bounded(
            PREEMPTIONS_2,
            fault,
            "no room for a cell that moves",
            shrink_vs_returning_keys_model,
        );
    }
}

/// Excluded: three keys get cells under a cap of two; or the reservations do not add up.
fn cap_vs_three_inserts_model() {
    let bench = Bench::new(2, 2);
    bench.begin();
    let spenders =
        [K, L].map(|fingerprint| spawn(&bench, move |bench| bench.try_spend(fingerprint).is_ok()));
    let third = bench.try_spend(M).is_ok();
    let admitted = spenders.map(|spender| spender.join().unwrap());
    let count = admitted.into_iter().chain([third]).filter(|&admitted| admitted).count();
    assert_eq!(count, 2, "there was room for two");
    assert_eq!(bench.taken(), 2, "two are taken");
}

#[test]
fn cap_vs_three_inserts() {
    explore_bounded(PREEMPTIONS_1, cap_vs_three_inserts_model);
    let (fault, why) = (Fault::CapUnreserved, "there was room for two");
    fails_bounded(PREEMPTIONS_1, fault, why, cap_vs_three_inserts_model);
}

/// Excluded: the reservation of a cell that was never charged is released twice, or never.
fn cap_vs_migration_model() {
    let bench = Bench::with_spent(2, &[L]);
    // K gets a cell without a word.
    let starter = spawn(&bench, |bench| {
        let guard = epoch::pin();
        let view = bench.table.shards[0].view(&guard);
        let newest = view.newest().expect("L is there");
        let tag = Limits::of_generation(0).tag(K);
        let reservations = &bench.table.written.reservations;
        let mut reservation = reservations.reserve(tag).expect("there is room");
        if let ClaimOutcome::Granted(_) = newest.claim(view.is_migrating()) {
            match bench.table.take_slot(newest, K, tag, &mut reservation) {
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
    assert_eq!(bench.taken(), 1, "only L's reservation");
}

#[test]
fn cap_vs_migration() {
    explore_bounded(PREEMPTIONS_2, cap_vs_migration_model);
    assert_reached(&[Race::UnchargedDropped]);
    fails_bounded(
        PREEMPTIONS_2,
        Fault::EveryoneReleases,
        "only L's reservation",
        cap_vs_migration_model,
    );
}
