//! Writing a decision into a response's fields.

mod write;

use std::cmp::Reverse;
use std::time::SystemTime;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::ListSerializer;

use crate::decision::Decision;
use crate::http::retry_after::retry_after;
use crate::http::style;
use crate::http::style::{Reset, Style};
use crate::http::text::{INTEGER_MAX, number, value_of};
use crate::http::{Policy, SetupError};
use write::{
    is_as_strict, put, reset_value, write_draft, write_ietf, write_limit_with_policies,
    write_plug_limit, write_policies, write_sharkey,
};

/// A longer partition key is left out.
const PARTITION_MAX_BYTES: usize = 256;

/// One limit's part in an answer.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Item<'a> {
    policy: &'a Policy,
    decision: Decision,
    partition: Option<&'a [u8]>,
}

impl<'a> Item<'a> {
    /// What the limit of `policy` says.
    pub fn new(policy: &'a Policy, decision: Decision) -> Item<'a> {
        Item { policy, decision, partition: None }
    }

    /// The same with a key that tells a client which of its quotas this is: `pk` of the current draft.
    /// It is to be what the request shows anyway, and no secret. One of more than 256 bytes is left out.
    pub fn partition(self, key: &'a [u8]) -> Item<'a> {
        let partition = (key.len() <= PARTITION_MAX_BYTES).then_some(key);
        Item { partition, ..self }
    }

    /// The limit.
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// What it says.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// What remains, never above the quota: the decision is of an instant, and a reload after it may have
    /// made the limit smaller.
    fn remaining(&self) -> u64 {
        self.decision.remaining().unwrap_or(0).min(self.policy.quota())
    }
}

/// A decision, and what the limits that took part in it say.
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
    /// Whether the response is a denial already, by a layer further in.
    over_denial: bool,
    /// The policies' fields, where they were made before.
    lists: Option<&'a PolicyLists>,
}

/// The policies of several limits, as the fields that name them all have them.
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
    /// The answer of one limit.
    pub fn one(policy: &'a Policy, decision: Decision) -> Answer<'a> {
        let items = Items::One([Item::new(policy, decision)]);
        Answer { decision, items, enforced: true, over_denial: false, lists: None }
    }

    /// The answer of a batch: its decision, and what each of its limits says by itself. An item whose
    /// decision has no figures, because no limit applies, is passed over.
    pub fn new(decision: Decision, items: &'a [Item<'a>]) -> Answer<'a> {
        let items = Items::Many(items);
        Answer { decision, items, enforced: true, over_denial: false, lists: None }
    }

    /// The same for a call that goes on even though it was denied: without `Retry-After`.
    pub fn only_reported(self) -> Answer<'a> {
        Answer { enforced: false, ..self }
    }

    /// The same for a response that is a denial already, or is not.
    #[cfg(feature = "tower")]
    pub(crate) fn over_denial(self, over_denial: bool) -> Answer<'a> {
        Answer { over_denial, ..self }
    }

    /// The same with lists that were made of these items' policies.
    #[cfg(feature = "tower")]
    pub(crate) fn with_lists(self, lists: Option<&'a PolicyLists>) -> Answer<'a> {
        Answer { lists, ..self }
    }

    /// The lists of the policies, to be kept. Their clones allocate nothing.
    #[cfg(feature = "tower")]
    pub(crate) fn policy_lists(&self) -> PolicyLists {
        let shared = |value: Option<HeaderValue>| value.map(crate::http::text::shared);
        PolicyLists { ietf: shared(self.ietf_list()), draft06: shared(self.unnamed_list()) }
    }

    fn ietf_list(&self) -> Option<HeaderValue> {
        value_of(|text| {
            let mut list = ListSerializer::with_buffer(text);
            self.items().for_each(|item| item.policy.add_ietf(&mut list, item.partition));
        })
    }

    fn unnamed_list(&self) -> Option<HeaderValue> {
        value_of(|text| {
            let mut list = ListSerializer::with_buffer(text);
            self.items().for_each(|item| item.policy.add_unnamed(&mut list));
        })
    }

    fn items(&self) -> impl Iterator<Item = &Item<'a>> {
        let items = match &self.items {
            Items::One(item) => item.as_slice(),
            Items::Many(items) => items,
        };
        items.iter().filter(|item| item.decision.remaining().is_some())
    }

    /// The item that says what the decision says: denied before allowed, the longer wait, the fewer
    /// remaining, the later; as batches have it.
    fn strictest(&self) -> Option<&Item<'a>> {
        self.items().max_by_key(|item| {
            let decision = &item.decision;
            (!decision.allowed(), decision.retry_in(), Reverse(decision.remaining()))
        })
    }
}

