//! Finds the limit that applies to an id, or the limit that the tag beside a bucket's word names.

use super::{Entry, Limits, TermsIndex};
use crate::algorithm::factor::Factor;
use crate::algorithm::gcra::Gcra;
use crate::limit::Limit;
use crate::limits::format;
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

/// A time before every override's end.
pub(crate) const BEFORE_ALL_ENDS_NS: u64 = 0;

/// The limit that applies to a call for an id.
#[derive(Clone, Copy)]
pub(crate) struct Applying<'l, 'i> {
    /// The key of the bucket. Its limit is that of the call, or the hidden limit of a network.
    pub(crate) key: KeyRef<'i>,
    pub(crate) entry: &'l Entry,
    pub(crate) limit: &'l Limit,
    pub(crate) tag: LimitTag,
}

impl Limits {
    /// Whether a bucket with this word, under the limit that `tag` names, is full at `now_ns`. `factor` returns the
    /// largest factor that the bucket may have been charged with.
    pub(crate) fn is_full(
        &self,
        tag: LimitTag,
        word: u64,
        now_ns: u64,
        factor: impl FnOnce(LimitIndex) -> Factor,
    ) -> bool {
        if self.word_tells_full {
            return Gcra::is_full(word, now_ns);
        }
        // A word without a known limit is kept, because it cannot be known to be full.
        let Some(index) = tag.limit() else { return false };
        let tag = if fault::active(Fault::FullByDefault) { tag.stamp().tag(0) } else { tag };
        let Some(limit) = self.limit_at(tag) else { return false };
        if !limit.rule().is_full(word, now_ns) {
            return false;
        }
        let factor = factor(index);
        if factor == Factor::ONE || !limit.rule().fills_slower_by_factor() {
            return true;
        }
        let is_full =
            matches!(limit.scaled(factor), Ok(Some(slow)) if slow.rule().is_full(word, now_ns));
        if !is_full {
            coverage::hit(Race::KeptByFactor);
        }
        is_full
    }

    /// Returns the time from `now_ns` until a bucket with this word is full, as [`is_full`](Self::is_full) says.
    pub(crate) fn full_in_ns(
        &self,
        tag: LimitTag,
        word: u64,
        now_ns: u64,
        factor: impl FnOnce(LimitIndex) -> Factor,
    ) -> u64 {
        let (Some(index), Some(limit)) = (tag.limit(), self.limit_at(tag)) else { return u64::MAX };
        let full_in_ns = limit.rule().full_in_ns(word, now_ns);
        let factor = factor(index);
        if factor == Factor::ONE || !limit.rule().fills_slower_by_factor() {
            return full_in_ns;
        }
        match limit.scaled(factor) {
            Ok(Some(slow)) => full_in_ns.max(slow.rule().full_in_ns(word, now_ns)),
            _ => u64::MAX,
        }
    }

    /// Returns the limit that applies to an id in normal form of the limit `key.limit`, and the key of its bucket. This is the
    /// one place where an address in a [network](super::networks) gets another key than its limit's.
    #[inline]
    pub(crate) fn applying<'l, 'i>(
        &'l self,
        key: KeyRef<'i>,
        now_ns: u64,
    ) -> Option<Applying<'l, 'i>> {
        let (mut key, mut entry) = (key, self.entry(key.limit));
        if !entry.overrides.is_empty()
            && let Some(of_network) = entry.limit_of_network(key.id, now_ns)
        {
            key.limit = of_network?;
            entry = self.entry(key.limit);
        }
        let (limit, tag) = entry.limit_for(key.id, now_ns)?;
        Some(Applying { key, entry, limit, tag })
    }

    /// Returns the tag of the limit that applies to a bucket with this key.
    pub(crate) fn tag_of(&self, key: KeyRef<'_>, now_ns: u64) -> Option<LimitTag> {
        self.entry(key.limit).limit_for(key.id, now_ns).map(|(_, tag)| tag)
    }

    /// Returns the tag of a limit's default, if it has one.
    pub(crate) fn default_tag(&self, index: LimitIndex) -> Option<LimitTag> {
        let entry = self.entry(index);
        entry.default.as_ref().map(|_| entry.stamp.tag(0))
    }

    /// Whether `charged_by` is the limit's default, without a factor, and the key with this tag has no override.
    pub(crate) fn is_default(&self, tag: LimitTag, charged_by: &Limit) -> bool {
        !tag.is_of_override() && self.limit_at(tag) == Some(charged_by)
    }

