//! Writes the `tracing` events: reloads, sweeps, blocks, keys that find the table full, and some denials. An allowed
//! call writes none.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::decision::Decision;
use crate::error::Error;
use crate::limits::{IdFormat, decode};
use crate::store::Swept;
use crate::store::hash::{HashKeys, hash, new_keys};
use crate::store::key::{KeyRef, LimitIndex};
use crate::util::escape::shown;
use crate::util::sync::{Figure, Ordering};

/// The most characters of a key in an event.
const MAX_KEY_CHARS: usize = 64;
/// The most characters of a request's path in an event.
#[cfg(feature = "tower")]
const MAX_PATH_CHARS: usize = 256;
/// The most characters of an error in an event.
pub(crate) const MAX_ERROR_CHARS: usize = 512;

/// Logs a reload: the generation of the limits that apply now, whether they changed and which were removed, or the
/// error.
pub(crate) fn reload(reloaded: Result<(u64, bool, &[String]), &Error>) {
    match reloaded {
        Ok((generation, changed, removed)) => {
            info!(target: "tollgate", generation, changed, "limits reloaded");
            if !removed.is_empty() {
                let limits = shown(&removed.join(", "), MAX_ERROR_CHARS);
                warn!(target: "tollgate", generation, %limits, "limits removed");
            }
        }
        Err(error) => {
            // The text may quote values from a file, and is escaped for that reason.
            let error = shown(&error.to_string(), MAX_ERROR_CHARS);
            warn!(target: "tollgate", %error, "limits not reloaded");
        }
    }
}

pub(crate) fn sweep(pass: &Swept) {
    let Swept { looked_at, dropped, finished } = pass;
    debug!(target: "tollgate", looked_at, dropped, finished, "swept");
}

/// Logs a request that a layer has denied, with the names of the limits that deny it. Its path is cut and escaped.
#[cfg(feature = "tower")]
pub(crate) fn request_denied(request: &http::request::Parts, limits: &[&str], retry_in: Duration) {
    let (method, path) = (&request.method, shown(request.uri.path(), MAX_PATH_CHARS));
    info!(target: "tollgate", %method, %path, ?limits, ?retry_in, "request denied");
}

/// Logs the 1st, 2nd, 4th, 8th and so on of the new keys that found the table full.
pub(crate) fn overflow(outcome: &'static str, count: u64) {
    if count.is_power_of_two() {
        warn!(target: "tollgate", outcome, count, "no room for a new key");
    }
}

/// Logs a request that an HTTP layer rejects: the first of its kind in each second, with the number of all of its kind.
#[cfg(feature = "tower")]
pub(crate) fn rejected(reason: &'static str, status: u16, count: u64, detail: &str) {
    // The text may quote the request.
    let error = shown(detail, MAX_ERROR_CHARS);
    if status >= 500 {
        warn!(target: "tollgate", reason, status, count, %error, "request rejected");
    } else {
        info!(target: "tollgate", reason, status, count, %error, "request rejected");
    }
}

/// A key of a limit, with all that an event shows of it.
#[derive(Clone, Copy)]
pub(crate) struct LoggedKey<'a> {
    pub(crate) limit: LimitIndex,
    pub(crate) name: &'a str,
    pub(crate) format: IdFormat,
    /// The id in normal form.
    pub(crate) id: &'a [u8],
}

impl LoggedKey<'_> {
    /// Logs an event about the key. The id is cut and escaped.
    fn log(&self, retry_in: Duration, event: &'static str) {
        let key = shown(&decode(self.format, self.id), MAX_KEY_CHARS);
        info!(target: "tollgate", limit = self.name, %key, ?retry_in, "{event}");
    }
}

pub(crate) fn block(key: LoggedKey<'_>, left: Duration) {
    key.log(left, "blocked");
}

pub(crate) fn unblock(key: LoggedKey<'_>) {
    key.log(Duration::ZERO, "unblocked");
}

/// Chooses the denials that are logged: the first of each key in each hour, and one in `one_in` of the others.
pub(crate) struct Denials {
    one_in: u64,
    /// The number of denials that were no key's first.
    others: Figure,
    /// The keys that were logged, in an open-addressing table. An entry is 48 bits of a hash, and 16 bits for the hour;
    /// an entry of another hour counts as free. Within an hour no entry is removed.
    logged: Box<[Figure]>,
    /// The hour, and in the lower 32 bits the number of entries of that hour.
    count: Figure,
    hash_keys: HashKeys,
}

