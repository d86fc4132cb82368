//! Defines rules: which limit applies to a request, for which id it counts, and what it costs.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use crate::algorithm::factor::Factor;
use crate::http::policies::PolicyCache;
use crate::http::tower::extract::{constant_id, counts_clients};
use crate::http::tower::learn::Learn;
use crate::http::tower::rejection::Rejection;
use crate::http::tower::routes::{self, Routes};
use crate::http::tower::who::Who;
use crate::http::{Fields, QuotaUnit, SetupError};
use crate::limiter::handle::KeyedLimit;
use crate::limits::FloorName;

type FindWho = Box<dyn for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync>;
type FindCost = Box<dyn Fn(&Parts) -> u64 + Send + Sync>;
type FindFactor = Box<dyn Fn(&Parts) -> Factor + Send + Sync>;
type Applies = Box<dyn Fn(&Parts) -> bool + Send + Sync>;
type FindPartition = Box<dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync>;
type Refunds = Box<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// One limit in front of a service: the requests it applies to, and their ids and costs.
///
/// # Example: an upload costs ten, and a failed request nothing
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
    pub(super) limit: KeyedLimit,
    /// Whether the store may have to be asked.
    asks_store: bool,
    shown_as: Option<String>,
    unit: QuotaUnit,
    fields: Option<Fields>,
    who: FindWho,
    pub(super) cost: Option<FindCost>,
    factor: Option<FindFactor>,
    applies: Option<Applies>,
    /// The routes that the rule is for. Without any it is for all requests.
    pub(super) routes: Vec<Routes>,
    partition: Option<FindPartition>,
    pub(super) refunds: Option<Refunds>,
    pub(super) refunds_denials: bool,
    /// Whether the request holds the charge until its response has ended.
    pub(super) holds: bool,
    pub(super) is_soft: bool,
    pub(super) floor: Option<FloorName>,
    /// The id of all requests, if the rule counts them together.
    constant_id: Option<Arc<str>>,
    /// Where the provider that is called tells what is left.
    pub(super) learn: Option<Learn>,
    /// Whether the ids are clients' addresses.
    counts_clients: bool,
}

impl Rule {
    /// Makes a rule by which each request costs 1 and counts for the id that `who` returns. [`extract`](crate::http::extract)
    /// has common functions for it. The layer calls it once a request; it must not block. A layer of
    /// [`build_waiting`](crate::http::RateLimitBuilder::build_waiting) calls it, and the rule's other functions, again for a
    /// request that waits or that is denied because too many wait: they must return the same.
    pub fn new(
        limit: KeyedLimit,
        who: impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static,
    ) -> Rule {
        Rule::asking(limit, false, who)
    }

    pub(crate) fn asking(
        limit: KeyedLimit,
        asks_store: bool,
        who: impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static,
    ) -> Rule {
        let (constant_id, counts_clients) = (constant_id(&who), counts_clients(&who));
        Rule {
            limit,
            asks_store,
            shown_as: None,
            unit: QuotaUnit::default(),
            fields: None,
            who: Box::new(who),
            cost: None,
            factor: None,
            applies: None,
            routes: Vec::new(),
            partition: None,
            refunds: None,
            refunds_denials: false,
            holds: false,
            is_soft: false,
            floor: None,
            constant_id,
            learn: None,
            counts_clients,
        }
    }

