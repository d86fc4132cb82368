//! Models of calls beside a change of the limits, by which every word is carried in other units.

use super::*;

impl Bench {
    /// New limits: published, then all words are brought under them.
    fn reload(&self) {
        self.newest.store(1, Ordering::Release);
        self.table.renew(&Limits::of(1));
    }

    /// One unit, by the limits that apply; whether it was there, and by which it was decided.
    fn spend_now(&self, fingerprint: Fingerprint) -> (bool, Limits) {
        loop {
            let limits = self.limits();
            let mut allowed = false;
            let done = self.update_by(limits, fingerprint, Absent::Insert, |word, at_ns| {
                let spent = word.max(at_ns) + limits.unit_ns();
                allowed = spent <= at_ns + 2 * limits.unit_ns();
                allowed.then_some(spent)
            });
            match done {
                Ok(()) => return (allowed, limits),
                Err(undone) => assert_eq!(undone, UpdateError::Outdated, "there is room"),
            }
            coverage::hit(Race::Outdated);
        }
    }

    /// The key's word by the limits that apply.
    fn word_now(&self, fingerprint: Fingerprint) -> u64 {
        loop {
            if let Ok(word) = self.word_by(self.limits(), fingerprint) {
                return word;
            }
        }
    }
}

/// Excluded: a spend beside a reload is lost, or counts in the units of the other limits.
fn spend_vs_reload_model(prints: &[Fingerprint], by_old: &Tally, by_new: &Tally) {
    let bench = Bench::with_spent(2, prints);
    let spender = spawn(&bench, |bench| bench.spend_now(K));
    let reloader = spawn(&bench, Bench::reload);
    let (allowed, by) = spender.join().unwrap();
    reloader.join().unwrap();
    assert!(allowed, "the second unit was there");
    (if by.generation == 0 { by_old } else { by_new }).add();
    assert_eq!(bench.word_now(K), 1 + 2 * Limits::of(1).unit_ns(), "two units, in the new units");
    assert_eq!(bench.taken(), prints.len(), "one cell each");
}

#[test]
fn spend_vs_reload() {
    let (by_old, by_new) = (Tally::default(), Tally::default());
    let (old, new) = (by_old.clone(), by_new.clone());
    explore_bounded(FEW, move || spend_vs_reload_model(&[K], &old, &new));
    assert!(by_old.get() > 0 && by_new.get() > 0, "{} and {}", by_old.get(), by_new.get());
    assert_reached(&[Race::ShardRenewed, Race::Outdated, Race::SeededBefore]);
    fails_bounded(FEW, Fault::CompleteEarly, "two units, in the new units", || {
        // K is not in the first chunk.
        spend_vs_reload_model(&[L, K], &Tally::default(), &Tally::default());
    });
}

