//! The explanation of a call: which entry applies to an id, which do not, and what the bucket answers.

use std::fmt;
use std::time::Duration;

use crate::decision::Decision;
use crate::limit::Limit;
use crate::limits::sharing::Sharing;
use crate::limits::{Floor, IdFormat, LimitMode, Location};

/// Explains which entry of the limits applies to an id, and what its bucket would answer to a call.
///
/// [`Limits::explain`](crate::Limits::explain), which has an example, knows the entries only.
/// [`KeyedLimit::explain`](crate::KeyedLimit::explain) also reads the id's bucket. Neither changes anything.
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::limits::OverrideOptions;
/// # use tollgate::{IdFormat, Limit, Limits};
/// # let limit = |burst| Limit::new(burst, 1, Duration::from_secs(60));
/// let options = OverrideOptions::default().comment("a trial");
/// let limits = Limits::builder()
///     .limit("PerUser", IdFormat::String, limit(2)?)?
///     .override_with("PerUser", "alice", limit(200)?, options)?
///     .build();
/// let explanation = limits.explain("PerUser", "alice", std::time::SystemTime::now())?;
/// assert_eq!(explanation.applies.to_string(), "override");
/// assert_eq!(explanation.comment.as_deref(), Some("a trial"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The limit's name.
    pub name: String,
    /// The id in normal form. With the limit's name it is the bucket's key.
    pub id: String,
    /// The format of the limit's ids.
    pub format: IdFormat,
    /// The kind of entry that applies.
    pub applies: Applies,
    /// The network of that entry, such as `10.0.0.0/8`; `None` if it is not that of a network.
    pub network: Option<String>,
    /// Where that entry was given; `None` if it was given in code, or none applies.
    pub location: Option<Location>,
    /// The limit of that entry; `None` is no limit.
    pub limit: Option<Limit>,
    /// Whether the limit denies calls.
    pub mode: LimitMode,
    #[allow(dead_code, reason = "for shared limits")]
    pub(crate) sharing: Sharing,
    /// The shadow limit. Only a default has one: an override replaces both.
    pub shadow: Option<Limit>,
    /// The units that the bucket may owe beyond its burst.
    pub max_debt: u64,
    /// The floors that calls with a [priority](crate::KeyedLimit::priority) leave, by their names. Of an override's burst if one
    /// applies.
    pub floors: Vec<(String, Floor)>,
    /// The comment of the override that applies.
    pub comment: Option<String>,
    /// The owner of that override.
    pub owner: Option<String>,
    /// The last day, in UTC, on which that override applies, such as `2026-12-31`.
    pub last_day: Option<String>,
    /// Entries that do not apply and that a reader may take for the one that does, at most 8: first less specific and
    /// expired entries, then overrides of similar ids.
    pub near: Vec<NearEntry>,
    /// The answer of the id's bucket, from [`KeyedLimit::explain`](crate::KeyedLimit::explain).
    pub call: Option<ExplainedCall>,
}

/// The kind of entry that applies to an id. Its text is the name in backquotes.
///
/// # Example
///
/// ```
/// # use tollgate::limits::Applies;
/// # use tollgate::{IdFormat, Limits};
/// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?;
/// let limits = limits.override_id("PerUser", "alice", None)?.build();
/// let applies = |id| limits.explain("PerUser", id, std::time::SystemTime::now()).map(|it| it.applies);
/// assert_eq!(applies("alice")?, Applies::Override);
/// assert_eq!(applies("bob")?, Applies::Default);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Applies {
    /// `override`: the id's own override.
    Override,
    /// `account`: the override of the account that the id belongs to.
    Account,
    /// `network`: the override of a network that the address is in, the smallest that has one.
    Network,
    /// `default`: the limit's default.
    Default,
    /// `disabled`: the limit was switched off, for all ids.
    Disabled,
    /// `nothing`: the limit has no default and the id no override, so that no limit applies.
    Nothing,
}

