//! The leases of a node: their words, and the requests for the next ones.
//!
//! A call spends from a word by compare-and-swap, like that of any bucket. Only calls to the store take the lock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::core::lease_words::LeaseWords;
use crate::core::lease_words::word::LeaseWord;
use crate::core::view::LimitsView;
use crate::shared::protocol::held::Held;
use crate::shared::protocol::lease::{Granted, LeaseEnd, LeaseRequest};
use crate::store::key::Key;
use crate::store::{Engine, Outdated, StoreKey};
use crate::util::lock::Mutex;
use crate::util::sync::{Figure, Ordering};

/// The leases of a node.
pub(crate) struct Leases {
    max_keys: usize,
    pub(crate) words: LeaseWords,
    held: Mutex<AllHeld>,
    /// The leases that the store has granted, and their units.
    granted: [Figure; 2],
}

#[derive(Default)]
struct AllHeld {
    /// The records of the buckets by their names in the store, with their keys among the words.
    buckets: HashMap<Arc<str>, (Key, Held)>,
    /// The list of returns: when leases are returned, with the names of their buckets, each at most once. A later lease of the
    /// bucket has a later time, and is listed again when this one has come.
    returns: BinaryHeap<Reverse<(u64, Arc<str>)>>,
    /// Whether a task returns leases.
    is_watched: bool,
    /// Whether a reload has taken the leases and its limits are not there yet: a word that is stored now would be lost.
    is_reloading: bool,
    /// When the records of ended leases were dropped last.
    retained_ns: u64,
}

/// The least time between two searches for ended leases by a node that has a record of as many ids as it may have keys.
const RETAIN_EACH_NS: u64 = 1_000_000_000;

/// A bucket of a leased limit: its key among the words, its name in the store, and its limit's figures.
#[derive(Clone, Copy)]
pub(crate) struct LeasedBucket<'a> {
    pub(crate) key: StoreKey<'a>,
    pub(crate) name: &'a str,
    pub(crate) length_ns: u64,
    pub(crate) burst: u64,
}

/// A request for a lease, and the word of the lease that it gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) request: LeaseRequest,
    given_up: LeaseWord,
    /// Those of the record when the call began.
    blocks: u64,
}

/// The end of a call that asked for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseOutcome {
    /// The node may spend this lease until a time of its clock.
    Granted(Granted, u64),
    /// The call is charged, and there is no lease.
    None,
    /// Nothing is charged, and the lease that was given up goes on.
    Denied,
}

impl Leases {
    pub(crate) fn new(max_keys: usize) -> Leases {
        Leases {
            max_keys,
            words: LeaseWords::new(Engine::LockFree, max_keys),
            held: Mutex::default(),
            granted: Default::default(),
        }
    }

    /// Returns the number of leases that the store has granted, and their units.
    pub(crate) fn granted(&self) -> (u64, u64) {
        let [leases, units] = &self.granted;
        (leases.load(Ordering::Relaxed), units.load(Ordering::Relaxed))
    }

    /// Returns the keys of the buckets of which the node may hold units.
    pub(crate) fn held_keys(&self) -> Vec<Key> {
        let all = self.held.lock();
        let held = all.buckets.values().filter(|(_, held)| held.has_lease());
        held.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the length of the list of returns.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.held.lock().returns.len()
    }

    /// Returns the number of buckets of which the node has a record.
    pub(crate) fn records(&self) -> usize {
        self.held.lock().buckets.len()
    }

    /// Begins a call to the store for a bucket that cannot be answered here. `None`: another call asks for a lease of it, or the
    /// node has a record of as many ids as it may have keys.
    pub(crate) fn begin(
        &self,
        view: LimitsView<'_>,
        bucket: LeasedBucket<'_>,
        now_ns: u64,
    ) -> Result<Option<Asking>, Outdated> {
        let mut all = self.held.lock();
        let AllHeld { buckets: all, retained_ns, .. } = &mut *all;
        let is_at_cap = all.len() >= self.max_keys && now_ns >= *retained_ns + RETAIN_EACH_NS;
        if all.len() == all.capacity() || is_at_cap {
            // Each time the map has doubled, so that a call takes constant time on average.
            all.retain(|_, (_, held)| !held.is_over(now_ns));
            *retained_ns = now_ns;
        }
        let is_full = all.len() >= self.max_keys;
        let held = match all.get_mut(bucket.name) {
            Some((key, held)) => {
                if key.as_ref() != bucket.key.key {
                    // The limit's name was forgotten with all its leases, and has another index since it is back.
                    *key = Key::new(bucket.key.key);
                }
                held
            }
            None if is_full => return Ok(None),
            None => {
                let new = (Key::new(bucket.key.key), Held::default());
                &mut all.entry(bucket.name.into()).or_insert(new).1
            }
        };
        let mut given_up = Ok(LeaseWord::UNKNOWN);
        let request = held.begin(now_ns, bucket.length_ns, bucket.burst, || {
            given_up = self.words.take(view, &bucket.key, now_ns);
            given_up.map_or(0, LeaseWord::units)
        });
        let Some(request) = request else { return Ok(None) };
        if given_up.is_err() {
            // A reload came between. The lease is lost, because its word was of limits before.
            held.end(None);
        }
        Ok(Some(Asking { request, given_up: given_up?, blocks: held.blocks }))
    }

