//! The names of PlugLimit's fields, and the names that a field may have.

use std::fmt;
use std::fmt::Display;

use http::HeaderName;
use http::header::RETRY_AFTER;

use crate::http::SetupError;
use crate::util::escape::quoted;

/// The `X-` names, which no specification defines.
pub(crate) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Limits the length of fields.
const NAME_MAX_BYTES: usize = 128;

/// The names that describe the message or its connection, or that gRPC gives a meaning; and the beginnings of such names.
/// A number in one of them would change how the response is read.
const RESERVED: [&str; 42] = [
    "age",
    "allow",
    "alt-svc",
    "authorization",
    "cache-control",
    "clear-site-data",
    "connection",
    "cookie",
    "date",
    "etag",
    "expires",
    "forwarded",
    "host",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "nel",
    "origin",
    "pragma",
    "priority",
    "range",
    "refresh",
    "report-to",
    "reporting-endpoints",
    "server",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "status",
    "strict-transport-security",
    "te",
    "timing-allow-origin",
    "tk",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-sendfile",
];
const RESERVED_PREFIXES: [&str; 11] = [
    "accept-",
    "access-control-",
    "cdn-",
    "content-",
    "cross-origin-",
    "grpc-",
    "if-",
    "proxy-",
    "sec-",
    "surrogate-",
    "x-accel-",
];

/// The names of PlugLimit's fields. [`Fields::new`](crate::http::Fields::new) checks that the four differ, and that none
/// is a name with another meaning, such as `Content-Length`.
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
    /// Reads the names from text, in the order of PlugLimit's `headers`: limit, reset, remaining, and the wait's. Without
    /// the fourth, the wait's is `Retry-After`.
    ///
    /// # Errors
    ///
    /// There are not 3 or 4 names; a name is no valid field name (RFC 9110, 5.1), or longer than 128 bytes; or
    /// [`Fields::new`](crate::http::Fields::new) would refuse it.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::http::PlugLimitNames;
    /// let names = PlugLimitNames::from_names(["X-Search-Limit", "X-Search-Reset", "X-Search-Remaining"])?;
    /// let error = PlugLimitNames::from_names(["x quota", "x-reset", "x-left"]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "invalid field name \"x quota\" for the limit: 1 to 128 letters, digits and characters of \
    ///      !#$%&'*+-.^_`|~ are allowed"
    /// );
    /// # let _ = names;
    /// # Ok::<(), tollgate::http::SetupError>(())
    /// ```
    pub fn from_names<N: AsRef<str>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<PlugLimitNames, SetupError> {
        let given: Vec<N> = names.into_iter().collect();
        let ([limit, reset, remaining], rest) =
            given.split_first_chunk().ok_or_else(|| wrong_number(given.len()))?;
        let retry_after = match rest {
            [] => RETRY_AFTER,
            [retry_after] => name_from(retry_after.as_ref(), Meaning::Wait)?,
            _ => return Err(wrong_number(given.len())),
        };
        let names = PlugLimitNames {
            limit: name_from(limit.as_ref(), Meaning::Limit)?,
            reset: name_from(reset.as_ref(), Meaning::Reset)?,
            remaining: name_from(remaining.as_ref(), Meaning::Remaining)?,
            retry_after,
        };
        names.check()?;
        Ok(names)
    }

    /// Sets the name of the limit's field.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::HeaderName;
    /// # use tollgate::http::{Fields, PlugLimitNames, Reset, Style};
    /// let names = PlugLimitNames::default()
    ///     .limit(HeaderName::from_static("x-quota"))
    ///     .reset(HeaderName::from_static("x-full-in"))
    ///     .remaining(HeaderName::from_static("x-left"));
    /// let both = [Style::PlugLimit(names), Style::XRateLimit(Reset::Epoch)];
    /// assert!(Fields::new(both).is_ok(), "they share no field");
    /// ```
    pub fn limit(self, limit: HeaderName) -> PlugLimitNames {
        PlugLimitNames { limit, ..self }
    }

    /// Sets the name of the reset's field.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::HeaderName;
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, PlugLimitNames, Policy, Style};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let policy = Policy::new("PerUser", &limit)?;
    /// # let decision = Bucket::new(limit, Clock::manual().0).spend(20)?;
    /// let names = PlugLimitNames::default().reset(HeaderName::from_static("x-full-in"));
    /// let mut headers = http::HeaderMap::new();
    /// let fields = Fields::new([Style::PlugLimit(names)])?;
    /// fields.write(&mut headers, &Answer::one(&policy, decision), SystemTime::now());
    /// assert_eq!(headers["x-full-in"], "2");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset(self, reset: HeaderName) -> PlugLimitNames {
        PlugLimitNames { reset, ..self }
    }

    /// Sets the name of the field with the remaining units.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::HeaderName;
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, PlugLimitNames, Policy, Style};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let policy = Policy::new("PerUser", &limit)?;
    /// # let decision = Bucket::new(limit, Clock::manual().0).spend(5)?;
    /// let names = PlugLimitNames::default().remaining(HeaderName::from_static("x-left"));
    /// let mut headers = http::HeaderMap::new();
    /// let fields = Fields::new([Style::PlugLimit(names)])?;
    /// fields.write(&mut headers, &Answer::one(&policy, decision), SystemTime::now());
    /// assert_eq!(headers["x-left"], "15");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remaining(self, remaining: HeaderName) -> PlugLimitNames {
        PlugLimitNames { remaining, ..self }
    }

    /// Sets the name of the wait's field. A denial also has `Retry-After`.
    pub fn retry_after(self, retry_after: HeaderName) -> PlugLimitNames {
        PlugLimitNames { retry_after, ..self }
    }

    /// Checks that the four names differ, and that none is too long or reserved.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let all = self.with_meanings();
        for (at, (name, meaning)) in all.iter().enumerate() {
            check(name, *meaning)?;
            if let Some((_, other)) = all[..at].iter().find(|(earlier, _)| earlier == name) {
                return Err(SetupError::new(format!(
                    "invalid field name \"{name}\" for the {meaning}: it is that of the {other}, and each field needs a \
                     name of its own"
                )));
            }
        }
        Ok(())
    }

    fn with_meanings(&self) -> [(&HeaderName, Meaning); 4] {
        [
            (&self.limit, Meaning::Limit),
            (&self.reset, Meaning::Reset),
            (&self.remaining, Meaning::Remaining),
            (&self.retry_after, Meaning::Wait),
        ]
    }
}

