//! Models of migrations beside calls, and beside each other.

use super::*;

/// Excluded: a spend beside a migration is lost, or admitted on what was there before it.
fn spend_vs_migration_model() {
    // K is not in the first chunk.
    let bench = Bench::with_spent(2, &[L, K]);
    let spender = spawn(&bench, |bench| bench.spend(K));
    let migrator = spawn(&bench, |bench| {
        bench.migrate();
        bench.advance_to(3);
    });
    assert!(spender.join().unwrap(), "the second unit was there");
    migrator.join().unwrap();
    let word = bench.word(K);
    assert_eq!(word, 1 + 2 * UNIT_NS, "both spends are kept");
    assert_eq!(bench.taken(), 2, "one cell each");
}

#[test]
fn spend_vs_migration() {
    explore_bounded(SOME, spend_vs_migration_model);
    assert_reached(&[Race::Completed, Race::SeededBefore, Race::LookedAtMoved]);
    for (fault, because) in [
        (Fault::CompleteEarly, "both spends are kept"),
        (Fault::PublishRelaxed, "Concurrent read and write accesses"),
        (Fault::ViewRelaxed, "Concurrent read and write accesses"),
        (Fault::RetireLinked, "retired that can be reached"),
    ] {
        fails_bounded(SOME, fault, because, spend_vs_migration_model);
    }
}

