//! Warns of overrides that are valid and probably a mistake: they have ended, change nothing, are stricter than the
//! default, leave no units to calls with a priority, have ids that look like others, are for one IPv6 address, or for a name below a registered domain. Warns of shared
//! limits that calls cannot use, or not in full.

#[cfg(feature = "boulder")]
mod below_domain;
mod floors;
mod one_address;
mod unusual_ids;

use std::fmt;
use std::ops::Deref;
use std::time::SystemTime;

use super::Limits;
use super::entries::{Location, OverrideEntry};
use crate::limit::Limit;
use crate::limit::display::Go;
use crate::limits::expiry::seconds;
use crate::util::escape::Escaped;

/// A valid override that is probably a mistake: see the example of [`Limits::warnings`].
///
/// Its text is one line, with control characters and invisible characters escaped. The fields have the id as it is.
///
/// # Example
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// # use tollgate::{IdFormat, Limit, Limits};
/// let limit = Limit::new(20, 60, Duration::from_secs(60))?;
/// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit.clone())?;
/// let limits = limits.override_id("PerUser", "alice", limit)?.build();
/// let warning = &limits.warnings(SystemTime::now())[0];
/// assert_eq!((&*warning.path, &*warning.id), ("PerUser:alice", "alice"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The kind.
    pub kind: WarningKind,
    /// Where the override was given; `None` if it was given in code.
    pub location: Option<Location>,
    /// The path in the file, such as `PerUser:alice`, or `[2].PerUser.ids` for all ids of a list.
    pub path: String,
    /// The limit's name.
    pub limit: String,
    /// The override's id in normal form.
    pub id: String,
    /// The reason, with the limits.
    pub message: String,
}

/// The kind of a [`Warning`]. Its text is the name in backquotes.
///
/// # Example
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// # use tollgate::limits::WarningKind;
/// # use tollgate::{IdFormat, Limit, Limits};
/// let limit = Limit::new(20, 60, Duration::from_secs(60))?;
/// let limits = Limits::builder().limit("PerUser", IdFormat::String, limit.clone())?;
/// let limits = limits.override_id("PerUser", "alice", limit)?.build();
/// let warnings = limits.warnings(SystemTime::now());
/// assert!(warnings.iter().all(|warning| warning.kind == WarningKind::Equal));
/// assert_eq!(warnings.len(), 1);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WarningKind {
    /// `expired`: the override has ended.
    Expired,
    /// `expiring`: it ends within 14 days.
    Expiring,
    /// `equal`: it equals the default.
    Equal,
    /// `stricter`: it has a lower rate or a smaller burst than the default.
    Stricter,
    /// `invisible`: its id has characters that are invisible or look like a blank, or begins or ends with a typographic
    /// quotation mark.
    Invisible,
    /// `no-store`: a limit is shared, and the limits have no store. `id` is empty.
    NoStore,
    /// `leased`: a limit is leased, and has a `max_debt`, which only estimates use, or a key of Boulder's, which cannot read
    /// leases. `id` is empty.
    Leased,
    /// `one-address`: its id is one IPv6 address, and the HTTP layer counts clients by their networks. Calls with the address
    /// itself find it, and so does a layer with `ClientAddress::ipv6_prefix(128)`.
    OneAddress,
    /// `floor`: a floor in units is not below its burst, so calls with that [priority](crate::KeyedLimit::priority) fail.
    Floor,
    /// `below-domain`: its id is a name below a registered domain, under a limit that counts by the domain, so it applies to no
    /// call. Boulder takes such an entry, too.
    BelowDomain,
    /// `unnormalized`: Unicode's normal form C or KC of its id, which looks the same, is another id. Needs the feature
    /// `boulder`, which `tollgate validate` has.
    Unnormalized,
}

impl fmt::Display for WarningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WarningKind::Expired => "expired",
            WarningKind::Expiring => "expiring",
            WarningKind::Equal => "equal",
            WarningKind::Stricter => "stricter",
            WarningKind::Invisible => "invisible",
            WarningKind::NoStore => "no-store",
            WarningKind::Leased => "leased",
            WarningKind::OneAddress => "one-address",
            WarningKind::Floor => "floor",
            WarningKind::BelowDomain => "below-domain",
            WarningKind::Unnormalized => "unnormalized",
        })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        write!(f, "{}: {}", Escaped(&self.path), Escaped(&self.message))
    }
}

