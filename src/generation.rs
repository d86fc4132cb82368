//! The limits that apply from one reload to the next, and what goes with them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use crate::Limit;
use crate::counters::Tallies;
use crate::debt::Debt;
use crate::key::{KeyRef, LimitIndex, Meta};
use crate::limits::{BEFORE_ALL_ENDS_NS, Limits};
use crate::overflow::SharedBuckets;
use crate::scaled::LargestFactors;
use crate::store::{Fingerprint, Outdated};

/// One generation of limits. A call finds one and keeps to it: none of what it says changes.
pub(crate) struct Generation {
    /// 0 for those that the limiter was made with, and one more with each reload.
    pub(crate) number: u64,
    pub(crate) limits: Arc<Limits>,
    pub(crate) largest_factors: LargestFactors,
    pub(crate) tallies: Tallies,
    shared: Arc<SharedBuckets>,
    /// What becomes of what buckets owed under other numbers, and when these began to apply: words are
    /// converted as of then, whenever that is done.
    debt: Debt,
    at_ns: u64,
    /// Read with the rest: loom then sees whether all of it was made before.
    #[cfg(tollgate_loom)]
    made: crate::sync::AtomicU64,
    /// The one before, while there may be words under its limits.
    before: Option<Before>,
}

/// What a generation knows of the one before it.
struct Before {
    limits: Arc<Limits>,
    shared: Arc<SharedBuckets>,
    /// The numbers of the ids that have, or had, some of their own.
    noted: NotedByPrint,
}

/// Numbers by a key's fingerprint: what can be told of a cell whose id is not known.
pub(crate) type NotedByPrint = HashMap<Fingerprint, Option<Meta>, BuildHasherDefault<OfPrint>>;

/// A fingerprint is a hash.
#[derive(Default)]
pub(crate) struct OfPrint(u64);

impl Hasher for OfPrint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = self.0.rotate_left(32) ^ half;
    }
}

impl Generation {
    /// Those that a limiter begins with; for `clocks` see [`Limits::in_generation`].
    pub(crate) fn first(
        limits: Limits,
        clocks: (u64, SystemTime),
        is_counting: bool,
    ) -> Generation {
        let limits = limits.in_generation(0, Some(clocks));
        let count = limits.count();
        Generation {
            number: 0,
            limits: Arc::new(limits),
            largest_factors: LargestFactors::new(count),
            tallies: Tallies::new(count, is_counting),
            shared: Arc::new(SharedBuckets::new(count)),
            debt: Debt::default(),
            at_ns: 1,
            #[cfg(tollgate_loom)]
            made: crate::sync::AtomicU64::new(0),
            before: None,
        }
    }

    /// The next one, in which `limits` apply from now on, which is in `clocks`. Their indices are those of
    /// this one, as far as it has them.
    pub(crate) fn next(
        &self,
        limits: Limits,
        debt: Debt,
        clocks: (u64, SystemTime),
        noted: impl FnOnce(&Limits) -> NotedByPrint,
    ) -> Generation {
        let (number, at_ns) = (self.number + 1, clocks.0);
        let limits = limits.in_generation(number, Some(clocks));
        let count = limits.count();
        let before = Before {
            limits: self.limits.clone(),
            shared: self.shared.clone(),
            noted: noted(&limits),
        };
        Generation {
            number,
            limits: Arc::new(limits),
            largest_factors: self.largest_factors.and_more(count),
            tallies: self.tallies.and_more(count),
            shared: Arc::new(SharedBuckets::new(count)),
            debt,
            at_ns,
            #[cfg(tollgate_loom)]
            made: crate::sync::AtomicU64::new(0),
            before: Some(before),
        }
    }

    /// The same, once no words are left under the limits before.
    pub(crate) fn settled(&self) -> Generation {
        Generation {
            number: self.number,
            limits: self.limits.clone(),
            largest_factors: self.largest_factors.and_more(self.limits.count()),
            tallies: self.tallies.and_more(self.limits.count()),
            shared: self.shared.clone(),
            debt: self.debt,
            at_ns: self.at_ns,
            #[cfg(tollgate_loom)]
            made: crate::sync::AtomicU64::new(0),
            before: None,
        }
    }

