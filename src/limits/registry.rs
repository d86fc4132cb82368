//! The registry: for a limit and an id, the most specific override, else the default, else nothing.

#[cfg(feature = "snapshot")]
mod kept;

use std::collections::HashMap;
use std::collections::hash_map;

use crate::algorithm::gcra::Gcra;
use crate::algorithm::rule::Rule;
use crate::error::{Error, ErrorKind};
use crate::key::{KeyRef, LimitIndex, Meta, OwnedId, Stamp};
use crate::limits::{Id, IdFormat, Scratch, format, names};
use crate::probe::{Fault, Place, broken, reached};
use crate::{Factor, Limit};

/// Every limit that a [`Limiter`](crate::Limiter) knows: its name, the format of its ids, the numbers
/// that apply by default, and those that apply to some ids instead.
///
/// With the feature `boulder`, Boulder's names are always known; without numbers they are no limit.
/// A look-up costs an index into an array and, where the limit has overrides, a hash of the id.
///
/// # Example: limits made in code
///
/// ```
/// use std::time::Duration;
/// use tollgate::{IdFormat, Limit, Limits};
///
/// let minute = Duration::from_secs(60);
/// let limits = Limits::builder()
///     .limit("RequestsPerUser", IdFormat::String, Limit::new(20, 60, minute)?)?
///     .override_id("RequestsPerUser", "alice", Limit::new(200, 600, minute)?)?
///     .build();
/// assert!(limits.names().any(|name| name == "RequestsPerUser"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    entries: Vec<Entry>,
    by_name: HashMap<Box<str>, LimitIndex, ahash::RandomState>,
    /// Whether all numbers are gcra's, whose words tell by themselves whether they are full.
    is_gcra: bool,
}

/// One limit by its name.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    /// By which notes of this limit are known, in the generation that these limits are of.
    stamp: Stamp,
    pub(crate) format: IdFormat,
    pub(crate) default: Option<Limit>,
    /// Whether a default was given, be it that there is no limit.
    has_default: bool,
    /// Whether the limit was switched off: the numbers go when the limits are made.
    is_disabled: bool,
    /// What the limit's numbers are for, once it has any: one algorithm, for one bucket's word may pass
    /// from the default to an override.
    pub(crate) algorithm: Option<&'static str>,
    /// By id in normal form.
    overrides: HashMap<OwnedId, Override, ahash::RandomState>,
    /// What overrides point to: a file gives many ids the same numbers.
    numbers: Vec<Numbers>,
}

/// An override of one id. With its id, 32 bytes: files have millions.
#[derive(Clone, Copy, Debug)]
struct Override {
    numbers: NumbersIndex,
    line: u32,
}

/// A place in [`Entry::numbers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumbersIndex(u32);

impl NumbersIndex {
    /// # Panics
    ///
    /// When there are more numbers than a note has room for, a thousand million: a file of as many lines.
    fn of(at: usize) -> NumbersIndex {
        assert!(at < Meta::MOST_NUMBERS, "a limit has at most {} numbers", Meta::MOST_NUMBERS);
        NumbersIndex(at as u32)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers {
    /// `None` is no limit.
    limit: Option<Limit>,
    source: u32,
    /// The account whose ids these are for, where they are for an account: then for it alone, so that
    /// what a reload makes of them can be told without an id.
    account: Option<[u8; ACCOUNT_BYTES]>,
}

const _: () = assert!(size_of::<(OwnedId, Override)>() == 32);

/// The account's part of a composite id.
const ACCOUNT_BYTES: usize = size_of::<u64>();

/// Where an override was given before: the file by the number its reader gave it, and the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenBefore {
    /// `None` when it was given in the entry that is being read.
    pub(crate) source: Option<u32>,
    pub(crate) line: u32,
}

impl Limits {
    /// No limits yet: [`LimitsBuilder`] adds them.
    pub fn builder() -> LimitsBuilder {
        LimitsBuilder::new()
    }

