//! The words of a node's leases, in a lock-free table of their own.

pub(crate) mod word;

use crate::core::view::LimitsView;
use crate::limits::account_of;
use crate::store::key::{KeyRef, LimitTag};
use crate::store::{Absent, CellKey, Change, Engine, Outdated, Rules, Store, StoreKey, StoreSize};
use crate::store::{Table, UpdateError};
use crate::util::fault::{self, Fault};
use word::{LeaseWord, Spent};

/// The words of a node's leases.
pub(crate) struct LeaseWords(Store);

impl LeaseWords {
    pub(crate) fn new(engine: Engine, max_keys: usize) -> LeaseWords {
        LeaseWords(Store::new(engine, StoreSize { max_keys, reserved: 0 }))
    }

    /// Returns the table, for the fast path.
    #[inline(always)]
    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.0 {
            Store::LockFree(table) => Some(table),
            Store::Exact(_) => None,
        }
    }

    /// Returns a key as this table has it.
    pub(crate) fn key<'a>(
        &self,
        view: LimitsView<'_>,
        key: KeyRef<'a>,
        tag: LimitTag,
    ) -> StoreKey<'a> {
        let format = view.generation.limits.entry(key.limit).format;
        let fingerprint = self.0.fingerprint_with(key, account_of(format, key.id));
        StoreKey { key, fingerprint, tag }
    }

    /// Decides a call by a bucket's lease, and takes the units if it `spends`. `None`: the lease does not have them. Returns the
    /// units that are left, and the end of the lease.
    pub(crate) fn spend(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        (cost, spends): (u64, bool),
        now_ns: u64,
    ) -> Result<Option<(u64, u64)>, Outdated> {
        let mut spent = None;
        self.update(view, key, (Absent::Leave, now_ns), |word| {
            let step = word.spend(now_ns, cost);
            spent = step.map(|Spent { left, .. }| (left, word.until_ns()));
            let step = step.filter(|_| spends && cost > 0);
            step.map(|Spent { word, .. }| LeaseWord::from_word(word))
        })?;
        Ok(spent)
    }

    /// Returns the unspent units of a bucket's lease, also if its time is over.
    pub(crate) fn units(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        now_ns: u64,
    ) -> Result<u64, Outdated> {
        let mut units = 0;
        self.update(view, key, (Absent::Leave, now_ns), |word| {
            units = word.units();
            None
        })?;
        Ok(units)
    }

    /// Gives units back that a call has taken from the lease that ends at `until_ns`. Returns whether calls may spend them from
    /// it: whether the node still holds it, and its time is not over.
    pub(crate) fn give_back(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        (until_ns, units): (u64, u64),
        now_ns: u64,
    ) -> Result<bool, Outdated> {
        let mut is_back = false;
        self.update(view, key, (Absent::Leave, now_ns), |word| {
            let new = word.with_units_back(until_ns, units).filter(|_| !word.is_over(now_ns));
            is_back = new.is_some();
            new
        })?;
        Ok(is_back)
    }

    /// Stores a word, in place of any other. Returns whether the table had a place for it.
    pub(crate) fn set(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        word: LeaseWord,
        now_ns: u64,
    ) -> Result<bool, Outdated> {
        let change = Change { key, absent: Absent::Insert, now_ns };
        match self.0.update(change, &LeaseRules(view), |_| Some(word.word())) {
            Ok(()) => Ok(true),
            Err(UpdateError::TableFull) => Ok(false),
            Err(UpdateError::Outdated) => Err(Outdated),
        }
    }

    /// Takes the unspent units of a lease; no call spends from it any more. Returns its last word.
    pub(crate) fn take(
        &self,
        view: LimitsView<'_>,
        key: &StoreKey<'_>,
        now_ns: u64,
    ) -> Result<LeaseWord, Outdated> {
        let mut taken = LeaseWord::UNKNOWN;
        self.update(view, key, (Absent::Leave, now_ns), |word| {
            taken = word;
            let is_taken = word.is_lease() && !fault::active(Fault::LeaseTakenByLoad);
            is_taken.then_some(LeaseWord::UNKNOWN)
        })?;
        Ok(taken)
    }

    /// Drops words whose time is over, as a sweep of the limiter does with full buckets.
    pub(crate) fn sweep(&self, cells: usize, now_ns: u64, view: LimitsView<'_>) {
        let _ = self.0.sweep(cells, now_ns, &LeaseRules(view));
    }

    #[cfg(test)]
    pub(crate) fn cells(&self) -> usize {
        self.0.size().cells
    }

    /// Frees memory that no call reads any more. The caller holds no pin.
    pub(crate) fn free_unread(&self) {
        self.0.free_unread();
    }

    /// Drops the words of the limits before, at a reload.
    pub(crate) fn renew(&self, view: LimitsView<'_>) {
        self.0.renew(&LeaseRules(view));
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
        match self.0.update(change, &LeaseRules(view), step) {
            // Without a place for its word a lease cannot be spent.
            Ok(()) | Err(UpdateError::TableFull) => Ok(()),
            Err(UpdateError::Outdated) => Err(Outdated),
        }
    }
}

/// The table's questions about a word: whether its time is over, and whether it is of the newest limits.
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

    /// The end of an override also ends the lease: the key gets the word of an unknown bucket.
    fn converted(&self, _: CellKey<'_>, _: LimitTag, _: u64, _: LimitTag) -> Result<u64, Outdated> {
        Ok(LeaseWord::UNKNOWN.word())
    }

    fn record_end(&self, _: LimitTag) {}
}
