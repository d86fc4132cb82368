//! Converts a limiter's answers to the oracle's form, and builds the options of a run's limiters.

use std::time::{Duration, SystemTime};

use tollgate::options::{AtCap, Engine};
use tollgate::{Clock, Decision, LimiterOptions};

use super::oracle::Answer;
use super::oracle::bucket::Figures;

pub(crate) fn figures(decision: &Decision) -> Answer {
    let whole = |time: Duration| time.as_nanos() as i128;
    let figures = decision.remaining().map(|remaining| Figures {
        allowed: decision.allowed(),
        remaining: remaining.into(),
        retry: whole(decision.retry_in()),
        reset: whole(decision.reset_in()),
    });
    Answer { figures, denied_by: decision.denied_by(), blocked: decision.blocked() }
}

pub(crate) fn ns(time: i128) -> Duration {
    Duration::from_nanos(u64::try_from(time).expect("a time of the clock"))
}

/// The time from `from` to `to` in ns, negative if `to` is earlier.
pub(crate) fn between(from: SystemTime, to: SystemTime) -> i128 {
    match to.duration_since(from) {
        Ok(time) => time.as_nanos() as i128,
        Err(back) => -(back.duration().as_nanos() as i128),
    }
}

pub(crate) fn options(cap: Option<(usize, AtCap)>, clock: Clock, engine: Engine) -> LimiterOptions {
    let options = LimiterOptions::default().clock(clock).engine(engine);
    match cap {
        // Half of the memory is reserved: the table grows beyond it, and shrinks again.
        Some((most, at_cap)) => options.max_keys(most).at_cap(at_cap).reserve(most / 2),
        None => options,
    }
}

/// Makes a folder for snapshots, in memory where that is possible: each file is synced.
pub(crate) fn folder() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a folder")
}
