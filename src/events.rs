//! What operators may want to read in a log, as events of `tracing`: reloads, sweeps, blocks, keys without
//! room, and some of the denials. None is on the way of an allowed call.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::Decision;
use crate::error::Error;
use crate::handle::Handle;
use crate::limits::decode;
use crate::reload::Reloaded;
use crate::shown::shown;
use crate::store::Swept;
use crate::sync::{Figure, Ordering};

/// The most characters of a key or of an error that a log gets.
const MOST_CHARS: usize = 64;
const MOST_ERROR_CHARS: usize = 512;

pub(crate) fn reload(reloaded: &Result<Reloaded, Error>) {
    match reloaded {
        Ok(Reloaded { generation, changed }) => {
            info!(target: "tollgate", generation, changed, "limits reloaded");
        }
        Err(error) => {
            // Its text may quote what others wrote.
            let error = shown(&error.to_string(), MOST_ERROR_CHARS);
            warn!(target: "tollgate", %error, "limits not reloaded");
        }
    }
}

pub(crate) fn sweep(pass: &Swept) {
    let Swept { looked_at, dropped, finished } = pass;
    debug!(target: "tollgate", looked_at, dropped, finished, "swept");
}

/// A new key that found no room; it is told at 1, 2, 4, 8 and so on.
pub(crate) fn overflow(outcome: &'static str, count: u64) {
    if count.is_power_of_two() {
        warn!(target: "tollgate", outcome, count, "no room for a new key");
    }
}

/// Something that was done to one key of a limit, shortened and escaped.
fn of_key(handle: &Handle, id: &[u8], retry_in: Duration, done: &'static str) {
    let key = shown(&decode(handle.format(), id), MOST_CHARS);
    info!(target: "tollgate", limit = handle.name(), %key, ?retry_in, "{done}");
}

pub(crate) fn block(handle: &Handle, id: &[u8], left: Duration) {
    of_key(handle, id, left, "blocked");
}

pub(crate) fn unblock(handle: &Handle, id: &[u8]) {
    of_key(handle, id, Duration::ZERO, "unblocked");
}

/// Which denials are told: the first of each key, as far as keys are known, and one in some of the others.
pub(crate) struct Denials {
    one_in: u64,
    others: Figure,
    /// Hashes of keys, each in the one place that it can have; 0 is none.
    known: Box<[Figure]>,
    /// When the first of them came: after an hour all are forgotten.
    since_ns: Figure,
    hasher: ahash::RandomState,
}

impl Denials {
    const KNOWN: usize = 4096;
    const KNOWN_FOR_NS: u64 = 3_600_000_000_000;

    pub(crate) fn new(one_in: u32) -> Denials {
        Denials {
            one_in: u64::from(one_in.max(1)),
            others: Figure::new(0),
            known: (0..Self::KNOWN).map(|_| Figure::new(0)).collect(),
            since_ns: Figure::new(0),
            hasher: ahash::RandomState::new(),
        }
    }

    pub(crate) fn tell(&self, handle: &Handle, id: &[u8], decision: &Decision, now_ns: u64) {
        if self.is_to_be_told(handle.index.0, id, now_ns) {
            of_key(handle, id, decision.retry_in(), "denied");
        }
    }

    fn is_to_be_told(&self, limit: u32, id: &[u8], now_ns: u64) -> bool {
        // Relaxed, all of it: of two threads both may tell, or neither forget.
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        if since_ns == 0 || now_ns.saturating_sub(since_ns) > Self::KNOWN_FOR_NS {
            self.since_ns.store(now_ns.max(1), Ordering::Relaxed);
            self.known.iter().for_each(|known| known.store(0, Ordering::Relaxed));
        }
        let hash = self.hasher.hash_one((limit, id)).max(1);
        let known = &self.known[hash as usize % Self::KNOWN];
        match known.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(_) => self.others.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_key_is_told_then_one_in_some_and_after_an_hour_anew() {
        let denials = Denials::new(3);
        let told = |id: &[u8], now_ns| denials.is_to_be_told(7, id, now_ns);
        assert!(told(b"x", 1), "the first");
        let of_nine = (0..9).filter(|_| told(b"x", 1)).count();
        assert_eq!(of_nine, 3);
        assert!(denials.is_to_be_told(8, b"x", 1), "of another limit");
        let before_an_hour = Denials::KNOWN_FOR_NS;
        let of_three = (0..3).filter(|_| told(b"x", before_an_hour)).count();
        assert_eq!(of_three, 1);
        assert!(told(b"x", 2 + before_an_hour) && told(b"y", 2 + before_an_hour));
    }

    #[test]
    fn a_flood_of_keys_is_told_no_more_often_than_there_is_room_and_one_in_some() {
        let denials = Denials::new(1000);
        let told = (0..100_000_u32).filter(|id| denials.is_to_be_told(0, &id.to_be_bytes(), 1));
        let told = told.count();
        assert!((3000..=Denials::KNOWN + 100).contains(&told), "{told}");
    }
}
