//! Rules: which limit applies to a request, to whom it counts, and what it costs.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use crate::algorithm::factor::Factor;
use crate::http::SetupError;
use crate::http::tower::policies::Policies;
use crate::http::tower::refusal::Rejection;
use crate::limiter::handle::KeyedLimit;
use crate::limits::Id;

/// To whom a request counts under one rule.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Who<'a> {
    /// An id, often a part of the request. Nothing is copied.
    Id(Id<'a>),
    /// An id that was put together for this request.
    Text(String),
    /// An id that is the same for many requests.
    Shared(Arc<str>),
    /// To no one: the rule does not apply to this request.
    NoLimit,
    /// It cannot be said, and the request is refused.
    Refused(Rejection),
}

impl<'a, I: Into<Id<'a>>> From<I> for Who<'a> {
    fn from(id: I) -> Who<'a> {
        Who::Id(id.into())
    }
}

impl Who<'_> {
    pub(crate) fn id(&self) -> Option<Id<'_>> {
        match self {
            Who::Id(id) => Some(*id),
            Who::Text(text) => Some(Id::Text(text)),
            Who::Shared(text) => Some(Id::Text(text)),
            Who::NoLimit | Who::Refused(_) => None,
        }
    }
}

type WhoOf = Box<dyn for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync>;
type CostOf = Box<dyn Fn(&Parts) -> u64 + Send + Sync>;
type FactorOf = Box<dyn Fn(&Parts) -> Factor + Send + Sync>;
type Applies = Box<dyn Fn(&Parts) -> bool + Send + Sync>;
type PartitionOf = Box<dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync>;
type Refunds = Box<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// One limit in front of a service: to whom a request counts, and how much.
///
/// # Example: an upload costs ten, and one that fails costs nothing
///
/// ```
/// use http::{HeaderName, Method};
/// use std::time::Duration;
/// use tollgate::http::{Rule, extract};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(100, 100, Duration::from_secs(60))?;
/// let limits = Limits::builder().limit("CallsPerKey", IdFormat::String, limit)?.build();
/// let limiter = Limiter::new(limits);
/// let key = extract::header(HeaderName::from_static("x-api-key"));
/// let rule = Rule::new(limiter.limit("CallsPerKey")?, key)
///     .cost(|request| if request.method == Method::PUT { 10 } else { 1 })
///     .refund_if(|status| status.is_server_error());
/// # let _ = rule;
/// # Ok::<(), tollgate::Error>(())
/// ```
#[must_use]
pub struct Rule {
    handle: KeyedLimit,
    shown_as: Option<String>,
    who_of: WhoOf,
    cost_of: Option<CostOf>,
    factor_of: Option<FactorOf>,
    applies: Option<Applies>,
    partition_of: Option<PartitionOf>,
    refunds: Option<Refunds>,
    refunds_denials: bool,
}

impl Rule {
    /// A rule for the limit of `handle`: each request costs 1, and counts to whom `who_of` says. See
    /// [`extract`](crate::http::extract) for ready ones. It is called once a request and must not wait.
    pub fn new(
        handle: KeyedLimit,
        who_of: impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static,
    ) -> Rule {
        Rule {
            handle,
            shown_as: None,
            who_of: Box::new(who_of),
            cost_of: None,
            factor_of: None,
            applies: None,
            partition_of: None,
            refunds: None,
            refunds_denials: false,
        }
    }

    /// The name that clients see, instead of the limit's own.
    pub fn shown_as(self, name: impl Into<String>) -> Rule {
        Rule { shown_as: Some(name.into()), ..self }
    }