/// Excluded: a refund beside a migration is lost, or the debt that it took comes back with a late helper.
fn refund_vs_migration_model() {
    let bench = Bench::with_spent(2, &[K]);
    bench.start();
    let refunder = spawn(&bench, |bench| bench.refund(K));
    let helper = spawn(&bench, Bench::migrate);
    refunder.join().unwrap();
    helper.join().unwrap();
    assert_eq!(bench.debt(K), 0, "it was given back");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn refund_vs_migration() {
    explore_bounded(SOME, refund_vs_migration_model);
    assert_reached(&[Race::SeededBefore, Race::HelpedTwice, Race::Completed]);
    fails_bounded(SOME, Fault::SeedByMax, "it was given back", refund_vs_migration_model);
}

/// Excluded: of a reset and a spend beside a migration either is lost.
fn reset_and_spend_vs_migration_model() {
    let bench = Bench::with_spent(2, &[K]);
    assert!(bench.spend(K));
    bench.start();
    let resetter = spawn(&bench, |bench| {
        bench.reset(K);
        assert!(bench.spend(K), "full again");
    });
    let migrator = spawn(&bench, |bench| {
        bench.migrate();
        bench.advance_to(3);
    });
    resetter.join().unwrap();
    migrator.join().unwrap();
    let word = bench.word(K);
    assert!([1, 3].map(|at| at + UNIT_NS).contains(&word), "one unit after the reset: {word}");
}

#[test]
fn reset_and_spend_vs_migration() {
    explore_bounded(SOME, reset_and_spend_vs_migration_model);
    assert_reached(&[Race::SeededBefore]);
    fails_bounded(
        SOME,
        Fault::SeedByMax,
        "one unit after the reset",
        reset_and_spend_vs_migration_model,
    );
}

/// Excluded: of two callers that insert a key while the shard is being left, one is charged in the old
/// segment and one in the new.
fn inserts_vs_migration_model() {
    let bench = Bench::new(8, 1);
    bench.begin();
    let spender = spawn(&bench, |bench| bench.spend(K));
    let other = spawn(&bench, |bench| {
        bench.start();
        bench.spend(K)
    });
    assert!(spender.join().unwrap() && other.join().unwrap(), "two units were there");
    assert_eq!(bench.debt(K), 2 * UNIT_NS, "two are charged");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn inserts_vs_migration() {
    explore_bounded(SOME, inserts_vs_migration_model);
    assert_reached(&[Race::Poisoned, Race::InsertLost]);
    for fault in [Fault::AbsentWithoutClosing, Fault::NoPoison] {
        fails_bounded(SOME, fault, "", inserts_vs_migration_model);
    }
}

/// Excluded: a spender that holds a segment two migrations old loses its spend, or revives an old word.
fn spend_vs_two_migrations_model() {
    // Its cell is not in the first chunk.
    let bench = Bench::with_spent(2, &[LATE]);
    let spender = spawn(&bench, |bench| bench.spend(LATE));
    let migrator = spawn(&bench, |bench| {
        bench.table.migrate(0, &Limits::of(0));
        bench.table.migrate(0, &Limits::of(0));
    });
    assert!(spender.join().unwrap());
    migrator.join().unwrap();
    assert_eq!(bench.debt(LATE), 2 * UNIT_NS, "both spends are kept");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn spend_vs_two_migrations() {
    explore_bounded(FEW, spend_vs_two_migrations_model);
    assert_reached(&[Race::Completed, Race::LookedAtMoved]);
    fails_bounded(FEW, Fault::CompleteEarly, "both spends", spend_vs_two_migrations_model);
}

/// Excluded: two starters whose migrations overlap lose what neither carries.
fn start_vs_start_model() {
    let bench = Bench::with_spent(2, &[L, K]);
    let one = spawn(&bench, Bench::migrate);
    let other = spawn(&bench, Bench::migrate);
    one.join().unwrap();
    other.join().unwrap();
    assert!(bench.spend(K));
    assert_eq!(bench.debt(K), 2 * UNIT_NS, "both spends are kept");
}

#[test]
fn start_vs_start() {
    explore_bounded(FEW, start_vs_start_model);
    assert_reached(&[Race::StartLost]);
    fails_bounded(FEW, Fault::StartWhileMoving, "both spends are kept", start_vs_start_model);
}

/// Excluded: a helper that stands still for ever in its chunk keeps the others from completing, or its
/// part is left out.
fn helpers_vs_stalled_helper_model() {
    let bench = Bench::with_spent(2, &[L, K]);
    bench.start();
    // It has frozen K's cell, in the second chunk, and nothing more.
    let stalled = spawn(&bench, |bench| {
        let guard = epoch::pin();
        let view = bench.table.shards[0].view(&guard);
        let old = view.old().expect("a migration goes on as long as nobody completes it");
        let _ = old.slot(0, 1).cell.freeze();
    });
    stalled.join().unwrap();
    let to_the_end = |bench: &Bench| {
        while !bench.is_at_rest() {
            bench.help();
        }
    };
    let one = spawn(&bench, to_the_end);
    let other = spawn(&bench, |bench| bench.spend(K));
    one.join().unwrap();
    assert!(other.join().unwrap());
    assert!(bench.is_at_rest(), "completed without the stalled one");
    assert_eq!(bench.debt(K), 2 * UNIT_NS, "both spends are kept");
}

#[test]
fn helpers_vs_stalled_helper() {
    explore_bounded(SOME, helpers_vs_stalled_helper_model);
    assert_reached(&[Race::Completed, Race::HelpedTwice]);
    fails_bounded(SOME, Fault::CompleteEarly, "both spends", helpers_vs_stalled_helper_model);
}

/// Excluded: what one helper has carried is not seen by who finds the shard at rest again, because another
/// helper completed the migration.
fn helper_vs_helper_then_check_model() {
    let bench = Bench::with_spent(2, &[LATE]);
    bench.start();
    // Two of four chunks are left, and its cell is in the first of them.
    bench.help();
    bench.help();
    let one = spawn(&bench, Bench::help);
    let other = spawn(&bench, Bench::help);
    let checker = spawn(&bench, |bench| bench.word(LATE));
    assert_eq!(checker.join().unwrap(), 1 + UNIT_NS, "it owes a unit, wherever it is");
    one.join().unwrap();
    other.join().unwrap();
}

#[test]
fn helper_vs_helper_then_check() {
    explore_bounded(SOME, helper_vs_helper_then_check_model);
    assert_reached(&[Race::Completed]);
    for fault in [Fault::CompleteRelaxed, Fault::FrontierRelaxed] {
        fails_bounded(SOME, fault, "it owes a unit", helper_vs_helper_then_check_model);
    }
}

/// One unit of a new key, which is not to look for room again and again.
fn insert_at_once(bench: &Bench, fingerprint: Fingerprint) {
    let mut asked = 0;
    let inserted = bench.update(fingerprint, Absent::Insert, |word, at_ns| {
        asked += 1;
        assert!(asked < 20, "it was let in, and there is no room for it");
        Some(word.max(at_ns) + UNIT_NS)
    });
    assert_eq!(inserted, Ok(()));
}

/// Excluded: fresh keys take the room of a cell that is carried.
fn room_vs_inserts_model() {
    let bench = Bench::with_spent(2, &[K, L]);
    // Into a segment that has room for these two, and for one more.
    {
        let guard = epoch::pin();
        let shard = &bench.table.shards[0];
        let view = shard.view(&guard);
        let used = view.newest().expect("both are there").seal();
        assert_eq!(used, 2);
        bench.table.publish(
            shard,
            view,
            Segment::new(bench.table.memory(), 2, view.as_old(), used, 0),
        );
    }
    assert!(bench.spend(M));
    let one = spawn(&bench, |bench| insert_at_once(bench, LATE));
    let other = spawn(&bench, |bench| insert_at_once(bench, LAST));
    one.join().unwrap();
    other.join().unwrap();
    for fingerprint in [K, L, M, LATE, LAST] {
        assert_eq!(bench.debt(fingerprint), UNIT_NS, "each has its cell");
    }
    assert_eq!(bench.taken(), 5);
}

#[test]
fn room_vs_inserts() {
    explore_bounded(FEW, room_vs_inserts_model);
    assert_reached(&[Race::Completed]);
    // For a cell that moves, or for a key that was let in.
    fails_bounded(FEW, Fault::NoRoomForMoved, "no room for", room_vs_inserts_model);
}
