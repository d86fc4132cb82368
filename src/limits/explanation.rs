//! Why a call is answered as it is: which entry applies to an id, and which only look as if they did.

use std::fmt;
use std::time::Duration;

use crate::decision::Decision;
use crate::limit::Limit;
use crate::limits::{IdFormat, LimitMode, Location};

/// Which entry of the limits applies to an id, its numbers, and what it would answer.
///
/// Made by [`Limits::explain`](crate::Limits::explain), which knows the entries alone, and by
/// [`KeyedLimit::explain`](crate::KeyedLimit::explain), which asks the id's bucket, too. Making one changes
/// nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The limit's name.
    pub limit: String,
    /// The id in normal form. The limit's name and this are the bucket's key.
    pub id: String,
    /// How the limit's ids look.
    pub format: IdFormat,
    /// What kind of entry applies.
    pub applies: Applies,
    /// Where that entry is; `None` if it was given in code, or nothing applies.
    pub location: Option<Location>,
    /// Its numbers; `None` is no limit.
    pub numbers: Option<Limit>,
    /// Whether the limit denies.
    pub mode: LimitMode,
    /// The numbers that are tried beside them: beside the default's alone, whose place an override takes.
    pub shadow: Option<Limit>,
    /// The units that the bucket may owe beyond its burst.
    pub max_debt: u64,
    /// Why the override that applies is there.
    pub comment: Option<String>,
    /// Whom to ask about it.
    pub owner: Option<String>,
    /// The last day, in UTC, on which it applies, such as `2026-12-31`.
    pub last_day: Option<String>,
    /// Entries that do not apply and may be taken for one that does: those that would if it were not for
    /// another first, then those of ids that are near; 8 at most.
    pub near: Vec<NearEntry>,
    /// What the id's bucket says.
    pub call: Option<ExplainedCall>,
}

/// What kind of entry applies to an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Applies {
    /// `override`: the id's own.
    Override,
    /// `account`: the override of the account that the id belongs to.
    Account,
    /// `default`: the limit's default.
    Default,
    /// `disabled`: the limit was switched off, for everybody.
    Disabled,
    /// `nothing`: the limit has no default, and the id no override: no limit.
    Nothing,
}

impl fmt::Display for Applies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Applies::Override => "override",
            Applies::Account => "account",
            Applies::Default => "default",
            Applies::Disabled => "disabled",
            Applies::Nothing => "nothing",
        })
    }
}

/// An entry that does not apply to an id, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearEntry {
    /// The id that it is of, in normal form; `None` is the default.
    pub id: Option<String>,
    /// Where it is; `None` if it was given in code.
    pub location: Option<Location>,
    /// Its numbers; `None` is no limit.
    pub numbers: Option<Limit>,
    /// Why it does not apply.
    pub why: WhyNot,
}

/// Why an entry does not apply to an id. Its text says so in words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyNot {
    /// It has ended. Its last day.
    Expired(String),
    /// An entry that is more specific applies.
    LessSpecific,
    /// It is of an id that differs in the case of its letters.
    Case,
    /// It is of an id that differs in one character, or in the order of two.
    OneCharacter,
    /// It is of another address in the same network, of so many bits.
    Network(u8),
    /// It is of another name in the same registered domain.
    Domain(String),
    /// It is of another id of the same account.
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

/// What an id's bucket says of a call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ExplainedCall {
    /// The units that are asked for.
    pub cost: u64,
    /// The bucket as it is: [`remaining`](Decision::remaining), and when it is full again.
    pub state: Decision,
    /// The answer to a spend of the cost now; `None` if the cost is above what the bucket can ever hold,
    /// and the call an error. Of a limiter that is switched off it is that there is no limit.
    pub decision: Option<Decision>,
    /// Whether the limiter is [switched on](crate::Limiter::is_enabled).
    pub is_enabled: bool,
    /// The time until the id's [block](crate::KeyedLimit::block) ends, if it is blocked.
    pub blocked: Option<Duration>,
}