    /// The names of all limits that were given, in that order: with numbers, as no limit, or disabled.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|entry| entry.is_given()).map(|entry| &*entry.name)
    }

    /// The number of overrides, of all limits.
    pub fn overrides(&self) -> usize {
        self.entries.iter().map(|entry| entry.overrides.len()).sum()
    }

    /// The numbers that apply to `id` under the limit `name`: those of the most specific override,
    /// else the default's, else `None`, which is no limit.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name that is not known, [`Error::is_invalid_id`] for an id
    /// that is not of the limit's format.
    pub fn numbers<'a>(&self, name: &str, id: impl Into<Id<'a>>) -> Result<Option<Limit>, Error> {
        let index = self.index_of(name)?;
        let mut scratch = Scratch::new();
        let id = format::encode(self.entry(index).format, id.into(), &mut scratch)?;
        Ok(self.entry(index).numbers_of(id).map(|(limit, _)| limit.clone()))
    }

    /// The index of `name`.
    pub(crate) fn index_of(&self, name: &str) -> Result<LimitIndex, Error> {
        self.by_name.get(name).copied().ok_or_else(|| {
            Error::new(ErrorKind::Name, unknown_name(name, self.by_name.keys().map(|name| &**name)))
        })
    }

    pub(crate) fn entry(&self, index: LimitIndex) -> &Entry {
        &self.entries[index.0 as usize]
    }

    /// The number of limits, those without numbers included.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether a bucket to which these numbers apply, with this word, is full at `now_ns`, with all
    /// factors that it may have been charged with, the largest of which `factor` says.
    pub(crate) fn is_full(
        &self,
        meta: Meta,
        word: u64,
        now_ns: u64,
        factor: impl FnOnce(LimitIndex) -> Factor,
    ) -> bool {
        if self.is_gcra {
            return Gcra::is_full(word, now_ns);
        }
        // A word that no numbers are known for is kept: nothing says that it is full.
        let Some(index) = meta.limit() else { return false };
        let meta = if broken(Fault::FullByDefault) { meta.stamp().meta(0) } else { meta };
        let Some(limit) = self.numbers_at(meta) else { return false };
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
            reached(Place::KeptByFactor);
        }
        is_full
    }

    /// These limits as those of a generation.
    pub(crate) fn in_generation(mut self, number: u64) -> Limits {
        for (at, entry) in self.entries.iter_mut().enumerate() {
            entry.stamp = Stamp::new(LimitIndex::of(at), number);
        }
        self
    }

    /// These limits with the indices that `before` has for their names. A limit that is gone stays, as no
    /// limit: handles for it are still about.
    pub(crate) fn following(mut self, before: &Limits) -> Result<Limits, Error> {
        let mut entries = Vec::with_capacity(before.count().max(self.count()));
        for old in &before.entries {
            let Some(index) = self.by_name.remove(&old.name) else {
                entries.push(Entry::without_numbers(&old.name, old.format));
                continue;
            };
            let new = &mut self.entries[index.0 as usize];
            if new.format != old.format {
                let text = format!(
                    "the ids of {} are {} and cannot become {} while buckets are kept by them: give the limit another name",
                    old.name, old.format, new.format
                );
                return Err(Error::new(ErrorKind::Limit, text));
            }
            entries.push(std::mem::replace(new, Entry::without_numbers("", old.format)));
        }
        entries.extend(self.entries.drain(..).filter(|entry| !entry.name.is_empty()));
        Ok(self.with_entries(entries))
    }

    /// The same with these entries, of which those without a name only take their places.
    fn with_entries(mut self, entries: Vec<Entry>) -> Limits {
        let named = entries.iter().enumerate().filter(|(_, entry)| !entry.name.is_empty());
        self.by_name = named.map(|(at, entry)| (entry.name.clone(), LimitIndex::of(at))).collect();
        self.entries = entries;
        self
    }

    /// Whether both give every id the same numbers.
    pub(crate) fn is_same_as(&self, other: &Limits) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(a, b)| a.is_same_as(b))
    }

    /// All limits, those without numbers included.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (LimitIndex, &Entry)> {
        self.entries.iter().enumerate().map(|(at, entry)| (LimitIndex::of(at), entry))
    }

    /// The note of a limit's default numbers, if it has any.
    pub(crate) fn default_meta(&self, index: LimitIndex) -> Option<Meta> {
        let entry = self.entries.get(index.0 as usize)?;
        entry.default.as_ref().map(|_| entry.stamp.meta(0))
    }

    /// The numbers that a note says, if it is of these limits.
    pub(crate) fn numbers_at(&self, noted: Meta) -> Option<&Limit> {
        let entry = self.entries.get(noted.limit()?.0 as usize)?;
        entry.numbers_at(if noted.numbers() == Meta::UNSURE {
            noted.stamp().meta(0)
        } else {
            noted
        })
    }

    /// Whether some account has an override, so that an id with the default may get another by a reload.
    pub(crate) fn has_accounts(&self, index: LimitIndex) -> bool {
        let entry = self.entries.get(index.0 as usize);
        entry.is_some_and(|entry| entry.numbers.iter().any(|numbers| numbers.account.is_some()))
    }

    /// Whether a note is of these limits.
    pub(crate) fn has_stamp(&self, noted: Meta) -> bool {
        let entry = noted.limit().and_then(|index| self.entries.get(index.0 as usize));
        entry.is_some_and(|entry| entry.stamp == noted.stamp())
    }

    /// The account that noted numbers are for, if they are for an account.
    pub(crate) fn account_at(&self, noted: Meta) -> Option<&[u8]> {
        let entry = self.entries.get(noted.limit()?.0 as usize)?;
        let numbers = entry.numbers.get((noted.numbers() as usize).checked_sub(1)?)?;
        numbers.account.as_ref().map(|account| &account[..])
    }

    /// Which numbers apply to a key that has none of its own, as far as that can be told without its id:
    /// by its account, if that is known.
    pub(crate) fn meta_without_id(
        &self,
        limit: LimitIndex,
        account: Option<&[u8]>,
    ) -> Option<Meta> {
        match account {
            Some(id) => self.meta_of(KeyRef { limit, id }),
            None if self.has_accounts(limit) => {
                let default = self.default_meta(limit);
                default.map(|meta| meta.stamp().meta(Meta::UNSURE))
            }
            None => self.default_meta(limit),
        }
    }

    /// Which numbers apply to a key.
    pub(crate) fn meta_of(&self, key: KeyRef<'_>) -> Option<Meta> {
        let entry = self.entries.get(key.limit.0 as usize)?;
        entry.numbers_of(key.id).map(|(_, meta)| meta)
    }
}