impl fmt::Display for Applies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Applies::Override => "override",
            Applies::Account => "account",
            Applies::Network => "network",
            Applies::Default => "default",
            Applies::Disabled => "disabled",
            Applies::Nothing => "nothing",
        })
    }
}

/// An entry that does not apply to an id, and why.
///
/// # Example
///
/// ```
/// # use tollgate::{IdFormat, Limits};
/// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?;
/// let limits = limits.override_id("PerUser", "alise", None)?.build();
/// let explanation = limits.explain("PerUser", "alice", std::time::SystemTime::now())?;
/// assert_eq!(explanation.near[0].id.as_deref(), Some("alise"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearEntry {
    /// The override's id in normal form; `None` if the entry is the default.
    pub id: Option<String>,
    /// Where the entry was given; `None` if it was given in code.
    pub location: Option<Location>,
    /// The limit of the entry; `None` is no limit.
    pub limit: Option<Limit>,
    /// Why the entry does not apply.
    pub why: WhyNot,
}

/// Why an entry does not apply to an id. Its text is a sentence for people.
///
/// # Example
///
/// ```
/// # use tollgate::limits::WhyNot;
/// # use tollgate::{IdFormat, Limits};
/// let limits = Limits::builder().limit("PerUser", IdFormat::String, None)?;
/// let limits = limits.override_id("PerUser", "Alice", None)?.build();
/// let explanation = limits.explain("PerUser", "alice", std::time::SystemTime::now())?;
/// assert_eq!(explanation.near[0].why, WhyNot::Case);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNot {
    /// The entry expired, after this last day.
    Expired(String),
    /// A more specific entry applies.
    LessSpecific,
    /// The entry's id differs in the case of its letters.
    Case,
    /// The entry's id differs in one character, or in the order of two neighbours.
    OneCharacter,
    /// The entry's id is another address in the same network. The field is the network's prefix length.
    Network(u8),
    /// The entry's id is another name in this registered domain.
    Domain(String),
    /// The entry's id is another id of the same account.
    SameAccount,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyNot::Expired(last_day) => write!(f, "it expired on {last_day}"),
            WhyNot::LessSpecific => f.write_str("a more specific entry applies"),
            WhyNot::Case => f.write_str("another id: it differs in the case of its letters"),
            WhyNot::OneCharacter => f.write_str("another id: it differs in one place"),
            WhyNot::Network(bits) => write!(f, "another id, in the same /{bits}"),
            WhyNot::Domain(domain) => write!(f, "another id, in the same domain {domain}"),
            WhyNot::SameAccount => f.write_str("another id of the same account"),
        }
    }
}

/// The answer of an id's bucket to a call: see [`KeyedLimit::explain`](crate::KeyedLimit::explain).
///
/// # Example
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # let limit = Limit::new(5, 10, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("PerUser", IdFormat::String, limit)?.build());
/// let users = limiter.limit("PerUser")?;
/// assert!(users.spend("alice", 3)?.allowed());
/// let call = users.explain("alice", 1)?.call.expect("a limiter has buckets");
/// assert_eq!(call.state.remaining(), Some(2)); // before the call
/// assert_eq!(call.decision.and_then(|decision| decision.remaining()), Some(1)); // after it
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExplainedCall {
    /// The units that the call spends.
    pub cost: u64,
    /// The bucket's state: [`remaining`](Decision::remaining), and when it is full again.
    pub state: Decision,
    /// The answer to a spend of the cost now; `None` if the call would be an error, because the bucket can never hold
    /// that cost. If the limiter is switched off, the answer is that there is no limit.
    pub decision: Option<Decision>,
    /// Whether the limiter is [switched on](crate::Limiter::is_enabled).
    pub is_enabled: bool,
    /// The time until the id's [block](crate::KeyedLimit::block) ends, if it is blocked.
    pub blocked: Option<Duration>,
}
