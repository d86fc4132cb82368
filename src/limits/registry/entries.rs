//! Gives reports access to limits and overrides, and to the lines that they were given on.

use std::fmt;
use std::time::SystemTime;

use super::{Entry, Limits, Override, OverrideTerms, SourceLine, SourcePath};
use crate::error::Error;
use crate::limit::Limit;
#[cfg(feature = "serde")]
use crate::limits::LimitOptions;
use crate::limits::expiry::seconds;
use crate::limits::options::Note;
use crate::limits::{Id, IdFormat, LimitMode, Scratch, format};
use crate::store::key::{LimitIndex, OwnedId};
use crate::util::escape::Escaped;

/// A file, as the caller named it, and a line of it, from 1. Its text is `file:line`.
///
/// # Example
///
/// ```
/// # #[cfg(feature = "yaml")] {
/// # use tollgate::Limits;
/// let text = "PerUser: {burst: 20, count: 10, period: 1s, id: string}\n\
///             PerUser:alice: {burst: 40, count: 10, period: 1s}\n";
/// let limits = Limits::from_yaml(text)?;
/// let alice = limits.limit("PerUser")?.override_of("alice")?.expect("it was given");
/// assert_eq!(alice.location().map(|location| location.line), Some(2));
/// # }
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Location {
    /// The file.
    pub file: String,
    /// The line.
    pub line: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Escaped(&self.file), self.line)
    }
}

/// One named limit of [`Limits`]: its default with its options, and its overrides.
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
/// let per_user = limits.limit("PerUser")?;
/// assert_eq!(per_user.default_limit().map(Limit::burst), Some(2));
/// assert_eq!(per_user.algorithm(), Some("gcra"));
/// assert_eq!(per_user.overrides().len(), 1);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct LimitEntry<'a> {
    limits: &'a Limits,
    index: LimitIndex,
}

/// One override of a limit: see the example of [`OverrideOptions`](crate::limits::OverrideOptions).
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limits};
/// let limits = Limits::builder()
///     .limit("PerUser", IdFormat::String, None)?
///     .override_id("PerUser", "alice", Limit::new(9, 1, Duration::from_secs(1))?)?
///     .build();
/// let given = limits.limit("PerUser")?.overrides().next().expect("alice's");
/// assert_eq!((given.id(), given.limit().map(Limit::burst)), ("alice".into(), Some(9)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct OverrideEntry<'a> {
    limit: LimitEntry<'a>,
    id: &'a OwnedId,
    given: Override,
}

impl Limits {
    /// Returns all limits that were given, in the order of [`names`](Limits::names).
    ///
    /// # Example: the owner of each override
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limits};
    /// use tollgate::limits::OverrideOptions;
    ///
    /// let minute = Duration::from_secs(60);
    /// let sales = OverrideOptions::default().owner("sales");
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, Limit::new(20, 60, minute)?)?
    ///     .override_with("PerUser", "alice", Limit::new(200, 600, minute)?, sales)?
    ///     .build();
    /// for limit in limits.entries() {
    ///     for given in limit.overrides() {
    ///         let text = format!("{}:{} {:?}", limit.name(), given.id(), given.owner());
    ///         assert_eq!(text, "PerUser:alice Some(\"sales\")");
    ///     }
    /// }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn entries(&self) -> impl Iterator<Item = LimitEntry<'_>> {
        let given = self.by_index().filter(|(_, entry)| entry.is_given());
        given.map(|(index, _)| LimitEntry { limits: self, index })
    }

    /// Returns the limit of a name: see the example of [`LimitEntry`]. Boulder's names are known even if nothing was
    /// given for them.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for an unknown name.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?.build();
    /// assert_eq!(limits.limit("PerUser")?.format(), IdFormat::String);
    /// assert!(limits.limit("PerUsr").unwrap_err().is_invalid_name());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limit(&self, name: &str) -> Result<LimitEntry<'_>, Error> {
        Ok(LimitEntry { limits: self, index: self.index_of(name)? })
    }

    /// Returns the location that is shown for a line; `None` for an entry made in code.
    pub(super) fn location(&self, at: SourceLine) -> Option<Location> {
        let file = self.files.get(at.source as usize)?;
        // Code or a section can add entries to a file's limits. Such entries have no line.
        (at.line > 0).then(|| Location { file: file.clone(), line: at.line })
    }
}

