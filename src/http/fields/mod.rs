//! Writes a decision into a response's header fields.

mod write;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::decision::Decision;
use crate::http::structured::INTEGER_MAX;
use crate::http::style;
use crate::http::style::Style;
use crate::http::text::{number, value_of};
use crate::http::{Policy, SetupError};
use write::{
    append, is_as_strict, put, reset_value, unnamed_policies, write_draft, write_ietf,
    write_limit_with_policies, write_plug_limit, write_sharkey,
};
pub(crate) use write::{write_next_wait, write_wait};

/// The largest partition key that is written. [`Item::partition`] omits a longer one.
const PARTITION_MAX_BYTES: usize = 256;

/// A limit's policy and its own decision, as a part of an [`Answer`].
///
/// # Example
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// # use tollgate::http::{Answer, Fields, Item, Policy, Style};
/// # use tollgate::{Bucket, Clock, Limit};
/// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let policy = Policy::new("PerUser", &limit)?;
/// let decision = Bucket::new(limit, Clock::manual().0).spend(5)?;
/// let items = [Item::new(&policy, decision)];
/// let mut headers = http::HeaderMap::new();
/// Fields::new([Style::Ietf])?.write(&mut headers, &Answer::new(decision, &items), SystemTime::now());
/// assert_eq!(headers["ratelimit-policy"], r#""PerUser";q=20;w=2"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Item<'a> {
    policy: &'a Policy,
    decision: Decision,
    partition: Option<&'a [u8]>,
}

impl<'a> Item<'a> {
    /// Makes the item of the limit that `policy` describes.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::http::{Item, Policy};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// let policy = Policy::new("PerUser", &limit)?;
    /// let item = Item::new(&policy, Bucket::new(limit, Clock::system()).spend(1)?);
    /// assert!(format!("{item:?}").contains("PerUser"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(policy: &'a Policy, decision: Decision) -> Item<'a> {
        Item { policy, decision, partition: None }
    }

    /// Adds the partition key: `pk` of the current draft. It tells a client which of its quotas the item is about. It
    /// must not be a secret, such as a token. A key of more than 256 bytes is omitted.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, Item, Policy, Style};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let policy = Policy::new("PerUser", &limit)?;
    /// # let decision = Bucket::new(limit, Clock::manual().0).spend(5)?;
    /// let items = [Item::new(&policy, decision).partition(b"alice")];
    /// let mut headers = http::HeaderMap::new();
    /// Fields::new([Style::Ietf])?.write(&mut headers, &Answer::new(decision, &items), SystemTime::now());
    /// assert!(headers["ratelimit"].to_str()?.contains("pk=:YWxpY2U=:")); // alice
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn partition(self, key: &'a [u8]) -> Item<'a> {
        let partition = (key.len() <= PARTITION_MAX_BYTES).then_some(key);
        Item { partition, ..self }
    }

    /// Returns the remaining units, at most the quota: the policy may be that of a lower limit, if a reload replaced
    /// the limit after the decision.
    fn remaining(&self) -> u64 {
        self.decision.remaining().unwrap_or(0).min(self.policy.quota())
    }

    /// Returns the time until a call of a limit that allows this one finds more units.
    fn more_in(&self) -> Duration {
        self.policy.rule.next_unit_in(&self.decision)
    }
}

/// A decision with the items of the limits that took part in it: the input of [`Fields::write`].
///
/// # Example: a batch of two
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tollgate::http::{Answer, Fields, Item, Policy, Style};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
/// let (fast, slow) = (Limit::new(20, 10, second)?, Limit::new(500, 500, day)?);
/// let limits = Limits::builder()
///     .limit("fast", IdFormat::String, fast.clone())?
///     .limit("slow", IdFormat::String, slow.clone())?;
/// let limiter = Limiter::new(limits.build());
/// let handles = [limiter.limit("fast")?, limiter.limit("slow")?];
/// let decision = limiter.batch(&[handles[0].member("alice"), handles[1].member("alice")]).spend()?;
///
/// let policies = [Policy::new("fast", &fast)?, Policy::new("slow", &slow)?];
/// let items = [
///     Item::new(&policies[0], handles[0].check("alice", 0)?),
///     Item::new(&policies[1], handles[1].check("alice", 0)?),
/// ];
/// let mut headers = http::HeaderMap::new();
/// Fields::new([Style::Ietf])?.write(&mut headers, &Answer::new(decision, &items), SystemTime::now());
/// assert_eq!(headers["ratelimit"], r#""fast";r=19;t=1, "slow";r=499;t=173"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Answer<'a> {
    decision: Decision,
    items: Items<'a>,
    enforced: bool,
    /// Whether any limit of the response denies the call, also one without an item.
    is_denial: bool,
    /// Whether an inner layer or the service has already denied the call.
    already_denied: bool,
    /// The fields that the denial has written, if an inner layer has denied the call. `None`: any field may be of the denial.
    fields_of_denial: Option<&'a Fields>,
    /// The joined policies of `items`, if they are cached.
    lists: Option<&'a PolicyLists>,
}