/// The fields that responses carry: one [`Style`] or several, or none.
///
/// # Example
///
/// ```
/// use tollgate::http::{Fields, Reset, Style};
///
/// let fields = Fields::new([Style::Ietf, Style::XRateLimit(Reset::Epoch)])?;
/// assert!(fields.needs_time());
/// # Ok::<(), tollgate::http::SetupError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fields {
    styles: Box<[Style]>,
}

impl Fields {
    /// The fields of all `styles`.
    ///
    /// # Errors
    ///
    /// Two styles write the same field, and so would contradict each other.
    pub fn new(styles: impl IntoIterator<Item = Style>) -> Result<Fields, SetupError> {
        let styles: Box<[Style]> = styles.into_iter().collect();
        let mut names: Vec<HeaderName> = styles.iter().flat_map(Style::names).collect();
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(SetupError::new(format!("two styles write the field {}", pair[0]))),
            None => Ok(Fields { styles }),
        }
    }

    /// No fields but the `Retry-After` of a denial.
    pub fn none() -> Fields {
        Fields::default()
    }

    /// Whether the time matters, because a reset is written as an instant.
    pub fn needs_time(&self) -> bool {
        self.styles.contains(&Style::XRateLimit(Reset::Epoch))
    }

    /// Whether there is any field but `Retry-After`.
    #[cfg(feature = "tower")]
    pub(crate) fn have_styles(&self) -> bool {
        !self.styles.is_empty()
    }

    /// Writes the fields of `answer` beside those that a layer further in, or the service, has written.
    ///
    /// Lists are appended to: `RateLimit`, `RateLimit-Policy`, and the policies of Draft03's
    /// `RateLimit-Limit`. Of a style with one number the stricter stands, all its fields together: what
    /// denies before what allows, then the fewer remaining; on a tie those that are there. A `Retry-After`
    /// that is there stands when the call is allowed.
    ///
    /// `now` is the wall clock's time, read when the decision was made; only
    /// [`Reset::Epoch`] uses it. Nothing is written where no limit applies. A value is one allocation;
    /// those that do not depend on the decision were made once.
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
        let decision = &answer.decision;
        let wait_s = retry_after(decision).filter(|_| answer.enforced);
        if let Some(wait) = wait_s {
            put(headers, RETRY_AFTER, number(wait));
        }
        let Some(remaining) = decision.remaining() else { return };
        let strictest = answer.strictest();
        let remaining =
            strictest.map_or(remaining, |item| remaining.min(item.policy.quota())).min(INTEGER_MAX);
        for style in &self.styles {
            let theirs = style.remaining_in(headers);
            let theirs = is_as_strict(theirs, answer.over_denial, remaining, decision);
            match (style, strictest) {
                (Style::Ietf, Some(_)) => write_ietf(headers, answer),
                (Style::Draft06, Some(strictest)) => {
                    write_policies(headers, answer);
                    if !theirs {
                        let quota = strictest.policy.quota_value().clone();
                        put(headers, style::RATELIMIT_LIMIT, Some(quota));
                        write_draft(headers, decision, remaining);
                    }
                }
                (Style::Draft03, Some(strictest)) => {
                    write_limit_with_policies(headers, answer, strictest, theirs);
                    if !theirs {
                        write_draft(headers, decision, remaining);
                    }
                }
                _ if theirs => {}
                (Style::XRateLimit(reset), Some(strictest)) => {
                    let quota = strictest.policy.quota_value().clone();
                    put(headers, style::X_LIMIT, Some(quota));
                    put(headers, style::X_REMAINING, number(remaining));
                    put(headers, style::X_RESET, number(reset_value(*reset, decision, now)));
                }
                (Style::PlugLimit(names), Some(strictest)) => {
                    write_plug_limit(headers, names, answer, strictest.policy, remaining);
                }
                (Style::Sharkey, _) => write_sharkey(headers, decision, remaining),
                (_, None) => {}
            }
        }
    }
}
