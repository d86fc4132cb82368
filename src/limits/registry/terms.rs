//! The terms of an override: its limit, its end, its debt, and where a file gives it.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::Entry;
use crate::limit::{Limit, LimitFault};
use crate::limits::expiry::Expiry;
use crate::limits::options::Note;
use crate::limits::{LimitMode, LimitOptions};
use crate::store::key::LimitTag;

/// A line of a file, which is given by its place in [`Limits::files`](super::Limits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceLine {
    pub(crate) source: u32,
    pub(crate) line: u32,
}

/// The terms that overrides point to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OverrideTerms {
    /// `None` is no limit.
    pub(crate) limit: Option<Limit>,
    pub(crate) expires: Expiry,
    /// `None` stands for the debt of the limit's default.
    pub(crate) max_debt: Option<u64>,
    /// The comment and the owner of a whole list.
    pub(crate) note: Option<Arc<Note>>,
    pub(crate) path: SourcePath,
}

const _: () =
    assert!(size_of::<OverrideTerms>() <= 96, "a file may have a million different terms");

/// The file of an override, and how the path to it in that file is formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourcePath {
    /// The place in [`Limits::files`](super::Limits).
    pub(crate) source: u16,
    /// Whether the ids are in a list; else each is in its entry's key.
    pub(crate) is_listed: bool,
    /// If the file's root is a list, the place in that list plus one.
    pub(crate) element: Option<NonZeroU32>,
}

impl SourcePath {
    /// Stands for code in place of a file.
    pub(crate) const IN_CODE: u16 = u16::MAX;
}

impl Entry {
    /// Returns the units that a bucket may owe beyond its burst under an override's terms, or under the default if there
    /// are none.
    pub(crate) fn max_debt_of(&self, terms: Option<&OverrideTerms>) -> u64 {
        let limit = match terms {
            Some(terms) => terms.limit.as_ref(),
            None => self.default.as_ref(),
        };
        let own = terms.and_then(|terms| terms.max_debt);
        // The default's debt was not checked against the limits of overrides that inherit it.
        let units = own.unwrap_or(self.options.max_debt);
        limit.map_or(0, |limit| units.min(limit.debt_room()))
    }

    /// Returns [`max_debt_of`](Self::max_debt_of) the limit that a tag names.
    pub(crate) fn max_debt_at(&self, tag: LimitTag) -> u64 {
        let of_override = (tag.terms() as usize).checked_sub(1);
        self.max_debt_of(of_override.and_then(|at| self.terms.get(at)))
    }
}

/// Checks that a default can have these options.
pub(crate) fn check_options(
    options: &LimitOptions,
    limit: Option<&Limit>,
) -> Result<(), LimitFault> {
    if options.max_keys == Some(0) {
        let message = "0: at least 1 is allowed".into();
        return Err(LimitFault { field: "max_keys", message });
    }
    let fault = |message: String| Err(LimitFault { field: "shadow", message });
    if let Some(shadow) = &options.shadow {
        if options.mode == LimitMode::Shadow {
            return fault("not beside mode: shadow, whose own numbers are only tried".into());
        }
        let Some(limit) = limit else {
            return fault(
                "not beside no limit: mode: shadow is for numbers that stand alone".into(),
            );
        };
        if limit.rule().is_concurrency() {
            return fault(
                "not beside concurrency: mode: shadow is for a number of permits to try".into(),
            );
        }
        let (new, known) = (shadow.algorithm(), limit.algorithm());
        if new != known {
            return fault(format!(
                "numbers of {new} beside numbers of {known}: a limit has one algorithm"
            ));
        }
    }
    limit.map_or(Ok(()), |limit| limit.check_max_debt(options.max_debt))
}
