//! What a limit and its overrides are given beside the numbers, and where a file gives it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

#[cfg(feature = "yaml")]
use super::NumbersIndex;
use super::{Entry, Limits, LimitsBuilder};
use crate::error::{Error, ErrorKind};
use crate::limit::{Limit, LimitFault};
use crate::limits::expiry::Expiry;
use crate::limits::options::Note;
use crate::limits::{Id, IdFormat, LimitMode, LimitOptions, OverrideOptions, Scratch, format};
use crate::store::key::{LimitIndex, LimitTag, OwnedId};

/// What a limit has beside its default numbers. Nothing of it is read on a request's way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Terms {
    pub(crate) options: LimitOptions,
    /// Where the default was given.
    pub(super) given: Option<Given>,
    /// What was said of single ids; what was said of all ids of a list is with their numbers.
    pub(super) notes: HashMap<OwnedId, Arc<Note>, ahash::RandomState>,
}

/// A line of one of the files, by its place in [`Limits::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Given {
    pub(crate) source: u32,
    pub(crate) line: u32,
}

/// What overrides point to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// `None` is no limit.
    pub(crate) limit: Option<Limit>,
    pub(crate) expires: Expiry,
    /// `None` is the limit's.
    pub(crate) max_debt: Option<u64>,
    /// What was said of all ids of a list.
    pub(crate) note: Option<Arc<Note>>,
    pub(crate) within: Within,
}

const _: () = assert!(size_of::<Numbers>() <= 96, "a file may have a million different ones");

/// Which file numbers stand in, and the way to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Within {
    /// The reader's number of the file.
    pub(crate) source: u16,
    /// Whether the ids are in a list; else each is in the entry's key.
    pub(crate) is_listed: bool,
    /// One more than the place in the file's list, where its root is one.
    pub(crate) element: Option<NonZeroU32>,
}

impl Numbers {
    /// With nothing beside them.
    pub(crate) fn new(limit: Option<Limit>, within: Within) -> Numbers {
        Numbers { limit, expires: Expiry::NEVER, max_debt: None, note: None, within }
    }
}

#[cfg(feature = "yaml")]
impl NumbersIndex {
    /// The place so many after this one.
    pub(crate) fn after(self, count: u32) -> NumbersIndex {
        NumbersIndex(self.0.saturating_add(count))
    }
}

impl Entry {
    /// The units that a bucket may owe beyond its burst under these numbers: an override's, or the
    /// default's if there is none.
    pub(crate) fn max_debt_of(&self, numbers: Option<&Numbers>) -> u64 {
        let limit = match numbers {
            Some(numbers) => numbers.limit.as_ref(),
            None => self.default.as_ref(),
        };
        let own = numbers.and_then(|numbers| numbers.max_debt);
        // The limit's was not checked against the numbers of those overrides that have none themselves.
        let units = own.unwrap_or(self.terms.options.max_debt);
        limit.map_or(0, |limit| units.min(limit.debt_room()))
    }

    /// The same by the note of the numbers.
    pub(crate) fn max_debt_at(&self, noted: LimitTag) -> u64 {
        let given = (noted.numbers() as usize).checked_sub(1);
        self.max_debt_of(given.and_then(|given| self.numbers.get(given)))
    }
}

impl LimitsBuilder {
    /// As [`limit`](LimitsBuilder::limit), with what stands beside the numbers.
    ///
    /// # Errors
    ///
    /// Those of [`limit`](LimitsBuilder::limit), and [`Error::is_invalid_limit`]: the shadow's numbers
    /// are of another algorithm, or stand beside no limit or one that is in shadow mode itself; a bucket
    /// has no room for the debt.
    pub fn limit_with(
        self,
        name: &str,
        format: IdFormat,
        limit: impl Into<Option<Limit>>,
        options: LimitOptions,
    ) -> Result<LimitsBuilder, Error> {
        let limit = limit.into();
        check_options(&options, limit.as_ref())
            .map_err(|fault| Error::new(ErrorKind::Limit, fault.message))?;
        let mut builder = self.limit(name, format, limit)?;
        let index = builder.limits.index_of(name)?;
        builder.set_options(index, options);
        Ok(builder)
    }

    /// As [`override_id`](LimitsBuilder::override_id), with what stands beside the numbers.
    ///
    /// # Errors
    ///
    /// Those of [`override_id`](LimitsBuilder::override_id), and [`Error::is_invalid_limit`] if a bucket
    /// has no room for the debt.
    pub fn override_with<'a>(
        mut self,
        name: &str,
        id: impl Into<Id<'a>>,
        limit: impl Into<Option<Limit>>,
        options: OverrideOptions,
    ) -> Result<LimitsBuilder, Error> {
        let limit = limit.into();
        let index = self.limits.index_of(name)?;
        self.check_algorithm(index, limit.as_ref())?;
        let OverrideOptions { note, expires, max_debt } = options;
        if let (Some(units), Some(limit)) = (max_debt, &limit) {
            limit
                .check_max_debt(units)
                .map_err(|fault| Error::new(ErrorKind::Limit, fault.message))?;
        }
        let mut scratch = Scratch::new();
        let id = id.into();
        let bytes = format::encode(self.limits.entry(index).format, id, &mut scratch)?;
        let numbers = Numbers { expires, max_debt, ..Numbers::new(limit, Within::default()) };
        let numbers = self.add_numbers(index, numbers);
        self.add_override(index, bytes, numbers, 0).map_err(|_| {
            Error::new(ErrorKind::Id, format!("the id {id} of {name} was given twice"))
        })?;
        self.add_note(index, bytes, note);
        Ok(self)
    }

    pub(crate) fn set_options(&mut self, index: LimitIndex, options: LimitOptions) {
        self.limits.entries[index.0 as usize].terms.options = options;
    }

    /// Notes what was said of an id in normal form; nothing takes no room.
    pub(crate) fn add_note(&mut self, index: LimitIndex, id: &[u8], note: Note) {
        if !note.is_empty() {
            let notes = &mut self.limits.entries[index.0 as usize].terms.notes;
            notes.insert(OwnedId::new(id), Arc::new(note));
        }
    }
}

/// What only a reader of files does.
#[cfg(feature = "yaml")]
impl LimitsBuilder {
    /// Names the files, for those who ask where an entry is.
    pub(crate) fn set_files(&mut self, files: Vec<String>) {
        self.limits.files = files;
    }

    pub(crate) fn set_given(&mut self, index: LimitIndex, given: Given) {
        self.limits.entries[index.0 as usize].terms.given = Some(given);
    }
}

/// Whether a limit can have these options.
pub(crate) fn check_options(
    options: &LimitOptions,
    limit: Option<&Limit>,
) -> Result<(), LimitFault> {
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
        let (new, known) = (shadow.algorithm(), limit.algorithm());
        if new != known {
            return fault(format!(
                "numbers of {new} beside numbers of {known}: a limit has one algorithm"
            ));
        }
    }
    limit.map_or(Ok(()), |limit| limit.check_max_debt(options.max_debt))
}

impl Limits {
    /// The file of that number.
    pub(super) fn file(&self, source: u32) -> Option<&str> {
        self.files.get(source as usize).map(String::as_str)
    }
}