impl Entry {
    fn without_numbers(name: &str, format: IdFormat) -> Entry {
        Entry {
            name: name.into(),
            stamp: Stamp::new(LimitIndex(0), 0),
            format,
            default: None,
            has_default: false,
            is_disabled: false,
            algorithm: None,
            overrides: HashMap::default(),
            numbers: Vec::new(),
        }
    }

    /// Some of the limit's numbers, if it has any.
    pub(crate) fn any_numbers(&self) -> Option<&Limit> {
        self.default.as_ref().or_else(|| self.numbers.iter().find_map(|it| it.limit.as_ref()))
    }

    /// Whether both give every id the same numbers.
    fn is_same_as(&self, other: &Entry) -> bool {
        let of = |entry: &Entry, given: &Override| {
            entry.numbers.get(given.numbers.0 as usize).map(|numbers| numbers.limit.clone())
        };
        self.name == other.name
            && self.format == other.format
            && self.default == other.default
            && self.overrides.len() == other.overrides.len()
            && self.overrides.iter().all(|(id, given)| {
                let others = other.overrides.get(id);
                others.is_some_and(|others| of(self, given) == of(other, others))
            })
    }

    /// The numbers that apply to an id in normal form, and the note by which to find them again.
    #[inline]
    pub(crate) fn numbers_of(&self, id: &[u8]) -> Option<(&Limit, Meta)> {
        if !self.overrides.is_empty()
            && let Some(given) = self.overridden(id)
        {
            let limit = self.numbers.get(given.0 as usize)?.limit.as_ref()?;
            return Some((limit, self.stamp.meta(given.0 + 1)));
        }
        self.default.as_ref().map(|limit| (limit, self.stamp.meta(0)))
    }

