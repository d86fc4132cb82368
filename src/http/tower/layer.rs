//! Builds the layer from rules, fields and a responder.

mod options;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tower_layer::Layer;

use crate::http::tower::answer::Rules;
use crate::http::tower::exempt::Exemptions;
use crate::http::tower::grpc::Protocol;
use crate::http::tower::outcome::OnRequest;
use crate::http::tower::responder;
use crate::http::tower::responder::Denial;
use crate::http::tower::rule_fields::LayerFields;
use crate::http::tower::rules::ActiveRule;
use crate::http::tower::{RateLimit, Rejection, Rule, Switch};
use crate::http::{Fields, SetupError, Style};
use crate::limiter::Limiter;

/// The state that all clones of a layer and its services share.
pub(crate) struct LayerState {
    pub(crate) rules: Rules,
    pub(crate) responder: Responder,
    /// Whether gRPC requests get gRPC's own answers.
    pub(crate) grpc: bool,
    pub(crate) permissive: bool,
    #[cfg(feature = "tracing")]
    pub(crate) logs_denials: bool,
    pub(crate) on_request: Option<OnRequest>,
    pub(crate) switch: Switch,
}

type CustomResponder = Box<dyn Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync>;

pub(crate) enum Responder {
    ProblemJson,
    PlainText,
    Custom(CustomResponder),
}

impl LayerState {
    pub(crate) fn respond(&self, denial: &Denial<'_>) -> Response<Bytes> {
        match (&self.responder, self.protocol(denial.request)) {
            (Responder::Custom(respond), _) => respond(denial),
            (_, Some(protocol)) => protocol.denied(denial),
            (Responder::ProblemJson, None) => responder::problem_json(denial),
            (Responder::PlainText, None) => responder::plain_text(denial),
        }
    }

    pub(crate) fn respond_rejected(
        &self,
        rejection: &Rejection,
        request: &Parts,
    ) -> Response<Bytes> {
        let as_text = matches!(self.responder, Responder::PlainText);
        match self.protocol(request) {
            Some(protocol) => protocol.rejected(rejection),
            None => responder::rejected(rejection, as_text),
        }
    }

    fn protocol(&self, request: &Parts) -> Option<Protocol> {
        if self.grpc { Protocol::from_request(request) } else { None }
    }
}

/// Puts limits in front of a service of axum, hyper, tonic or any other library with tower's layers.
///
/// The layer charges all rules that apply to a request as one batch: all of them, or none. It answers a denied request
/// at once and does not call the inner service. Every response gets the chosen header fields, by default those of the
/// current draft.
///
/// A denial is a 429 with a problem document, or with [`grpc`](RateLimitBuilder::grpc) a RESOURCE_EXHAUSTED for gRPC
/// requests. A request whose id is missing or invalid is rejected with a 400 or 500, and never counts for a bucket that
/// many clients share. All these answers have `Cache-Control: no-store`.
///
/// Layers may be nested: see [`Fields::write`] for their fields, and [`Rule::refund_if_denied_within`].
///
/// Clones of the layer, and their services, share the limiter and the [`Switch`].
///
/// # Example: limit each client of an axum server by its address
///
/// ```
/// use std::net::SocketAddr;
/// use std::time::Duration;
/// use axum::{Router, extract::ConnectInfo, routing::get};
/// use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
/// use tollgate::{IdFormat, Limit, Limiter, Limits};
///
/// let limit = Limit::new(20, 10, Duration::from_secs(1))?;
/// let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
/// let limiter = Limiter::new(limits);
/// let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
/// let layer = RateLimitLayer::builder(&limiter)
///     .rule(Rule::new(limiter.limit("PerClient")?, extract::client(clients)))
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// let service = app.into_make_service_with_connect_info::<SocketAddr>();
/// # let _ = service;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RateLimitLayer {
    state: Arc<LayerState>,
}

