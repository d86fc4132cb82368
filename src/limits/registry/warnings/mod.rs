//! What is allowed in a file and probably not meant: overrides that have ended, do nothing, or are of ids that
//! look like others.

mod odd;

use std::fmt;
use std::ops::Deref;
use std::time::SystemTime;

use super::Limits;
use super::entries::{Location, OverrideEntry};
use super::terms::Within;
use crate::limit::display::Go;
use crate::limit::{Limit, Parameters};
use crate::limits::expiry::seconds;
use crate::util::escape::Escaped;

/// What an operator may want to look at: nothing is wrong with the limits.
///
/// Its text is one line, in which control characters and characters that are not seen are escaped. The
/// fields have the id as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// What kind it is of.
    pub kind: WarningKind,
    /// Where the override is; `None` if it was given in code.
    pub location: Option<Location>,
    /// The way to it in its file, such as `PerUser:alice`, or `[2].PerUser.ids` for all of a list.
    pub path: String,
    /// The limit's name.
    pub limit: String,
    /// The override's id in normal form.
    pub id: String,
    /// What is to be seen there, with the numbers.
    pub message: String,
}

/// What a [`Warning`] warns of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WarningKind {
    /// `expired`: the override has ended.
    Expired,
    /// `expiring`: it ends within 14 days.
    Expiring,
    /// `equal`: its numbers are the default's.
    Equal,
    /// `stricter`: it has a lower rate or a smaller burst than the default.
    Stricter,
    /// `invisible`: its id has characters that are not seen, or that look like a blank; or a typographic
    /// quotation mark at an end.
    Invisible,
    /// `unnormalized`: its id is another one in Unicode's normal form C or KC, as which it looks the same. (With
    /// the feature `yaml`.)
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

/// What [`Limits::warnings`] has found: the first 1,000, and the number of the rest.
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
    /// The first 1,000, in the order of the files.
    pub listed: Vec<Warning>,
    /// How many there are beyond those.
    pub more: u64,
}

impl Deref for Warnings {
    type Target = [Warning];

    fn deref(&self) -> &[Warning] {
        &self.listed
    }
}

impl IntoIterator for Warnings {
    type Item = Warning;
    type IntoIter = std::vec::IntoIter<Warning>;

    fn into_iter(self) -> Self::IntoIter {
        self.listed.into_iter()
    }
}

impl<'w> IntoIterator for &'w Warnings {
    type Item = &'w Warning;
    type IntoIter = std::slice::Iter<'w, Warning>;

    fn into_iter(self) -> Self::IntoIter {
        self.listed.iter()
    }
}

/// The most warnings that are listed.
const MAX_LISTED: usize = 1_000;

/// How long before its end an override is warned of.
const SOON_S: u64 = 14 * 24 * 60 * 60;

impl Limits {
    /// What is allowed and probably not meant, in the order of the files: overrides that have expired by
    /// `now` or will within 14 days, that equal their default, or are stricter than it; and ids of the format
    /// `string` that look like others: with characters that are not seen, or that another form of Unicode
    /// writes otherwise. Of many, the first 1,000 are listed and the rest counted.
    ///
    /// Looks at every override, in memory for 1,000 of them: not for a request's way.
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
                    first.add(Found { given, kind, text });
                }
            }
        }
        first.into_warnings()
    }
}

/// A warning that is not put into words yet.
struct Found<'l> {
    given: OverrideEntry<'l>,
    kind: WarningKind,
    text: String,
}

impl Found<'_> {
    /// Ids of one line by themselves, so that the order of a hash map does not show.
    fn order(&self) -> impl Ord {
        (self.given.place(), self.given.limit().name(), self.given.id_bytes(), self.kind)
    }
}

/// The first of all that are added, and how many there were.
#[derive(Default)]
struct First<'l> {
    found: Vec<Found<'l>>,
    count: u64,
}

impl<'l> First<'l> {
    fn add(&mut self, found: Found<'l>) {
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
        let mut found = self.odd();
        let Some(record) = self.record() else { return found };
        let now_s = seconds(now);
        if record.expires.is_over(now_s) {
            let rest = self.instead(now);
            let text = format!("expired on {}: {rest} applies", record.expires);
            found.push((WarningKind::Expired, text));
            return found;
        }
        if record.expires.left_s(now_s) <= SOON_S {
            let rest = self.instead(now);
            let text = format!("expires on {}: then {rest} applies", record.expires);
            found.push((WarningKind::Expiring, text));
        }
        if let (Some(own), Some(default)) = (self.numbers(), self.limit().default_numbers()) {
            if own == default && self.max_debt() == self.limit().max_debt() {
                found.push((WarningKind::Equal, format!("equals the default: {own}")));
            }
            let stricter = stricter(own, default);
            if !stricter.is_empty() {
                let text = format!("is stricter than the default: {}", stricter.join("; "));
                found.push((WarningKind::Stricter, text));
            }
        }
        found
    }

    /// What applies where this does not, with its numbers.
    fn instead(&self, now: SystemTime) -> String {
        let limit = self.limit();
        let account = limit.override_of_account(self).filter(|account| !account.is_expired(now));
        let (what, numbers) = match account {
            Some(account) => ("the account's override", account.numbers()),
            None => ("the default", limit.default_numbers()),
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
            limit: self.limit().name().into(),
            message: format!("the override of {id} {text}"),
            id,
        }
    }

    /// The way to it in its file; for an id of a list, the way to the list.
    pub(super) fn path(&self) -> String {
        let within = self.record().map_or_else(Within::default, |numbers| numbers.within);
        let element = match within.element {
            Some(after) => format!("[{}].", after.get() - 1),
            None => String::new(),
        };
        let name = self.limit().name();
        match within.is_listed {
            true => format!("{element}{name}.ids"),
            false => format!("{element}{name}:{}", self.id()),
        }
    }
}

/// In what `own` is stricter than `default`, with both numbers.
fn stricter(own: &Limit, default: &Limit) -> Vec<String> {
    let mut found = Vec::new();
    if own.burst() < default.burst() {
        let word = match own.parameters() {
            Parameters::Gcra { .. } | Parameters::TokenBucket { .. } => "burst",
            Parameters::FixedWindow { .. } => "limit",
            Parameters::LeakyBucket { .. } => "size",
            Parameters::Custom(_) => "largest cost",
        };
        found.push(format!("{word} {} is below {}", own.burst(), default.burst()));
    }
    // Units by each other's time: what a day lets through, without a fraction.
    let in_time_of = |limit: &Limit, other: &Limit| {
        u128::from(limit.count()).saturating_mul(other.period().as_nanos())
    };
    if in_time_of(own, default) < in_time_of(default, own) {
        let rate = |limit: &Limit| format!("{} every {}", limit.count(), Go(limit.period()));
        found.push(format!("rate {} is below {}", rate(own), rate(default)));
    }
    found
}
