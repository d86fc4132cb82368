//! Builds [`Limits`], in code or from files.

use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use super::sharing::{sharing_faults, unshareable};
use super::terms::check_options;
use super::{Entry, Limits, Override, OverrideTerms, SourceLine, SourcePath, TermsIndex};
use crate::algorithm::rule::Rule;
use crate::error::{Error, ErrorKind};
use crate::limit::{Limit, LimitFault};
use crate::limits::options::Note;
use crate::limits::{Id, IdFormat, LimitOptions, OverrideOptions, Scratch, format, names};
use crate::store::key::{LimitIndex, OwnedId};

/// Builds [`Limits`] in code: see their [example](Limits#example-limits-made-in-code).
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limits};
/// let limit = |burst| Limit::new(burst, 1, Duration::from_secs(1));
/// let limits = Limits::builder()
///     .limit("PerUser", IdFormat::String, limit(20)?)?
///     .limit("PerClient", IdFormat::IpAddress, limit(60)?)?
///     .build();
/// assert_eq!(limits.limit_for("PerClient", "192.0.2.7")?, Some(limit(60)?));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LimitsBuilder {
    pub(super) limits: Limits,
}

impl LimitsBuilder {
    pub(super) fn new() -> LimitsBuilder {
        let mut builder = LimitsBuilder {
            limits: Limits {
                entries: Vec::new(),
                by_name: HashMap::default(),
                word_tells_full: true,
                has_ends: false,
                clocks: None,
                files: Vec::new(),
                store: None,
                network_count: 0,
            },
        };
        for &(name, format) in names::BOULDER {
            builder.intern(name, format);
        }
        builder
    }

