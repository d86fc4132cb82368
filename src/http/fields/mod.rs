//! Writes a decision into a response's header fields.

mod answer;
mod write;

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName};

use crate::http::SetupError;
use crate::http::structured::INTEGER_MAX;
use crate::http::style;
use crate::http::style::Style;
use crate::http::text::number;
use answer::DenialIn;
#[cfg(feature = "tower")]
pub(crate) use answer::PolicyLists;
pub use answer::{Answer, Item};
use write::{
    append, existing_is_as_strict, put, reset_value, unnamed_policies, write_draft, write_ietf,
    write_limit_with_policies, write_plug_limit, write_sharkey,
};
pub(crate) use write::{write_next_wait, write_wait};

/// The styles of header fields that responses get: one [`Style`], several, or none.
///
/// # Example
///
/// ```
/// use tollgate::http::{Fields, Reset, Style};
///
/// Fields::new([Style::Ietf, Style::XRateLimit(Reset::Epoch)])?;
/// assert!(Fields::new([Style::Draft06, Style::Draft03]).is_err(), "both write RateLimit-Limit");
/// # Ok::<(), tollgate::http::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fields {
    styles: Arc<[Style]>,
    pub(crate) shown: Shown,
}

/// The responses that have fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shown {
    #[default]
    Always,
    /// Denials, and responses of which a limit has less left than this percentage.
    Near(u8),
    OnDenials,
}

impl Shown {
    fn shows(self, answer: &Answer<'_>) -> bool {
        self == Shown::Always
            || !answer.decision.allowed()
            || matches!(self, Shown::Near(percent) if answer.items().any(|item| item.is_near(percent)))
    }
}

