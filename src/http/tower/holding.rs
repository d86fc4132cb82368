//! Rules whose charges depend on the response (estimates, permits, refunds, fields to learn from), rules that only mark, and
//! rules with a priority.

use http::StatusCode;
use http::request::Parts;

use crate::http::tower::learn::Learn;
use crate::http::tower::rules::{ActiveRule, Rule};
use crate::http::{SetupError, Who};
use crate::limiter::batch::{Member, MemberMode};
use crate::limiter::permits::ConcurrencyLimit;
use crate::limits::{FloorName, Leave};

impl Rule {
    /// Charges each request the units that `units` estimates, until its handler settles them by the actual cost through the
    /// request's [`Charge`](crate::http::Charge), which has an example. An estimate that the handler does not settle stays charged.
    ///
    /// With [`refund_if`](Rule::refund_if) and [`refund_if_denied_within`](Rule::refund_if_denied_within) an estimate that is not
    /// settled when the response comes is settled to 0.
    ///
    /// A rule of [`Rule::shared`](crate::http::Rule) has no estimates.
    ///
    /// # Example
    ///
    /// See [`Charge`](crate::http::Charge).
    pub fn estimate(mut self, units: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Rule {
        self.cost = Some(Box::new(units));
        self.holds = true;
        self
    }

    /// Makes a rule by which each request takes a permit of a concurrency limit, and holds it until its response has
    /// ended: see [`Charge`](crate::http::Charge). More permits are set by [`cost`](Rule::cost).
    ///
    /// # Example: two requests of a user at once
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use std::convert::Infallible;
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tollgate::http::{RateLimitLayer, Rule, extract};
    ///
    /// # let limit = Limit::concurrency(2)?;
    /// # let limiter = Limiter::new(Limits::builder().limit("Streams", IdFormat::String, limit)?.build());
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// let streams = limiter.concurrency("Streams")?;
    /// let rule = Rule::in_flight(streams.clone(), extract::header(http::HeaderName::from_static("x-user")));
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// # let get = || runtime.block_on(layer.layer(handler).oneshot(
    /// #     Request::builder().header("x-user", "alice").body(()).unwrap())).unwrap();
    /// let [first, second] = [get(), get()];
    /// assert_eq!(get().status(), StatusCode::TOO_MANY_REQUESTS);
    /// drop(first); // its body has ended
    /// assert_eq!(get().status(), StatusCode::OK);
    /// # drop(second);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_flight(
        limit: ConcurrencyLimit,
        who: impl for<'a> Fn(&'a Parts) -> Who<'a> + Send + Sync + 'static,
    ) -> Rule {
        let mut rule = Rule::asking(limit.into_handle(), false, who);
        rule.holds = true;
        rule
    }

    /// Lets a request pass that the rule's limit would deny, and marks it: the [`Report`](crate::http::Report) in the request's
    /// extensions names the limit among those that are violated. The limit is charged if it has the units. Fields of responses
    /// and denials by other rules do not show it.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tollgate::http::{RateLimitLayer, Report, Rule, extract};
    ///
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limiter = Limiter::new(Limits::builder().limit("Usual", IdFormat::String, limit)?.build());
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// let rule = Rule::new(limiter.limit("Usual")?, extract::everyone("all")).soft();
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// let handler = service_fn(|request: Request<()>| async move {
    ///     let is_unusual = request.extensions().get::<Report>().is_some_and(|it| !it.violated().is_empty());
    ///     Ok::<_, Infallible>(Response::new(if is_unusual { "slowly" } else { "at once" }.to_owned()))
    /// });
    /// # let get = || runtime.block_on(layer.layer(handler).oneshot(Request::new(()))).unwrap();
    /// # let body = |response: Response<_>| runtime.block_on(http_body_util::BodyExt::collect(response.into_body())).unwrap().to_bytes();
    /// assert_eq!([body(get()), body(get())], ["at once", "slowly"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn soft(mut self) -> Rule {
        self.is_soft = true;
        self
    }

    /// Gives the rule's requests a priority of the limit: they must leave the units of its floor of this name in the bucket. See
    /// [`KeyedLimit::priority`](crate::KeyedLimit::priority). Other requests have a rule of their own, with the same limit and
    /// the opposite condition. The fields of the rule's responses leave out the units of the floor.
    ///
    /// If the limit has no such floor, the layer's `build` returns an error.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response, request::Parts};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::{IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tollgate::http::{RateLimitLayer, Rule, extract};
    /// use tollgate::limits::{Floor, LimitOptions};
    ///
    /// # let limit = Limit::new(2, 2, Duration::from_secs(60))?;
    /// let options = LimitOptions::default().floor("batch", Floor::Percent(50));
    /// let limits = Limits::builder().limit_with("Calls", IdFormat::String, limit, options)?.build(); // 2 at once
    /// # let limiter = Limiter::new(limits);
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// let is_batch = |request: &Parts| request.uri.path().starts_with("/batch/");
    /// let rule = || limiter.limit("Calls").map(|limit| Rule::new(limit, extract::everyone("all")));
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(rule()?.when(move |request| !is_batch(request)))
    ///     .rule(rule()?.when(is_batch).priority("batch"))
    ///     .build()?;
    /// # let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let status = |path| {
    /// #     let request = Request::get(path).body(()).unwrap();
    /// #     runtime.block_on(layer.layer(handler).oneshot(request)).unwrap().status()
    /// # };
    /// assert_eq!([status("/batch/1"), status("/batch/2"), status("/")], [200, 429, 200]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priority(mut self, name: &str) -> Rule {
        self.floor = Some(FloorName::new(name));
        self
    }

    /// Checks that the limit has the rule's floor.
    pub(super) fn check_floor(&self) -> Result<(), SetupError> {
        let Some(floor) = &self.floor else { return Ok(()) };
        let asked = self.limit.ask_for_floor(floor.text());
        asked.map(|_| ()).map_err(|error| SetupError::new(error.to_string()))
    }
}