    /// The numbers that a note says: those that [`numbers_of`](Self::numbers_of) returned with it. `None`
    /// for a note of another generation, and for one that is not sure: then the id is to be asked.
    #[inline(always)]
    pub(crate) fn numbers_at(&self, meta: Meta) -> Option<&Limit> {
        if meta.stamp() != self.stamp {
            return None;
        }
        match meta.numbers() {
            0 => self.default.as_ref(),
            given => self.numbers.get(given as usize - 1)?.limit.as_ref(),
        }
    }

    /// Gives each account that has an override numbers of its own.
    fn tell_accounts_apart(&mut self) {
        if !format::is_composite(self.format) {
            return;
        }
        for (id, given) in &mut self.overrides {
            let Ok(account) = <[u8; ACCOUNT_BYTES]>::try_from(id.as_bytes()) else { continue };
            let Some(numbers) = self.numbers.get(given.numbers.0 as usize) else { continue };
            let own = Numbers { account: Some(account), ..numbers.clone() };
            given.numbers = NumbersIndex::of(self.numbers.len());
            self.numbers.push(own);
        }
    }

    /// The ids that have an override, other than those of whole accounts, in normal form.
    pub(crate) fn overridden_ids(&self) -> impl Iterator<Item = &[u8]> {
        let is_composite = format::is_composite(self.format);
        let ids = self.overrides.keys().map(|id| id.as_bytes());
        ids.filter(move |id| !is_composite || id.len() != ACCOUNT_BYTES)
    }

    fn overridden(&self, id: &[u8]) -> Option<NumbersIndex> {
        let given = self.overrides.get(id).or_else(|| {
            let account = format::account_of(self.format, id)?;
            self.overrides.get(account)
        })?;
        Some(given.numbers)
    }

    fn is_given(&self) -> bool {
        self.has_default || self.is_disabled || !self.overrides.is_empty()
    }

    fn note_algorithm(&mut self, limit: Option<&Limit>) {
        self.algorithm = self.algorithm.or(limit.map(Limit::algorithm));
    }

    fn check_algorithm(&self, limit: Option<&Limit>) -> Result<(), String> {
        match (limit.map(Limit::algorithm), self.algorithm) {
            (Some(new), Some(known)) if new != known => Err(format!(
                "numbers of {new} for {}, which has numbers of {known}: a limit has one algorithm",
                self.name
            )),
            _ => Ok(()),
        }
    }
}

/// The text for a name that is neither declared nor Boulder's.
fn unknown_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let hint = match names::nearest(name, known) {
        Some(near) => format!("; did you mean {near}?"),
        None => String::new(),
    };
    format!("unknown limit {name:?}{hint}")
}

/// Makes [`Limits`], in code or from files.
#[derive(Clone, Debug)]
#[must_use]
pub struct LimitsBuilder {
    limits: Limits,
}

impl LimitsBuilder {
    fn new() -> LimitsBuilder {
        let mut builder = LimitsBuilder {
            limits: Limits { entries: Vec::new(), by_name: HashMap::default(), is_gcra: true },
        };
        for boulder in names::BOULDER {
            builder.intern(boulder.name, boulder.format);
        }
        builder
    }

