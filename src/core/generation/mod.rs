//! A generation: the limits that apply from one reload to the next, and how cells are migrated to them.
//! docs/internals/reload.md has the steps of a reload.

pub(crate) mod by_fingerprint;
mod owed;

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::core::at_cap::OverflowBuckets;
use crate::core::largest_factors::LargestFactors;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;
use crate::limits::Limits;
use crate::observe::tally::Tallies;
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::store::{CellKey, Outdated, Store};

use owed::OwedByOverrides;

pub(crate) use by_fingerprint::{ByAccount, ById};

/// One generation of limits. Its limits do not change, so that a call that keeps to it sees one set of limits.
pub(crate) struct Generation {
    /// 0 for the limits that the limiter was made with, and one more with each reload.
    pub(crate) number: u64,
    pub(crate) limits: Arc<Limits>,
    pub(crate) largest_factors: LargestFactors,
    pub(crate) tallies: Tallies,
    overflow: Arc<OverflowBuckets>,
    /// Set once, before the generation is published.
    owed: OnceLock<OwedByOverrides>,
    /// How debts under the limits before are converted to these.
    carry_over: CarryOver,
    /// When these limits began to apply. Words are converted as of this time, whenever the conversion is made.
    at_ns: u64,
    /// 1 once the generation is complete. Each reader checks it, so that loom finds a reader that comes too early.
    #[cfg(tollgate_loom)]
    made: crate::util::sync::AtomicU64,
    accounts: Arc<ByAccount>,
    /// The generation before, while there may be words under its limits.
    before: Option<Before>,
}

/// The generation before this one, while cells are migrated.
struct Before {
    generation: Arc<Generation>,
    /// The overrides of ids in the new limits.
    ids: ById,
}

impl Generation {
    /// Makes the generation that a limiter begins with. For `clocks` see [`Limits::in_generation`].
    pub(crate) fn first(
        limits: Limits,
        clocks: (u64, SystemTime),
        is_counting: bool,
        store: &Store,
        carry_over: CarryOver,
    ) -> Generation {
        let limits = limits.in_generation(0, Some(clocks));
        let factors = LargestFactors::new(&limits);
        let tallies = Tallies::new(&limits, is_counting);
        Generation::new(0, (limits, 1), carry_over, store, (factors, tallies))
    }

    /// Makes the next generation, in which `limits` apply from now on; `clocks` says when that is. They
    /// [follow](Limits::following) this generation's limits.
    pub(crate) fn next(
        self: Arc<Generation>,
        limits: Limits,
        carry_over: CarryOver,
        clocks: (u64, SystemTime),
        store: &Store,
    ) -> Generation {
        let (number, at_ns) = (self.number + 1, clocks.0.max(self.at_ns));
        let limits = limits.in_generation(number, Some(clocks));
        let factors = self.largest_factors.following((&self.limits, &limits));
        let tallies = self.tallies.following((&self.limits, &limits));
        let before = Some(Before { ids: ById::new(&limits, store), generation: self });
        let next = Generation::new(number, (limits, at_ns), carry_over, store, (factors, tallies));
        Generation { before, ..next }
    }

    /// Makes a generation with overflow buckets that were never charged, without the one before.
    fn new(
        number: u64,
        (limits, at_ns): (Limits, u64),
        carry_over: CarryOver,
        store: &Store,
        (largest_factors, tallies): (LargestFactors, Tallies),
    ) -> Generation {
        Generation {
            number,
            accounts: Arc::new(ByAccount::new(&limits, store)),
            overflow: Arc::new(OverflowBuckets::new(limits.count())),
            limits: Arc::new(limits),
            largest_factors,
            tallies,
            owed: OnceLock::new(),
            carry_over,
            at_ns,
            #[cfg(tollgate_loom)]
            made: crate::util::sync::AtomicU64::new(0),
            before: None,
        }
    }

