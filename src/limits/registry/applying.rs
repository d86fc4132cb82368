//! Which numbers apply to an id, and what the note of them beside a bucket's word says.

use super::{Entry, Limits, NumbersIndex};
use crate::algorithm::factor::Factor;
use crate::algorithm::gcra::Gcra;
use crate::limit::Limit;
use crate::limits::format;
use crate::store::key::{KeyRef, LimitIndex, LimitTag};
use crate::util::coverage::{self, Race};
use crate::util::fault::{self, Fault};

/// A time at which no numbers have ended.
pub(crate) const BEFORE_ALL_ENDS_NS: u64 = 0;

impl Limits {
    /// Whether a bucket to which these numbers apply, with this word, is full at `now_ns`, with all
    /// factors that it may have been charged with, the largest of which `factor` says.
    pub(crate) fn is_full(
        &self,
        tag: LimitTag,
        word: u64,
        now_ns: u64,
        factor: impl FnOnce(LimitIndex) -> Factor,
    ) -> bool {
        if self.is_gcra {
            return Gcra::is_full(word, now_ns);
        }
        // A word that no numbers are known for is kept: nothing says that it is full.
        let Some(index) = tag.limit() else { return false };
        let tag = if fault::active(Fault::FullByDefault) { tag.stamp().tag(0) } else { tag };
        let Some(limit) = self.numbers_at(tag) else { return false };
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

    /// Which numbers apply to a key.
    pub(crate) fn tag_of(&self, key: KeyRef<'_>, now_ns: u64) -> Option<LimitTag> {
        let entry = self.entries.get(key.limit.0 as usize)?;
        entry.numbers_of(key.id, now_ns).map(|(_, tag)| tag)
    }

    /// The note of a limit's default numbers, if it has any.
    pub(crate) fn default_tag(&self, index: LimitIndex) -> Option<LimitTag> {
        let entry = self.entries.get(index.0 as usize)?;
        entry.default.as_ref().map(|_| entry.stamp.tag(0))
    }

    /// Whether a key with such a tag is charged by its limit's default as it is.
    pub(crate) fn is_default(&self, tag: LimitTag, charged_by: &Limit) -> bool {
        !tag.is_of_override() && self.numbers_at(tag) == Some(charged_by)
    }

    /// The numbers that a note says, if it is of these limits, whether or not they have ended.
    pub(crate) fn numbers_at(&self, noted: LimitTag) -> Option<&Limit> {
        let entry = self.entries.get(noted.limit()?.0 as usize)?;
        entry.numbers_at(noted, BEFORE_ALL_ENDS_NS)
    }

    /// Whether numbers have ended by `at_ns`.
    pub(crate) fn has_ended(&self, given: LimitTag, at_ns: u64) -> bool {
        self.end_ns(given).is_some_and(|end_ns| end_ns <= at_ns)
    }

    /// When the noted numbers end, in ns since the clock's origin, if they do.
    #[inline]
    pub(crate) fn end_ns(&self, noted: LimitTag) -> Option<u64> {
        if !self.has_ends {
            return None;
        }
        let entry = self.entries.get(noted.limit()?.0 as usize)?;
        let at = (noted.numbers() as usize).checked_sub(1)?;
        entry.ends_ns.get(at).copied().filter(|&end_ns| end_ns != u64::MAX)
    }

    /// Whether any numbers end.
    #[inline]
    pub(crate) fn has_ends(&self) -> bool {
        self.has_ends
    }
}

impl Entry {
    /// The numbers that apply to an id in normal form, and the note by which to find them again.
    #[inline]
    pub(crate) fn numbers_of(&self, id: &[u8], now_ns: u64) -> Option<(&Limit, LimitTag)> {
        if !self.overrides.is_empty()
            && let Some(given) = self.overridden(id, now_ns)
        {
            let limit = self.numbers.get(given.0 as usize)?.limit.as_ref()?;
            return Some((limit, self.stamp.tag(given.0 + 1)));
        }
        self.default.as_ref().map(|limit| (limit, self.stamp.tag(0)))
    }

    /// The numbers that a note says: those that [`numbers_of`](Self::numbers_of) returned with it. `None`
    /// for a tag of another generation and for numbers that have ended.
    #[inline(always)]
    pub(crate) fn numbers_at(&self, tag: LimitTag, now_ns: u64) -> Option<&Limit> {
        if tag.stamp() == self.stamp { self.with_number(tag.numbers(), now_ns) } else { None }
    }

    /// As [`numbers_at`](Self::numbers_at), for a call that charges one bucket and is done. `None`, too,
    /// where there is more to do.
    #[inline(always)]
    pub(crate) fn quick_numbers_at(&self, tag: LimitTag, now_ns: u64) -> Option<&Limit> {
        self.with_number(tag.quick_numbers(self.quick)?, now_ns)
    }

    #[inline(always)]
    fn with_number(&self, numbers: u32, now_ns: u64) -> Option<&Limit> {
        match numbers {
            0 => self.default.as_ref(),
            given => {
                let at = given as usize - 1;
                if self.has_ended(at, now_ns) {
                    return None;
                }
                self.numbers.get(at)?.limit.as_ref()
            }
        }
    }

    #[inline(always)]
    fn has_ended(&self, at: usize, now_ns: u64) -> bool {
        self.ends_ns.get(at).is_some_and(|&end_ns| end_ns <= now_ns)
    }

    fn overridden(&self, id: &[u8], now_ns: u64) -> Option<NumbersIndex> {
        let applies = |id: &[u8]| {
            let numbers = self.overrides.get(id)?.numbers;
            (!self.has_ended(numbers.0 as usize, now_ns)).then_some(numbers)
        };
        applies(id).or_else(|| applies(format::account_of(self.format, id)?))
    }
}
