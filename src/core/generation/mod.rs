//! The limits that apply from one reload to the next, and what goes with them.

pub(crate) mod by_fingerprint;
mod owed;

use std::sync::Arc;
use std::time::SystemTime;

use crate::core::at_cap::SharedBuckets;
use crate::core::largest_factors::LargestFactors;
use crate::limit::Limit;
use crate::limit::carry_over::CarryOver;
use crate::limits::Limits;
use crate::observe::tally::Tallies;
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::store::{CellKey, Outdated, Store, StoreKey};

use owed::OwedByOverrides;

pub(crate) use by_fingerprint::{ByAccount, ById};

/// One generation of limits. A call finds one and keeps to it: none of what it says changes.
pub(crate) struct Generation {
    /// 0 for those that the limiter was made with, and one more with each reload.
    pub(crate) number: u64,
    pub(crate) limits: Arc<Limits>,
    pub(crate) largest_factors: LargestFactors,
    pub(crate) tallies: Tallies,
    shared: Arc<SharedBuckets>,
    owed: OwedByOverrides,
    /// What becomes of what buckets owed under other numbers, and when these began to apply: words are
    /// converted as of then, whenever that is done.
    debt: CarryOver,
    at_ns: u64,
    /// Read with the rest: loom then sees whether all of it was made before.
    #[cfg(tollgate_loom)]
    made: crate::util::sync::AtomicU64,
    accounts: Arc<ByAccount>,
    /// The one before, while there may be words under its limits.
    before: Option<Before>,
}

/// What a generation knows while cells are brought over from the one before it.
struct Before {
    generation: Arc<Generation>,
    ids: ById,
}

impl Generation {
    /// Those that a limiter begins with; for `clocks` see [`Limits::in_generation`].
    pub(crate) fn first(
        limits: Limits,
        clocks: (u64, SystemTime),
        is_counting: bool,
        store: &Store,
        debt: CarryOver,
    ) -> Generation {
        let limits = limits.in_generation(0, Some(clocks));
        let count = limits.count();
        Generation {
            number: 0,
            accounts: Arc::new(ByAccount::of(&limits, store)),
            limits: Arc::new(limits),
            largest_factors: LargestFactors::new(count),
            tallies: Tallies::new(count, is_counting),
            shared: Arc::new(SharedBuckets::new(count)),
            owed: OwedByOverrides::default(),
            debt,
            at_ns: 1,
            #[cfg(tollgate_loom)]
            made: crate::util::sync::AtomicU64::new(0),
            before: None,
        }
    }

    /// The next one, in which `limits` apply from now on, which is in `clocks`. Their indices are those of
    /// this one, as far as it has them.
    pub(crate) fn next(
        self: Arc<Generation>,
        limits: Limits,
        debt: CarryOver,
        clocks: (u64, SystemTime),
        store: &Store,
    ) -> Generation {
        let (number, at_ns) = (self.number + 1, clocks.0.max(self.at_ns));
        let limits = limits.in_generation(number, Some(clocks));
        let count = limits.count();
        Generation {
            number,
            accounts: Arc::new(ByAccount::of(&limits, store)),
            largest_factors: self.largest_factors.and_more(count),
            tallies: self.tallies.and_more(count),
            shared: Arc::new(SharedBuckets::new(count)),
            owed: OwedByOverrides::default(),
            debt,
            at_ns,
            #[cfg(tollgate_loom)]
            made: crate::util::sync::AtomicU64::new(0),
            before: Some(Before { ids: ById::of(&limits, store), generation: self }),
            limits: Arc::new(limits),
        }
    }

    /// The same, once no words are left under the limits before, and all buckets of newcomers are carried.
    pub(crate) fn settled(&self) -> Generation {
        Generation {
            number: self.number,
            limits: self.limits.clone(),
            largest_factors: self.largest_factors.and_more(self.limits.count()),
            tallies: self.tallies.and_more(self.limits.count()),
            shared: self.shared.clone(),
            owed: self
                .before()
                .map_or_else(OwedByOverrides::default, |before| OwedByOverrides::of(self, before)),
            debt: self.debt,
            at_ns: self.at_ns,
            #[cfg(tollgate_loom)]
            made: crate::util::sync::AtomicU64::new(0),
            accounts: self.accounts.clone(),
            before: None,
        }
    }