impl<'a> LimitEntry<'a> {
    pub(super) fn entry(&self) -> &'a Entry {
        self.limits.entry(self.index)
    }

    /// Returns the limit's name.
    pub fn name(&self) -> &'a str {
        &self.entry().name
    }

    /// Returns the format of its ids.
    pub fn format(&self) -> IdFormat {
        self.entry().format
    }

    /// Returns the name of its algorithm: see [`Limit::algorithm`]. `None` if neither a default nor an override sets it.
    pub fn algorithm(&self) -> Option<&'static str> {
        self.entry().algorithm
    }

    /// Returns the default, which applies to ids without an override; `None` is no limit.
    pub fn default_limit(&self) -> Option<&'a Limit> {
        self.entry().default.as_ref()
    }

    /// Whether the limit was switched off. It then limits no id and has no overrides.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?.disable("PerUser")?.build();
    /// assert!(limits.limit("PerUser")?.is_disabled());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_disabled(&self) -> bool {
        self.entry().is_disabled
    }

    /// Whether a default was given, also if it is no limit.
    pub(in crate::limits) fn has_default(&self) -> bool {
        self.entry().has_default
    }

    /// Returns whether the limit denies calls, or only counts those that it would deny.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::{LimitMode, LimitOptions};
    /// # use tollgate::{IdFormat, Limit, Limits};
    /// # let limit = Limit::new(5, 1, std::time::Duration::from_secs(1))?;
    /// let tried = LimitOptions::default().mode(LimitMode::Shadow);
    /// let limits = Limits::builder().limit_with("PerUser", IdFormat::String, limit, tried)?.build();
    /// assert_eq!(limits.limit("PerUser")?.mode(), LimitMode::Shadow);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn mode(&self) -> LimitMode {
        self.entry().options.mode
    }

    /// Returns the options that were given with the default.
    #[cfg(feature = "serde")]
    pub(in crate::limits) fn options(&self) -> &'a LimitOptions {
        &self.entry().options
    }

    /// Returns the shadow limit, which is tried beside the default.
    pub fn shadow(&self) -> Option<&'a Limit> {
        self.entry().options.shadow.as_ref()
    }

    /// Returns the units that a bucket without an override may owe beyond its burst.
    pub fn max_debt(&self) -> u64 {
        self.entry().max_debt_of(None)
    }

    /// Returns the number of buckets that are reserved for the limit; `None` if it has an equal part, and shares the common
    /// ones.
    pub fn max_keys(&self) -> Option<usize> {
        self.entry().options.max_keys
    }

    /// Returns where the default was given; `None` if it was given in code or not at all.
    pub fn location(&self) -> Option<Location> {
        self.limits.location(self.entry().location?)
    }

    /// Returns its overrides in no order, including expired ones.
    pub fn overrides(&self) -> impl ExactSizeIterator<Item = OverrideEntry<'a>> + use<'a> {
        let limit = *self;
        self.entry().overrides.iter().map(move |(id, given)| OverrideEntry {
            limit,
            id,
            given: *given,
        })
    }

    /// Returns the override of this id, expired or not, but not that of the id's account or of a network around it. The id is
    /// read as a call's: an override for a name below a registered domain, which applies to no call, is not found. Under
    /// `ipAddress` it may be a network, such as `10.0.0.0/8`.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`] for an id that does not have the limit's format.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?;
    /// let limits = limits.override_id("PerUser", "alice", None)?.build();
    /// assert!(limits.limit("PerUser")?.override_of("alice")?.is_some());
    /// assert!(limits.limit("PerUser")?.override_of("bob")?.is_none());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn override_of<'i>(
        &self,
        id: impl Into<Id<'i>>,
    ) -> Result<Option<OverrideEntry<'a>>, Error> {
        let mut scratch = Scratch::new();
        let id = format::encode_id_or_network(self.format(), id.into(), &mut scratch)?;
        Ok(self.override_at(id))
    }

    /// Returns the override here of the same id as `other`, which may be of other [`Limits`]. `None` if there is none, or
    /// if the formats of the ids differ.
    ///
    /// # Example: overrides that a new version of the limits removes
    ///
    /// ```
    /// use tollgate::{IdFormat, Limits};
    ///
    /// let limits = |ids: &[&str]| {
    ///     let builder = Limits::builder().limit("PerUser", IdFormat::String, None)?;
    ///     let add = |builder: tollgate::limits::LimitsBuilder, id: &&str| builder.override_id("PerUser", *id, None);
    ///     ids.iter().try_fold(builder, add).map(|builder| builder.build())
    /// };
    /// let (old, new) = (limits(&["alice", "bob"])?, limits(&["bob"])?);
    /// let (old, new) = (old.limit("PerUser")?, new.limit("PerUser")?);
    /// let removed = old.overrides().filter(|given| new.override_like(given).is_none());
    /// assert_eq!(removed.map(|given| given.id()).collect::<Vec<_>>(), ["alice"]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn override_like(&self, other: &OverrideEntry<'_>) -> Option<OverrideEntry<'a>> {
        if self.format() != other.limit.format() {
            return None;
        }
        self.override_at(other.id_bytes())
    }

    /// Returns this limit's override of the account to which `other`'s id belongs. `other` may be of other [`Limits`]. `None` if there is
    /// none, if the id has no account, or if the formats differ.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "boulder")] {
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerName", IdFormat::RegIdDomain, None)?;
    /// let limits = limits.override_id("PerName", 7, None)?.override_id("PerName", (7, "example.com"), None)?;
    /// let limits = limits.build();
    /// let names = limits.limit("PerName")?;
    /// let of_name = names.override_of((7, "example.com"))?.expect("it was given");
    /// assert_eq!(names.override_of_account(&of_name).map(|given| given.id()).as_deref(), Some("7"));
    /// # }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn override_of_account(&self, other: &OverrideEntry<'_>) -> Option<OverrideEntry<'a>> {
        if self.format() != other.limit.format() {
            return None;
        }
        self.override_at(format::account_of(self.format(), other.id_bytes())?)
    }

    /// Returns the override of an id in normal form.
    pub(super) fn override_at(&self, id: &[u8]) -> Option<OverrideEntry<'a>> {
        let (id, given) = self.entry().overrides.get_key_value(id)?;
        Some(OverrideEntry { limit: *self, id, given: *given })
    }
}