    /// Makes the same generation without the one before, once no word is under the limits before and all overflow buckets
    /// are migrated.
    pub(crate) fn settled(&self) -> Generation {
        Generation {
            number: self.number,
            limits: self.limits.clone(),
            largest_factors: self.largest_factors.clone(),
            tallies: self.tallies.clone(),
            overflow: self.overflow.clone(),
            owed: self.before().map(|it| OwedByOverrides::new(self, it)).unwrap_or_default().into(),
            carry_over: self.carry_over,
            at_ns: self.at_ns,
            #[cfg(tollgate_loom)]
            made: crate::util::sync::AtomicU64::new(0),
            accounts: self.accounts.clone(),
            before: None,
        }
    }

    /// Returns the generation before, while a reload migrates its cells.
    pub(crate) fn before(&self) -> Option<&Generation> {
        self.before.as_ref().map(|before| &*before.generation)
    }

    /// Returns the time from which these limits apply.
    pub(crate) fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Marks the generation as complete, before it is published.
    #[cfg(tollgate_loom)]
    pub(crate) fn mark_made(&self) {
        self.made.store(1, crate::util::sync::Ordering::Relaxed);
    }

    #[cfg(tollgate_loom)]
    pub(crate) fn assert_made(&self) {
        let is_made = self.number == 0 || self.made.load(crate::util::sync::Ordering::Relaxed) == 1;
        assert!(is_made, "limits are read before they are made");
    }

    /// Returns the word of the bucket that a limit's untracked keys share.
    ///
    /// While a reload runs, the overflow bucket of the generation before stays open until it is charged: calls for keys
    /// whose cells are still under the limits before use it. A key's calls use one bucket or the other, because all
    /// words of its shard are of one generation.
    #[inline]
    pub(crate) fn overflow_word(&self, limit: LimitIndex) -> Result<u64, Outdated> {
        if let Some(before) = self.before()
            && before.overflow.word(limit) != Ok(0)
        {
            self.migrate_overflow(limit);
        }
        self.overflow.word(limit)
    }

    /// Returns the word that a key's new cell begins with: the debt that the key may have from the time when it was
    /// untracked, in the units of `tag`, the limit that applies to it.
    pub(crate) fn owed_by_untracked(
        &self,
        key: KeyRef<'_>,
        tag: LimitTag,
    ) -> Result<u64, Outdated> {
        let word = self.overflow_word(key.limit)?;
        if !tag.is_of_override() {
            return Ok(word);
        }
        Ok(match self.before() {
            Some(before) => self.owed_since(before, key, tag).unwrap_or(0),
            None => self.owed_by_override(key, tag),
        })
    }

    /// Returns the word that the new cell of a key with an override begins with, if no reload runs.
    pub(crate) fn owed_by_override(&self, key: KeyRef<'_>, tag: LimitTag) -> u64 {
        self.owed.get().map_or(0, |owed| owed.word(self, key, tag))
    }

    /// Whether the new cell of some override begins with a debt. Known when the reload to this generation is over.
    pub(crate) fn has_owed(&self) -> bool {
        self.owed.get().is_some_and(|owed| !owed.is_empty())
    }

