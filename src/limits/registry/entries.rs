//! The registry as those see it who report on it: its limits, their overrides, and where each was given.

use std::fmt;
use std::time::SystemTime;

use super::terms::{Given, Numbers};
use super::{Entry, Limits, Override};
use crate::error::Error;
use crate::limit::Limit;
use crate::limits::expiry::seconds;
use crate::limits::options::Note;
use crate::limits::{Id, IdFormat, LimitMode, Scratch, format};
use crate::store::key::{LimitIndex, OwnedId};
use crate::util::escape::Escaped;

/// A file, as it was named by the caller, and a line of it, from 1.
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

/// One limit of [`Limits`]: its default, what stands beside it, and its overrides.
#[derive(Clone, Copy)]
pub struct LimitEntry<'a> {
    limits: &'a Limits,
    index: LimitIndex,
}

/// One override of a limit.
#[derive(Clone, Copy)]
pub struct OverrideEntry<'a> {
    of: LimitEntry<'a>,
    id: &'a OwnedId,
    given: Override,
}

impl Limits {
    /// All limits that were given, in the order of [`names`](Limits::names).
    ///
    /// # Example: whom to ask
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
        let indices = (0..).map(LimitIndex);
        let entries = self.entries.iter().zip(indices);
        entries
            .filter(|(entry, _)| entry.is_given())
            .map(|(_, index)| LimitEntry { limits: self, index })
    }

    /// The limit of that name; one of Boulder's is there even if nothing was given for it.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for a name that is not known.
    pub fn limit(&self, name: &str) -> Result<LimitEntry<'_>, Error> {
        Ok(LimitEntry { limits: self, index: self.index_of(name)? })
    }

    /// A line of a file as people read it; `None` for what was given in code.
    pub(super) fn location(&self, given: Given) -> Option<Location> {
        let file = self.file(given.source)?.to_owned();
        Some(Location { file, line: given.line })
    }
}

impl<'a> LimitEntry<'a> {
    fn entry(&self) -> &'a Entry {
        self.limits.entry(self.index)
    }

    /// The limit's name.
    pub fn name(&self) -> &'a str {
        &self.entry().name
    }

    /// How its ids look.
    pub fn format(&self) -> IdFormat {
        self.entry().format
    }

    /// What its numbers are called in files: see [`Limit::algorithm`]. `None` if it has none.
    pub fn algorithm(&self) -> Option<&'static str> {
        self.entry().algorithm
    }

    /// The numbers that apply by default; `None` is no limit.
    pub fn default_numbers(&self) -> Option<&'a Limit> {
        self.entry().default.as_ref()
    }

    /// Whether it was switched off: no limit for anybody, and no overrides.
    pub fn is_disabled(&self) -> bool {
        self.entry().is_disabled
    }

    /// Whether a default was given, be it that there is no limit.
    pub(super) fn has_default(&self) -> bool {
        self.entry().has_default
    }

    /// Whether it denies.
    pub fn mode(&self) -> LimitMode {
        self.entry().terms.options.mode
    }

    /// The numbers that are tried beside those that are enforced.
    pub fn shadow(&self) -> Option<&'a Limit> {
        self.entry().terms.options.shadow.as_ref()
    }

    /// The units that a bucket may owe beyond its burst, where no override applies.
    pub fn max_debt(&self) -> u64 {
        self.entry().max_debt_of(None)
    }

    /// Where the default was given; `None` if it was in code, or not at all.
    pub fn location(&self) -> Option<Location> {
        self.limits.location(self.entry().terms.given?)
    }

    /// Its overrides, in no order; those that have expired, too.
    pub fn overrides(&self) -> impl ExactSizeIterator<Item = OverrideEntry<'a>> + use<'a> {
        let of = *self;
        self.entry().overrides.iter().map(move |(id, given)| OverrideEntry {
            of,
            id,
            given: *given,
        })
    }

    /// The override of this very id, expired or not: not one of the account that it belongs to.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`] for an id that is not of the limit's format.
    pub fn override_of<'i>(
        &self,
        id: impl Into<Id<'i>>,
    ) -> Result<Option<OverrideEntry<'a>>, Error> {
        let mut scratch = Scratch::new();
        let id = format::encode(self.format(), id.into(), &mut scratch)?;
        Ok(self.override_at(id))
    }

    /// The override of the id that another one is of, which may be of other [`Limits`]. `None` if there is
    /// none, or the formats of the ids differ.
    pub fn override_like(&self, other: &OverrideEntry<'_>) -> Option<OverrideEntry<'a>> {
        if self.format() != other.of.format() {
            return None;
        }
        self.override_at(other.id.as_bytes())
    }

    /// The override here of the account that the id of another one belongs to, which may be of other
    /// [`Limits`]. `None` if there is none, the id belongs to no account, or the formats differ.
    pub fn override_of_account(&self, other: &OverrideEntry<'_>) -> Option<OverrideEntry<'a>> {
        if self.format() != other.of.format() {
            return None;
        }
        self.override_at(format::account_of(self.format(), other.id.as_bytes())?)
    }

    /// By the id in normal form.
    pub(super) fn override_at(&self, id: &[u8]) -> Option<OverrideEntry<'a>> {
        let (id, given) = self.entry().overrides.get_key_value(id)?;
        Some(OverrideEntry { of: *self, id, given: *given })
    }
}

