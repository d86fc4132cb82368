//! The registry: finds the limit that applies to an id, which is that of the most specific override or the default.

mod builder;
mod entries;
mod explain;
mod floors;
mod generation;
mod lookup;
mod networks;
mod parts;
#[cfg(feature = "snapshot")]
pub(crate) mod persisted;
mod removal;
mod shadow;
#[cfg(feature = "valkey")]
mod sharing;
#[cfg(not(feature = "valkey"))]
#[path = "no_sharing.rs"]
mod sharing;
#[cfg(all(feature = "valkey", any(feature = "yaml", feature = "serde")))]
mod sharing_warnings;
mod similar_ids;
mod terms;
#[cfg(any(feature = "yaml", feature = "serde"))]
mod warnings;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use crate::algorithm::gcra::Gcra;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;
use crate::limits::expiry::{Expiry, seconds};
use crate::limits::options::Note;
use crate::limits::{Id, IdFormat, LimitOptions, Scratch, StoreOptions, format, names};
use crate::store::key::{KeyRef, LimitIndex, LimitTag, OwnedId, Quick, Stamp};

pub use builder::LimitsBuilder;
pub use entries::{LimitEntry, Location, OverrideEntry};
pub(crate) use generation::OverrideById;
pub(crate) use lookup::{Applying, BEFORE_ALL_ENDS_NS};
use networks::{NetworkOf, Networks};
pub(crate) use removal::LimitUse;
#[cfg(any(feature = "yaml", feature = "serde"))]
pub(crate) use sharing::sharing_faults;
#[cfg(any(feature = "yaml", feature = "serde"))]
pub(crate) use terms::check_options;
pub(crate) use terms::{OverrideTerms, SourceLine, SourcePath};
#[cfg(any(feature = "yaml", feature = "serde"))]
pub use warnings::{Warning, WarningKind, Warnings};

/// All limits that a [`Limiter`](crate::Limiter) knows by name: the format of each limit's ids, its default, and its
/// overrides, which apply to single ids instead.
///
/// With the feature `boulder`, Boulder's names are always known; until one is given a default or an override, it
/// limits nothing. A call's look-up costs an index into an array and, where the limit has overrides, a hash of the id, of
/// its account, and of the networks around it.
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
/// assert_eq!(limits.overrides(), 1);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    entries: Vec<Entry>,
    by_name: HashMap<Box<str>, LimitIndex>,
    /// Whether a bucket's word tells without the limit that it is full: every limit is of gcra, and no override ends.
    word_tells_full: bool,
    /// Whether any override ends at some time.
    has_ends: bool,
    /// A reading of the limiter's clock and one of the system's, taken together. `None` outside a limiter.
    clocks: Option<(u64, SystemTime)>,
    /// The names of the files that the limits come from, in the loader's order; empty if they were made in code.
    files: Vec<String>,
    store: Option<StoreOptions>,
    /// The number of networks with an override.
    network_count: usize,
}

/// A named limit: its default and its overrides.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    /// The common part of this limit's tags, in the generation that these limits belong to.
    stamp: Stamp,
    /// The stamp's part that the fast path compares; [`Quick::NEVER`] if a call has more to do than to charge one
    /// bucket, so that it takes the slow path.
    quick: Quick,
    /// The default, if it is all that the fast path needs to know.
    quick_default: QuickDefault,
    /// The limit without a public name that is the default's shadow.
    shadow: Option<LimitIndex>,
    pub(crate) format: IdFormat,
    pub(crate) default: Option<Limit>,
    /// Whether a default was given. It may be `None`, which limits nothing.
    has_default: bool,
    /// Whether the limit was switched off. `build` then removes its default and overrides.
    pub(crate) is_disabled: bool,
    /// The algorithm, once a default or an override has set it. A limit has one only, because a bucket's word may pass
    /// from the default to an override.
    pub(crate) algorithm: Option<&'static str>,
    /// By id in normal form.
    overrides: HashMap<OwnedId, Override>,
    /// The terms that overrides point to: a file gives many ids the same terms.
    terms: Vec<OverrideTerms>,
    /// For each of `terms`, when it ends in ns since the clock's origin; empty if none ends.
    ends_ns: Vec<u64>,
    /// The options of the default. No request reads them.
    pub(crate) options: LimitOptions,
    /// Where a file gives the default.
    location: Option<SourceLine>,
    /// The number of the generation since which the name has its index.
    since: u64,
    /// The number of the generation since which this entry has given every id the same limit. If an override has an end, it
    /// is the number of this generation.
    pub(crate) unchanged_since: u64,
    /// Comments and owners of single ids, by id in normal form. Those of a whole list are in its terms.
    notes: HashMap<OwnedId, Arc<Note>>,
    /// The networks among `overrides`, if there are any. The limit's calls then take the slow path.
    networks: Option<Box<Networks>>,
    /// If this is the hidden limit of a network: the public limit that has the network's override.
    network_of: Option<NetworkOf>,
}

