//! Records every call on a limiter and checks them all: they are one history of each bucket, and the bound
//! holds over it exactly. `check.rs` has the method.
//!
//! The default is 100,000 calls of each engine. `WITNESS_CALLS=100000000 cargo test --release --all-features
//! --test witness lock_free -- --nocapture` makes that number of calls, in rounds of a million.
#![cfg(all(feature = "exact", not(tollgate_loom)))]

mod check;
#[path = "../support/random.rs"]
mod random;
mod run;

use std::time::Instant;

use run::{Fault, Plan, run};
use tollgate::options::Engine;

/// Calls that are in memory at once.
const MAX_A_ROUND: u64 = 1_000_000;

fn plan(engine: Engine, calls: u64) -> Plan {
    // Even few calls are made in many rounds, because each round begins with the words that the last one
    // left.
    let calls_a_round = (calls / 20).clamp(1, MAX_A_ROUND);
    Plan { engine, rounds: calls / calls_a_round, calls_a_round, fault: Fault::None }
}

fn calls() -> u64 {
    std::env::var("WITNESS_CALLS").map_or(100_000, |calls| calls.parse().expect("a number"))
}

fn is_one_history_within_the_bound(engine: Engine) {
    let started = Instant::now();
    let report = match run(plan(engine, calls())) {
        Ok(report) => report,
        Err(violation) => panic!("{engine:?}: {}", violation.0),
    };
    let counts = report.counts;
    println!(
        "{engine:?}: {} calls checked in {} s; {} migrations, {} buckets dropped; {counts:?}",
        report.calls,
        started.elapsed().as_secs(),
        report.migrations,
        report.swept
    );
    assert!(counts.admitted > 0 && counts.denied > 0 && counts.refunded > 0, "{report:?}");
    assert!(counts.linked > 0 && report.swept > 0, "{report:?}");
    assert!(engine == Engine::Exact || report.migrations > 0, "{report:?}");
    // Few words are taken for the time of a sweep.
    assert!(counts.late < counts.admitted / 10, "{report:?}");
}

#[test]
fn lock_free_calls_are_one_history_within_bound() {
    is_one_history_within_the_bound(Engine::LockFree);
}

#[test]
fn exact_calls_are_one_history_within_bound() {
    is_one_history_within_the_bound(Engine::Exact);
}

/// The check must catch each fault for one of the listed reasons; the schedule decides which of them comes
/// first.
#[test]
fn a_limiter_that_is_broken_is_caught() {
    // Any fault may also admit more than the bound, and be caught by that first.
    const ALWAYS: &str = "above the bound";
    for (fault, reason) in [
        (Fault::TwoLimiters, "is there"),
        (Fault::BurstAndOne, "more than a burst"),
        (Fault::Forgets, "no call left"),
        (Fault::LosesSpends, "met twice"),
    ] {
        for engine in [Engine::LockFree, Engine::Exact] {
            let plan = Plan { fault, ..plan(engine, 200_000) };
            // On a busy machine the threads of a run may not meet.
            let caught = (0..5).find_map(|_| run(plan).err());
            let violation = caught.expect("the fault is caught").0;
            println!("{engine:?}, {fault:?}: {violation}");
            let is_one = [reason, ALWAYS, "no call left"].iter().any(|one| violation.contains(one));
            assert!(is_one, "{engine:?}, {fault:?}: {violation}");
        }
    }
}