impl<'a> OverrideEntry<'a> {
    pub(super) fn terms(&self) -> Option<&'a OverrideTerms> {
        self.limit.entry().terms.get(self.given.terms.0 as usize)
    }

    /// Returns the limit that the override belongs to.
    pub fn limit_entry(&self) -> LimitEntry<'a> {
        self.limit
    }

    /// Returns the id in normal form. Of a set of identifiers it is the hash.
    pub fn id(&self) -> String {
        format::decode(self.limit.format(), self.id_bytes())
    }

    /// Whether the id is an account, so that the override applies to all of the account's ids that have none themselves.
    ///
    /// # Example
    ///
    /// ```
    /// # #[cfg(feature = "boulder")] {
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerName", IdFormat::RegIdDomain, None)?;
    /// let limits = limits.override_id("PerName", 7, None)?.override_id("PerName", (7, "example.com"), None)?;
    /// let of_accounts = limits.build().limit("PerName")?.overrides().filter(|given| given.is_of_account()).count();
    /// assert_eq!(of_accounts, 1);
    /// # }
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn is_of_account(&self) -> bool {
        format::is_account(self.limit.format(), self.id_bytes())
    }

    /// Returns the id's limit; `None` is no limit.
    pub fn limit(&self) -> Option<&'a Limit> {
        self.terms()?.limit.as_ref()
    }

    /// Returns the units that the bucket may owe beyond its burst: the override's, else the default's.
    pub fn max_debt(&self) -> u64 {
        self.terms().map_or(0, |terms| self.limit.entry().max_debt_of(Some(terms)))
    }

    /// Returns the debt that was given with the override; `None` if the default's applies.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::limits::OverrideOptions;
    /// # use tollgate::{IdFormat, Limit, Limits};
    /// # let limit = |burst| Limit::new(burst, 1, std::time::Duration::from_secs(1));
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, limit(5)?)?
    ///     .override_with("PerUser", "alice", limit(9)?, OverrideOptions::default().max_debt(3))?
    ///     .override_id("PerUser", "bob", limit(9)?)?
    ///     .build();
    /// let debt = |id| limits.limit("PerUser")?.override_of(id).map(|given| given.and_then(|it| it.own_max_debt()));
    /// assert_eq!((debt("alice")?, debt("bob")?), (Some(3), None));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn own_max_debt(&self) -> Option<u64> {
        self.terms()?.max_debt
    }

    /// Returns the comment: why the override is there.
    pub fn comment(&self) -> Option<&'a str> {
        self.notes().find_map(|note| note.comment.as_deref())
    }

    /// Returns the owner: whom to ask about the override.
    pub fn owner(&self) -> Option<&'a str> {
        self.notes().find_map(|note| note.owner.as_deref())
    }

    /// Returns the time from which the override does not apply; `None` if it does not end.
    pub fn expires(&self) -> Option<SystemTime> {
        self.terms()?.expires.time()
    }

    /// Returns the last day, in UTC, on which the override applies, such as `2026-12-31`. If it ends at
    /// another time than midnight, it is the day and the time of the end.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, UNIX_EPOCH};
    /// # use tollgate::limits::OverrideOptions;
    /// # use tollgate::{IdFormat, Limits};
    /// let end = UNIX_EPOCH + Duration::from_secs(1_798_761_600); // 2027-01-01T00:00:00Z
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, None)?
    ///     .override_with("PerUser", "alice", None, OverrideOptions::default().expires(end))?
    ///     .build();
    /// let alice = limits.limit("PerUser")?.override_of("alice")?.expect("it was given");
    /// assert_eq!(alice.last_day().as_deref(), Some("2026-12-31"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn last_day(&self) -> Option<String> {
        let expires = self.terms()?.expires;
        expires.time().map(|_| expires.to_string())
    }

    /// Whether the override has ended by `now`. For calls, an ended override is absent.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.terms().is_some_and(|terms| terms.expires.is_over(seconds(now)))
    }

    /// Returns where the override was given; `None` if it was given in code.
    pub fn location(&self) -> Option<Location> {
        self.limit.limits.location(self.source_line())
    }

    /// Returns the place by which overrides are sorted: files in the loader's order, then lines.
    pub(super) fn source_line(&self) -> SourceLine {
        let source = self.terms().map_or(SourcePath::IN_CODE, |terms| terms.path.source).into();
        SourceLine { source, line: self.given.line }
    }

    /// Returns the id in normal form, as bytes.
    pub(in crate::limits) fn id_bytes(&self) -> &'a [u8] {
        self.id.as_bytes()
    }

    /// Returns the id's own note, then its list's.
    fn notes(&self) -> impl Iterator<Item = &'a Note> {
        let own = self.limit.entry().notes.get(self.id_bytes());
        let shared = self.terms().and_then(|terms| terms.note.as_ref());
        own.into_iter().chain(shared).map(|note| &**note)
    }
}

impl fmt::Debug for LimitEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LimitEntry({})", self.name())
    }
}

impl fmt::Debug for OverrideEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OverrideEntry({}:{})", self.limit.name(), Escaped(&self.id()))
    }
}
