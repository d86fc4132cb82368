//! Writing a decision into a response's fields.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{KeyRef, ListSerializer, key_ref};

use crate::Decision;
use crate::http::retry_after::{milliseconds, retry_after, seconds};
use crate::http::style::{self, PlugLimitNames, Reset, Style};
use crate::http::text::{integer, number, value_of};
use crate::http::{Kind, Policy, SetupError};

const REMAINING: &KeyRef = key_ref("r");
const TIME: &KeyRef = key_ref("t");
const PARTITION: &KeyRef = key_ref("pk");

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
        Answer { decision, items, enforced: true, lists: None }
    }

    /// The answer of a batch: its decision, and what each of its limits says by itself. An item whose
    /// decision has no figures, because no limit applies, is passed over.
    pub fn new(decision: Decision, items: &'a [Item<'a>]) -> Answer<'a> {
        Answer { decision, items: Items::Many(items), enforced: true, lists: None }
    }

    /// The same for a call that goes on even though it was denied: without `Retry-After`.
    pub fn only_reported(self) -> Answer<'a> {
        Answer { enforced: false, ..self }
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

    /// Writes the fields of `answer`, in place of those of the same names; only a `Retry-After` that is
    /// there already stands when the call is allowed.
    ///
    /// `now` is the wall clock's time, read when the decision was made; only
    /// [`Reset::Epoch`] uses it. Nothing is written where no limit applies. A value is one allocation;
    /// those that do not depend on the decision were made once.
    pub fn write(&self, headers: &mut HeaderMap, answer: &Answer<'_>, now: SystemTime) {
        let decision = &answer.decision;
        let wait_s = retry_after(decision).filter(|_| answer.enforced);
        if let Some(wait) = wait_s {
            put(headers, RETRY_AFTER, number(wait));
        }
        let Some(remaining) = decision.remaining() else { return };
        for style in &self.styles {
            match (style, answer.strictest()) {
                (Style::Ietf, Some(_)) => write_ietf(headers, answer),
                (Style::Draft06, Some(strictest)) => {
                    write_policies(headers, answer);
                    let capacity = strictest.policy.capacity_value().clone();
                    put(headers, style::RATELIMIT_LIMIT, Some(capacity));
                    write_draft(headers, decision, remaining);
                }
                (Style::Draft03, Some(strictest)) => {
                    put(headers, style::RATELIMIT_LIMIT, limit_with_policies(answer, strictest));
                    write_draft(headers, decision, remaining);
                }
                (Style::XRateLimit(reset), Some(strictest)) => {
                    let capacity = strictest.policy.capacity_value().clone();
                    put(headers, style::X_LIMIT, Some(capacity));
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

fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        // A map with its most entries, 24,576, takes no more, and a response goes without this one.
        let _ = headers.try_insert(name, value);
    }
}

/// The only item, if there is one, and its values need no partition key.
fn only_item<'i, 'a>(answer: &'i Answer<'a>) -> Option<&'i Item<'a>> {
    let mut items = answer.items();
    let first = items.next()?;
    (items.next().is_none() && first.partition.is_none()).then_some(first)
}

fn write_ietf(headers: &mut HeaderMap, answer: &Answer<'_>) {
    let policies = match (only_item(answer), answer.lists) {
        (Some(item), _) => Some(item.policy.ietf().clone()),
        (None, Some(lists)) => lists.ietf.clone(),
        (None, None) => answer.ietf_list(),
    };
    put(headers, style::RATELIMIT_POLICY, policies);
    let limits = value_of(|text| {
        let mut list = ListSerializer::with_buffer(text);
        for item in answer.items() {
            let decision = &item.decision;
            let time = retry_after(decision).unwrap_or_else(|| seconds(decision.reset_in()));
            let mut one = list
                .bare_item(item.policy.structured_name())
                .parameter(REMAINING, integer(decision.remaining().unwrap_or(0)))
                .parameter(TIME, integer(time));
            if let Some(key) = item.partition {
                one = one.parameter(PARTITION, key);
            }
            let _ = one.finish();
        }
    });
    put(headers, style::RATELIMIT, limits);
}

/// The policies' field of the drafts 04 to 06.
fn write_policies(headers: &mut HeaderMap, answer: &Answer<'_>) {
    let policies = match (only_item(answer), answer.lists) {
        (Some(item), _) => Some(item.policy.draft06().clone()),
        (None, Some(lists)) => lists.draft06.clone(),
        (None, None) => answer.unnamed_list(),
    };
    put(headers, style::RATELIMIT_POLICY, policies);
}

/// The limit's field of the drafts 00 to 03.
fn limit_with_policies(answer: &Answer<'_>, strictest: &Item<'_>) -> Option<HeaderValue> {
    if let Some(item) = only_item(answer) {
        return Some(item.policy.draft03().clone());
    }
    value_of(|text| {
        let mut list = ListSerializer::with_buffer(text);
        let _ = list.bare_item(integer(strictest.policy.capacity()));
        answer.items().for_each(|item| item.policy.add_unnamed(&mut list));
    })
}

/// What the three-field drafts share. A reset beside a `Retry-After` is to be the same instant.
fn write_draft(headers: &mut HeaderMap, decision: &Decision, remaining: u64) {
    let reset = retry_after(decision).unwrap_or_else(|| seconds(decision.reset_in()));
    put(headers, style::RATELIMIT_REMAINING, number(remaining));
    put(headers, style::RATELIMIT_RESET, number(reset));
}

fn reset_value(reset: Reset, decision: &Decision, now: SystemTime) -> u64 {
    match reset {
        Reset::Delta => seconds(decision.reset_in()),
        Reset::Epoch => {
            // A clock before 1970 counts as 1970.
            let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
            seconds(now.saturating_add(decision.reset_in()))
        }
    }
}

fn write_plug_limit(
    headers: &mut HeaderMap,
    names: &PlugLimitNames,
    answer: &Answer<'_>,
    policy: &Policy,
    remaining: u64,
) {
    let decision = &answer.decision;
    put(headers, names.limit.clone(), Some(policy.plug_limit().clone()));
    put(headers, names.reset.clone(), number(seconds(decision.reset_in())));
    put(headers, names.remaining.clone(), number(remaining));
    let wait_s = if decision.allowed() {
        let next = seconds(decision.retry_in());
        (policy.kind() == Kind::TokenBucket && next > 0).then_some(next)
    } else {
        retry_after(decision)
    };
    // On an allowed call the service may have asked for a wait of its own, which is about what it failed
    // at, and may be a date: it stands.
    let is_taken = decision.allowed() && headers.contains_key(&names.retry_after);
    if let Some(wait) = wait_s.filter(|_| answer.enforced && !is_taken) {
        put(headers, names.retry_after.clone(), number(wait));
    }
}

fn write_sharkey(headers: &mut HeaderMap, decision: &Decision, remaining: u64) {
    put(headers, style::X_CLEAR, decimal(decision.reset_in()));
    put(headers, style::X_REMAINING, number(remaining));
    if !decision.allowed() {
        put(headers, style::X_RESET, decimal(decision.retry_in()));
    }
}

/// Seconds with three decimals, rounded up.
fn decimal(time: Duration) -> Option<HeaderValue> {
    let ms = milliseconds(time);
    value_of(|text| {
        // Writing to a string does not fail.
        let _ = write!(text, "{}.{:03}", ms / 1000, ms % 1000);
    })
}