    /// Adds a limit: its name, how its ids look, and the numbers that apply by default: a [`Limit`], or
    /// `None`, which is no limit but for ids that have an override.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`]: the name does not match `[A-Za-z][A-Za-z0-9_.-]*` in at most 128
    /// characters, was given before, or is Boulder's and has another format there.
    /// [`Error::is_invalid_limit`]: the limit has overrides of another algorithm.
    pub fn limit(
        mut self,
        name: &str,
        format: IdFormat,
        limit: impl Into<Option<Limit>>,
    ) -> Result<LimitsBuilder, Error> {
        let limit = limit.into();
        let index = self.declare(name, format).map_err(|text| Error::new(ErrorKind::Name, text))?;
        self.check_algorithm(index, limit.as_ref())?;
        self.set_default(index, limit).map_err(|text| Error::new(ErrorKind::Name, text))?;
        Ok(self)
    }

    /// Switches a limit off: no limit for anybody, those with overrides included. Its name stays known.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a limit that is not known.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limits};
    ///
    /// let limit = Limit::fixed_window(10, Duration::from_secs(60))?;
    /// let limits =
    ///     Limits::builder().limit("PerUser", IdFormat::String, limit)?.disable("PerUser")?.build();
    /// assert_eq!(limits.numbers("PerUser", "alice")?, None);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn disable(mut self, name: &str) -> Result<LimitsBuilder, Error> {
        let index = self.limits.index_of(name)?;
        self.set_disabled(index);
        Ok(self)
    }

    /// Gives one id of a limit numbers of its own, or `None`: no limit for that id. For a composite id,
    /// the account alone stands for all of its ids that have no override themselves.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a limit that is not known, [`Error::is_invalid_id`] for an id
    /// that is not of the limit's format, or was given before, and [`Error::is_invalid_limit`] for
    /// numbers of another algorithm than those that the limit has.
    pub fn override_id<'a>(
        mut self,
        name: &str,
        id: impl Into<Id<'a>>,
        limit: impl Into<Option<Limit>>,
    ) -> Result<LimitsBuilder, Error> {
        let limit = limit.into();
        let index = self.limits.index_of(name)?;
        self.check_algorithm(index, limit.as_ref())?;
        let mut scratch = Scratch::new();
        let id = id.into();
        let bytes = format::encode(self.limits.entry(index).format, id, &mut scratch)?;
        let numbers = self.add_numbers(index, limit, 0);
        self.add_override(index, bytes, numbers, 0).map_err(|_| {
            Error::new(ErrorKind::Id, format!("the id {id} of {name} was given twice"))
        })?;
        Ok(self)
    }

    /// The limits.
    pub fn build(mut self) -> Limits {
        for entry in &mut self.limits.entries {
            if entry.is_disabled {
                entry.default = None;
                entry.overrides.clear();
                entry.numbers.clear();
            }
            entry.tell_accounts_apart();
            entry.overrides.shrink_to_fit();
            entry.numbers.shrink_to_fit();
        }
        let other = |entry: &Entry| entry.algorithm.is_some_and(|name| name != Rule::GCRA);
        self.limits.is_gcra = !self.limits.entries.iter().any(other);
        self.limits.in_generation(0)
    }

    /// Makes `name` known, with the format of its ids.
    pub(crate) fn declare(&mut self, name: &str, format: IdFormat) -> Result<LimitIndex, String> {
        if !names::is_valid_name(name) {
            return Err(format!(
                "invalid name {name:?}: a letter, then letters, digits, '_', '.' or '-', at most 128 characters, is allowed"
            ));
        }
        let index = self.intern(name, format);
        let known = self.limits.entry(index).format;
        if known != format {
            return Err(format!("the ids of {name} are {known}, not {format}"));
        }
        Ok(index)
    }

    fn check_algorithm(&self, index: LimitIndex, limit: Option<&Limit>) -> Result<(), Error> {
        let checked = self.limits.entry(index).check_algorithm(limit);
        checked.map_err(|text| Error::new(ErrorKind::Limit, text))
    }

    /// Sets the default numbers of a limit, once.
    pub(crate) fn set_default(
        &mut self,
        index: LimitIndex,
        limit: Option<Limit>,
    ) -> Result<(), String> {
        let entry = &mut self.limits.entries[index.0 as usize];
        if entry.has_default {
            return Err(format!("the limit {} was given twice", entry.name));
        }
        entry.check_algorithm(limit.as_ref())?;
        entry.note_algorithm(limit.as_ref());
        entry.default = limit;
        entry.has_default = true;
        Ok(())
    }

    pub(crate) fn set_disabled(&mut self, index: LimitIndex) {
        self.limits.entries[index.0 as usize].is_disabled = true;
    }

    /// Adds numbers for overrides to point to; those that equal the ones before share them.
    /// `source` is the reader's number of the file.
    pub(crate) fn add_numbers(
        &mut self,
        index: LimitIndex,
        limit: Option<Limit>,
        source: u32,
    ) -> NumbersIndex {
        let entry = &mut self.limits.entries[index.0 as usize];
        entry.note_algorithm(limit.as_ref());
        let numbers = &mut entry.numbers;
        let new = Numbers { limit, source, account: None };
        if numbers.last() != Some(&new) {
            numbers.push(new);
        }
        NumbersIndex::of(numbers.len() - 1)
    }

    /// Points an id in normal form to numbers; an id that has some already is an error.
    pub(crate) fn add_override(
        &mut self,
        index: LimitIndex,
        id: &[u8],
        numbers: NumbersIndex,
        line: u32,
    ) -> Result<(), GivenBefore> {
        let entry = &mut self.limits.entries[index.0 as usize];
        match entry.overrides.entry(OwnedId::new(id)) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Override { numbers, line });
                Ok(())
            }
            hash_map::Entry::Occupied(before) => {
                let before = before.get();
                let numbers = entry.numbers.get(before.numbers.0 as usize);
                let source = numbers.map(|numbers| numbers.source);
                Err(GivenBefore { source, line: before.line })
            }
        }
    }

    fn intern(&mut self, name: &str, format: IdFormat) -> LimitIndex {
        if let Some(&index) = self.limits.by_name.get(name) {
            return index;
        }
        let entries = &mut self.limits.entries;
        let index = LimitIndex::of(entries.len());
        entries.push(Entry::without_numbers(name, format));
        self.limits.by_name.insert(name.into(), index);
        index
    }
}

