//! The registry: for a limit and an id, the most specific override, else the default, else nothing.

mod applying;
mod as_of;
mod entries;
mod explain;
mod generation;
mod near;
#[cfg(feature = "snapshot")]
pub(crate) mod persisted;
#[cfg(feature = "yaml")]
mod reading;
mod shadow;
mod terms;
mod warnings;

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::LazyLock;

use crate::algorithm::rule::Rule;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limits::{Id, IdFormat, OverrideOptions, Scratch, format, names};
use crate::store::key::{LimitIndex, LimitTag, OwnedId, Quick, Stamp};

pub(crate) use applying::BEFORE_ALL_ENDS_NS;
pub use entries::{LimitEntry, Location, OverrideEntry};
pub(crate) use generation::OverrideById;
pub(crate) use terms::Numbers;
use terms::Terms;
#[cfg(feature = "yaml")]
pub(crate) use terms::{Given, Within, check_options};
pub use warnings::{Warning, WarningKind, Warnings};

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
    /// Whether any numbers end at some time.
    has_ends: bool,
    /// The files that they come from, by their reader's numbers; none if they were made in code.
    files: Vec<String>,
}

/// One limit by its name.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    /// By which notes of this limit are known, in the generation that these limits are of.
    stamp: Stamp,
    /// The same, unless a call has more to do than to charge one bucket: then that of no note, so that it
    /// goes the longer way.
    quick: Quick,
    /// The limit whose numbers are tried beside the default's.
    shadow: Option<LimitIndex>,
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
    /// When the numbers at the same places end, in ns since the clock's origin; none if no numbers do.
    ends_ns: Vec<u64>,
    /// What stands beside the numbers.
    pub(crate) terms: Terms,
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
        assert!(
            at < LimitTag::MAX_NUMBERS,
            "a limit has at most {} numbers",
            LimitTag::MAX_NUMBERS
        );
        NumbersIndex(at as u32)
    }
}