/// A default of gcra as the fast path reads it: with one comparison, from neighbouring fields.
#[derive(Clone, Copy, Debug)]
struct QuickDefault {
    /// The low half of the tags of cells whose words are counted in the default's units.
    tag: Quick,
    gcra: Gcra,
}

impl QuickDefault {
    const NONE: QuickDefault = QuickDefault { tag: Quick::NEVER, gcra: Gcra::new(1, 1, 1) };
}

/// The override of one id. It has 32 bytes with its id, because files have millions.
#[derive(Clone, Copy, Debug)]
struct Override {
    terms: TermsIndex,
    line: u32,
}

const _: () = assert!(size_of::<(OwnedId, Override)>() <= 32);

/// A place in [`Entry::terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TermsIndex(u32);

impl TermsIndex {
    /// # Panics
    ///
    /// Panics if a limit has more terms than a tag has room for, 536 million. Only a file of as many lines has that many.
    fn new(at: usize) -> TermsIndex {
        assert!(
            at < LimitTag::MAX_TERMS,
            "a limit has at most {} different overrides",
            LimitTag::MAX_TERMS
        );
        TermsIndex(at as u32)
    }

    /// The place `count` after this one.
    #[cfg(any(feature = "yaml", feature = "serde"))]
    pub(crate) fn after(self, count: u32) -> TermsIndex {
        TermsIndex(self.0.saturating_add(count))
    }
}

/// Whether this is the name of a shadow or of a network's limit, which callers do not see.
fn is_hidden(name: &str) -> bool {
    shadow::is_name(name) || networks::is_name(name)
}

/// A limit that limits nothing.
static UNNAMED: LazyLock<Entry> = LazyLock::new(Entry::unnamed);