/// The fields of a style that may be those of an inner layer's denial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DenialIn {
    None,
    /// Another style of the denial shares some of them.
    Some,
    All,
}

/// The joined policies of several limits, as field values.
#[derive(Clone, Debug)]
pub(crate) struct PolicyLists {
    ietf: Option<HeaderValue>,
    draft06: Option<HeaderValue>,
}

#[derive(Clone, Debug)]
enum Items<'a> {
    One([Item<'a>; 1]),
    Many(&'a [Item<'a>]),
}

impl<'a> Answer<'a> {
    /// Makes the answer of one limit.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, Policy, Style};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(20, 10, Duration::from_secs(1))?;
    /// # let policy = Policy::new("PerUser", &limit)?;
    /// let decision = Bucket::new(limit, Clock::manual().0).spend(5)?;
    /// let mut headers = http::HeaderMap::new();
    /// Fields::new([Style::Sharkey])?.write(&mut headers, &Answer::one(&policy, decision), SystemTime::now());
    /// assert_eq!(headers["x-ratelimit-remaining"], "15");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn one(policy: &'a Policy, decision: Decision) -> Answer<'a> {
        Answer::with_items(decision, Items::One([Item::new(policy, decision)]))
    }

    /// Makes the answer of a batch: its decision, and the item of each of its limits. An item whose decision is
    /// unlimited, because no limit applies, is ignored.
    pub fn new(decision: Decision, items: &'a [Item<'a>]) -> Answer<'a> {
        Answer::with_items(decision, Items::Many(items))
    }

    fn with_items(decision: Decision, items: Items<'a>) -> Answer<'a> {
        Answer {
            decision,
            items,
            enforced: true,
            is_denial: !decision.allowed(),
            already_denied: false,
            fields_of_denial: None,
            lists: None,
        }
    }

    /// Marks a call that is served even though the limits deny it: its response has no `Retry-After`.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use tollgate::http::{Answer, Fields, Policy};
    /// # use tollgate::{Bucket, Clock, Limit};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let policy = Policy::new("PerUser", &limit)?;
    /// # let bucket = Bucket::new(limit, Clock::manual().0);
    /// # assert!(bucket.spend(1)?.allowed());
    /// let denied = Answer::one(&policy, bucket.spend(1)?);
    /// let mut headers = http::HeaderMap::new();
    /// Fields::none().write(&mut headers, &denied.clone().only_reported(), SystemTime::now());
    /// assert!(headers.is_empty());
    /// Fields::none().write(&mut headers, &denied, SystemTime::now());
    /// assert_eq!(headers["retry-after"], "60");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn only_reported(self) -> Answer<'a> {
        Answer { enforced: false, ..self }
    }

    /// Sets whether an inner layer or the service has already denied the call, and the fields that the denial wrote, if they
    /// are known.
    #[cfg(feature = "tower")]
    pub(crate) fn already_denied(
        self,
        already_denied: bool,
        fields_of_denial: Option<&'a Fields>,
    ) -> Answer<'a> {
        Answer { already_denied, fields_of_denial, ..self }
    }

    /// Sets whether any limit of the response denies the call.
    #[cfg(feature = "tower")]
    pub(crate) fn of_denial(self, is_denial: bool) -> Answer<'a> {
        Answer { is_denial, ..self }
    }

    /// Returns whether the denial of an inner layer has written the fields of `style`, or some of them.
    fn denial_in(&self, style: &Style) -> DenialIn {
        let Some(fields) = self.fields_of_denial else {
            return if self.already_denied { DenialIn::All } else { DenialIn::None };
        };
        if fields.styles.contains(style) {
            return DenialIn::All;
        }
        match fields.styles.iter().any(|other| other.shares_number_with(style)) {
            true => DenialIn::Some,
            false => DenialIn::None,
        }
    }

    /// Provides the joined policies of the items, made earlier by [`policy_lists`](Answer::policy_lists).
    #[cfg(feature = "tower")]
    pub(crate) fn with_lists(self, lists: Option<&'a PolicyLists>) -> Answer<'a> {
        Answer { lists, ..self }
    }

    /// Joins the items' policies, for a cache. Clones of the values allocate nothing.
    #[cfg(feature = "tower")]
    pub(crate) fn policy_lists(&self) -> PolicyLists {
        let shared = |value: Option<HeaderValue>| value.map(crate::http::text::shared);
        PolicyLists { ietf: shared(self.ietf_list()), draft06: shared(self.unnamed_list()) }
    }

    fn ietf_list(&self) -> Option<HeaderValue> {
        value_of(|text| {
            self.items().for_each(|item| item.policy.figures.add_ietf(text, item.partition));
        })
    }

    fn unnamed_list(&self) -> Option<HeaderValue> {
        value_of(|text| {
            self.items().for_each(|item| item.policy.figures.add_unnamed(text));
        })
    }

    /// Returns the time that a field gives for all limits: on a denial the wait for the same call, else the time until the
    /// strictest limit has more units.
    fn next_in(&self, strictest: &Item<'_>) -> Duration {
        if self.decision.allowed() {
            return strictest.more_in();
        }
        // A denial never says 0.
        self.decision.retry_in().max(Duration::from_nanos(1))
    }

    fn items(&self) -> impl Iterator<Item = &Item<'a>> {
        let items = match &self.items {
            Items::One(item) => item.as_slice(),
            Items::Many(items) => items,
        };
        items.iter().filter(|item| item.decision.remaining().is_some())
    }

    /// Returns the strictest item, whose decision is that of the batch: a denied item before an allowed one, then the
    /// one with the longer wait, then with fewer remaining units, then the later one.
    fn strictest(&self) -> Option<&Item<'a>> {
        self.only_item().or_else(|| {
            self.items().max_by_key(|item| {
                let decision = &item.decision;
                (!decision.allowed(), decision.retry_in(), Reverse(decision.remaining()))
            })
        })
    }

    /// Returns the item if there is only one.
    fn only_item(&self) -> Option<&Item<'a>> {
        let mut items = self.items();
        let first = items.next()?;
        items.next().is_none().then_some(first)
    }
}

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
            None => Ok(Fields { styles }),
        }
    }

    /// Makes the fields of these styles, which [`new`](Fields::new) has checked.
    #[cfg(feature = "tower")]
    pub(crate) fn from_checked(styles: Vec<Style>) -> Fields {
        Fields { styles: styles.into() }
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
        Fields { styles: Arc::default() }
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
    /// one as a whole: the stricter. A denial is stricter than an allowed call, then fewer remaining units are
    /// stricter; on a tie the existing set stays. Where an inner layer's denial shares only some names with a style, the
    /// denial's set stays. An existing `Retry-After` stays if the call is allowed. A line of such a list that is no list
    /// (RFC 9651) is dropped, because clients would ignore the whole field.
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
        write_wait(headers, &answer.decision, answer.enforced);
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
        let strictest = answer.strictest();
        let remaining =
            strictest.map_or(remaining, |item| remaining.min(item.policy.quota())).min(INTEGER_MAX);
        for style in self.styles.iter() {
            let existing = style.remaining_in(headers);
            let replaces = existing.is_some();
            let denial = answer.denial_in(style);
            // A set that the denial shares in part would mix both limits: the denial's stays.
            let keep = denial == DenialIn::Some
                || is_as_strict(existing, denial == DenialIn::All, remaining, decision);
            match (style, strictest) {
                (Style::Ietf, Some(_)) => write_ietf(headers, answer),
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
                (Style::Sharkey, _) => write_sharkey(headers, decision, remaining),
                (_, None) => {}
            }
        }
        next_wait_s
    }
}
