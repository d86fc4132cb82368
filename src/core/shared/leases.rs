//! The leases of a node: their words in a lock-free table of their own, and what the node asks for next.
//!
//! A call spends from a word by compare-and-swap, like that of any bucket. Only calls to the store take the lock.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::core::shared::held::Held;
use crate::core::shared::lease::{Granted, LeaseEnd, LeaseRequest};
use crate::core::shared::lease_word::{LeaseAnswer, LeaseWord};
use crate::core::view::LimitsView;
use crate::limits::account_of;
use crate::store::key::{Key, KeyRef, LimitTag};
use crate::store::{Absent, CellKey, Change, Engine, Outdated, Rules, Store, StoreKey, StoreSize};
use crate::store::{Table, UpdateError};
use crate::util::fault::{self, Fault};

/// The leases of a node.
pub(crate) struct Leases {
    words: Store,
    held: Mutex<HashMap<Box<str>, Held>>,
}

/// A bucket of a leased limit: its key in the leases' table, its name in the store, and the length of its leases.
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
}

/// What became of a call that asked for a lease.
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
        let size = StoreSize { max_keys, reserved: 0 };
        Leases { words: Store::new(Engine::LockFree, size), held: Mutex::default() }
    }

    /// Returns the table, for the fast path.
    #[inline(always)]
    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.words {
            Store::LockFree(table) => Some(table),
            Store::Exact(_) => None,
        }
    }

    /// Returns a key as the leases' table has it.
    pub(crate) fn key<'a>(
        &self,
        view: LimitsView<'_>,
        key: KeyRef<'a>,
        tag: LimitTag,
    ) -> StoreKey<'a> {
        let format = view.generation.limits.entry(key.limit).format;
        let fingerprint = self.words.fingerprint_with(key, account_of(format, key.id));
        StoreKey { key, fingerprint, tag }
    }

    /// Answers a call from the bucket's word; `spends`: takes the units.
    pub(crate) fn answer(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        (cost, spends): (u64, bool),
        now_ns: u64,
    ) -> Result<(LeaseAnswer, u64), Outdated> {
        let (mut answer, mut until_ns) = (LeaseAnswer::Asks, 0);
        self.update(view, key, (Absent::Leave, now_ns), |word| {
            answer = word.answer(now_ns, cost);
            until_ns = word.until_ns();
            match answer {
                LeaseAnswer::Spends { word, .. } if spends && cost > 0 => {
                    Some(LeaseWord::from_word(word))
                }
                _ => None,
            }
        })?;
        Ok((answer, until_ns))
    }

    /// Gives units back that a call has taken from the lease that ends at `until_ns`, if the node still holds it.
    pub(crate) fn give_back(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        (until_ns, units): (u64, u64),
        now_ns: u64,
    ) -> Result<(), Outdated> {
        self.update(view, key, (Absent::Leave, now_ns), |word| {
            word.with_units_back(until_ns, units)
        })
    }

    /// Notes that the store denies calls of a bucket until a time, unless the node holds a lease of it.
    pub(crate) fn note_denial(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        denial: LeaseWord,
        now_ns: u64,
    ) -> Result<(), Outdated> {
        self.update(view, key, (Absent::Insert, now_ns), |word| {
            (word.units() == 0 || word.is_over(now_ns)).then_some(denial)
        })
    }

    /// Forgets a denial, because units of the bucket have come back or its block has ended.
    pub(crate) fn forget_denial(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        now_ns: u64,
    ) -> Result<(), Outdated> {
        self.update(view, key, (Absent::Leave, now_ns), |word| {
            word.is_denial().then_some(LeaseWord::UNKNOWN)
        })
    }

    /// Begins a call to the store for a bucket that cannot be answered here. `None`: another call asks for a lease of it.
    pub(crate) fn begin(
        &self,
        view: LimitsView<'_>,
        bucket: LeasedBucket<'_>,
        now_ns: u64,
    ) -> Result<Option<Asking>, Outdated> {
        let mut all = self.held.lock();
        if all.len() == all.capacity() {
            // Each time the map has doubled, so that a call takes constant time on average.
            all.retain(|_, held| !held.is_over(now_ns, bucket.length_ns));
        }
        let held = match all.get_mut(bucket.name) {
            Some(held) => held,
            None => {
                let new = Held::new(Key::new(bucket.key.key));
                all.entry(bucket.name.into()).or_insert(new)
            }
        };
        let mut taken = Ok(LeaseWord::UNKNOWN);
        let request = held.begin(now_ns, bucket.length_ns, bucket.burst, || {
            taken = self.take(view, &bucket.key, now_ns);
            taken.map_or(0, LeaseWord::units)
        });
        let Some(request) = request else { return Ok(None) };
        if taken.is_err() {
            // A reload came between. The lease is lost, because its word was of limits before.
            held.end(None);
        }
        Ok(Some(Asking { request, given_up: taken? }))
    }

    /// Takes what is left of a lease; no call spends from it any more.
    fn take(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        now_ns: u64,
    ) -> Result<LeaseWord, Outdated> {
        let mut taken = LeaseWord::UNKNOWN;
        self.update(view, key, (Absent::Leave, now_ns), |word| {
            taken = word;
            let is_lease = word.units() > 0 && !fault::active(Fault::LeaseTakenByLoad);
            is_lease.then_some(LeaseWord::UNKNOWN)
        })?;
        Ok(taken)
    }

    /// Ends a call to the store that asked for a lease.
    pub(crate) fn end(
        &self,
        view: LimitsView<'_>,
        bucket: LeasedBucket<'_>,
        asking: &Asking,
        outcome: LeaseOutcome,
        now_ns: u64,
    ) -> Result<(), Outdated> {
        let mut all = self.held.lock();
        let Some(held) = all.get_mut(bucket.name) else { return Ok(()) };
        let LeaseRequest { end, .. } = asking.request;
        match outcome {
            LeaseOutcome::Granted(granted, until_ns) => {
                let until_ns = held.grant(granted, now_ns, until_ns);
                let word = LeaseWord::lease(until_ns, granted.units);
                self.update(view, &bucket.key, (Absent::Insert, now_ns), |_| word)
            }
            LeaseOutcome::Denied => {
                held.end(end);
                let word = end.filter(|end| end.unspent > 0).map(|_| asking.given_up);
                self.update(view, &bucket.key, (Absent::Insert, now_ns), |_| word)
            }
            LeaseOutcome::None => {
                held.end(None);
                Ok(())
            }
        }
    }

    /// Ends a call whose answer is unknown, or whose limit is no more: its lease is lost.
    pub(crate) fn abandon(&self, name: &str) {
        if let Some(held) = self.held.lock().get_mut(name) {
            held.end(None);
        }
    }

    /// Takes all leases, to give them up.
    pub(crate) fn give_up_all(&self, mut take: impl FnMut(&Key) -> u64) -> Vec<(Key, LeaseEnd)> {
        let mut all = self.held.lock();
        all.values_mut()
            .filter_map(|held| {
                let key = held.key.clone();
                let end = held.give_up(|| take(&key))?;
                Some((key, end))
            })
            .collect()
    }

    /// Takes the units that a lease has left.
    pub(crate) fn take_units(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        now_ns: u64,
    ) -> Result<u64, Outdated> {
        Ok(self.take(view, key, now_ns)?.units())
    }

    /// Drops words whose time is over, as a sweep of the limiter does with full buckets.
    pub(crate) fn sweep(&self, cells: usize, now_ns: u64, view: LimitsView<'_>) {
        let _ = self.words.sweep(cells, now_ns, &LeaseRules(view));
    }

    /// Frees memory that no call reads any more. The caller holds no pin.
    pub(crate) fn free_unread(&self) {
        self.words.free_unread();
    }

    /// Drops the words of the limits before, at a reload.
    pub(crate) fn renew(&self, view: LimitsView<'_>) {
        self.words.renew(&LeaseRules(view));
    }

    fn update(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        (absent, now_ns): (Absent, u64),
        mut step: impl FnMut(LeaseWord) -> Option<LeaseWord>,
    ) -> Result<(), Outdated> {
        let change = Change { key, absent, now_ns };
        let step = |word| step(LeaseWord::from_word(word)).map(LeaseWord::word);
        match self.words.update(change, &LeaseRules(view), step) {
            // Without a place for its word a lease cannot be spent, and a denial is not remembered.
            Ok(()) | Err(UpdateError::TableFull) => Ok(()),
            Err(UpdateError::Outdated) => Err(Outdated),
        }
    }
}

/// What the leases' table asks of a word: whether its time is over, and whether it is of the newest limits.
struct LeaseRules<'g>(LimitsView<'g>);

impl Rules for LeaseRules<'_> {
    fn owed(
        &self,
        _: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        (!LeaseWord::from_word(word).is_over(at_ns)).then_some((tag, word))
    }

    fn generation(&self) -> u64 {
        self.0.generation.number
    }

    /// A reload drops all words: a lease was taken under the numbers of the limit before.
    fn migrated(&self, _: CellKey<'_>, _: LimitTag, _: u64) -> Option<(LimitTag, u64)> {
        None
    }

    /// So does the end of an override.
    fn converted(&self, _: CellKey<'_>, _: LimitTag, _: u64, _: LimitTag) -> Result<u64, Outdated> {
        Ok(LeaseWord::UNKNOWN.word())
    }

    fn record_end(&self, _: LimitTag) {}
}