impl RateLimitLayer {
    /// Starts a layer for rules of this limiter.
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
    /// # let limiter = Limiter::with_clock(limits, Clock::manual().0);
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
    /// assert_eq!(send(&layer, get())?.headers()["ratelimit"], r#""All";r=0;t=60"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(limiter: &Limiter) -> RateLimitBuilder {
        RateLimitBuilder {
            limiter: limiter.clone(),
            rules: Vec::new(),
            exemptions: Exemptions::default(),
            fields: None,
            responder: Responder::ProblemJson,
            grpc: false,
            permissive: false,
            #[cfg(feature = "tracing")]
            logs_denials: false,
            on_request: None,
        }
    }

    /// Returns the switch that this layer shares with its clones and their services.
    pub fn switch(&self) -> Switch {
        self.state.switch.clone()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.state))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("rules", &self.state.rules.names())
            .field("permissive", &self.state.permissive)
            .field("switch", &self.state.switch)
            .finish_non_exhaustive()
    }
}

/// Builds a [`RateLimitLayer`].
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
/// # let limiter = Limiter::with_clock(limits, Clock::manual().0);
/// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
/// # let get = || Request::new(());
/// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
/// assert_eq!(send(&layer, get())?.status(), 200);
/// assert_eq!(send(&layer, get())?.status(), 429);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct RateLimitBuilder {
    limiter: Limiter,
    rules: Vec<Rule>,
    pub(super) exemptions: Exemptions,
    fields: Option<Fields>,
    responder: Responder,
    grpc: bool,
    permissive: bool,
    #[cfg(feature = "tracing")]
    logs_denials: bool,
    on_request: Option<OnRequest>,
}