    /// Adds a limit: its name, the format of its ids, and its default. A default of `None` limits no id but those that
    /// have an override.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`]: the name does not match `[A-Za-z][A-Za-z0-9_.-]*` in at most 128
    /// characters, is `store`, was given before, or is Boulder's and has another format there.
    /// [`Error::is_invalid_limit`]: the limit has overrides of another algorithm.
    ///
    /// # Example: no default
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limits};
    ///
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, None)?
    ///     .override_id("PerUser", "mallory", Limit::new(1, 1, Duration::from_secs(60))?)?
    ///     .build();
    /// assert_eq!(limits.limit_for("PerUser", "alice")?, None);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limit(
        self,
        name: &str,
        format: IdFormat,
        limit: impl Into<Option<Limit>>,
    ) -> Result<LimitsBuilder, Error> {
        self.limit_with(name, format, limit, LimitOptions::default())
    }

    /// Adds a limit like [`limit`](LimitsBuilder::limit), with options.
    ///
    /// # Errors
    ///
    /// Those of [`limit`](LimitsBuilder::limit), and [`Error::is_invalid_limit`] in three more cases: the shadow has
    /// another algorithm; there is a shadow, but no limit or shadow mode; a bucket has no room for the debt. With the
    /// feature `valkey` also if the options of a shared limit are out of range or do not fit each other.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::limits::LimitOptions;
    /// # use tollgate::{IdFormat, Limit, Limits};
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let options = LimitOptions::default().max_debt(40);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, options)?.build();
    /// assert_eq!(limits.limit("PerUser")?.max_debt(), 40);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limit_with(
        mut self,
        name: &str,
        format: IdFormat,
        limit: impl Into<Option<Limit>>,
        options: LimitOptions,
    ) -> Result<LimitsBuilder, Error> {
        let limit = limit.into();
        check_options(&options, limit.as_ref()).map_err(limit_error)?;
        if let Some(fault) = sharing_faults(&options, limit.as_ref()).into_iter().next() {
            return Err(limit_error(fault));
        }
        if let Some((_, text)) = options.floors.faults(limit.as_ref()).into_iter().next() {
            return Err(Error::new(ErrorKind::Limit, format!("{name}: {text}")));
        }
        let name_error = |text| Error::new(ErrorKind::Name, text);
        let index = self.declare(name, format).map_err(name_error)?;
        self.check_algorithm(index, limit.as_ref())?;
        self.entry_mut(index).check_can_be_shared(&options).map_err(algorithm_error)?;
        self.set_default(index, limit, options).map_err(name_error)?;
        Ok(self)
    }

    /// Switches a limit off, for all ids, also those with overrides. Its name stays known.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for an unknown name.
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

    /// Gives one id of a limit its own limit. `None` lifts the limit for the id, like `unlimited: true` in a file: this limit
    /// never denies its calls and charges them nothing. An override of a composite id's account applies to
    /// all ids of the account that have no override themselves. Under [`IdFormat::IpAddress`] the id may be the text of
    /// a [network](crate::docs::limits_files#networks), such as `10.0.0.0/8`.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for an unknown name, [`Error::is_invalid_id`] for an id that does not have the
    /// limit's format or was given before, [`Error::is_invalid_limit`] for another algorithm than the limit has.
    ///
    /// # Example: an IPv6 client of a tower layer
    ///
    /// The layer's id of an IPv6 client is the base address of its network, by default its /64.
    /// `http::ClientAddress::find` returns that id. An override of the client's own address would never apply.
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

    /// Adds an override like [`override_id`](LimitsBuilder::override_id), with options.
    ///
    /// # Errors
    ///
    /// Those of [`override_id`](LimitsBuilder::override_id), and [`Error::is_invalid_limit`] if a bucket
    /// has no room for the debt.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::OverrideOptions;
    /// # use tollgate::{IdFormat, Limits};
    /// let options = OverrideOptions::default().comment("no limit for the monitoring");
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, None)?
    ///     .override_with("PerUser", "probe", None, options)?
    ///     .build();
    /// assert_eq!(limits.overrides(), 1);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
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
            limit.check_max_debt(units).map_err(limit_error)?;
        }
        let mut scratch = Scratch::new();
        let id = id.into();
        let bytes =
            format::encode_id_or_network(self.limits.entry(index).format, id, &mut scratch)?;
        self.check_network(index, bytes).map_err(|text| Error::new(ErrorKind::Id, text))?;
        let path = SourcePath { source: SourcePath::IN_CODE, is_listed: false, element: None };
        let terms =
            self.add_terms(index, OverrideTerms { limit, expires, max_debt, note: None, path });
        let in_code = SourceLine { source: SourcePath::IN_CODE.into(), line: 0 };
        self.add_override(index, bytes, terms, in_code).map_err(|_| {
            Error::new(ErrorKind::Id, format!("the id {id} of {name} was given twice"))
        })?;
        self.add_note(index, bytes, note);
        Ok(self)
    }

    /// Returns the limits.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?.build();
    /// assert!(limits.names().any(|name| name == "PerUser"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn build(mut self) -> Limits {
        for entry in &mut self.limits.entries {
            if entry.is_disabled {
                entry.default = None;
                entry.overrides.clear();
                entry.terms.clear();
                entry.notes.clear();
                entry.options.shadow = None;
            }
            entry.overrides.shrink_to_fit();
            entry.terms.shrink_to_fit();
            entry.notes.shrink_to_fit();
        }
        self.add_shadows();
        self.add_networks();
        let is_other = |entry: &Entry| entry.algorithm.is_some_and(|name| name != Rule::GCRA);
        self.limits.word_tells_full = !self.limits.entries.iter().any(is_other);
        self.limits.in_generation(0, None)
    }

    /// Adds the shadow of each limit that has one, as a limit without a public name.
    fn add_shadows(&mut self) {
        for at in 0..self.limits.entries.len() {
            let entry = &self.limits.entries[at];
            let Some(shadow) = entry.options.shadow.clone() else { continue };
            let (name, format) = (entry.shadow_name(), entry.format);
            let index = self.intern(&name, format);
            let hidden = self.entry_mut(index);
            hidden.set_algorithm(Some(&shadow));
            hidden.default = Some(shadow);
        }
    }

    /// Makes `name` known with the format of its ids. An error is the text of a fault.
    pub(crate) fn declare(&mut self, name: &str, format: IdFormat) -> Result<LimitIndex, String> {
        if !names::is_valid_name(name) {
            return Err(format!("invalid name {name:?}: {} is allowed", names::ALLOWED));
        }
        if name == names::STORE {
            return Err(names::STORE_IS_RESERVED.into());
        }
        let index = self.intern(name, format);
        let known = self.limits.entry(index).format;
        if known != format {
            return Err(format!("the ids of {name} are {known}, not {format}"));
        }
        Ok(index)
    }

    pub(super) fn intern(&mut self, name: &str, format: IdFormat) -> LimitIndex {
        if let Some(&index) = self.limits.by_name.get(name) {
            return index;
        }
        let entries = &mut self.limits.entries;
        let index = LimitIndex::new(entries.len());
        entries.push(Entry::empty(name, format));
        self.limits.by_name.insert(name.into(), index);
        index
    }

    pub(super) fn entry_mut(&mut self, index: LimitIndex) -> &mut Entry {
        &mut self.limits.entries[index.0 as usize]
    }

    fn check_algorithm(&self, index: LimitIndex, limit: Option<&Limit>) -> Result<(), Error> {
        self.limits.entry(index).check_algorithm(limit).map_err(algorithm_error)
    }

    /// Sets the default of a limit. It can be set once only. An error is the text of a fault.
    pub(crate) fn set_default(
        &mut self,
        index: LimitIndex,
        limit: Option<Limit>,
        options: LimitOptions,
    ) -> Result<(), String> {
        let entry = self.entry_mut(index);
        if entry.has_default {
            return Err(format!("the limit {} was given twice", entry.name));
        }
        entry.check_algorithm(limit.as_ref())?;
        entry.check_can_be_shared(&options)?;
        entry.set_algorithm(limit.as_ref());
        entry.default = limit;
        entry.has_default = true;
        entry.options = options;
        Ok(())
    }

    pub(crate) fn set_disabled(&mut self, index: LimitIndex) {
        self.entry_mut(index).is_disabled = true;
    }

    /// Adds terms for overrides to point to. Terms that equal the ones added before are shared.
    pub(crate) fn add_terms(&mut self, index: LimitIndex, new: OverrideTerms) -> TermsIndex {
        let entry = self.entry_mut(index);
        if entry.terms.last() != Some(&new) {
            entry.set_algorithm(new.limit.as_ref());
            entry.terms.push(new);
        }
        TermsIndex::new(entry.terms.len() - 1)
    }

    /// Points an id in normal form to terms. If the id has an override, the error is where that was given.
    pub(crate) fn add_override(
        &mut self,
        index: LimitIndex,
        id: &[u8],
        terms: TermsIndex,
        at: SourceLine,
    ) -> Result<(), SourceLine> {
        let entry = self.entry_mut(index);
        match entry.overrides.entry(OwnedId::new(id)) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Override { terms, line: at.line });
                let is_network = format::is_network(entry.format, id);
                self.limits.network_count += usize::from(is_network);
                Ok(())
            }
            hash_map::Entry::Occupied(before) => {
                let before = before.get();
                // The terms of the list that is being read are not there yet: it is in the same file.
                let terms = entry.terms.get(before.terms.0 as usize);
                let source = terms.map_or(at.source, |terms| terms.path.source.into());
                Err(SourceLine { source, line: before.line })
            }
        }
    }

    /// Adds the comment and the owner of an id in normal form. An empty note takes no memory.
    pub(crate) fn add_note(&mut self, index: LimitIndex, id: &[u8], note: Note) {
        if !note.is_empty() {
            self.entry_mut(index).notes.insert(OwnedId::new(id), Arc::new(note));
        }
    }
}