impl Fields {
    /// Combines `styles`.
    ///
    /// # Errors
    ///
    /// Two styles write the same field; two of [PlugLimit's names](crate::http::PlugLimitNames) are the same; or one has
    /// another meaning, such as `Content-Length`.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::http::{Fields, Reset, Style};
    /// assert!(Fields::new([Style::Ietf, Style::Sharkey]).is_ok());
    /// assert!(Fields::new([Style::Sharkey, Style::XRateLimit(Reset::Delta)]).is_err());
    /// ```
    pub fn new(styles: impl IntoIterator<Item = Style>) -> Result<Fields, SetupError> {
        let styles: Arc<[Style]> = styles.into_iter().collect();
        styles.iter().try_for_each(Style::check)?;
        let mut names: Vec<HeaderName> = styles.iter().flat_map(Style::names).collect();
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(SetupError::new(format!("two styles write the field {}", pair[0]))),
            None => Ok(Fields { styles, shown: Shown::Always }),
        }
    }

    /// Makes the fields of these styles, which [`new`](Fields::new) has checked.
    #[cfg(feature = "tower")]
    pub(crate) fn from_checked(styles: Vec<Style>, shown: Shown) -> Fields {
        Fields { styles: styles.into(), shown }
    }

    #[cfg(feature = "tower")]
    pub(crate) fn styles(&self) -> &[Style] {
        &self.styles
    }

    /// Returns whether the fields of a style that has one number for all limits are there.
    #[cfg(feature = "tower")]
    pub(crate) fn are_in(&self, headers: &HeaderMap) -> bool {
        self.styles.iter().any(|style| style.remaining_in(headers).is_some())
    }

    /// Makes fields without a style: a response gets no field except the `Retry-After` of a denial.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, Policy};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let policy = Policy::new("PerUser", &limit)?;
    /// let allowed = Bucket::new(limit, Clock::manual().0).spend(5)?;
    /// let mut headers = http::HeaderMap::new();
    /// Fields::none().write(&mut headers, &Answer::one(&policy, allowed), SystemTime::now());
    /// assert!(headers.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn none() -> Fields {
        Fields { styles: Arc::default(), shown: Shown::Always }
    }

    /// Leaves the fields out of responses to allowed calls. A layer then does no work for them either.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, Policy, Style};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let policy = Policy::new("PerUser", &limit)?;
    /// let bucket = Bucket::new(limit, Clock::manual().0);
    /// let fields = Fields::new([Style::Ietf])?.only_on_denials();
    /// for expected in [None, Some(r#""PerUser";r=0;t=60"#)] {
    ///     let mut headers = http::HeaderMap::new();
    ///     fields.write(&mut headers, &Answer::one(&policy, bucket.spend(1)?), SystemTime::now());
    ///     assert_eq!(headers.get("ratelimit").map(|value| value.to_str().unwrap()), expected);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn only_on_denials(self) -> Fields {
        Fields { shown: Shown::OnDenials, ..self }
    }

    /// Leaves the fields out of responses while all limits have at least `percent` percent of their quota left, and the same
    /// call is allowed again at once. Denials have them. If one limit has less, the response has the fields of all.
    ///
    /// # Errors
    ///
    /// `percent` is not from 1 to 99.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, Policy, Style};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(10, 10, Duration::from_secs(60))?;
    /// # let policy = Policy::new("PerUser", &limit)?;
    /// let bucket = Bucket::new(limit, Clock::manual().0);
    /// let fields = Fields::new([Style::Ietf])?.only_near_limit(20)?;
    /// for (cost, expected) in [(5, None), (4, Some(r#""PerUser";r=1;t=6"#))] {
    ///     let mut headers = http::HeaderMap::new();
    ///     fields.write(&mut headers, &Answer::one(&policy, bucket.spend(cost)?), SystemTime::now());
    ///     assert_eq!(headers.get("ratelimit").map(|value| value.to_str().unwrap()), expected);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn only_near_limit(self, percent: u8) -> Result<Fields, SetupError> {
        if !(1..=99).contains(&percent) {
            let text = format!("fields below {percent} percent: from 1 to 99 is allowed");
            return Err(SetupError::new(text));
        }
        Ok(Fields { shown: Shown::Near(percent), ..self })
    }

    /// Returns whether a field depends on the wall clock, because a reset is written as a Unix time.
    pub(crate) fn needs_time(&self) -> bool {
        self.styles.contains(&Style::XRateLimit(style::Reset::Epoch))
    }

    /// Returns whether a response gets any field except `Retry-After`.
    #[cfg(feature = "tower")]
    pub(crate) fn has_styles(&self) -> bool {
        !self.styles.is_empty()
    }

    /// Writes the fields of `answer` into `headers`, and respects the fields that an inner layer or the service has
    /// already written.
    ///
    /// `write` appends to the lists: `RateLimit`, `RateLimit-Policy`, and the policies in Draft03's `RateLimit-Limit`.
    /// The other fields have one number for all limits. Of these, each style keeps either its existing set or the new
    /// one as a whole: the stricter. A denial is stricter than an allowed call, then a longer wait where no unit remains, then
    /// fewer remaining units; on a tie the existing set stays. Where an inner layer's denial shares only some names with a style, the
    /// denial's set stays. An existing `Retry-After` stays if the call is allowed. A line of such a list that is no list
    /// (RFC 9651) is dropped, because clients would ignore the whole field.
    ///
    /// [`only_on_denials`](Fields::only_on_denials) and [`only_near_limit`](Fields::only_near_limit) leave them out of other
    /// responses.
    ///
    /// `now` is the wall clock's time at the decision; only [`Reset::Epoch`](crate::http::Reset::Epoch) uses it. If no
    /// limit applies, no field is written. For one limit without a partition key, each value that depends on the
    /// decision is one allocation, and the other values are clones of the policy's.
    ///
    /// # Example: a strict limit within a global one
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tollgate::http::{Answer, Fields, Policy, Style};
    /// use tollgate::{Bucket, Clock, Limit};
    ///
    /// let minute = Duration::from_secs(60);
    /// let fields = Fields::new([Style::Ietf])?;
    /// let mut headers = http::HeaderMap::new();
    /// for (name, burst) in [("Login", 3), ("Global", 60)] {
    ///     let limit = Limit::new(burst, burst, minute)?;
    ///     let policy = Policy::new(name, &limit)?;
    ///     let decision = Bucket::new(limit, Clock::manual().0).spend(1)?;
    ///     fields.write(&mut headers, &Answer::one(&policy, decision), SystemTime::now());
    /// }
    /// assert_eq!(headers["ratelimit"], r#""Login";r=2;t=20, "Global";r=59;t=1"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write(&self, headers: &mut HeaderMap, answer: &Answer<'_>, now: SystemTime) {
        write_wait(headers, &answer.decision, answer.enforced, false);
        let next_wait_s = self.write_styles(headers, answer, now);
        write_next_wait(headers, next_wait_s);
    }

    /// Writes the fields of each style. Returns the seconds that a response to an allowed call has as `Retry-After`, if a
    /// style writes it there: see [`write_next_wait`].
    // Always: rules with fields of their own make a second call, and `write` must not pay for it (work `layer-fields`).
    #[inline(always)]
    pub(crate) fn write_styles(
        &self,
        headers: &mut HeaderMap,
        answer: &Answer<'_>,
        now: SystemTime,
    ) -> Option<u64> {
        let decision = &answer.decision;
        let mut next_wait_s = None;
        let remaining = decision.remaining()?;
        if !self.shown.shows(answer) {
            return None;
        }
        let strictest = answer.strictest();
        let left = |item: &Item<'_>| match item.policy.figures.floor {
            0 => remaining.min(item.policy.quota()),
            // The answer's decision may be that of a limit of which fewer units remain, but more for the client.
            _ => item.remaining(),
        };
        let remaining = strictest.map_or(remaining, left).min(INTEGER_MAX);
        for style in self.styles.iter() {
            // Lists keep all that is there.
            if let Style::Ietf = style {
                if strictest.is_some() {
                    write_ietf(headers, answer);
                }
                continue;
            }
            let replaces = style.remaining_in(headers).is_some();
            let denial = answer.denial_in(style);
            // A set that the denial shares in part would mix both limits: the denial's stays.
            let keep = denial == DenialIn::Some
                || existing_is_as_strict(
                    (headers, style, denial == DenialIn::All),
                    answer,
                    remaining,
                    now,
                );
            match (style, strictest) {
                (Style::Draft06, Some(strictest)) => {
                    append(headers, style::RATELIMIT_POLICY, unnamed_policies(answer));
                    if !keep {
                        let quota = strictest.policy.values.quota.clone();
                        put(headers, style::RATELIMIT_LIMIT, Some(quota));
                        write_draft(headers, answer.next_in(strictest), remaining);
                    }
                }
                (Style::Draft03, Some(strictest)) => {
                    if !write_limit_with_policies(headers, answer, strictest, keep) {
                        write_draft(headers, answer.next_in(strictest), remaining);
                    }
                }
                _ if keep => {}
                (Style::XRateLimit(reset), Some(strictest)) => {
                    let quota = strictest.policy.values.quota.clone();
                    put(headers, style::X_LIMIT, Some(quota));
                    put(headers, style::X_REMAINING, number(remaining));
                    put(
                        headers,
                        style::X_RESET,
                        number(reset_value(*reset, answer.next_in(strictest), now)),
                    );
                }
                (Style::PlugLimit(names), Some(strictest)) => {
                    let policy = strictest.policy;
                    let wait_s =
                        write_plug_limit(headers, names, answer, policy, remaining, replaces);
                    next_wait_s = next_wait_s.max(wait_s);
                }
                (Style::Sharkey, _) => write_sharkey(headers, answer, remaining),
                (Style::Ietf, _) | (_, None) => {}
            }
        }
        next_wait_s
    }
}