/// The warnings of [`Limits::warnings`]: the first 1,000, and the number of the rest.
///
/// # Example
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tollgate::{IdFormat, Limit, Limits};
///
/// let limit = Limit::new(20, 60, Duration::from_secs(60))?;
/// let mut limits = Limits::builder().limit("PerUser", IdFormat::String, limit.clone())?;
/// for id in 0..1_500u64 {
///     limits = limits.override_id("PerUser", id, limit.clone())?; // each equals the default
/// }
/// let warnings = limits.build().warnings(SystemTime::now());
/// assert_eq!((warnings.listed.len(), warnings.more), (1_000, 500));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warnings {
    /// The first 1,000 warnings, in the order of the files.
    pub listed: Vec<Warning>,
    /// The number of further warnings.
    pub more: u64,
}

impl Deref for Warnings {
    type Target = [Warning];

    fn deref(&self) -> &[Warning] {
        &self.listed
    }
}

const MAX_LISTED: usize = 1_000;

/// How long before its end an override gets a warning.
const SOON_S: u64 = 14 * 24 * 60 * 60;

impl Limits {
    /// Warns of overrides that are valid and probably a mistake, in the order of the files.
    ///
    /// These are overrides that have expired by `now` or will within 14 days, that equal the default, or are stricter
    /// than it; and ids of the format `string` that look like other ids, because they have invisible characters or are
    /// not in a normal form of Unicode; and overrides for one IPv6 address, which the HTTP layer does not look for, or for a name
    /// below a registered domain, which no call has. So does a shared limit without a store, and a leased one with a field that
    /// leases do not go with. The first 1,000 warnings of overrides are listed, the rest is counted.
    ///
    /// It looks at every override, so do not call it for each request. It needs memory for 2,000 warnings. It exists with the
    /// feature `yaml` or `serde`.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tollgate::{IdFormat, Limit, Limits};
    ///
    /// let minute = Duration::from_secs(60);
    /// let limits = Limits::builder()
    ///     .limit("PerUser", IdFormat::String, Limit::new(20, 60, minute)?)?
    ///     .override_id("PerUser", "alice", Limit::new(20, 30, minute)?)?
    ///     .build();
    /// let warnings = limits.warnings(SystemTime::now());
    /// assert_eq!(
    ///     warnings[0].to_string(),
    ///     "PerUser:alice: the override of alice is stricter than the default: rate 30 every 1m is below 60 every 1m"
    /// );
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn warnings(&self, now: SystemTime) -> Warnings {
        let mut first = First::default();
        for limit in self.entries() {
            for given in limit.overrides() {
                for (kind, text) in given.warnings(now) {
                    first.add(OverrideWarning { given, kind, text });
                }
            }
        }
        let warnings = first.into_warnings();
        Warnings { listed: self.warnings_of_sharing().chain(warnings.listed).collect(), ..warnings }
    }
}

/// A warning before its message is composed.
struct OverrideWarning<'l> {
    given: OverrideEntry<'l>,
    kind: WarningKind,
    text: String,
}

impl OverrideWarning<'_> {
    /// The sort key: the line, and on one line the id, so that the order of a hash map does not show.
    fn order(&self) -> impl Ord {
        (
            self.given.source_line(),
            self.given.limit_entry().name(),
            self.given.id_bytes(),
            self.kind,
        )
    }
}

/// Keeps the first warnings, by their order, and counts all.
#[derive(Default)]
struct First<'l> {
    found: Vec<OverrideWarning<'l>>,
    count: u64,
}