const _: () = assert!(size_of::<(OwnedId, Override)>() == 32);

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
    pub fn limit_for<'a>(&self, name: &str, id: impl Into<Id<'a>>) -> Result<Option<Limit>, Error> {
        let index = self.index_of(name)?;
        let mut scratch = Scratch::new();
        let id = format::encode(self.entry(index).format, id.into(), &mut scratch)?;
        Ok(self.entry(index).numbers_of(id, BEFORE_ALL_ENDS_NS).map(|(limit, _)| limit.clone()))
    }

    /// The numbers of the limit `name` for ids without an override; `None` where it has none, or is
    /// switched off.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name that is not known.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limits};
    ///
    /// let limit = |burst| Limit::new(burst, 1, Duration::from_secs(1));
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, limit(2)?)?
    ///     .override_id("PerUser", "alice", limit(9)?)?
    ///     .build();
    /// assert_eq!(limits.default_numbers("PerUser")?.map(|limit| limit.burst()), Some(2));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn default_numbers(&self, name: &str) -> Result<Option<Limit>, Error> {
        Ok(self.entry(self.index_of(name)?).default.clone())
    }

    /// The index of `name`.
    pub(crate) fn index_of(&self, name: &str) -> Result<LimitIndex, Error> {
        let known = self.by_name.get(name).copied().filter(|_| !shadow::is_name(name));
        known.ok_or_else(|| {
            let names = self.by_name.keys().map(|name| &**name);
            let text = names::unknown(name, names.filter(|name| !shadow::is_name(name)));
            Error::new(ErrorKind::Name, text)
        })
    }

    /// What is known of a limit; of one that a later reload adds, that it is no limit.
    pub(crate) fn entry(&self, index: LimitIndex) -> &Entry {
        static NOT_YET: LazyLock<Entry> =
            LazyLock::new(|| Entry::without_numbers("", IdFormat::String));
        match self.entries.get(index.0 as usize) {
            Some(entry) => entry,
            None => &NOT_YET,
        }
    }

    /// The number of limits, those without numbers included.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    fn without_numbers(name: &str, format: IdFormat) -> Entry {
        Entry {
            name: name.into(),
            stamp: Stamp::new(LimitIndex(0), 0),
            quick: Quick::NEVER,
            shadow: None,
            format,
            default: None,
            has_default: false,
            is_disabled: false,
            algorithm: None,
            overrides: HashMap::default(),
            numbers: Vec::new(),
            ends_ns: Vec::new(),
            terms: Terms::default(),
        }
    }

    pub(crate) fn is_given(&self) -> bool {
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

/// Makes [`Limits`], in code or from files.
#[derive(Clone, Debug)]
#[must_use]
pub struct LimitsBuilder {
    limits: Limits,
}

impl LimitsBuilder {
    fn new() -> LimitsBuilder {
        let mut builder = LimitsBuilder {
            limits: Limits {
                entries: Vec::new(),
                by_name: HashMap::default(),
                is_gcra: true,
                has_ends: false,
                files: Vec::new(),
            },
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
    /// assert_eq!(limits.limit_for("PerUser", "alice")?, None);
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
    ///
    /// # Example: an IPv6 client of a tower layer
    ///
    /// The layer's id of an IPv6 client is the base address of its network, by default its /64.
    /// `http::ClientAddress::find` gives it; the client's own address would not be found.
    ///
    /// ```
    /// # #[cfg(feature = "http")] {
    /// use std::net::IpAddr;
    /// use std::time::Duration;
    /// use tollgate::http::ClientAddress;
    /// use tollgate::{IdFormat, Limit, Limits};
    ///
    /// let second = Duration::from_secs(1);
    /// let client: IpAddr = "2001:db8:1:2::7".parse()?;
    /// let id = ClientAddress::new().find(Some(client), &http::HeaderMap::new())?; // as the layer has it
    /// let limits = Limits::builder()
    ///     .limit("PerClient", IdFormat::IpAddress, Limit::new(20, 10, second)?)?
    ///     .override_id("PerClient", id, Limit::new(200, 100, second)?)?
    ///     .build();
    /// let override_burst = |id| Ok::<_, tollgate::Error>(limits.limit_for("PerClient", id)?.map(|limit| limit.burst()));
    /// assert_eq!(override_burst("2001:db8:1:2::")?, Some(200));
    /// assert_eq!(override_burst("2001:db8:1:2::7")?, Some(20)); // no id of the layer
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn override_id<'a>(
        self,
        name: &str,
        id: impl Into<Id<'a>>,
        limit: impl Into<Option<Limit>>,
    ) -> Result<LimitsBuilder, Error> {
        self.override_with(name, id, limit, OverrideOptions::default())
    }

    /// The limits.
    pub fn build(mut self) -> Limits {
        for entry in &mut self.limits.entries {
            if entry.is_disabled {
                entry.default = None;
                entry.overrides.clear();
                entry.numbers.clear();
                entry.terms.notes.clear();
                entry.terms.options.shadow = None;
            }
            entry.overrides.shrink_to_fit();
            entry.numbers.shrink_to_fit();
            entry.terms.notes.shrink_to_fit();
        }
        self.add_shadows();
        let other = |entry: &Entry| entry.algorithm.is_some_and(|name| name != Rule::GCRA);
        self.limits.is_gcra = !self.limits.entries.iter().any(other);
        self.limits.in_generation(0, None)
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
    pub(crate) fn add_numbers(&mut self, index: LimitIndex, new: Numbers) -> NumbersIndex {
        let entry = &mut self.limits.entries[index.0 as usize];
        entry.note_algorithm(new.limit.as_ref());
        let numbers = &mut entry.numbers;
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
                let source = numbers.map(|numbers| numbers.within.source.into());
                Err(GivenBefore { source, line: before.line })
            }
        }
    }

    fn intern(&mut self, name: &str, format: IdFormat) -> LimitIndex {
        if let Some(&index) = self.limits.by_name.get(name) {
            return index;
        }
        let entries = &mut self.limits.entries;
        let index = LimitIndex::new(entries.len());
        entries.push(Entry::without_numbers(name, format));
        self.limits.by_name.insert(name.into(), index);
        index
    }
}
