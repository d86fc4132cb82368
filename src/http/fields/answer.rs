//! Defines a decision with the policies and decisions of its limits: what the fields of a response are written from.

use std::cmp::Reverse;
use std::time::Duration;

use http::HeaderValue;

use crate::decision::Decision;
use crate::http::style::Style;
use crate::http::text::value_of;
use crate::http::{Fields, Policy};

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
    pub(super) policy: &'a Policy,
    pub(super) decision: Decision,
    pub(super) partition: Option<&'a [u8]>,
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

    /// Returns the remaining units without those that the client's calls must leave, at most the quota: the policy may be that
    /// of a lower limit, if a reload replaced the limit after the decision.
    pub(super) fn remaining(&self) -> u64 {
        self.without_floor(self.decision.remaining().unwrap_or(0)).min(self.policy.quota())
    }

    /// Returns the units of which the client's calls can use all.
    fn without_floor(&self, units: u64) -> u64 {
        units.saturating_sub(self.policy.figures.floor)
    }

    /// Returns whether less than `percent` percent of the quota are left, or the same call would be denied.
    pub(super) fn is_near(&self, percent: u8) -> bool {
        let left = u128::from(self.remaining()) * 100;
        left < u128::from(self.policy.quota()) * u128::from(percent)
            || !self.decision.retry_in().is_zero()
    }

    /// Returns the time until the limit, which allowed this call, has more units.
    pub(super) fn more_in(&self) -> Duration {
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
    pub(super) decision: Decision,
    items: Items<'a>,
    pub(crate) enforced: bool,
    /// Whether any limit of the response denies the call, also one without an item.
    pub(crate) is_denial: bool,
    /// The wait of a response that is a denial, which all its fields tell. `None`: that of `decision`.
    pub(crate) wait: Option<Duration>,
    /// Whether an inner layer or the service has already denied the call.
    pub(crate) already_denied: bool,
    /// The fields that the denial has written, if an inner layer has denied the call. `None`: any field may be of the denial.
    pub(crate) fields_of_denial: Option<&'a Fields>,
    /// The joined policies of `items`, if they are cached: see [`policy_lists`](Answer::policy_lists).
    pub(crate) lists: Option<&'a PolicyLists>,
}

/// The fields of a style that may be those of an inner layer's denial.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DenialIn {
    None,
    /// Another style of the denial shares some of them.
    Some,
    All,
}

/// The joined policies of several limits, as field values.
#[derive(Clone, Debug)]
pub(crate) struct PolicyLists {
    pub(super) ietf: Option<HeaderValue>,
    pub(super) draft06: Option<HeaderValue>,
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
            wait: None,
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

    /// Returns whether the denial of an inner layer has written the fields of `style`, or some of them.
    pub(super) fn denial_in(&self, style: &Style) -> DenialIn {
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

    /// Joins the items' policies, for a cache. Clones of the values allocate nothing.
    #[cfg(feature = "tower")]
    pub(crate) fn policy_lists(&self) -> PolicyLists {
        let shared = |value: Option<HeaderValue>| value.map(crate::http::text::shared);
        PolicyLists { ietf: shared(self.ietf_list()), draft06: shared(self.unnamed_list()) }
    }

    pub(super) fn ietf_list(&self) -> Option<HeaderValue> {
        value_of(|text| {
            self.items().for_each(|item| item.policy.figures.add_ietf(text, item.partition));
        })
    }

    pub(super) fn unnamed_list(&self) -> Option<HeaderValue> {
        value_of(|text| {
            self.items().for_each(|item| item.policy.figures.add_unnamed(text));
        })
    }

    /// Returns the time that a field gives for all limits: on a denial the wait for the same call, else the time until the
    /// strictest limit has more units.
    pub(super) fn next_in(&self, strictest: &Item<'_>) -> Duration {
        self.wait().unwrap_or_else(|| strictest.more_in())
    }

    /// Returns the time until the bucket is full; on a denial at least the wait, because a block may last longer than the
    /// bucket takes to fill.
    pub(super) fn full_in(&self) -> Duration {
        self.decision.reset_in().max(self.wait().unwrap_or_default())
    }

    /// Returns the wait that the fields of a denial tell. `None`: the call is allowed.
    pub(super) fn wait(&self) -> Option<Duration> {
        let own = || (!self.decision.allowed()).then(|| self.decision.retry_in());
        // A denial never says 0.
        self.wait.or_else(own).map(|wait| wait.max(Duration::from_nanos(1)))
    }

    /// Returns the answer without the waits of other limits.
    pub(super) fn alone(&self) -> Answer<'a> {
        Answer { wait: None, ..self.clone() }
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &Item<'a>> {
        let items = match &self.items {
            Items::One(item) => item.as_slice(),
            Items::Many(items) => items,
        };
        items.iter().filter(|item| item.decision.remaining().is_some())
    }

    /// Returns the strictest item, whose decision is that of the batch: a denied item before an allowed one, then the
    /// one with the longer wait, then with fewer remaining units, then the later one.
    pub(super) fn strictest(&self) -> Option<&Item<'a>> {
        self.only_item().or_else(|| {
            self.items().max_by_key(|item| {
                let decision = &item.decision;
                let remaining = decision.remaining().map(|units| item.without_floor(units));
                (!decision.allowed(), decision.retry_in(), Reverse(remaining))
            })
        })
    }

    /// Returns the item if there is only one.
    pub(super) fn only_item(&self) -> Option<&Item<'a>> {
        let mut items = self.items();
        let first = items.next()?;
        items.next().is_none().then_some(first)
    }
}
