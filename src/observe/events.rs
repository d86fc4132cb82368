//! What operators may want to read in a log, as events of `tracing`: reloads, sweeps, blocks, keys without
//! room, and some of the denials. None is on the way of an allowed call.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::decision::Decision;
use crate::error::Error;
use crate::limits::{IdFormat, decode};
use crate::store::Swept;
use crate::store::key::LimitIndex;
use crate::util::escape::shown;
use crate::util::sync::{Figure, Ordering};

/// The most characters of a key or of an error that a log gets.
const MAX_CHARS: usize = 64;
const MAX_ERROR_CHARS: usize = 512;

/// Logs a reload: the number of the limits that apply now and whether they changed, or why it failed.
pub(crate) fn reload(reloaded: Result<(u64, bool), &Error>) {
    match reloaded {
        Ok((generation, changed)) => {
            info!(target: "tollgate", generation, changed, "limits reloaded");
        }
        Err(error) => {
            // Its text may quote what others wrote.
            let error = shown(&error.to_string(), MAX_ERROR_CHARS);
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

/// A key of a limit, as events show it.
#[derive(Clone, Copy)]
pub(crate) struct LoggedKey<'a> {
    pub(crate) limit: LimitIndex,
    pub(crate) name: &'a str,
    pub(crate) format: IdFormat,
    /// The id in normal form.
    pub(crate) id: &'a [u8],
}

impl LoggedKey<'_> {
    /// Logs what was done to the key, whose id is shortened and escaped.
    fn log(&self, retry_in: Duration, done: &'static str) {
        let key = shown(&decode(self.format, self.id), MAX_CHARS);
        info!(target: "tollgate", limit = self.name, %key, ?retry_in, "{done}");
    }
}

pub(crate) fn block(key: LoggedKey<'_>, left: Duration) {
    key.log(left, "blocked");
}

pub(crate) fn unblock(key: LoggedKey<'_>) {
    key.log(Duration::ZERO, "unblocked");
}

/// Which denials are told: the first of each key in each hour, and one in some of the others.
pub(crate) struct Denials {
    one_in: u64,
    others: Figure,
    /// Keys that were told, by open addressing: 48 bits of a hash, and the hour, so that what is of another
    /// hour is room. Within an hour nothing goes.
    told: Box<[Figure]>,
    /// How many were told in the hour, and which one that is.
    count: Figure,
    hasher: ahash::RandomState,
}

impl Denials {
    /// The most keys that are told in an hour; others are told as their later denials are.
    const MOST: u64 = 1 << 16;
    /// Twice as many, so that a search is short.
    const PLACES: usize = 2 * Self::MOST as usize;
    const HOUR_NS: u64 = 3_600_000_000_000;
    const HOUR_BITS: u32 = 16;

    pub(crate) fn new(one_in: u32) -> Denials {
        Denials {
            one_in: u64::from(one_in.max(1)),
            others: Figure::new(0),
            told: (0..Self::PLACES).map(|_| Figure::new(0)).collect(),
            count: Figure::new(0),
            hasher: ahash::RandomState::new(),
        }
    }

    pub(crate) fn tell(&self, key: LoggedKey<'_>, decision: &Decision, now_ns: u64) {
        if self.is_to_be_told(key.limit.0, key.id, now_ns) {
            key.log(decision.retry_in(), "denied");
        }
    }

    fn is_to_be_told(&self, limit: u32, id: &[u8], now_ns: u64) -> bool {
        // From 1: 0 is a place that was never taken. It comes round after seven years.
        let hours = (1 << Self::HOUR_BITS) - 1;
        let hour = (now_ns / Self::HOUR_NS) % hours + 1;
        let hash = self.hasher.hash_one((limit, id));
        self.is_first(hash, hour) || {
            // Relaxed: of two threads each gets a number of its own.
            self.others.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in)
        }
    }

    /// Whether the key is new in this hour, and there is room to know it again.
    fn is_first(&self, hash: u64, hour: u64) -> bool {
        let is_of_hour = |entry: u64| entry & ((1 << Self::HOUR_BITS) - 1) == hour;
        let entry = (hash << Self::HOUR_BITS) | hour;
        // From bits of the hash that the entry does not have.
        let from = (hash >> (u64::BITS - Self::HOUR_BITS)) as usize * 2;
        for step in 0..Self::PLACES {
            let place = &self.told[(from + step) % Self::PLACES];
            // Relaxed, all of it: a place is decided by the swap.
            let mut found = place.load(Ordering::Relaxed);
            while !is_of_hour(found) {
                if !self.has_room(hour) {
                    return false;
                }
                match place.compare_exchange(found, entry, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        self.count_told(hour);
                        return true;
                    }
                    Err(now) => found = now,
                }
            }
            if found == entry {
                return false;
            }
        }
        false
    }

    fn has_room(&self, hour: u64) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        count >> u32::BITS != hour || count & u64::from(u32::MAX) < Self::MOST
    }

    /// Another thread may have found room at the same time: there are places for many more.
    fn count_told(&self, hour: u64) {
        let _ = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            let is_new = count >> u32::BITS != hour;
            Some(if is_new { (hour << u32::BITS) | 1 } else { count + 1 })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_denial_then_samples_then_anew_each_hour() {
        let denials = Denials::new(3);
        let told = |id: &[u8], now_ns| denials.is_to_be_told(7, id, now_ns);
        assert!(told(b"x", 1), "the first");
        let of_nine = (0..9).filter(|_| told(b"x", 1)).count();
        assert_eq!(of_nine, 3);
        assert!(denials.is_to_be_told(8, b"x", 1), "of another limit");
        let of_three = (0..3).filter(|_| told(b"x", Denials::HOUR_NS - 1)).count();
        assert_eq!(of_three, 1);
        assert!(told(b"x", Denials::HOUR_NS) && told(b"y", Denials::HOUR_NS));
    }

    /// And no more often than there is room, so that a flood of keys does not flood the log.
    #[test]
    fn first_of_each_key_is_told_each_hour() {
        let denials = Denials::new(1000);
        for hour in 0..3 {
            let at = hour * Denials::HOUR_NS;
            let told = |id: &u32| denials.is_to_be_told(0, &id.to_be_bytes(), at);
            let most = Denials::MOST as u32;
            assert_eq!((0..most).filter(told).count(), most as usize, "each of them, always");
            let others = (0..100_000).filter(told).count();
            assert_eq!(others, 100, "known, or without room");
        }
    }

    #[test]
    fn of_many_threads_one_tells_the_first() {
        let denials = Denials::new(u32::MAX);
        assert!(denials.is_to_be_told(1, b"", 1) && denials.is_to_be_told(1, b"", 1), "one other");
        let told =
            |_| (0..5000_u32).filter(|id| denials.is_to_be_told(0, &id.to_be_bytes(), 1)).count();
        let sum: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || told(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(sum, 5000);
    }
}
