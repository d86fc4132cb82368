//! Finds the ids denied most with a list of few entries.
//!
//! This is the algorithm Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k
//! Elements in Data Streams). An id that is not in the full list replaces the entry with the lowest count, and starts
//! from that count, which is also the error of its own count. So with `n` entries, every id with more than one `n`th of
//! all denials is in the list.

use std::collections::HashSet;

use smallvec::SmallVec;

use crate::limits::Limits;
use crate::limits::{IdFormat, decode};
use crate::store::hash::{HashKeys, hash, new_keys};
use crate::store::key::{KeyRef, LimitIndex};
use crate::util::lock::Mutex;
use crate::util::sync::{Figure, Ordering};

/// The most bytes that an entry keeps of an id. Only text ids can be longer.
const MAX_BYTES: usize = 288;
/// The most characters that [`DeniedId`] has of an id.
const MAX_CHARS: usize = 256;

/// Names an id that was denied often. Made by [`Limiter::top_denied`](crate::Limiter::top_denied), which has an
/// example.
///
/// # Example
///
/// ```
/// # use tollgate::LimiterOptions;
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// # let limits = Limits::builder().limit("PerUser", IdFormat::String, limit)?.build();
/// let limiter = Limiter::with_options(limits, LimiterOptions::default().top_denied(20))?;
/// let users = limiter.limit("PerUser")?;
/// for _ in 0..3 {
///     let _ = users.spend("mallory", 1)?;
/// }
/// let worst = &limiter.top_denied()[0];
/// assert_eq!((&*worst.limit, &*worst.id, worst.denied), ("PerUser", "mallory", 2));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeniedId {
    /// The limit's name.
    pub limit: String,
    /// The id in normal form. It comes from a client: escape it before you show it on a terminal. At most 256
    /// characters; a longer id is cut and ends in `...`.
    pub id: String,
    /// The number of denials, at most.
    pub denied: u64,
    /// The error of [`denied`](DeniedId::denied): the id was denied at least `denied - error` times.
    pub error: u64,
}

/// The list, and the number of denials that it missed.
pub(crate) struct TopDenied {
    list: Mutex<List>,
    hash_keys: HashKeys,
    missed: Figure,
}

struct List {
    entries: Vec<Entry>,
    max: usize,
}

struct Entry {
    /// The hash of the limit and the whole id. It has a random key, so that clients cannot choose ids that collide.
    hash: u64,
    denied: u64,
    error: u64,
    limit: LimitIndex,
    id: SmallVec<[u8; 24]>,
    is_cut: bool,
}

impl TopDenied {
    pub(crate) const MAX_ENTRIES: usize = 1024;

    /// Makes an empty list of at most `max` entries.
    pub(crate) fn new(max: usize) -> TopDenied {
        let entries = Vec::with_capacity(max);
        let list = Mutex::new(List { entries, max });
        TopDenied { list, hash_keys: new_keys(), missed: Figure::new(0) }
    }