    /// Sets the name that clients see in place of the limit's own.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule.shown_as("everything")).build()?;
    /// assert_eq!(send(&layer, get())?.headers()["ratelimit-policy"], r#""everything";q=1;w=60"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shown_as(self, name: impl Into<String>) -> Rule {
        Rule { shown_as: Some(name.into()), ..self }
    }

    /// Sets the unit in which the rule's cost is counted: `qu` of the current draft. The default is requests, of a rule
    /// [in flight](Rule::in_flight) concurrent requests. With
    /// [`cost`](Rule::cost) in bytes it is [`QuotaUnit::ContentBytes`].
    pub fn unit(self, unit: QuotaUnit) -> Rule {
        Rule { unit, ..self }
    }

    /// Sets the fields of this rule's limit in place of the layer's: other names, other styles, or none.
    ///
    /// Rules with the same style share its fields, as in a layer without own fields: lists name the limits of these rules,
    /// and single numbers are those of the strictest. `Retry-After` is always that of all rules together. Two rules whose
    /// styles differ may not write the same field; [`build`](crate::http::RateLimitBuilder::build) returns an error.
    ///
    /// # Example: PlugLimit's fields under names of the limit
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// # use tollgate::http::{Fields, PlugLimitNames, Style};
    /// let names = PlugLimitNames::from_names(["X-All-Limit", "X-All-Reset", "X-All-Remaining"])?;
    /// let rule = rule.fields(Fields::new([Style::PlugLimit(names)])?);
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// assert_eq!(send(&layer, get())?.headers()["x-all-limit"], "1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fields(self, fields: Fields) -> Rule {
        Rule { fields: Some(fields), ..self }
    }

    /// Sets the cost of a request, by default 1. With 0 the layer checks the limit and charges nothing. A request whose
    /// cost is above the burst gets a 400, because no wait would help.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let rule = rule.cost(|request| if request.uri.path() == "/health" { 0 } else { 1 });
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// send(&layer, Request::get("/health").body(())?)?;
    /// assert_eq!(limiter.limit("All")?.check("all", 0)?.remaining(), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Rule {
        Rule { cost: Some(Box::new(cost)), ..self }
    }

    /// Sets the caller's factor, such as that of a role; 0 means that no limit applies, nor a block of the id. Fields describe the scaled
    /// limit. A factor that takes the limit's numbers out of their range gives a 500.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// # use tollgate::limit::Factor;
    /// let rule = rule.factor(|request| match request.headers.contains_key("x-staff") {
    ///     true => Factor::ZERO, // no limit
    ///     false => Factor::ONE,
    /// });
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// let staff = || Request::get("/").header("x-staff", "1").body(());
    /// send(&layer, staff()?)?;
    /// assert_eq!(send(&layer, staff()?)?.status(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn factor(self, factor: impl Fn(&Parts) -> Factor + Send + Sync + 'static) -> Rule {
        Rule { factor: Some(Box::new(factor)), ..self }
    }

    /// Restricts the rule to the requests for which `applies` returns true. With a [`route`](Rule::route) as well, both
    /// must hold. To restrict a rule to a path, use `route`: `uri.path()` is a spelling that the client chooses, and under
    /// axum's `nest` a part of the path.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let rule = rule.when(|request| request.method != "OPTIONS");
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// let served = send(&layer, Request::options("/").body(())?)?;
    /// assert!(!served.headers().contains_key("ratelimit"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn when(self, applies: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Rule {
        Rule { applies: Some(Box::new(applies)), ..self }
    }

    /// Sets a key that tells a client which of its quotas a field describes: `pk` of the current draft. It must not be a
    /// secret. A key of more than 256 bytes is omitted.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let rule = rule.partition(|request| Some(request.uri.path().into()));
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// assert!(send(&layer, get())?.headers()["ratelimit"].to_str()?.contains("pk=:Lw==:")); // a slash
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn partition(
        self,
        partition: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Rule {
        Rule { partition: Some(Box::new(partition)), ..self }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({})", self.limit.name())
    }
}

/// A layer's rule, with its policies.
pub(crate) struct ActiveRule {
    rule: Rule,
    /// Whether the layer keeps something of the request beside the decision (a charge, or a mark), or `has_terms`.
    keeps: bool,
    /// Whether the rule's member of a batch has a mode or a priority.
    has_terms: bool,
    /// Whether a request is an id and a cost of 1, and nothing of it is kept.
    is_plain: bool,
    pub(crate) policies: PolicyCache,
}