    /// Returns the lease that the node holds of a bucket as if it gave it up now; `None` if none of its units are left.
    pub(crate) fn end_now(
        &self,
        view: LimitsView<'_>,
        bucket: LeasedBucket<'_>,
        now_ns: u64,
    ) -> Result<Option<LeaseEnd>, Outdated> {
        // Also of a lease whose time is over on this node: a spend gives its units back as well.
        let left = self.words.units(view, &bucket.key, now_ns)?;
        let all = self.held.lock();
        let end = all.buckets.get(bucket.name).and_then(|(_, held)| held.end_now(left));
        Ok(end.filter(|end| end.unspent > 0))
    }

    /// Ends a call to the store that asked for a lease. `place`: where its word is stored. Without one, because its limit has
    /// changed or the table is full, the lease keeps its units in the record, and the next call gives them back.
    pub(crate) fn end(
        &self,
        place: Option<(LimitsView<'_>, StoreKey<'_>)>,
        name: &str,
        asking: &Asking,
        outcome: LeaseOutcome,
        now_ns: u64,
    ) {
        let mut all = self.held.lock();
        let place = place.filter(|_| !all.is_reloading);
        let all = &mut *all;
        let Some((name, _)) = all.buckets.get_key_value(name) else { return };
        let name = name.clone();
        let Some((_, held)) = all.buckets.get_mut(&name) else { return };
        let place = place.filter(|_| held.blocks == asking.blocks);
        let is_over = asking.given_up.is_lease() && asking.given_up.is_over(now_ns);
        let word = match outcome {
            LeaseOutcome::Granted(granted, until_ns) => {
                let until_ns = held.grant(granted, now_ns, until_ns);
                // Relaxed: figures for operators.
                self.granted[0].fetch_add(1, Ordering::Relaxed);
                self.granted[1].fetch_add(granted.units, Ordering::Relaxed);
                LeaseWord::lease(until_ns, granted.units)
            }
            LeaseOutcome::Denied if !is_over => {
                held.end(asking.request.end);
                asking.request.end.map(|_| asking.given_up)
            }
            // No call can spend the units of a lease that is over.
            LeaseOutcome::Denied | LeaseOutcome::None => {
                held.end(None);
                None
            }
        };
        if let Some(return_ns) = held.list() {
            all.returns.push(Reverse((return_ns, name)));
        }
        let Some(word) = word else { return };
        let is_stored = place.is_some_and(|(view, key)| {
            // Outdated: another reload has come between.
            word.is_lease() && self.words.set(view, &key, word, now_ns).unwrap_or(false)
        });
        if !is_stored {
            held.has_no_word();
        }
    }

    /// Ends a call whose answer is unknown: its lease is lost.
    pub(crate) fn abandon(&self, name: &str) {
        if let Some((_, held)) = self.held.lock().buckets.get_mut(name) {
            held.end(None);
        }
    }

    /// Takes the lease of a bucket whose id this node has blocked, to give it up. A lease that a call under way gets then has no
    /// word.
    pub(crate) fn block(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        name: &str,
        now_ns: u64,
    ) -> Result<Option<LeaseEnd>, Outdated> {
        let mut all = self.held.lock();
        let Some((_, held)) = all.buckets.get_mut(name) else { return Ok(None) };
        held.blocks += 1;
        let mut taken = Ok(LeaseWord::UNKNOWN);
        let end = held.give_up(|| {
            taken = self.words.take(view, key, now_ns);
            taken.map_or(0, LeaseWord::units)
        });
        taken.map(|_| end)
    }

    /// Begins a reload: new leases get no word until it ends.
    pub(crate) fn begin_reload(&self) {
        self.held.lock().is_reloading = true;
    }

    pub(crate) fn end_reload(&self) {
        self.held.lock().is_reloading = false;
    }

    /// Whether a task has to begin to watch the leases' ends: there are some, and none does yet.
    pub(crate) fn begin_watch(&self) -> bool {
        let mut all = self.held.lock();
        !all.returns.is_empty() && !std::mem::replace(&mut all.is_watched, true)
    }

    /// Takes the leases that end soon, to return them. `take` takes the unspent units of one. Returns the time of the next ones as
    /// well; without any the watch ends.
    pub(crate) fn take_ending(
        &self,
        now_ns: u64,
        mut take: impl FnMut(&Key) -> u64,
    ) -> (Vec<(Key, LeaseEnd)>, Option<u64>) {
        let (mut all, mut ends) = (self.held.lock(), Vec::new());
        let all = &mut *all;
        while let Some(Reverse((return_ns, _))) = all.returns.peek()
            && *return_ns <= now_ns
            && let Some(Reverse((_, name))) = all.returns.pop()
        {
            let Some((key, held)) = all.buckets.get_mut(&name) else { continue };
            let end = held.give_up_early(now_ns, || take(key));
            ends.extend(end.map(|end| (key.clone(), end)));
            if let Some(return_ns) = held.list() {
                all.returns.push(Reverse((return_ns, name)));
            }
        }
        let next_ns = all.returns.peek().map(|Reverse((return_ns, _))| *return_ns);
        all.is_watched = next_ns.is_some();
        (ends, next_ns)
    }

    /// Takes all leases, to give them up. `take` takes the unspent units of one.
    pub(crate) fn give_up_all(&self, mut take: impl FnMut(&Key) -> u64) -> Vec<(Key, LeaseEnd)> {
        let mut all = self.held.lock();
        let ended = |(key, held): &mut (Key, Held)| {
            let end = held.give_up(|| take(key))?;
            Some((key.clone(), end))
        };
        all.buckets.values_mut().filter_map(ended).collect()
    }
}