impl Denials {
    /// The most keys whose first denial is logged in an hour; the first denials of more keys count as others.
    const MAX_KEYS: u64 = 1 << 16;
    /// Twice as many entries, so that searches are short.
    const ENTRIES: usize = 2 * Self::MAX_KEYS as usize;
    const HOUR_NS: u64 = 3_600_000_000_000;
    const HOUR_BITS: u32 = 16;

    pub(crate) fn new(one_in: u32) -> Denials {
        Denials {
            one_in: u64::from(one_in.max(1)),
            others: Figure::new(0),
            logged: (0..Self::ENTRIES).map(|_| Figure::new(0)).collect(),
            count: Figure::new(0),
            hash_keys: new_keys(),
        }
    }

    pub(crate) fn log(&self, key: LoggedKey<'_>, decision: &Decision, now_ns: u64) {
        if self.should_log(KeyRef { limit: key.limit, id: key.id }, now_ns) {
            key.log(decision.retry_in(), "denied");
        }
    }

    fn should_log(&self, key: KeyRef<'_>, now_ns: u64) -> bool {
        // From 1, because 0 is an entry that was never used. The numbers repeat after seven years.
        let hours = (1 << Self::HOUR_BITS) - 1;
        let hour = (now_ns / Self::HOUR_NS) % hours + 1;
        let [hash, _] = hash(&self.hash_keys, key);
        self.is_first(hash, hour) || {
            // Relaxed: only the count itself matters, and each thread gets another number.
            self.others.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in)
        }
    }

    /// Enters the key if it is new in this hour and there is room; returns whether it was entered.
    fn is_first(&self, hash: u64, hour: u64) -> bool {
        let is_of_hour = |entry: u64| entry & ((1 << Self::HOUR_BITS) - 1) == hour;
        let entry = (hash << Self::HOUR_BITS) | hour;
        // The bits of the hash that the entry does not store.
        let from = (hash >> (u64::BITS - Self::HOUR_BITS)) as usize * 2;
        for step in 0..Self::ENTRIES {
            let slot = &self.logged[(from + step) % Self::ENTRIES];
            // Relaxed, here and below: the compare-and-swap decides, and publishes nothing else.
            let mut found = slot.load(Ordering::Relaxed);
            while !is_of_hour(found) {
                if !self.has_room(hour) {
                    return false;
                }
                match slot.compare_exchange(found, entry, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        self.count_logged(hour);
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
        count >> u32::BITS != hour || count & u64::from(u32::MAX) < Self::MAX_KEYS
    }

    /// Counts an entry. Threads that find room at the same time may exceed [`MAX_KEYS`](Denials::MAX_KEYS); the table
    /// has entries for many more.
    fn count_logged(&self, hour: u64) {
        let _ = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            let is_new = count >> u32::BITS != hour;
            Some(if is_new { (hour << u32::BITS) | 1 } else { count + 1 })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(limit: u32, id: &[u8]) -> KeyRef<'_> {
        KeyRef { limit: LimitIndex(limit), id }
    }

    #[test]
    fn each_hour_logs_first_denial_and_some_others() {
        let denials = Denials::new(3);
        let logged = |id: &[u8], now_ns| denials.should_log(key(7, id), now_ns);
        assert!(logged(b"x", 1), "the first denial");
        assert_eq!((0..9).filter(|_| logged(b"x", 1)).count(), 3, "one in three of the others");
        assert!(denials.should_log(key(8, b"x"), 1), "the first denial by another limit");
        let of_three = (0..3).filter(|_| logged(b"x", Denials::HOUR_NS - 1)).count();
        assert_eq!(of_three, 1);
        assert!(logged(b"x", Denials::HOUR_NS) && logged(b"y", Denials::HOUR_NS));
    }

    /// A flood of keys does not flood the log.
    #[test]
    fn first_denials_are_logged_up_to_a_bound() {
        let denials = Denials::new(1000);
        for hour in 0..3 {
            let at = hour * Denials::HOUR_NS;
            let logged = |id: &u32| denials.should_log(key(0, &id.to_be_bytes()), at);
            let max = Denials::MAX_KEYS as u32;
            assert_eq!((0..max).filter(logged).count(), max as usize, "each first denial");
            let others = (0..100_000).filter(logged).count();
            assert_eq!(others, 100, "keys that are known, or find no room");
        }
    }

    #[test]
    fn of_many_threads_one_logs_the_first_denial() {
        let denials = Denials::new(u32::MAX);
        assert!(
            denials.should_log(key(1, b""), 1) && denials.should_log(key(1, b""), 1),
            "one other"
        );
        let logged =
            |_| (0..5000_u32).filter(|id| denials.should_log(key(0, &id.to_be_bytes()), 1)).count();
        let sum: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || logged(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(sum, 5000);
    }
}