impl ActiveRule {
    /// Gives the rule's mode and priority to its member of a batch.
    #[cold]
    pub(crate) fn with_terms<'a>(&'a self, member: Member<'a>) -> Member<'a> {
        let member = match self.floor() {
            Some(floor) => member.leaving_any(Leave::Floor(floor)),
            None => member,
        };
        if self.is_soft() { member.mode(MemberMode::SpendOnly) } else { member }
    }
}

impl Rule {
    /// Refunds the cost if `refunds` returns true for the response's status. The layer decides when the response's head
    /// comes; its body has no influence. A response that never comes, because the service fails or panics or the client
    /// leaves, refunds nothing.
    ///
    /// The refund is [`Receipt::settle`](crate::reserve::Receipt::settle) with 0. It has no effect after a reload that
    /// changes the id's limit, or the end of its override.
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
    /// let rule = rule.refund_if(|status| status.is_success());
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// send(&layer, get())?;
    /// assert_eq!(send(&layer, get())?.status(), 200); // the first request was refunded
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refund_if(
        mut self,
        refunds: impl Fn(StatusCode) -> bool + Send + Sync + 'static,
    ) -> Rule {
        self.refunds = Some(Box::new(refunds));
        self
    }

    /// Refunds the cost if an inner [`RateLimitLayer`](crate::http::RateLimitLayer) denies the request, so that a client
    /// pays only for requests that were served. The rule recognizes the denial by the response's extension
    /// [`Denied`](crate::http::Denied): a layer in between that replaces the response must keep its extensions. An inner
    /// layer's rejection is not a denial; [`refund_if`](Rule::refund_if) can refund it, and both may be set.
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
    pub fn refund_if_denied_within(mut self) -> Rule {
        self.refunds_denials = true;
        self
    }

    /// Lowers the rule's bucket to what the provider's responses say is left, in a layer of
    /// [`build_waiting`](crate::http::RateLimitBuilder::build_waiting) around a client. Nothing is ever raised: the limit is what
    /// the caller may send at most.
    ///
    /// A response of 429, 503 or 403 with `Retry-After`, in seconds or as a date, [blocks](crate::KeyedLimit::block) the id for as long, and
    /// for a day at most: [`Limiter::blocks`](crate::Limiter::blocks) shows it, [`unblock`](crate::KeyedLimit::unblock) ends it for new
    /// requests, and those that wait keep their times. Requests wait for its end, but for those of a [soft](Rule::soft) rule. Requests that are under way are taken off what a response says is left, because the provider has not counted
    /// them in it.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::http::{Learn, RateLimitLayer, Rule, WaitOptions, extract};
    /// use tollgate::{IdFormat, Limit, Limiter, Limits};
    ///
    /// let limit = Limit::new(500, 500, Duration::from_secs(60))?;
    /// let limiter = Limiter::new(Limits::builder().limit("Requests", IdFormat::String, limit)?.build());
    /// let rule = Rule::new(limiter.limit("Requests")?, extract::everyone("my-key"));
    /// let layer = RateLimitLayer::builder(&limiter)
    ///     .rule(rule.learn(Learn::openai_requests()))
    ///     .build_waiting(WaitOptions::at_most(Duration::from_secs(60)), tokio::time::sleep)?;
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn learn(mut self, fields: Learn) -> Rule {
        self.learn = Some(fields);
        self
    }
}