impl<'a> OverrideEntry<'a> {
    pub(super) fn record(&self) -> Option<&'a Numbers> {
        self.of.entry().numbers.get(self.given.numbers.0 as usize)
    }

    /// The limit that it is of.
    pub fn limit(&self) -> LimitEntry<'a> {
        self.of
    }

    /// The id in normal form; of a set of identifiers, its hash.
    pub fn id(&self) -> String {
        format::decode(self.of.format(), self.id.as_bytes())
    }

    /// Whether it is of an account, and stands for all of the account's ids that have none themselves.
    pub fn is_of_account(&self) -> bool {
        format::is_account(self.of.format(), self.id.as_bytes())
    }

    /// Its numbers; `None` is no limit.
    pub fn numbers(&self) -> Option<&'a Limit> {
        self.record()?.limit.as_ref()
    }

    /// The units that a bucket may owe beyond its burst: its own, or the limit's.
    pub fn max_debt(&self) -> u64 {
        self.record().map_or(0, |numbers| self.of.entry().max_debt_of(Some(numbers)))
    }

    /// The debt that was given with it, if one was: else it is the limit's.
    pub fn own_max_debt(&self) -> Option<u64> {
        self.record()?.max_debt
    }

    /// Why it is there.
    pub fn comment(&self) -> Option<&'a str> {
        let (own, shared) = self.notes();
        own.and_then(|note| note.comment.as_deref())
            .or(shared.and_then(|note| note.comment.as_deref()))
    }

    /// Whom to ask about it.
    pub fn owner(&self) -> Option<&'a str> {
        let (own, shared) = self.notes();
        own.and_then(|note| note.owner.as_deref()).or(shared.and_then(|note| note.owner.as_deref()))
    }

    /// The time from which it does not apply; `None` if it stays.
    pub fn expires(&self) -> Option<SystemTime> {
        self.record()?.expires.time()
    }

    /// The last day, in UTC, on which it applies, such as `2026-12-31`; where it ends within a day, that
    /// day and the time.
    pub fn last_day(&self) -> Option<String> {
        let expires = self.record()?.expires;
        expires.time().map(|_| expires.to_string())
    }

    /// Whether it has ended by `now`: what applies then is what applies without it.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.record().is_some_and(|numbers| numbers.expires.is_over(seconds(now)))
    }

    /// Where it was given; `None` if it was in code.
    pub fn location(&self) -> Option<Location> {
        self.of.limits.location(self.place())
    }

    /// Where it was given, in the order of the files and their lines.
    pub(super) fn place(&self) -> Given {
        let source = self.record().map_or(0, |numbers| numbers.within.source.into());
        Given { source, line: self.given.line }
    }

    /// The id in normal form as the registry has it.
    pub(super) fn id_bytes(&self) -> &'a [u8] {
        self.id.as_bytes()
    }

    /// What was said of this id, and of all ids of its list.
    fn notes(&self) -> (Option<&'a Note>, Option<&'a Note>) {
        let own = self.of.entry().terms.notes.get(self.id.as_bytes());
        let shared = self.record().and_then(|numbers| numbers.note.as_deref());
        (own.map(|note| &**note), shared)
    }
}

impl fmt::Debug for LimitEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LimitEntry({})", self.name())
    }
}

impl fmt::Debug for OverrideEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OverrideEntry({}:{})", self.of.name(), Escaped(&self.id()))
    }
}