impl ActiveRule {
    pub(crate) fn new(rule: Rule) -> Result<ActiveRule, SetupError> {
        rule.routes.iter().try_for_each(|route| route.check(rule.limit.name()))?;
        if let Some(id) = &rule.constant_id {
            let invalid = |error| format!("the id of all requests: {}: {error}", rule.limit.name());
            rule.limit.normalize(&**id).map_err(|error| SetupError::new(invalid(error)))?;
        }
        if rule.counts_clients {
            let invalid =
                |error| format!("a client's address as the id of {}: {error}", rule.limit.name());
            let any = IpAddr::from([192, 0, 2, 1]);
            rule.limit.normalize(any).map_err(|error| SetupError::new(invalid(error)))?;
        }
        if rule.factor.is_some() && rule.limit.counts_in_flight() {
            let text = format!("{}: what is in flight has no factor", rule.limit.name());
            return Err(SetupError::new(text));
        }
        if rule.holds && rule.asks_store {
            let text = format!(
                "{}: an estimate is settled on this node, so its rule is one of Rule::new()",
                rule.limit.name()
            );
            return Err(SetupError::new(text));
        }
        let policies = PolicyCache::new(rule.shown_as.as_deref().unwrap_or(rule.limit.name()))?;
        let unit = match rule.limit.counts_in_flight() {
            true if rule.unit == QuotaUnit::default() => QuotaUnit::ConcurrentRequests,
            _ => rule.unit,
        };
        let policies = policies.counting_in(unit);
        rule.check_floor()?;
        let has_terms = rule.is_soft || rule.floor.is_some();
        let keeps = rule.holds || has_terms || rule.refunds.is_some() || rule.refunds_denials;
        let is_plain = !keeps
            && rule.routes.is_empty()
            && rule.applies.is_none()
            && rule.cost.is_none()
            && rule.factor.is_none()
            && rule.partition.is_none();
        Ok(ActiveRule { rule, keeps, has_terms, is_plain, policies })
    }

    pub(crate) fn limit(&self) -> &KeyedLimit {
        &self.rule.limit
    }

    pub(crate) fn asks_store(&self) -> bool {
        self.rule.asks_store
    }

    /// Returns the name that clients see.
    pub(crate) fn name(&self) -> &str {
        self.policies.name()
    }

    /// Returns the rule's own fields.
    pub(crate) fn fields(&self) -> Option<&Fields> {
        self.rule.fields.as_ref()
    }

    /// Returns the id for which the request counts. `None` if the rule does not apply.
    #[inline]
    pub(crate) fn who<'a>(&self, parts: &'a Parts) -> Result<Option<Who<'a>>, Rejection> {
        if self.rule.applies.as_ref().is_some_and(|applies| !applies(parts)) {
            return Ok(None);
        }
        if !routes::applies(&self.rule.routes, parts)? {
            return Ok(None);
        }
        match self.call_who(parts) {
            Who::NoLimit => Ok(None),
            Who::Refused(rejection) => Err(rejection),
            who => Ok(Some(who)),
        }
    }

    #[inline]
    pub(crate) fn call_who<'a>(&self, parts: &'a Parts) -> Who<'a> {
        (self.rule.who)(parts)
    }

    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain
    }

    pub(crate) fn cost(&self, parts: &Parts) -> u64 {
        self.rule.cost.as_ref().map_or(1, |cost| cost(parts))
    }

    pub(crate) fn factor(&self, parts: &Parts) -> Factor {
        self.rule.factor.as_ref().map_or(Factor::ONE, |factor| factor(parts))
    }

    pub(crate) fn partition(&self, parts: &Parts) -> Option<Vec<u8>> {
        self.rule.partition.as_ref().and_then(|partition| partition(parts))
    }

    #[inline]
    pub(crate) fn keeps(&self) -> bool {
        self.keeps
    }

    pub(crate) fn holds(&self) -> bool {
        self.rule.holds
    }

    #[inline]
    pub(crate) fn has_terms(&self) -> bool {
        self.has_terms
    }

    /// Returns the floor that requests must leave.
    pub(crate) fn floor(&self) -> Option<&FloorName> {
        self.rule.floor.as_ref()
    }

    pub(crate) fn is_soft(&self) -> bool {
        self.rule.is_soft
    }

    pub(crate) fn learn(&self) -> Option<&Learn> {
        self.rule.learn.as_ref()
    }

    pub(crate) fn can_refund(&self) -> bool {
        self.rule.refunds.is_some() || self.rule.refunds_denials
    }

    pub(crate) fn refunds(&self, status: StatusCode, denied_within: bool) -> bool {
        (denied_within && self.rule.refunds_denials)
            || self.rule.refunds.as_ref().is_some_and(|refunds| refunds(status))
    }
}