/// What only a reader of files asks.
#[cfg(feature = "yaml")]
impl LimitsBuilder {
    /// The index of a limit that is declared or Boulder's; else the text of the error.
    pub(crate) fn index_of(&self, name: &str) -> Result<LimitIndex, String> {
        let known = &self.limits.by_name;
        known.get(name).copied().ok_or_else(|| unknown_name(name, known.keys().map(|name| &**name)))
    }

    pub(crate) fn entry(&self, index: LimitIndex) -> &Entry {
        self.limits.entry(index)
    }

    /// Whether no limit was given.
    pub(crate) fn is_empty(&self) -> bool {
        !self.limits.entries.iter().any(Entry::is_given)
    }

    /// Where the next [`add_numbers_anew`](Self::add_numbers_anew) will put its numbers: a file may
    /// give the ids first.
    pub(crate) fn next_numbers(&self, index: LimitIndex) -> NumbersIndex {
        NumbersIndex::of(self.limits.entry(index).numbers.len())
    }

    /// Adds numbers at [`next_numbers`](Self::next_numbers).
    pub(crate) fn add_numbers_anew(
        &mut self,
        index: LimitIndex,
        limit: Option<Limit>,
        source: u32,
    ) {
        let entry = &mut self.limits.entries[index.0 as usize];
        entry.note_algorithm(limit.as_ref());
        entry.numbers.push(Numbers { limit, source, account: None });
    }
}
