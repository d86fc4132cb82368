//! Names the header fields of each style.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::SetupError;
use crate::http::names::PlugLimitNames;
pub(crate) use crate::http::names::{X_LIMIT, X_REMAINING, X_RESET};

/// `RateLimit` of the current draft.
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy` of the drafts from 04 on.
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// `RateLimit-Limit`, `-Remaining` and `-Reset` of the drafts up to 06.
pub(crate) const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(crate) const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(crate) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// Sharkey's name, beside those in `names.rs`.
pub(crate) const X_CLEAR: HeaderName = HeaderName::from_static("x-ratelimit-clear");

/// A set of header fields. Several styles may be combined unless two write the same field: see
/// [`Fields::new`](crate::http::Fields::new).
///
/// In each style `remaining` is the decision's; the limit or quota is the largest possible `remaining`, for gcra the
/// burst; and a policy's window is the time in which an empty bucket fills up. The current draft names every limit that
/// took part in the decision. The other styles have room for one limit, and describe the strictest. Nested layers do
/// the same: see [`Fields::write`](crate::http::Fields::write).
///
/// In every style a denial also has `Retry-After`.
///
/// # Example
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tollgate::http::{Answer, Fields, Policy, Reset, Style};
/// use tollgate::{Bucket, Clock, Limit};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let policy = Policy::new("PerUser", &limit)?;
/// let decision = Bucket::new(limit, Clock::manual().0).spend(5)?;
/// let mut headers = http::HeaderMap::new();
/// let fields = Fields::new([Style::Draft06, Style::XRateLimit(Reset::Delta)])?;
/// fields.write(&mut headers, &Answer::one(&policy, decision), SystemTime::now());
/// assert_eq!(headers["ratelimit-policy"], "20;w=2");
/// assert_eq!(headers["x-ratelimit-remaining"], "15");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// The current draft, `draft-ietf-httpapi-ratelimit-headers` 08 to 11: the structured fields
    /// `RateLimit-Policy: "name";q=20;w=2` and `RateLimit: "name";r=19;t=1`.
    ///
    /// `q` is the quota: the largest number of units that can remain, for gcra the burst. `w` is the whole seconds in
    /// which it comes back, rounded up, at least 1: for gcra `burst * period / count`. `r` is the units that remain,
    /// never above `q`. `t` is in seconds, rounded up: the time until the limit has more units, which is the next unit,
    /// or the end of a fixed window; 0 if it is full. For a limit that denies it is the time until it would allow the
    /// call, and `Retry-After` is the longest of these; a limit that allows a call which is denied has no `t`. For a custom
    /// algorithm it is [`retry_in`](crate::Decision::retry_in), or if that is 0 the time until the bucket is full. Integers
    /// are at most 999,999,999,999,999.
    Ietf,
    /// The drafts 04 to 06: `RateLimit-Limit: 20`, `RateLimit-Remaining: 19`, `RateLimit-Reset: 1` and
    /// `RateLimit-Policy: 20;w=2`. The reset is the time until the limit has more units, like `t` of
    /// [`Ietf`](Style::Ietf); on a denial it equals `Retry-After`.
    Draft06,
    /// The drafts 00 to 03: like [`Draft06`](Style::Draft06), but with the policies in the limit's field:
    /// `RateLimit-Limit: 20, 20;w=2`.
    Draft03,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`, which no specification defines. The reset
    /// is the time at which the limit has more units, like `t` of [`Ietf`](Style::Ietf); on a denial it is that of
    /// `Retry-After`.
    XRateLimit(Reset),
    /// PlugLimit's fields: `X-RateLimit-Limit`, `X-RateLimit-Reset`, the seconds until all units are there, rounded up, and
    /// `X-RateLimit-Remaining`, or other names. For a token bucket the limit's value is PlugLimit's
    /// `10 10;w=60;burst=5;policy=token_bucket`, and an allowed call also has `Retry-After` if the next call has to
    /// wait.
    PlugLimit(PlugLimitNames),
    /// Sharkey's fields: `X-RateLimit-Clear`, the seconds until the bucket is full; `X-RateLimit-Remaining`; and on
    /// a denial `X-RateLimit-Reset`, the seconds until the call would be allowed. Both times have three decimals,
    /// rounded up.
    Sharkey,
}

/// The unit of `X-RateLimit-Reset`.
///
/// # Example
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// # use tollgate::http::{Answer, Fields, Policy, Reset, Style};
/// # use tollgate::{Bucket, Clock, Limit};
/// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// # let policy = Policy::new("PerUser", &limit)?;
/// # let decision = Bucket::new(limit, Clock::manual().0).spend(20)?;
/// let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
/// for (reset, value) in [(Reset::Delta, "1"), (Reset::Epoch, "1800000001")] {
///     let mut headers = http::HeaderMap::new();
///     Fields::new([Style::XRateLimit(reset)])?.write(&mut headers, &Answer::one(&policy, decision), now);
///     assert_eq!(headers["x-ratelimit-reset"], value);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Seconds from now, rounded up.
    Delta,
    /// Seconds since 1970 (UTC), rounded up, as GitHub writes it.
    Epoch,
}

impl Style {
    /// Checks the names that the style's fields have been given.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        match self {
            Style::PlugLimit(names) => names.check(),
            _ => Ok(()),
        }
    }

    /// Returns the remaining units that `headers` already give, for a style that has one number for all limits.
    pub(crate) fn remaining_in<'h>(&self, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        match self {
            Style::Ietf => None,
            Style::Draft06 | Style::Draft03 => headers.get(RATELIMIT_REMAINING),
            Style::XRateLimit(_) | Style::Sharkey => headers.get(X_REMAINING),
            Style::PlugLimit(names) => headers.get(&names.remaining),
        }
    }

    /// Returns the time that `headers` already give, for a style that has one number for all limits.
    pub(crate) fn time_in<'h>(&self, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        match self {
            Style::Ietf => None,
            Style::Draft06 | Style::Draft03 => headers.get(RATELIMIT_RESET),
            Style::XRateLimit(_) => headers.get(X_RESET),
            Style::PlugLimit(names) => headers.get(&names.reset),
            Style::Sharkey => headers.get(X_CLEAR),
        }
    }

    /// Returns whether both styles write a field with one number for all limits.
    pub(crate) fn shares_number_with(&self, other: &Style) -> bool {
        let lists = [RATELIMIT, RATELIMIT_POLICY];
        let names = other.names();
        self.names().iter().any(|name| names.contains(name) && !lists.contains(name))
    }

    /// Returns the names of the fields that this style writes, without `Retry-After`, which all styles share.
    pub(crate) fn names(&self) -> Vec<HeaderName> {
        match self {
            Style::Ietf => vec![RATELIMIT_POLICY, RATELIMIT],
            Style::Draft06 => {
                vec![RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET, RATELIMIT_POLICY]
            }
            Style::Draft03 => vec![RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET],
            Style::XRateLimit(_) => vec![X_LIMIT, X_REMAINING, X_RESET],
            Style::PlugLimit(names) => {
                let mut all =
                    vec![names.limit.clone(), names.reset.clone(), names.remaining.clone()];
                all.extend((names.retry_after != RETRY_AFTER).then(|| names.retry_after.clone()));
                all
            }
            Style::Sharkey => vec![X_CLEAR, X_REMAINING, X_RESET],
        }
    }
}
