//! The ids denied most: a list of few places that counts many ids.
//!
//! Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in
//! Data Streams): an id without a place takes that of the least, and its count, as what it may be too
//! high by. So an id with more than its share of all denials, one part in as many as there are places,
//! always has a place.

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::limits::Limits;
use crate::limits::{IdFormat, decode};
use crate::store::key::{KeyRef, LimitIndex};
use crate::util::sync::{Figure, Ordering};

/// The most bytes that are kept of an id: all of one of any format but text.
const MAX_BYTES: usize = 288;
/// The most characters that are shown of one.
const MAX_CHARS: usize = 256;

/// An id that was denied often. Made by [`Limiter::top_denied`](crate::Limiter::top_denied).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeniedId {
    /// The limit's name.
    pub limit: String,
    /// The id in normal form, as a client gave it: not to be shown to a terminal as it is. At most 256
    /// characters; a longer one ends in `...`.
    pub id: String,
    /// How often it was denied, at most.
    pub denied: u64,
    /// What that may be too high by: it was denied at least `denied - error` times.
    pub error: u64,
}

/// The places, and the denials that they do not know of.
pub(crate) struct TopDenied {
    places: Mutex<Places>,
    hasher: ahash::RandomState,
    missed: Figure,
}

struct Places {
    each: Vec<Place>,
    most: usize,
}

struct Place {
    /// Of the whole id, with its limit: keyed, so that nobody can choose two that are alike.
    hash: u64,
    denied: u64,
    error: u64,
    limit: LimitIndex,
    id: SmallVec<[u8; 24]>,
    is_shortened: bool,
}

impl TopDenied {
    pub(crate) const MAX_PLACES: usize = 1024;

    pub(crate) fn new(most: usize) -> TopDenied {
        let each = Vec::with_capacity(most);
        let hasher = ahash::RandomState::new();
        TopDenied { places: Mutex::new(Places { each, most }), hasher, missed: Figure::new(0) }
    }

    /// Counts a denial, unless another thread is at it: nobody waits.
    pub(crate) fn feed(&self, key: KeyRef<'_>) {
        match self.places.try_lock() {
            Some(mut places) => places.feed(self.hasher.hash_one(key), key),
            None => {
                // Relaxed: a figure for people.
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Lists the ids by their denials, most first; `limits` are those that apply now.
    pub(crate) fn list(&self, limits: &Limits) -> Vec<DeniedId> {
        let mut ids: Vec<DeniedId> = {
            let places = self.places.lock();
            let each = places.each.iter().map(|place| {
                let entry = limits.entry(place.limit);
                let (limit, id) = (entry.name.to_string(), place.shown(entry.format));
                DeniedId { limit, id, denied: place.denied, error: place.error }
            });
            each.collect()
        };
        ids.sort_by(|a, b| (b.denied, &a.limit, &a.id).cmp(&(a.denied, &b.limit, &b.id)));
        ids
    }

    pub(crate) fn missed(&self) -> u64 {
        // Relaxed: as above.
        self.missed.load(Ordering::Relaxed)
    }
}

impl Places {
    fn feed(&mut self, hash: u64, key: KeyRef<'_>) {
        if let Some(place) = self.each.iter_mut().find(|place| place.hash == hash) {
            place.denied += 1;
        } else if self.each.len() < self.most {
            self.each.push(Place::of(hash, key, 0));
        } else if let Some(least) = self.each.iter_mut().min_by_key(|place| place.denied) {
            *least = Place::of(hash, key, least.denied);
        }
    }
}

impl Place {
    /// A new one, in the place of one with this count.
    fn of(hash: u64, key: KeyRef<'_>, before: u64) -> Place {
        let id = key.id.get(..MAX_BYTES).unwrap_or(key.id);
        Place {
            hash,
            denied: before + 1,
            error: before,
            limit: key.limit,
            id: SmallVec::from_slice(id),
            is_shortened: id.len() < key.id.len(),
        }
    }

    fn shown(&self, format: IdFormat) -> String {
        let mut text = decode(format, &self.id);
        let end = text.char_indices().nth(MAX_CHARS).map(|(at, _)| at);
        if let Some(end) = end {
            text.truncate(end);
        }
        if end.is_some() || self.is_shortened {
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
        /// The bounds of each id, and that whoever had more than its share is there, hold for any order.
        #[test]
        fn heavy_hitters_are_found_and_the_bounds_hold(
            most in 1_usize..12,
            ids in prop::collection::vec(prop_oneof![3 => 0_u8..3, 2 => any::<u8>()], 0..400),
        ) {
            let top = TopDenied::new(most);
            let mut exact = HashMap::<u8, u64>::new();
            for id in &ids {
                top.feed(KeyRef { limit: LimitIndex(0), id: &[*id] });
                *exact.entry(*id).or_default() += 1;
            }
            let places = top.places.lock();
            prop_assert!(places.each.len() <= most);
            let sum: u64 = places.each.iter().map(|place| place.denied).sum();
            prop_assert_eq!(sum, ids.len() as u64, "each denial is in one place");
            let mut listed = HashMap::new();
            for place in &places.each {
                let is = exact[&place.id[0]];
                prop_assert!(place.denied >= is && place.denied - place.error <= is);
                prop_assert_eq!(listed.insert(place.id[0], place.denied), None, "each once");
            }
            for (id, count) in exact {
                let is_heavy = count * most as u64 > ids.len() as u64;
                prop_assert!(!is_heavy || listed.contains_key(&id), "{} had {}", id, count);
            }
        }
    }

    #[test]
    fn concurrent_denial_is_skipped_without_waiting() {
        let top = TopDenied::new(4);
        let key = KeyRef { limit: LimitIndex(0), id: b"k" };
        let held = top.places.lock();
        top.feed(key);
        drop(held);
        top.feed(key);
        assert_eq!((top.missed(), top.places.lock().each[0].denied), (1, 1));
    }

    #[test]
    fn long_ids_are_shortened_and_stay_distinct() {
        let top = TopDenied::new(4);
        let ids = ["x", "y"].map(|end| format!("{}{end}", "\u{e9}".repeat(500)));
        for id in &ids {
            top.feed(KeyRef { limit: LimitIndex(0), id: id.as_bytes() });
        }
        let places = top.places.lock();
        assert_eq!(places.each.len(), 2);
        for place in &places.each {
            let shown = place.shown(IdFormat::String);
            assert_eq!(shown, format!("{}...", "\u{e9}".repeat(MAX_BYTES / 2)));
            assert!(shown.chars().count() <= MAX_CHARS + 3);
        }
    }
}