    /// What a request costs; 0 asks without charging. A cost above the burst is refused with a 400,
    /// because no wait would help.
    pub fn cost(self, cost_of: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Rule {
        Rule { cost_of: Some(Box::new(cost_of)), ..self }
    }

    /// The caller's factor, such as that of a role: 0 is no limit. What the factor makes of the limit is
    /// what fields say of it. One that takes the limit's numbers out of their range is a 500.
    pub fn factor(self, factor_of: impl Fn(&Parts) -> Factor + Send + Sync + 'static) -> Rule {
        Rule { factor_of: Some(Box::new(factor_of)), ..self }
    }

    /// To which requests the rule applies. Without this, to all.
    pub fn when(self, applies: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Rule {
        Rule { applies: Some(Box::new(applies)), ..self }
    }

    /// A key that tells a client which of its quotas a field means: `pk` of the current draft. It is
    /// to be no secret; one of more than 256 bytes is left out.
    pub fn partition(
        self,
        partition_of: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Rule {
        Rule { partition_of: Some(Box::new(partition_of)), ..self }
    }

    /// Gives the cost back when the response has such a status, which is known when its headers come; what
    /// becomes of its body changes nothing. A response that never comes, because the service failed or
    /// panicked or the client left, gives back nothing.
    ///
    /// It goes back as by [`Receipt::settle`](crate::reserve::Receipt::settle) with 0: nothing after a reset or a refund of the
    /// bucket by hand, a reload that changes the limits, or an override's end in between.
    pub fn refund_if(self, refunds: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Rule {
        Rule { refunds: Some(Box::new(refunds)), ..self }
    }

    /// Gives the cost back when a [`RateLimitLayer`](crate::http::RateLimitLayer) further in denies the
    /// request, so that a client is charged for what was let through only. It is known by the extension
    /// [`Denied`](crate::http::Denied) of the response: a layer in between that makes another response of
    /// it must keep its extensions, or nothing is given back. A refusal further in is no denial; that is
    /// for [`refund_if`](Rule::refund_if), which may be set as well.
    ///
    /// # Example: a strict limit for logins within a global one
    ///
    /// ```
    /// use axum::{Router, routing::{get, post}};
    /// use std::time::Duration;
    /// use tollgate::http::{RateLimitLayer, Rule, extract};
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let minute = Duration::from_secs(60);
    /// let limits = Limits::builder()
    ///     .limit("Global", IdFormat::String, Limit::new(60, 60, minute)?)?
    ///     .limit("Login", IdFormat::String, Limit::new(3, 3, minute)?)?
    ///     .build();
    /// let limiter = Limiter::new(limits);
    /// let rule = |name| limiter.limit(name).map(|limit| Rule::new(limit, extract::bearer()));
    /// let login = RateLimitLayer::builder(&limiter).rule(rule("Login")?).build()?;
    /// let global = RateLimitLayer::builder(&limiter)
    ///     .rule(rule("Global")?.refund_if_denied_within())
    ///     .build()?;
    /// let app: Router = Router::new()
    ///     .route("/login", post(|| async { "welcome" }).layer(login))
    ///     .route("/", get(|| async { "hello" }))
    ///     .layer(global);
    /// # let _ = app;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refund_if_denied_within(self) -> Rule {
        Rule { refunds_denials: true, ..self }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({})", self.handle.name())
    }
}

/// A rule in use.
pub(crate) struct RuleInUse {
    pub(crate) rule: Rule,
    pub(crate) policies: Policies,
}

impl RuleInUse {
    pub(crate) fn new(rule: Rule) -> Result<RuleInUse, SetupError> {
        let policies = Policies::new(rule.shown_as.as_deref().unwrap_or(rule.handle.name()))?;
        Ok(RuleInUse { rule, policies })
    }

    pub(crate) fn handle(&self) -> &KeyedLimit {
        &self.rule.handle
    }

    /// The name that clients see.
    pub(crate) fn name(&self) -> &str {
        self.policies.name()
    }

    /// To whom the request counts; `None` if to no one.
    pub(crate) fn who<'a>(&self, parts: &'a Parts) -> Result<Option<Who<'a>>, Rejection> {
        if self.rule.applies.as_ref().is_some_and(|applies| !applies(parts)) {
            return Ok(None);
        }
        match (self.rule.who_of)(parts) {
            Who::NoLimit => Ok(None),
            Who::Refused(refusal) => Err(refusal),
            who => Ok(Some(who)),
        }
    }

    pub(crate) fn cost(&self, parts: &Parts) -> u64 {
        self.rule.cost_of.as_ref().map_or(1, |cost_of| cost_of(parts))
    }

    pub(crate) fn factor(&self, parts: &Parts) -> Factor {
        self.rule.factor_of.as_ref().map_or(Factor::ONE, |factor_of| factor_of(parts))
    }

    pub(crate) fn partition(&self, parts: &Parts) -> Option<Vec<u8>> {
        self.rule.partition_of.as_ref().and_then(|partition_of| partition_of(parts))
    }

    pub(crate) fn can_refund(&self) -> bool {
        self.rule.refunds.is_some() || self.rule.refunds_denials
    }

    pub(crate) fn refunds(&self, status: StatusCode, denied_within: bool) -> bool {
        (denied_within && self.rule.refunds_denials)
            || self.rule.refunds.as_ref().is_some_and(|refunds| refunds(status))
    }
}