    /// The one before, while a reload brings its words over.
    pub(crate) fn before(&self) -> Option<&Generation> {
        self.before.as_ref().map(|before| &*before.generation)
    }

    /// The time from which these limits apply.
    pub(crate) fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Says that it is made, before it is published.
    #[cfg(tollgate_loom)]
    pub(crate) fn is_made(&self) {
        self.made.store(1, crate::util::sync::Ordering::Relaxed);
    }

    #[cfg(tollgate_loom)]
    pub(crate) fn assert_made(&self) {
        let is_made = self.number == 0 || self.made.load(crate::util::sync::Ordering::Relaxed) == 1;
        assert!(is_made, "limits are read before they are made");
    }

    /// The word that the newcomers of a limit share.
    ///
    /// While a reload goes on and nobody has charged the bucket of the generation before, that one stays
    /// open: calls for keys whose cells are still under the limits before go on with it. A key's calls
    /// find one or the other, as its shard's words are under one generation.
    #[inline]
    pub(crate) fn shared_word(&self, limit: LimitIndex) -> Result<u64, Outdated> {
        if let Some(before) = self.before()
            && before.shared.word(limit) != Ok(0)
        {
            self.carry_shared(limit);
        }
        self.shared.word(limit)
    }

    /// The word that a new bucket of a key begins with: what the key may owe as a newcomer, in the units of the
    /// numbers `tag` that apply to it.
    pub(crate) fn owed_by_new(&self, key: KeyRef<'_>, tag: LimitTag) -> Result<u64, Outdated> {
        let word = self.shared_word(key.limit)?;
        if !tag.is_of_override() {
            return Ok(word);
        }
        Ok(match self.before() {
            Some(before) => self.owed_since(before, key, tag).unwrap_or(0),
            None => self.owed.word(self, key, tag),
        })
    }

    /// Changes the word that the newcomers of a limit share.
    pub(crate) fn update_shared(
        &self,
        limit: LimitIndex,
        step: impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Outdated> {
        self.carry_shared(limit);
        self.shared.update(limit, step)
    }

    /// Ends the bucket that newcomers shared before, and brings its word over.
    pub(crate) fn carry_shared(&self, limit: LimitIndex) {
        if let Some(before) = self.before() {
            self.shared
                .carry(limit, &before.shared, |word| self.shared_changed(before, limit, word));
        }
    }

    /// The word of a bucket that newcomers share, which was `word` in the generation before.
    pub(crate) fn shared_changed(
        &self,
        before: &Generation,
        limit: LimitIndex,
        word: u64,
    ) -> Option<u64> {
        let numbers = |generation: &'_ Generation| {
            let limits = &generation.limits;
            limits.default_tag(limit).and_then(|tag| limits.limit_at(tag).cloned())
        };
        self.changed(&numbers(before)?, &numbers(self)?, word)
    }

    /// The word under the numbers `new`, of this generation, that was `word` under `old`, of the one before.
    fn changed(&self, old: &Limit, new: &Limit, word: u64) -> Option<u64> {
        self.debt.converted(old, new, word, self.at_ns)
    }

    /// See [`Rules::carried`](crate::store::Rules::carried).
    pub(crate) fn carried(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
    ) -> Option<(LimitTag, u64)> {
        if tag.is_of_generation(self.number) {
            return Some((tag, word));
        }
        debug_assert!(self.before.is_some(), "a cell of a generation that was forgotten: {tag:?}");
        let before = self.before.as_ref()?;
        let new = self.applying(key, tag.limit()?, &before.ids, self.at_ns)?;
        self.carried_to(new, &before.generation, (key, tag, word))
    }