/// The meaning of a field, for errors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Limit,
    Reset,
    Remaining,
    Wait,
}

impl Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Meaning::Limit => "limit",
            Meaning::Reset => "reset",
            Meaning::Remaining => "remaining units",
            Meaning::Wait => "wait",
        })
    }
}

fn wrong_number(given: usize) -> SetupError {
    SetupError::new(format!(
        "{given} field names: 3 or 4 are allowed, of the limit, the reset, the remaining units and the wait"
    ))
}

fn name_from(text: &str, meaning: Meaning) -> Result<HeaderName, SetupError> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok();
    let name = name.filter(|name| name.as_str().len() <= NAME_MAX_BYTES);
    name.ok_or_else(|| invalid_name(text, meaning))
}

fn invalid_name(text: &str, meaning: Meaning) -> SetupError {
    SetupError::new(format!(
        "invalid field name {} for the {meaning}: 1 to {NAME_MAX_BYTES} letters, digits and characters of \
         !#$%&'*+-.^_`|~ are allowed",
        quoted(text, 64)
    ))
}

/// Checks that a field may have this name: it has no other meaning.
fn check(name: &HeaderName, meaning: Meaning) -> Result<(), SetupError> {
    let text = name.as_str();
    if text.len() > NAME_MAX_BYTES {
        return Err(invalid_name(text, meaning));
    }
    let is_reserved = RESERVED.contains(&text)
        || RESERVED_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
        || (*name == RETRY_AFTER && meaning != Meaning::Wait);
    if is_reserved {
        return Err(SetupError::new(format!(
            "invalid field name \"{text}\" for the {meaning}: the field has another meaning; allowed is any name \
             to which no standard, proxy or server gives one"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Fields, Style};

    fn error(names: &[&str]) -> String {
        PlugLimitNames::from_names(names).unwrap_err().to_string()
    }

    #[test]
    fn names_are_read_in_pluglimits_order() {
        let names = PlugLimitNames::from_names(["X-A", "x-b", "x-c"]).unwrap();
        let all = names.with_meanings().map(|(name, _)| name.as_str());
        assert_eq!(all, ["x-a", "x-b", "x-c", "retry-after"]);
        let default = ["x-ratelimit-limit", "x-ratelimit-reset", "x-ratelimit-remaining"];
        assert_eq!(PlugLimitNames::from_names(default), Ok(PlugLimitNames::default()));
        let four = PlugLimitNames::from_names(["!#$%&'*+-.^_`|~", "1", "r", "w"]).unwrap();
        assert_eq!(four.retry_after, "w");
    }

    #[test]
    fn an_invalid_name_says_which_is_allowed() {
        let allowed = "1 to 128 letters, digits and characters of !#$%&'*+-.^_`|~ are allowed";
        for name in ["", "a b", "a:", "caf\u{e9}", "a\r\nset-cookie: b", "\u{7f}", &"x".repeat(129)]
        {
            let error = error(&["x-a", "x-b", name]);
            assert!(error.starts_with("invalid field name \""), "{error}");
            assert!(error.ends_with(&format!("for the remaining units: {allowed}")), "{error}");
            assert!(error.len() < 400 && !error.chars().any(char::is_control), "{error}");
        }
        for given in [vec![], vec!["a", "b"], vec!["a", "b", "c", "d", "e"]] {
            let number = given.len();
            let expected =
                "3 or 4 are allowed, of the limit, the reset, the remaining units and the wait";
            assert_eq!(error(&given), format!("{number} field names: {expected}"));
        }
    }

    #[test]
    fn a_name_with_another_meaning_is_refused() {
        for name in
            ["Content-Length", "transfer-encoding", "set-cookie", "Retry-After", "grpc-status"]
        {
            let lower = name.to_lowercase();
            let expected = format!(
                "invalid field name \"{lower}\" for the limit: the field has another meaning; allowed is any name \
                 to which no standard, proxy or server gives one"
            );
            assert_eq!(error(&[name, "x-b", "x-c"]), expected);
            let typed =
                PlugLimitNames::default().limit(HeaderName::from_bytes(name.as_bytes()).unwrap());
            assert_eq!(Fields::new([Style::PlugLimit(typed)]).unwrap_err().to_string(), expected);
        }
        let expected = "invalid field name \"x-a\" for the wait: it is that of the reset, and each field needs a name of \
                        its own";
        assert_eq!(error(&["x-l", "x-a", "x-c", "x-a"]), expected);
        assert!(PlugLimitNames::from_names(["a", "b", "c", "retry-after"]).is_ok());
    }
}
