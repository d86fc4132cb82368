//! Defines the decision that a layer's function for responses sees.

use std::fmt;

use http::{request, response};

use crate::decision::Decision;
use crate::http::tower::answer::{RequestOutcome, Rules};

/// The function that a layer calls with each request. It returns the one for the response.
pub(crate) type OnRequest = Box<dyn Fn(&request::Parts) -> OnResponse + Send + Sync>;

/// The function that a layer calls with the response.
pub(crate) type OnResponse = Box<dyn FnOnce(&Outcome<'_>, &mut response::Parts) + Send + Sync>;

/// The limits' decision on a request, allowed or denied, as
/// [`RateLimitBuilder::on_response`](crate::http::RateLimitBuilder::on_response) gives it.
///
/// # Example: a warning when less than a tenth is left
///
/// ```
/// use tollgate::http::Outcome;
///
/// fn warn(path: &str, outcome: &Outcome<'_>) {
///     for (name, decision) in outcome.limits() {
///         if decision.allowed() && decision.remaining().is_some_and(|remaining| remaining < 10) {
///             println!("{path}: {name} is nearly used up");
///         }
///     }
/// }
/// # let _ = warn;
/// ```
pub struct Outcome<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) limits: &'a RequestOutcome,
}

impl Outcome<'_> {
    /// Returns the decision of all limits together, after the refunds by the response's status. Behind a
    /// [permissive](crate::http::RateLimitBuilder::permissive) layer a request is served even if this is a denial.
    /// If no limit applies, it is allowed, and `remaining` is `None`.
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
    /// let builder = RateLimitLayer::builder(&limiter).rule(rule).on_response(|_| {
    ///     |outcome, response| {
    ///         let left = outcome.decision().remaining().unwrap_or(0);
    ///         response.headers.insert("x-left", left.into());
    ///     }
    /// });
    /// assert_eq!(send(&builder.build()?, get())?.headers()["x-left"], "0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decision(&self) -> Decision {
        self.limits.decision()
    }

    /// Returns the limits that took part, in the order of the rules: the name of each, as clients see it, and its own
    /// decision. Limits in shadow mode are left out. Limits that allow a request that another one denies were not charged.
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
    /// let builder = RateLimitLayer::builder(&limiter).rule(rule).on_response(|_| {
    ///     |outcome, _| {
    ///         let names: Vec<_> = outcome.limits().map(|(name, _)| name).collect();
    ///         assert_eq!(names, ["All"]);
    ///     }
    /// });
    /// send(&builder.build()?, get())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limits(&self) -> impl Iterator<Item = (&str, Decision)> {
        self.limits.decisions(self.rules)
    }
}

impl fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.limits().collect();
        let mut shown = f.debug_struct("Outcome");
        shown.field("decision", &self.decision()).field("limits", &limits).finish()
    }
}