/// Used by the readers of files and configurations only.
#[cfg(any(feature = "yaml", feature = "serde"))]
impl LimitsBuilder {
    /// Continues with limits that were built.
    pub(crate) fn from_limits(limits: Limits) -> LimitsBuilder {
        LimitsBuilder { limits }
    }

    /// Returns the names of all limits that were given, with their indices.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&str, LimitIndex)> {
        self.limits.names().filter_map(|name| Some((name, self.index_of(name)?)))
    }

    pub(crate) fn index_of(&self, name: &str) -> Option<LimitIndex> {
        self.limits.by_name.get(name).copied()
    }

    pub(crate) fn entry(&self, index: LimitIndex) -> &Entry {
        self.limits.entry(index)
    }

    /// Whether no limit was given.
    pub(crate) fn is_empty(&self) -> bool {
        !self.limits.entries.iter().any(Entry::is_given)
    }

    /// Returns where the next [`add_new_terms`](Self::add_new_terms) will put its terms: in a file, ids may come
    /// before their terms.
    pub(crate) fn next_terms(&self, index: LimitIndex) -> TermsIndex {
        TermsIndex::new(self.limits.entry(index).terms.len())
    }

    /// Adds terms at [`next_terms`](Self::next_terms), without sharing.
    pub(crate) fn add_new_terms(&mut self, index: LimitIndex, new: OverrideTerms) {
        let entry = self.entry_mut(index);
        entry.set_algorithm(new.limit.as_ref());
        entry.terms.push(new);
    }

    /// Adds the names of files, for [`Location`](super::Location). Returns the place of the first.
    #[cfg(feature = "yaml")]
    pub(crate) fn add_files(&mut self, files: &[String]) -> u32 {
        let place = self.files_count();
        self.limits.files.extend_from_slice(files);
        place
    }

    /// Returns the number of files that have given limits.
    pub(crate) fn files_count(&self) -> u32 {
        u32::try_from(self.limits.files.len()).unwrap_or(u32::MAX)
    }

    /// Returns the name of a file; `None` for a place that no file has.
    pub(crate) fn file(&self, place: u32) -> Option<&str> {
        self.limits.files.get(place as usize).map(String::as_str)
    }

    /// Sets where a file gives the default of a limit.
    pub(crate) fn set_location(&mut self, index: LimitIndex, location: SourceLine) {
        self.entry_mut(index).location = Some(location);
    }
}

impl Entry {
    pub(super) fn set_algorithm(&mut self, limit: Option<&Limit>) {
        self.algorithm = self.algorithm.or(limit.map(Limit::algorithm));
    }

    fn check_algorithm(&self, limit: Option<&Limit>) -> Result<(), String> {
        if let Some(text) = limit.and_then(|limit| unshareable(limit.algorithm(), &self.options)) {
            return Err(text);
        }
        match (limit.map(Limit::algorithm), self.algorithm) {
            (Some(new), Some(known)) if new != known => Err(format!(
                "numbers of {new} for {}, which has numbers of {known}: a limit has one algorithm",
                self.name
            )),
            _ => Ok(()),
        }
    }
}

fn algorithm_error(text: String) -> Error {
    Error::new(ErrorKind::Limit, text)
}

fn limit_error(fault: LimitFault) -> Error {
    Error::new(ErrorKind::Limit, fault.message)
}