    /// The tag `new`, of the numbers that apply to a cell from this generation's beginning on, and the cell's word
    /// under them; the cell is of the generation `before`.
    fn carried_to(
        &self,
        new: LimitTag,
        before: &Generation,
        (key, tag, word): (CellKey<'_>, LimitTag, u64),
    ) -> Option<(LimitTag, u64)> {
        // Ends that came before the change come first.
        let (old, word) = before.after_ends(key, tag, word, self.at_ns)?;
        let old = before.limits.limit_at(old)?;
        let word = self.changed(old, self.limits.limit_at(new)?, word)?;
        Some((new, word))
    }

    /// As [`under`](Self::under), for a word of a key's bucket in the generation `before`, whether or not its cells
    /// are still brought over.
    pub(crate) fn under_since(
        &self,
        before: &Generation,
        key: &StoreKey<'_>,
        word: u64,
        to: LimitTag,
    ) -> Result<Option<u64>, Outdated> {
        let id = key.cell_key();
        let new = self.limits.tag_of(key.key, self.at_ns);
        match new.and_then(|new| self.carried_to(new, before, (id, key.tag, word))) {
            Some((tag, word)) => self.under(id, tag, word, to).map(Some),
            None => Ok(None),
        }
    }

    /// The numbers that apply to a cell at a time; `ids` are the overrides of ids in these limits.
    pub(crate) fn applying(
        &self,
        key: CellKey<'_>,
        limit: LimitIndex,
        ids: &ById,
        at_ns: u64,
    ) -> Option<LimitTag> {
        match key {
            CellKey::Id(id) => self.limits.tag_of(KeyRef { limit, id }, at_ns),
            CellKey::Fingerprint(fingerprint) => {
                let own =
                    ids.of_cell(fingerprint).filter(|&own| !self.limits.has_ended(own, at_ns));
                own.or_else(|| self.beside_own(key, limit, at_ns))
            }
        }
    }

    /// The numbers that apply at a time to a cell whose id has none of its own, or none any more: the
    /// account's, else the default.
    fn beside_own(&self, key: CellKey<'_>, limit: LimitIndex, at_ns: u64) -> Option<LimitTag> {
        let CellKey::Fingerprint(fingerprint) = key else { return self.limits.default_tag(limit) };
        let account = self.accounts.of_cell(limit, fingerprint);
        let account = account.filter(|&given| !self.limits.has_ended(given, at_ns));
        account.or_else(|| self.limits.default_tag(limit))
    }

    /// The tag and the word of a cell once numbers that have ended by `now_ns` gave way to those that
    /// applied at their ends, one after the other. `None`: to none, so that the bucket is full.
    fn after_ends(
        &self,
        key: CellKey<'_>,
        mut tag: LimitTag,
        mut word: u64,
        now_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        // Each is followed by numbers with a later end: at most an id's, its account's and the default.
        while let Some(end_ns) = self.limits.end_ns(tag).filter(|&end_ns| end_ns <= now_ns) {
            (tag, word) = self.after_end(key, tag, word, end_ns)?;
        }
        Some((tag, word))
    }

    /// One step of [`after_ends`](Self::after_ends).
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
            CellKey::Fingerprint(_) => self.beside_own(key, limit, end_ns)?,
        };
        let (old, new) = (self.limits.limit_at(tag)?, self.limits.limit_at(next)?);
        Some((next, self.debt.converted(old, new, word, end_ns)?))
    }

    /// See [`Rules::under`](crate::store::Rules::under).
    pub(crate) fn under(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        to: LimitTag,
    ) -> Result<u64, Outdated> {
        let mut now = self.carried(key, tag, word);
        while let Some((tag, word)) = now {
            if tag == to {
                return Ok(word);
            }
            let end_ns = match (self.limits.end_ns(tag), self.limits.end_ns(to)) {
                (Some(end_ns), to_ns) if to_ns.is_none_or(|to_ns| to_ns > end_ns) => end_ns,
                (_, Some(_)) => return Err(Outdated),
                // Neither has an end: the tag is of another account with the same bits.
                (_, None) => {
                    let numbers = |tag| self.limits.limit_at(tag);
                    let (old, new) = (numbers(tag), numbers(to));
                    now = old
                        .zip(new)
                        .and_then(|(old, new)| Some((to, self.changed(old, new, word)?)));
                    continue;
                }
            };
            now = self.after_end(key, tag, word, end_ns);
        }
        // The bucket was full at some time, and nothing was charged since.
        Ok(self.limits.limit_at(to).map_or(1, |limit| limit.rule().full(self.at_ns)))
    }

    /// See [`Rules::owed`](crate::store::Rules::owed); and [`Limits::is_full`].
    pub(crate) fn owed(
        &self,
        key: CellKey<'_>,
        tag: LimitTag,
        word: u64,
        at_ns: u64,
    ) -> Option<(LimitTag, u64)> {
        let (tag, word) = self.after_ends(key, tag, word, at_ns)?;
        let factor = |limit| self.largest_factors.of(limit);
        (!self.limits.is_full(tag, word, at_ns, factor)).then_some((tag, word))
    }
}