    /// Returns the limit that a tag of this generation names, also if it is an override that has ended.
    pub(crate) fn limit_at(&self, tag: LimitTag) -> Option<&Limit> {
        self.entry(tag.limit()?).limit_at(tag, BEFORE_ALL_ENDS_NS)
    }

    /// Whether the tag's override has ended by `at_ns`.
    pub(crate) fn has_ended(&self, tag: LimitTag, at_ns: u64) -> bool {
        self.end_ns(tag).is_some_and(|end_ns| end_ns <= at_ns)
    }

    /// Returns when the tag's override ends, in ns since the clock's origin.
    #[inline]
    pub(crate) fn end_ns(&self, tag: LimitTag) -> Option<u64> {
        if !self.has_ends {
            return None;
        }
        let at = (tag.terms() as usize).checked_sub(1)?;
        self.entry(tag.limit()?).ends_ns.get(at).copied().filter(|&end_ns| end_ns != u64::MAX)
    }

    /// Whether any override ends.
    #[inline]
    pub(crate) fn has_ends(&self) -> bool {
        self.has_ends
    }
}

impl Entry {
    /// Returns the limit of the bucket that an id in normal form has here, and its tag. It ignores networks: for an address in
    /// one, calls charge the bucket that [`Limits::applying`] returns.
    #[inline]
    pub(crate) fn limit_for(&self, id: &[u8], now_ns: u64) -> Option<(&Limit, LimitTag)> {
        if !self.overrides.is_empty()
            && let Some((given, is_own)) = self.overridden(id, now_ns)
        {
            let limit = self.terms.get(given.0 as usize)?.limit.as_ref()?;
            return Some((limit, self.tag_of(given, is_own)));
        }
        self.default.as_ref().map(|limit| (limit, self.stamp.tag(0)))
    }

    /// Returns the limit that [`limit_for`](Self::limit_for) returned with this tag. `None` for a tag of another
    /// generation and for an override that has ended.
    #[inline(always)]
    pub(crate) fn limit_at(&self, tag: LimitTag, now_ns: u64) -> Option<&Limit> {
        if tag.stamp() == self.stamp { self.with_terms(tag.terms(), now_ns) } else { None }
    }

    /// Returns the rule of the default, if it is gcra, the tag is the default's, and a call has nothing to do but to
    /// charge one bucket.
    #[inline(always)]
    pub(crate) fn quick_default(&self, tag: LimitTag) -> Option<&Gcra> {
        tag.is_quick_default(self.quick_default.tag).then_some(&self.quick_default.gcra)
    }

    /// Returns the limit like [`limit_at`](Self::limit_at), for the fast path, which charges one bucket and does
    /// nothing else. `None` also if the call has more to do.
    #[inline(always)]
    pub(crate) fn quick_limit_at(&self, tag: LimitTag, now_ns: u64) -> Option<&Limit> {
        self.with_terms(tag.quick_terms(self.quick)?, now_ns)
    }

    #[inline(always)]
    fn with_terms(&self, terms: u32, now_ns: u64) -> Option<&Limit> {
        match terms {
            0 => self.default.as_ref(),
            given => {
                let at = given as usize - 1;
                if self.has_ended(at, now_ns) {
                    return None;
                }
                self.terms.get(at)?.limit.as_ref()
            }
        }
    }

    #[inline(always)]
    pub(super) fn has_ended(&self, at: usize, now_ns: u64) -> bool {
        self.ends_ns.get(at).is_some_and(|&end_ns| end_ns <= now_ns)
    }

    /// Returns the tag of the ids that have these terms. `is_own`: by an override of one id, not of an account.
    pub(super) fn tag_of(&self, terms: TermsIndex, is_own: bool) -> LimitTag {
        let tag = self.stamp.tag(terms.0 + 1);
        if is_own { tag.of_own() } else { tag }
    }

    /// Returns the terms of the id's own override or, without one that still applies, of its account's; and whether they are of
    /// a single id. If `id` is itself an account, which is allowed, they are not.
    fn overridden(&self, id: &[u8], now_ns: u64) -> Option<(TermsIndex, bool)> {
        let applies = |id: &[u8]| {
            let terms = self.overrides.get(id)?.terms;
            (!self.has_ended(terms.0 as usize, now_ns)).then_some(terms)
        };
        let of_account = || applies(format::account_of(self.format, id)?);
        let is_own = || !format::is_account(self.format, id);
        applies(id).map(|own| (own, is_own())).or_else(|| Some((of_account()?, false)))
    }
}
