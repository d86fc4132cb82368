//! Threads that do everything at once, for a time, and a check of every window of what they were granted.
//!
//! Four threads spend, take places, give them up and settle charges; others reload, sweep, write files, block
//! and unblock. `ENDURANCE_S=600` runs that for ten minutes; the default is five seconds. The figures are
//! printed: see them with `--nocapture`.
#![cfg(all(feature = "snapshot", feature = "boulder"))]

#[path = "../parity/rng.rs"]
mod rng;

mod bound;
mod clock;
mod known;
mod threads;

use std::time::{Duration, Instant};

use tollgate::options::Engine;

use bound::Bound;
use threads::Threads;

const DEFAULT_S: u64 = 5;
/// A round's grants are checked and forgotten before the next one begins.
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
