//! Runs threads that use all features at once, and checks every window of their grants.
//!
//! Four threads spend, also in batches, reserve, cancel and settle; others reload, sweep, snapshot, block and unblock.
//! `ENDURANCE_S=600` runs for ten minutes; the default is two seconds. `--nocapture` shows the figures.
#![cfg(all(feature = "boulder", feature = "exact", feature = "snapshot"))]

#[path = "../support/random.rs"]
mod random;

mod bound;
mod clock;
mod generations;
mod threads;

use std::time::{Duration, Instant};

use tollgate::options::Engine;

use bound::Bound;
use threads::Threads;

const DEFAULT_S: u64 = 2;
/// A round's grants are checked and dropped before the next round begins.
const ROUND: Duration = Duration::from_millis(1000);

#[test]
fn no_window_has_more_than_the_bound() {
    let seconds = std::env::var("ENDURANCE_S").ok().and_then(|s| s.parse().ok());
    let all = Duration::from_secs(seconds.unwrap_or(DEFAULT_S));
    for engine in [Engine::LockFree, Engine::Exact] {
        let (began, mut round) = (Instant::now(), 0);
        let mut threads = Threads::new(engine);
        let mut bound = Bound::new();
        let mut violations = Vec::new();
        while began.elapsed() < all / 2 {
            round += 1;
            let grants = threads.round(round, ROUND);
            bound.check(&grants, &threads.done(), &mut violations);
        }
        println!(
            "{engine:?}: {round} rounds in {:?}, {}, {bound}",
            began.elapsed(),
            threads.figures()
        );
        assert!(
            violations.is_empty(),
            "{engine:?}: {} violations, the first {:?}",
            violations.len(),
            violations.first()
        );
        assert!(bound.windows() > 0, "{engine:?}: nothing was granted");
        threads.end();
    }
}