impl<'l> First<'l> {
    fn add(&mut self, found: OverrideWarning<'l>) {
        self.count += 1;
        self.found.push(found);
        if self.found.len() >= 2 * MAX_LISTED {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.found.sort_by(|a, b| a.order().cmp(&b.order()));
        self.found.truncate(MAX_LISTED);
    }

    fn into_warnings(mut self) -> Warnings {
        self.cut();
        let more = self.count - self.found.len() as u64;
        let listed = self.found.into_iter().map(|it| it.given.warning(it.kind, it.text)).collect();
        Warnings { listed, more }
    }
}

impl OverrideEntry<'_> {
    fn warnings(&self, now: SystemTime) -> Vec<(WarningKind, String)> {
        let mut found = self.unusual_id();
        found.extend(self.one_address().map(|text| (WarningKind::OneAddress, text)));
        #[cfg(feature = "boulder")]
        found.extend(self.below_domain().map(|text| (WarningKind::BelowDomain, text)));
        let Some(terms) = self.terms() else { return found };
        let now_s = seconds(now);
        if terms.expires.is_over(now_s) {
            let rest = self.instead(now);
            let text = format!("expired on {}: {rest} applies", terms.expires);
            found.push((WarningKind::Expired, text));
            return found;
        }
        if terms.expires.left_s(now_s) <= SOON_S {
            let rest = self.instead(now);
            let text = format!("expires on {}: then {rest} applies", terms.expires);
            found.push((WarningKind::Expiring, text));
        }
        if let (Some(own), Some(default)) = (self.limit(), self.limit_entry().default_limit()) {
            if own == default && self.max_debt() == self.limit_entry().max_debt() {
                found.push((WarningKind::Equal, format!("equals the default: {own}")));
            }
            let stricter = stricter(own, default);
            if !stricter.is_empty() {
                let text = format!("is stricter than the default: {}", stricter.join("; "));
                found.push((WarningKind::Stricter, text));
            }
            found.extend(self.above_burst().map(|text| (WarningKind::Floor, text)));
        }
        found
    }

    /// Names the limit that applies once this override has ended.
    fn instead(&self, now: SystemTime) -> String {
        let limit = self.limit_entry();
        let account = limit.override_of_account(self).into_iter();
        let mut around = account.chain(limit.overrides_around_id(self.id_bytes()));
        let (what, numbers) = match around.find(|given| !given.is_expired(now)) {
            Some(network) if network.is_of_network() => {
                (format!("the override of {}", network.id()), network.limit())
            }
            Some(account) => ("the account's override".into(), account.limit()),
            None => ("the default".into(), limit.default_limit()),
        };
        match numbers {
            Some(numbers) => format!("{what}, {numbers},"),
            None => "no limit".into(),
        }
    }

    fn warning(&self, kind: WarningKind, text: String) -> Warning {
        let id = self.id();
        Warning {
            kind,
            location: self.location(),
            path: self.path(),
            limit: self.limit_entry().name().into(),
            message: format!("the override of {id} {text}"),
            id,
        }
    }

    /// Returns the path of the override in its file. For an id in a list, it is the list's path.
    fn path(&self) -> String {
        let path = self.terms().map(|terms| terms.path).unwrap_or_default();
        let element = match path.element {
            Some(after) => format!("[{}].", after.get() - 1),
            None => String::new(),
        };
        let name = self.limit_entry().name();
        match path.is_listed {
            true => format!("{element}{name}.ids"),
            false => format!("{element}{name}:{}", self.id()),
        }
    }
}

/// Lists in what `own` is stricter than `default`, with the values of both.
fn stricter(own: &Limit, default: &Limit) -> Vec<String> {
    let mut found = Vec::new();
    if own.burst() < default.burst() {
        let word = own.parameters().name_of_burst();
        found.push(format!("{word} {} is below {}", own.burst(), default.burst()));
    }
    // Compares count / period exactly, by multiplying each count by the other period.
    let in_time_of = |limit: &Limit, other: &Limit| {
        u128::from(limit.count()).saturating_mul(other.period().as_nanos())
    };
    if in_time_of(own, default) < in_time_of(default, own) {
        let rate = |limit: &Limit| format!("{} every {}", limit.count(), Go(limit.period()));
        found.push(format!("rate {} is below {}", rate(own), rate(default)));
    }
    found
}