impl RateLimitBuilder {
    /// Adds a rule. All rules that apply to a request are charged together, or none.
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
    /// # let limiter = Limiter::with_clock(limits, Clock::manual().0);
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let only_post = Rule::new(limiter.limit("All")?, extract::everyone("posts"))
    ///     .when(|request| request.method == "POST");
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).rule(only_post).build()?;
    /// assert_eq!(send(&layer, get())?.status(), 200);
    /// assert_eq!(send(&layer, Request::post("/").body(())?)?.status(), 429); // the first rule denies it
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rule(mut self, rule: Rule) -> RateLimitBuilder {
        self.rules.push(rule);
        self
    }

    /// Sets the fields of every response, by default [`Style::Ietf`]. A rule may have [its own](Rule::fields).
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
    /// # let limiter = Limiter::with_clock(limits, Clock::manual().0);
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// # use tollgate::http::{Fields, Reset, Style};
    /// let fields = Fields::new([Style::XRateLimit(Reset::Delta)])?;
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).fields(fields).build()?;
    /// assert_eq!(send(&layer, get())?.headers()["x-ratelimit-limit"], "1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fields(self, fields: Fields) -> RateLimitBuilder {
        RateLimitBuilder { fields: Some(fields), ..self }
    }

    /// Answers denied and rejected requests with a line of text.
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
    /// # let limiter = Limiter::with_clock(limits, Clock::manual().0);
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).plain_text().build()?;
    /// assert_eq!(send(&layer, get())?.status(), 200);
    /// assert_eq!(send(&layer, get())?.headers()["content-type"], "text/plain; charset=utf-8");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plain_text(self) -> RateLimitBuilder {
        RateLimitBuilder { responder: Responder::PlainText, ..self }
    }

    /// Answers requests of gRPC and gRPC-Web with gRPC's own status, for example with tonic: a denial is
    /// RESOURCE_EXHAUSTED with `grpc-retry-pushback-ms`; a rejection is INVALID_ARGUMENT, UNAUTHENTICATED,
    /// PERMISSION_DENIED or INTERNAL. The HTTP status is 200, as gRPC requires. Without this option gRPC requests get the
    /// same answers as others, which gRPC clients read as UNAVAILABLE or UNKNOWN.
    ///
    /// A [custom responder](RateLimitBuilder::respond) still answers all denials; it may call [`responder::grpc`].
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
    /// # let limiter = Limiter::with_clock(limits, Clock::manual().0);
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).grpc().build()?;
    /// let call = || Request::post("/pb.Users/Get").header("content-type", "application/grpc").body(());
    /// send(&layer, call()?)?;
    /// let denied = send(&layer, call()?)?;
    /// assert_eq!((denied.status().as_u16(), &denied.headers()["grpc-status"]), (200, &"8".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn grpc(self) -> RateLimitBuilder {
        RateLimitBuilder { grpc: true, ..self }
    }

    /// Answers every denial with the response of `respond`, which must not block. Rejections still get a problem document.
    ///
    /// The layer adds its fields, and replaces `Cache-Control` by `no-store`, because no cache may store a denial. It does
    /// not change fields that override `Cache-Control` for some caches, such as nginx's `X-Accel-Expires` or
    /// `CDN-Cache-Control`.
    ///
    /// # Example
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use tollgate::{Limiter, Limits};
    /// use tollgate::http::RateLimitLayer;
    ///
    /// let limiter = Limiter::new(Limits::builder().build());
    /// let builder = RateLimitLayer::builder(&limiter).respond(|denial| {
    ///     let mut response = Response::new(format!("{} s", denial.retry_after()));
    ///     *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    ///     response
    /// });
    /// # let _ = builder;
    /// ```
    pub fn respond<B: Into<Bytes>>(
        self,
        respond: impl Fn(&Denial<'_>) -> Response<B> + Send + Sync + 'static,
    ) -> RateLimitBuilder {
        let respond = move |denial: &Denial<'_>| respond(denial).map(Into::into);
        RateLimitBuilder { responder: Responder::Custom(Box::new(respond)), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// There is no rule; a rule's limit belongs to another limiter; a field cannot contain a rule's name; a route does not
    /// begin with `/`; two rules write one field in two styles.
    ///
    /// # Example
    ///
    /// ```
    /// # use tollgate::http::RateLimitLayer;
    /// # use tollgate::{Limiter, Limits};
    /// let limiter = Limiter::new(Limits::builder().build());
    /// assert!(RateLimitLayer::builder(&limiter).build().is_err(), "it has no rule");
    /// ```
    pub fn build(self) -> Result<RateLimitLayer, SetupError> {
        let layer = self.build_any()?;
        if let Some(rule) = layer.state.rules.rules.iter().find(|rule| rule.asks_store()) {
            let text = format!(
                "{}: its rule may ask a store, so the layer needs build_with_store()",
                rule.name()
            );
            return Err(SetupError::new(text));
        }
        Ok(layer)
    }

    pub(crate) fn build_any(self) -> Result<RateLimitLayer, SetupError> {
        if self.rules.is_empty() {
            return Err(SetupError::new("a layer without a rule limits nothing"));
        }
        self.exemptions.check()?;
        let rules: Vec<_> =
            self.rules.into_iter().map(ActiveRule::new).collect::<Result<_, _>>()?;
        for rule in &rules {
            rule.limit().check_limiter(&self.limiter)?;
        }
        let fields = match self.fields {
            Some(fields) => fields,
            None => Fields::new([Style::Ietf])?,
        };
        let fields = LayerFields::new(&rules, &fields)?;
        let on_request = self.on_request;
        let rules = Rules {
            limiter: self.limiter,
            rules: rules.into(),
            exemptions: self.exemptions,
            records_allowed: fields.all.has_styles() || on_request.is_some(),
            fields,
            lists: Default::default(),
        };
        let (responder, grpc, permissive) = (self.responder, self.grpc, self.permissive);
        let switch = Switch::new();
        let state = LayerState {
            rules,
            responder,
            grpc,
            permissive,
            #[cfg(feature = "tracing")]
            logs_denials: self.logs_denials,
            on_request,
            switch,
        };
        Ok(RateLimitLayer { state: Arc::new(state) })
    }
}

impl fmt::Debug for RateLimitBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBuilder").field("rules", &self.rules).finish_non_exhaustive()
    }
}
