//! Builds the layer from rules, fields and a responder.

mod options;
mod responders;

use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use crate::http::tower::answer::Rules;
use crate::http::tower::exempt::Exemptions;
use crate::http::tower::layer::responders::Responders;
use crate::http::tower::outcome::OnRequest;
use crate::http::tower::rule_fields::LayerFields;
use crate::http::tower::rules::ActiveRule;
use crate::http::tower::{RateLimit, Rule, Switch};
use crate::http::{ClientAddress, Fields, Jitter, SetupError, Style, extract};
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::limits::{IdFormat, Limits};

/// The state that all clones of a layer and its services share.
pub(crate) struct LayerState {
    pub(crate) rules: Rules,
    pub(crate) responders: Responders,
    pub(crate) jitter: Option<Jitter>,
    pub(crate) permissive: bool,
    #[cfg(feature = "tracing")]
    pub(crate) logs_denials: bool,
    pub(crate) on_request: Option<OnRequest>,
    pub(crate) switch: Switch,
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
/// let layer = RateLimitLayer::builder(&limiter) // or by_client, for this one rule
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
    /// Makes a layer that limits each client by its address, with a limiter of its own.
    ///
    /// The limit's name is `PerClient`. A [builder](Self::builder) has all other choices.
    ///
    /// # Errors
    ///
    /// Those of [`RateLimitBuilder::build`].
    ///
    /// # Example: 20 requests at once, then 10 a second
    ///
    /// ```
    /// use std::net::SocketAddr;
    /// use std::time::Duration;
    /// use axum::{Router, extract::ConnectInfo, routing::get};
    /// use tollgate::Limit;
    /// use tollgate::http::{ClientAddress, RateLimitLayer};
    ///
    /// let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
    /// let layer = RateLimitLayer::by_client(Limit::new(20, 10, Duration::from_secs(1))?, clients)?;
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    /// # let _ = app;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn by_client(limit: Limit, clients: ClientAddress) -> Result<RateLimitLayer, SetupError> {
        const NAME: &str = "PerClient";
        let limits = Limits::builder().limit(NAME, IdFormat::IpAddress, limit)?;
        let limiter = Limiter::new(limits.build());
        let rule = Rule::new(limiter.limit(NAME)?, extract::client(clients));
        RateLimitLayer::builder(&limiter).rule(rule).build()
    }

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
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
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
            responders: Responders::default(),
            jitter: None,
            permissive: false,
            #[cfg(feature = "tracing")]
            logs_denials: false,
            on_request: None,
        }
    }

    /// Returns the limiter, such as to start its [sweeper](Limiter::start_sweeper).
    pub fn limiter(&self) -> &Limiter {
        &self.state.rules.limiter
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
/// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
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
    pub(super) responders: Responders,
    jitter: Option<Jitter>,
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
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
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
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
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

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// There is no rule; a rule's limit belongs to another limiter; a field cannot contain a rule's name; a route does not
    /// begin with `/`; two rules write one field in two styles; an [`everyone`](crate::http::extract::everyone) has an id
    /// that the limit's format does not allow, or a [`client`](crate::http::extract::client) a limit whose format allows no
    /// address; a rule may ask a store: use `build_shared` for it.
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
        let layer = self.build_local()?;
        if let Some(rule) = layer.state.rules.rules.iter().find(|rule| rule.learn().is_some()) {
            let text =
                format!("{}: its rule learns, so the layer needs build_waiting()", rule.name());
            return Err(SetupError::new(text));
        }
        Ok(layer)
    }

    /// Builds a layer without shared limits.
    pub(crate) fn build_local(self) -> Result<RateLimitLayer, SetupError> {
        let layer = self.build_any()?;
        if let Some(rule) = layer.state.rules.rules.iter().find(|rule| rule.asks_store()) {
            let text = format!(
                "{}: its rule may ask a store, so the layer needs build_shared()",
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
            exemptions: self.exemptions,
            records_allowed: fields.are_on_allowed
                || on_request.is_some()
                || rules.iter().any(ActiveRule::is_soft),
            rules: rules.into(),
            fields,
            lists: Default::default(),
        };
        rules.limiter.inner.rejections.add_layer();
        let (responders, permissive, jitter) = (self.responders, self.permissive, self.jitter);
        let switch = Switch::new();
        let state = LayerState {
            rules,
            responders,
            jitter,
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