    /// Counts a denial. Does not wait for a thread that has the list: then the denial counts as missed.
    pub(crate) fn feed(&self, key: KeyRef<'_>) {
        match self.list.try_lock() {
            Some(mut list) => list.feed(hash(&self.hash_keys, key)[0], key),
            None => {
                // Relaxed: a figure for operators.
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Lists the ids, most denials first; `limits` are those that apply now.
    pub(crate) fn list(&self, limits: &Limits) -> Vec<DeniedId> {
        let denied_id = |entry: &Entry| {
            let limit = limits.entry(entry.limit);
            let (id, limit) = (entry.shown_id(limit.format), limit.name.to_string());
            DeniedId { limit, id, denied: entry.denied, error: entry.error }
        };
        let mut ids: Vec<DeniedId> = self.list.lock().entries.iter().map(denied_id).collect();
        ids.sort_by(|a, b| (b.denied, &a.limit, &a.id).cmp(&(a.denied, &b.limit, &b.id)));
        ids
    }

    /// Removes the ids of these limits, whose indices other names will have.
    pub(crate) fn forget(&self, limits: &HashSet<LimitIndex>) {
        if !limits.is_empty() {
            self.list.lock().entries.retain(|entry| !limits.contains(&entry.limit));
        }
    }

    pub(crate) fn missed(&self) -> u64 {
        // Relaxed: a figure for operators.
        self.missed.load(Ordering::Relaxed)
    }
}

impl List {
    fn feed(&mut self, hash: u64, key: KeyRef<'_>) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.hash == hash) {
            entry.denied += 1;
        } else if self.entries.len() < self.max {
            self.entries.push(Entry::new(hash, key, 0));
        } else if let Some(least) = self.entries.iter_mut().min_by_key(|entry| entry.denied) {
            *least = Entry::new(hash, key, least.denied);
        }
    }
}

impl Entry {
    /// Makes an entry for one denial, in place of an entry with the count `error`.
    fn new(hash: u64, key: KeyRef<'_>, error: u64) -> Entry {
        let id = key.id.get(..MAX_BYTES).unwrap_or(key.id);
        Entry {
            hash,
            denied: error + 1,
            error,
            limit: key.limit,
            id: SmallVec::from_slice(id),
            is_cut: id.len() < key.id.len(),
        }
    }

    fn shown_id(&self, format: IdFormat) -> String {
        let mut text = decode(format, &self.id);
        let end = text.char_indices().nth(MAX_CHARS).map(|(at, _)| at);
        if let Some(end) = end {
            text.truncate(end);
        }
        if end.is_some() || self.is_cut {
            text.push_str("...");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// In any order of denials, each count is within its error, and every id with more than its share is listed.
        #[test]
        fn heavy_hitters_are_found_within_their_errors(
            max in 1_usize..12,
            ids in prop::collection::vec(prop_oneof![3 => 0_u8..3, 2 => any::<u8>()], 0..400),
        ) {
            let top = TopDenied::new(max);
            let mut exact = HashMap::<u8, u64>::new();
            for id in &ids {
                top.feed(KeyRef { limit: LimitIndex(0), id: &[*id] });
                *exact.entry(*id).or_default() += 1;
            }
            let list = top.list.lock();
            prop_assert!(list.entries.len() <= max);
            let sum: u64 = list.entries.iter().map(|entry| entry.denied).sum();
            prop_assert_eq!(sum, ids.len() as u64, "each denial is in one entry");
            let mut listed = HashMap::new();
            for entry in &list.entries {
                let count = exact[&entry.id[0]];
                prop_assert!(entry.denied >= count && entry.denied - entry.error <= count);
                prop_assert_eq!(listed.insert(entry.id[0], entry.denied), None, "each once");
            }
            for (id, count) in exact {
                let is_heavy = count * max as u64 > ids.len() as u64;
                prop_assert!(!is_heavy || listed.contains_key(&id), "{} had {}", id, count);
            }
        }
    }

    #[test]
    fn a_denial_beside_another_is_missed_without_waiting() {
        let top = TopDenied::new(4);
        let key = KeyRef { limit: LimitIndex(0), id: b"k" };
        let held = top.list.lock();
        top.feed(key);
        drop(held);
        top.feed(key);
        assert_eq!((top.missed(), top.list.lock().entries[0].denied), (1, 1));
    }

    #[test]
    fn one_id_of_two_limits_is_listed_twice() {
        let top = TopDenied::new(4);
        for limit in [0, 1, 0] {
            top.feed(KeyRef { limit: LimitIndex(limit), id: b"k" });
        }
        let list = top.list.lock();
        let listed: Vec<_> = list.entries.iter().map(|it| (it.limit, it.denied)).collect();
        assert_eq!(listed, [(LimitIndex(0), 2), (LimitIndex(1), 1)]);
    }

    #[test]
    fn long_ids_are_cut_but_compared_whole() {
        let top = TopDenied::new(4);
        let ids = ["x", "y"].map(|end| format!("{}{end}", "\u{e9}".repeat(500)));
        for id in &ids {
            top.feed(KeyRef { limit: LimitIndex(0), id: id.as_bytes() });
        }
        let list = top.list.lock();
        assert_eq!(list.entries.len(), 2);
        for entry in &list.entries {
            let shown = entry.shown_id(IdFormat::String);
            assert_eq!(shown, format!("{}...", "\u{e9}".repeat(MAX_BYTES / 2)));
            assert!(shown.chars().count() <= MAX_CHARS + 3);
        }
    }
}