    /// Says that it is made, before it is published.
    #[cfg(tollgate_loom)]
    pub(crate) fn is_made(&self) {
        self.made.store(1, crate::sync::Ordering::Relaxed);
    }

    #[cfg(tollgate_loom)]
    pub(crate) fn assert_made(&self) {
        let is_made = self.number == 0 || self.made.load(crate::sync::Ordering::Relaxed) == 1;
        assert!(is_made, "limits are read before they are made");
    }

    /// The word that the newcomers of a limit share.
    #[inline]
    pub(crate) fn shared_word(&self, limit: LimitIndex) -> Result<u64, Outdated> {
        self.carry_shared(limit);
        self.shared.word(limit)
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

    /// Brings over what newcomers shared before.
    pub(crate) fn carry_shared(&self, limit: LimitIndex) {
        if let Some(before) = &self.before {
            self.shared.carry(limit, &before.shared, |word| {
                let (from, to) =
                    (before.limits.default_meta(limit)?, self.limits.default_meta(limit)?);
                self.converted(from, word, to)
            });
        }
    }

    /// See [`Rules::converted`](crate::store::Rules::converted).
    pub(crate) fn converted(&self, from: Meta, word: u64, to: Meta) -> Option<u64> {
        if from == to {
            return Some(word);
        }
        let new = self.limits.numbers_at(to)?;
        // Of this generation, too: of an id that the store could not tell from others when its numbers
        // changed.
        let before = || self.before.as_ref()?.limits.numbers_at(from);
        if let (Some(old), Some(end_ns)) = (self.limits.numbers_at(from), self.limits.end_ns(from))
        {
            // They have ended, and others apply since.
            return self.debt.converted(old, new, word, end_ns);
        }
        let old = self.limits.numbers_at(from).or_else(before)?;
        self.carried(old, new, word)
    }

    /// The word under the numbers `new`, of this generation, that was `word` under `old`, of the one before.
    pub(crate) fn carried(&self, old: &Limit, new: &Limit, word: u64) -> Option<u64> {
        self.debt.converted(old, new, word, self.at_ns)
    }

    /// Whether a bucket is full; see [`Limits::is_full`]. By numbers that have ended it has to be full by
    /// those, too, that may apply since.
    pub(crate) fn is_full(&self, noted: Meta, word: u64, at_ns: u64) -> bool {
        let is_full = |noted, word| {
            self.limits.is_full(noted, word, at_ns, |limit| self.largest_factors.of(limit))
        };
        let has_ended = self.limits.end_ns(noted).is_some_and(|end_ns| end_ns <= at_ns);
        is_full(noted, word)
            && (!has_ended
                || self.limits.after_end(noted).all(|now| {
                    self.converted(noted, word, now).is_none_or(|word| is_full(now, word))
                }))
    }

    /// See [`Rules::noted`](crate::store::Rules::noted).
    pub(crate) fn noted(&self, print: Fingerprint, noted: Meta, now_ns: u64) -> Option<Meta> {
        if self.limits.end_ns(noted).is_some_and(|end_ns| end_ns <= now_ns)
            && let Some(limit) = noted.limit()
            && !self.limits.is_composite(limit)
            && let Some(default) = self.limits.default_meta(limit)
        {
            return Some(default);
        }
        let Some(before) = self.before.as_ref().filter(|_| !self.limits.has_stamp(noted)) else {
            return Some(noted);
        };
        if let Some(&now) = before.noted.get(&print) {
            return now;
        }
        self.limits.meta_without_id(noted.limit()?, before.limits.account_at(noted), now_ns)
    }

    pub(crate) fn meta_before(&self, key: KeyRef<'_>) -> Meta {
        self.before
            .as_ref()
            .and_then(|before| before.limits.meta_of(key, BEFORE_ALL_ENDS_NS))
            .unwrap_or(Meta::NONE)
    }
}