impl Limits {
    /// Returns a builder without limits.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?.build();
    /// assert!(limits.limit("PerUser").is_ok());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn builder() -> LimitsBuilder {
        LimitsBuilder::new()
    }

    /// Returns the names of all limits that were given, also of those without a default and of disabled ones, in the
    /// order in which they were given, Boulder's first. After a reload, names that were known before keep their places.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?.build();
    /// assert_eq!(limits.names().collect::<Vec<_>>(), ["PerUser"]);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|entry| entry.is_given()).map(|entry| &*entry.name)
    }

    /// Returns the number of overrides of all limits.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::{IdFormat, Limits};
    /// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?;
    /// assert_eq!(limits.override_id("PerUser", "alice", None)?.build().overrides(), 1);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn overrides(&self) -> usize {
        self.entries.iter().map(|entry| entry.overrides.len()).sum()
    }

    /// Returns the limit that applies to `id` under the name `name`: that of the most specific override, else the
    /// default. `None` is no limit. Ends of overrides are not considered: see [`valid_at`](Limits::valid_at).
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_name`] for an unknown name, [`Error::is_invalid_id`] for an id that does not have the
    /// limit's format.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{IdFormat, Limit, Limits};
    ///
    /// let per_second = |burst| Limit::new(burst, 1, Duration::from_secs(1));
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, per_second(2)?)?
    ///     .override_id("PerUser", "alice", per_second(9)?)?
    ///     .build();
    /// assert_eq!(limits.limit_for("PerUser", "alice")?, Some(per_second(9)?));
    /// assert_eq!(limits.limit_for("PerUser", "bob")?, Some(per_second(2)?));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn limit_for<'a>(&self, name: &str, id: impl Into<Id<'a>>) -> Result<Option<Limit>, Error> {
        let index = self.index_of(name)?;
        let mut scratch = Scratch::new();
        let id = format::encode(self.entry(index).format, id.into(), &mut scratch)?;
        let applying = self.applying(KeyRef { limit: index, id }, BEFORE_ALL_ENDS_NS);
        Ok(applying.map(|applying| applying.limit.clone()))
    }

    /// Returns the limits as they apply at `now`, without ends: expired overrides are removed, and the others stay for
    /// good. Use it to replay recorded traffic against limits.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tollgate::{IdFormat, Limit, Limits};
    /// use tollgate::limits::OverrideOptions;
    ///
    /// let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
    /// let options = OverrideOptions::default().expires(now + minute);
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, Limit::new(20, 60, minute)?)?
    ///     .override_with("PerUser", "alice", Limit::new(200, 600, minute)?, options)?
    ///     .build();
    /// let burst = |limits: &Limits| limits.limit_for("PerUser", "alice").map(|limit| limit.map(|it| it.burst()));
    /// assert_eq!(burst(&limits.clone().valid_at(now))?, Some(200));
    /// assert_eq!(burst(&limits.valid_at(now + 2 * minute))?, Some(20));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn valid_at(mut self, now: SystemTime) -> Limits {
        let now_s = seconds(now);
        for Entry { overrides, terms, .. } in &mut self.entries {
            overrides.retain(|_, given| {
                terms.get(given.terms.0 as usize).is_none_or(|terms| !terms.expires.is_over(now_s))
            });
            terms.iter_mut().for_each(|terms| terms.expires = Expiry::NEVER);
        }
        self.find_networks();
        self
    }

    pub(crate) fn index_of(&self, name: &str) -> Result<LimitIndex, Error> {
        let known = self.by_name.get(name).copied().filter(|_| !is_hidden(name));
        known.ok_or_else(|| {
            let names = self.by_name.keys().map(|name| &**name);
            let mut hint = names::hint(name, names.filter(|name| !is_hidden(name)));
            if hint.is_empty() {
                hint = self.listed();
            }
            Error::new(ErrorKind::Name, format!("unknown limit {name:?}{hint}"))
        })
    }

    /// Returns `; the limits are ...` with the first names that were given, for messages about a name that is near none.
    #[cold]
    fn listed(&self) -> String {
        const MAX_LISTED: usize = 10;
        let listed: Vec<&str> = self.names().take(MAX_LISTED).collect();
        let more = match self.names().count() - listed.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        match &*listed {
            [] => String::new(),
            listed => format!("; the limits are {}{more}", listed.join(", ")),
        }
    }

    /// Returns a limit by its index. A limit that a later reload adds is not there yet, and limits nothing.
    #[inline(always)]
    pub(crate) fn entry(&self, index: LimitIndex) -> &Entry {
        match self.entries.get(index.0 as usize) {
            Some(entry) => entry,
            None => &UNNAMED,
        }
    }

    /// Returns the limit that had this index in an earlier generation. If a reload has forgotten its name since, another
    /// may have the index: then this one limits nothing.
    pub(crate) fn entry_of(&self, index: LimitIndex, generation: u64) -> &Entry {
        let entry = self.entry(index);
        if entry.since <= generation { entry } else { &UNNAMED }
    }

    /// Returns the number of limits, including those that limit nothing.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }
}

impl Entry {
    /// Whether the limit counts what is in flight. Its calls take the slow path.
    pub(crate) fn counts_in_flight(&self) -> bool {
        self.algorithm == Some(crate::algorithm::rule::Rule::CONCURRENCY)
    }

    /// Makes a limit that has neither a default nor overrides.
    fn empty(name: &str, format: IdFormat) -> Entry {
        Entry {
            name: name.into(),
            stamp: Stamp::new(LimitIndex(0), 0),
            quick: Quick::NEVER,
            quick_default: QuickDefault::NONE,
            shadow: None,
            format,
            default: None,
            has_default: false,
            is_disabled: false,
            algorithm: None,
            overrides: HashMap::default(),
            terms: Vec::new(),
            ends_ns: Vec::new(),
            options: LimitOptions::default(),
            location: None,
            since: 0,
            unchanged_since: 0,
            notes: HashMap::default(),
            networks: None,
            network_of: None,
        }
    }

    /// Makes an empty limit that only takes an index.
    fn unnamed() -> Entry {
        Entry::empty("", IdFormat::String)
    }

    /// Whether the limit was declared, or has an override.
    pub(crate) fn is_given(&self) -> bool {
        self.is_declared() || !self.overrides.is_empty()
    }

    /// Whether the limit has a default, which may be no limit, or was switched off.
    fn is_declared(&self) -> bool {
        self.has_default || self.is_disabled
    }
}