/// Excluded: a key that comes beside a reload gets a cell under the old limits after all were brought
/// under the new ones.
fn insert_vs_reload_model() {
    let bench = Bench::new(8, 2);
    let spender = spawn(&bench, |bench| bench.spend_now(K).0);
    let reloader = spawn(&bench, Bench::reload);
    assert!(spender.join().unwrap());
    reloader.join().unwrap();
    let guard = epoch::pin();
    let newest = bench.table.shards[0].view(&guard).newest().expect("the reload makes one");
    assert_eq!(newest.generation(), 1, "all are under the new limits");
    assert_eq!(bench.word_now(K), 1 + Limits::of(1).unit_ns(), "one unit, in the new units");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn insert_vs_reload() {
    explore_bounded(SOME, insert_vs_reload_model);
    assert_reached(&[Race::Outdated, Race::StartLost, Race::Completed]);
    fails_bounded(SOME, Fault::RenewSkipsEmpty, "under the new limits", insert_vs_reload_model);
}

/// Excluded: of two callers that insert one key, by the old limits and by the new ones, one is lost.
fn insert_by_old_vs_insert_by_new_model() {
    let bench = Bench::new(8, 2);
    bench.begin();
    let old = spawn(&bench, |bench| bench.spend_now(K).0);
    let new = spawn(&bench, |bench| {
        bench.newest.store(1, Ordering::Release);
        bench.spend_now(K).0
    });
    assert!(old.join().unwrap() && new.join().unwrap(), "two units were there");
    bench.reload();
    assert_eq!(bench.word_now(K), 1 + 2 * Limits::of(1).unit_ns(), "two units, in the new units");
    assert_eq!(bench.taken(), 1, "one cell");
}

#[test]
fn insert_by_old_vs_insert_by_new() {
    explore_bounded(FEW, insert_by_old_vs_insert_by_new_model);
    assert_reached(&[Race::Outdated, Race::ShardRenewed]);
    let fault = Fault::ChargeBeforeRenewal;
    fails_bounded(FEW, fault, "two units were there", insert_by_old_vs_insert_by_new_model);
}

/// Excluded: a sweep by the new limits drops what is full by the old ones only.
fn sweep_vs_reload_model(dropped: &Tally) {
    let bench = Bench::with_spent(2, &[K]);
    // One unit of 10 ns is over; one of 20 ns is not.
    bench.advance_to(12);
    let sweeper = spawn(&bench, |bench| {
        let limits = bench.limits();
        bench.table.sweep(8, 12, &limits).dropped > 0 && limits.generation == 1
    });
    let reloader = spawn(&bench, Bench::reload);
    let dropped_by_new = sweeper.join().unwrap();
    reloader.join().unwrap();
    assert!(!dropped_by_new, "it owes 8 ns more");
    if bench.taken() == 0 {
        // By a sweep that came before the reload.
        dropped.add();
    } else {
        assert_eq!(bench.word_now(K), 1 + Limits::of(1).unit_ns());
    }
}

#[test]
fn sweep_vs_reload() {
    let dropped = Tally::default();
    let in_dropped = dropped.clone();
    explore_bounded(SOME, move || sweep_vs_reload_model(&in_dropped));
    assert!(dropped.get() > 0, "no sweep came before");
    assert_reached(&[Race::Buried, Race::Completed]);
    fails_bounded(SOME, Fault::SweepByOldLimits, "owes 8 ns more", || {
        sweep_vs_reload_model(&Tally::default());
    });
}

/// Excluded: one call leaves a word behind of which a reload leaves nothing, and another brings it over; or the place
/// of its cell is given back twice, or never.
fn nothing_left_vs_spend_and_helper_model(by_old: &Tally, by_new: &Tally) {
    let bench = Bench::with_spent(2, &[GONE]);
    let spender = spawn(&bench, |bench| bench.spend_now(GONE));
    let helper = spawn(&bench, |bench| {
        bench.newest.store(1, Ordering::Release);
        bench.start_by(Limits::of(1));
        bench.help_by(Limits::of(1));
    });
    let (allowed, by) = spender.join().unwrap();
    helper.join().unwrap();
    bench.reload();
    assert!(allowed, "the second unit was there, or the bucket was full");
    let (spent, cells) = match by.generation {
        0 => (0, 0),
        _ => (1, 1),
    };
    (if by.generation == 0 { by_old } else { by_new }).add();
    let owed = bench.word_now(GONE).saturating_sub(1);
    assert_eq!(
        owed,
        spent * Limits::of(1).unit_ns(),
        "what was owed before is forgotten, and no more"
    );
    assert_eq!(bench.taken(), cells, "a place for each cell");
}

#[test]
fn nothing_left_vs_spend_and_helper() {
    let (by_old, by_new) = (Tally::default(), Tally::default());
    let (old, new) = (by_old.clone(), by_new.clone());
    explore_bounded(SOME, move || nothing_left_vs_spend_and_helper_model(&old, &new));
    assert!(by_old.get() > 0 && by_new.get() > 0, "{} and {}", by_old.get(), by_new.get());
    assert_reached(&[Race::CarriedNowhere, Race::ShardRenewed]);
    // The count of places goes below 0: there is room for none.
    fails_bounded(SOME, Fault::EveryoneReleases, "there is room", || {
        nothing_left_vs_spend_and_helper_model(&Tally::default(), &Tally::default());
    });
}
