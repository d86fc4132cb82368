//! Which fields a response carries.

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

/// `RateLimit`, of the current draft.
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy`, of the drafts from 04 on.
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// `RateLimit-Limit`, of the drafts up to 06, as the next two.
pub(crate) const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(crate) const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(crate) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// The names without a specification.
pub(crate) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(crate) const X_CLEAR: HeaderName = HeaderName::from_static("x-ratelimit-clear");

/// A set of fields. Several can be picked together, as long as no two write the same field: see
/// [`Fields::new`](crate::http::Fields::new).
///
/// In all of them `remaining` is that of the decision, and what is called the limit or the quota is the
/// most that `remaining` can be: the burst of gcra. A policy's window is the time in which all of that
/// comes back. Of several limits the current draft names all; the other styles have room for one, and
/// say what the strictest says. Layers within each other do the same: see
/// [`Fields::write`](crate::http::Fields::write).
///
/// Whatever the style, a denial carries `Retry-After`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// The current draft, `draft-ietf-httpapi-ratelimit-headers` 08 to 11: the structured fields
    /// `RateLimit-Policy: "name";q=20;w=2` and `RateLimit: "name";r=19;t=1`.
    ///
    /// `q` is the most that can remain, and `w` the whole seconds in which it comes back, rounded up, at
    /// least 1: for gcra the burst, and `burst * period / count`. `r` is what remains, never above `q`. `t`
    /// is in seconds, rounded up: until the bucket is full, or, of a limit that denies, until the call
    /// would be allowed, so that `Retry-After` is never earlier than it. Integers are at most
    /// 999,999,999,999,999.
    Ietf,
    /// The drafts 04 to 06: `RateLimit-Limit: 20`, `RateLimit-Remaining: 19`, `RateLimit-Reset: 1` and
    /// `RateLimit-Policy: 20;w=2`. The reset is in seconds, rounded up: until the bucket is
    /// full; of a denial, the same as `Retry-After`.
    Draft06,
    /// The drafts 00 to 03: as [`Draft06`](Style::Draft06), with the policies in the limit's field:
    /// `RateLimit-Limit: 20, 20;w=2`.
    Draft03,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`: names that no specification
    /// has. The reset is when the bucket is full.
    XRateLimit(Reset),
    /// PlugLimit's: `X-RateLimit-Limit`, `X-RateLimit-Reset` in seconds rounded up, and
    /// `X-RateLimit-Remaining`, or by other names. For a token bucket the limit's value is PlugLimit's
    /// own, `10 10;w=60;burst=5;policy=token_bucket`, and `Retry-After` is written on an allowed call,
    /// too, when the next has to wait.
    PlugLimit(PlugLimitNames),
    /// Sharkey's: `X-RateLimit-Clear`, the seconds until the bucket is full, `X-RateLimit-Remaining`,
    /// and on a denial `X-RateLimit-Reset`, the seconds until the call would be allowed. Both times
    /// have three decimals, rounded up.
    Sharkey,
}

/// How `X-RateLimit-Reset` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Seconds from now, rounded up.
    Delta,
    /// Seconds since 1970 (UTC), rounded up, as GitHub has it.
    Epoch,
}

/// The names of PlugLimit's fields.
///
/// # Example
///
/// ```
/// use http::HeaderName;
/// use tollgate::http::{PlugLimitNames, Style};
///
/// let names = PlugLimitNames::default().limit(HeaderName::from_static("x-quota"));
/// let style = Style::PlugLimit(names);
/// # assert_ne!(style, Style::PlugLimit(PlugLimitNames::default()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct PlugLimitNames {
    pub(crate) limit: HeaderName,
    pub(crate) reset: HeaderName,
    pub(crate) remaining: HeaderName,
    pub(crate) retry_after: HeaderName,
}

impl Default for PlugLimitNames {
    fn default() -> PlugLimitNames {
        PlugLimitNames {
            limit: X_LIMIT,
            reset: X_RESET,
            remaining: X_REMAINING,
            retry_after: RETRY_AFTER,
        }
    }
}

impl PlugLimitNames {
    /// The limit's field by another name.
    pub fn limit(self, limit: HeaderName) -> PlugLimitNames {
        PlugLimitNames { limit, ..self }
    }

    /// The reset's field by another name.
    pub fn reset(self, reset: HeaderName) -> PlugLimitNames {
        PlugLimitNames { reset, ..self }
    }

    /// The field of what remains by another name.
    pub fn remaining(self, remaining: HeaderName) -> PlugLimitNames {
        PlugLimitNames { remaining, ..self }
    }

    /// The field of the wait by another name. A denial carries `Retry-After` beside it.
    pub fn retry_after(self, retry_after: HeaderName) -> PlugLimitNames {
        PlugLimitNames { retry_after, ..self }
    }
}

impl Style {
    /// What remains as these headers have it, of a style with one number for all limits.
    pub(crate) fn remaining_in<'h>(&self, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        match self {
            Style::Ietf => None,
            Style::Draft06 | Style::Draft03 => headers.get(RATELIMIT_REMAINING),
            Style::XRateLimit(_) | Style::Sharkey => headers.get(X_REMAINING),
            Style::PlugLimit(names) => headers.get(&names.remaining),
        }
    }

    /// The fields that this style writes; `Retry-After`, which all share, is none of them.
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