    /// Sets the words with which the new cells of overrides begin, in a generation that has none.
    #[cfg(feature = "snapshot")]
    pub(crate) fn set_owed<'k>(&self, owed: impl Iterator<Item = (KeyRef<'k>, LimitTag, u64)>) {
        let is_first = self.owed.set(owed.collect()).is_ok();
        debug_assert!(is_first, "a restore sets them once");
    }

    /// Changes the word of the bucket that a limit's untracked keys share.
    pub(crate) fn update_overflow(
        &self,
        limit: LimitIndex,
        step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        self.migrate_overflow(limit);
        self.overflow.update(limit, step)
    }

    /// Freezes the limit's overflow bucket of the generation before, and seeds this generation's with the converted word.
    pub(crate) fn migrate_overflow(&self, limit: LimitIndex) {
        if let Some(before) = self.before() {
            let converted = |word| {
                let converted = self.overflow_converted(before, limit, word)?;
                let mut until_ns = before.overflow.all_owe_until_ns(limit);
                if self.limits.entry(limit).unchanged_since > before.number {
                    until_ns = until_ns.max(self.overflow_full_at_ns(limit, converted, self.at_ns));
                }
                self.overflow.note_all_owe(limit, until_ns);
                Some(converted)
            };
            self.overflow.migrate(limit, &before.overflow, converted);
        }
    }

    /// Returns the time at which a limit's overflow bucket is full that has this word at `now_ns`.
    fn overflow_full_at_ns(&self, limit: LimitIndex, word: u64, now_ns: u64) -> u64 {
        let default = self.limits.default_tag(limit).and_then(|tag| self.limits.limit_at(tag));
        default.map_or(u64::MAX, |limit| limit.rule().full_at_ns(word, now_ns))
    }

    /// Returns the time until which all keys may owe the debt of a limit's overflow bucket.
    pub(crate) fn all_owe_until_ns(&self, limit: LimitIndex) -> u64 {
        self.overflow.all_owe_until_ns(limit)
    }

    /// Sets the overflow bucket of a limit to a word of a snapshot, whose debt any key may owe.
    #[cfg(feature = "snapshot")]
    pub(crate) fn restore_overflow(&self, limit: LimitIndex, word: u64, now_ns: u64) {
        self.overflow.note_all_owe(limit, self.overflow_full_at_ns(limit, word, now_ns));
        // This cannot fail for a newer generation, because there is none.
        let _ = self.update_overflow(limit, |_| Some(word));
    }

    /// Converts a word of a limit's overflow bucket in the generation before.
    pub(crate) fn overflow_converted(
        &self,
        before: &Generation,
        limit: LimitIndex,
        word: u64,
    ) -> Option<u64> {
        let default = |generation: &Generation| {
            let limits = &generation.limits;
            limits.default_tag(limit).and_then(|tag| limits.limit_at(tag).cloned())
        };
        self.convert(&default(before)?, &default(self)?, word)
    }

    /// Converts a word from `old`, a limit of the generation before, to `new`, a limit of this one.
    fn convert(&self, old: &Limit, new: &Limit, word: u64) -> Option<u64> {
        self.carry_over.converted(old, new, word, self.at_ns)
    }

    /// See [`Rules::migrated`](crate::store::Rules::migrated).
    pub(crate) fn migrated(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
    ) -> Option<(LimitTag, u64)> {
        if tag.is_of_generation(self.number) {
            return Some((tag, word));
        }
        debug_assert!(self.before.is_some(), "a cell of a generation that was dropped: {tag:?}");
        let before = self.before.as_ref()?;
        let new = self.tag_for_cell(key, tag.limit()?, &before.ids, self.at_ns)?;
        self.migrated_to(new, &before.generation, (key, tag, word))
    }

    /// Converts the word of a cell of the generation `before` to `new`, the tag of the limit that applies to the cell
    /// from this generation's beginning on. Returns `new` and the word.
    fn migrated_to(
        &self,
        new: LimitTag,
        before: &Generation,
        (key, tag, word): (CellKey<'_>, LimitTag, u64),
    ) -> Option<(LimitTag, u64)> {
        // First the ends of overrides before the change, then the change.
        let (old, word) = before.after_ends(key, tag, word, self.at_ns)?;
        let old = before.limits.limit_at(old)?;
        let word = self.convert(old, self.limits.limit_at(new)?, word)?;
        Some((new, word))
    }

    /// Returns the tag of the limit that applies to a cell at `at_ns`. `ids` are the overrides of ids in these limits.
    pub(crate) fn tag_for_cell(
        &self,
        key: CellKey<'_>,
        limit: LimitIndex,
        ids: &ById,
        at_ns: u64,
    ) -> Option<LimitTag> {
        match key {
            CellKey::Id(id) => self.limits.tag_of(KeyRef { limit, id }, at_ns),
            CellKey::Fingerprint(fingerprint) => {
                let own = ids.tag(fingerprint).filter(|&own| !self.limits.has_ended(own, at_ns));
                own.or_else(|| self.tag_without_own(key, limit, at_ns))
            }
        }
    }

    /// Returns the tag of the limit that applies at `at_ns` to a cell whose id has no override or only one that has
    /// ended: the account's override, else the default.
    fn tag_without_own(&self, key: CellKey<'_>, limit: LimitIndex, at_ns: u64) -> Option<LimitTag> {
        let CellKey::Fingerprint(fingerprint) = key else { return self.limits.default_tag(limit) };
        let account = self.accounts.tag(limit, fingerprint);
        let account = account.filter(|&given| !self.limits.has_ended(given, at_ns));
        account.or_else(|| self.limits.default_tag(limit))
    }

    /// Returns the tag and the word of a cell after the ends of overrides up to `now_ns`, one after the other: at each
    /// end the word is converted to the limit that applies from then on. `None`: no limit applies, so that the bucket
    /// is full.
    fn after_ends(
        &self,
        key: CellKey<'_>,
        mut tag: LimitTag,
        mut word: u64,
        now_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        // Each limit is followed by one with a later end: at most the id's, the account's and the default.
        while let Some(end_ns) = self.limits.end_ns(tag).filter(|&end_ns| end_ns <= now_ns) {
            (tag, word) = self.after_end(key, tag, word, end_ns)?;
        }
        Some((tag, word))
    }

    /// Makes one step of [`after_ends`](Self::after_ends).
    fn after_end(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        end_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        let limit = tag.limit()?;
        let next = match key {
            CellKey::Id(id) => self.limits.tag_of(KeyRef { limit, id }, end_ns)?,
            CellKey::Fingerprint(_) => self.tag_without_own(key, limit, end_ns)?,
        };
        let (old, new) = (self.limits.limit_at(tag)?, self.limits.limit_at(next)?);
        Some((next, self.carry_over.converted(old, new, word, end_ns)?))
    }

    /// See [`Rules::converted`](crate::store::Rules::converted).
    pub(crate) fn converted(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated> {
        let mut current = self.migrated(key, tag, word);
        while let Some((tag, word)) = current {
            if tag == to {
                return Ok(word);
            }
            let end_ns = match (self.limits.end_ns(tag), self.limits.end_ns(to)) {
                (Some(end_ns), to_ns) if to_ns.is_none_or(|to_ns| to_ns > end_ns) => end_ns,
                (_, Some(_)) => return Err(Outdated),
                // Neither has an end: the tag is an override of another account with the same bits.
                (_, None) => {
                    let (old, new) = (self.limits.limit_at(tag), self.limits.limit_at(to));
                    current = old
                        .zip(new)
                        .and_then(|(old, new)| Some((to, self.convert(old, new, word)?)));
                    continue;
                }
            };
            current = self.after_end(key, tag, word, end_ns);
        }
        // The bucket was full at some time, and was not charged since.
        Ok(self.limits.limit_at(to).map_or(1, |limit| limit.rule().full(self.at_ns)))
    }

    /// See [`Rules::full_in_ns`](crate::store::Rules::full_in_ns) and [`Limits::full_in_ns`].
    pub(crate) fn full_in_ns(&self, key: CellKey<'_>, tag: LimitTag, word: u64, at_ns: u64) -> u64 {
        let factor = |limit| self.largest_factors.get(limit);
        match self.owed(key, tag, word, at_ns) {
            Some((tag, word)) => self.limits.full_in_ns(tag, word, at_ns, factor),
            None => 0,
        }
    }

    /// See [`Rules::owed`](crate::store::Rules::owed) and [`Limits::is_full`].
    pub(crate) fn owed(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        let (tag, word) = self.after_ends(key, tag, word, at_ns)?;
        let factor = |limit| self.largest_factors.get(limit);
        (!self.limits.is_full(tag, word, at_ns, factor)).then_some((tag, word))
    }
}
