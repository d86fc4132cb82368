//! The layer: rules, fields and a responder, put together once.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use tower_layer::Layer;

use crate::http::tower::answer::Rules;
use crate::http::tower::grpc::Protocol;
use crate::http::tower::responder;
use crate::http::tower::responder::Denial;
use crate::http::tower::rules::RuleInUse;
use crate::http::tower::{RateLimit, Rejection, Rule};
use crate::http::{Fields, SetupError, Style};
use crate::limiter::Limiter;
use crate::util::sync;
use crate::util::sync::Ordering;

/// What all clones of a layer and its services share.
pub(crate) struct Shared {
    pub(crate) rules: Rules,
    pub(crate) responder: Responder,
    /// Whether gRPC's requests get gRPC's answers.
    pub(crate) grpc: bool,
    pub(crate) permissive: bool,
    pub(crate) switch: Switch,
}

type OwnResponder = Box<dyn Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync>;

pub(crate) enum Responder {
    ProblemJson,
    PlainText,
    Own(OwnResponder),
}

impl Shared {
    pub(crate) fn respond(&self, denial: &Denial<'_>) -> Response<Bytes> {
        match (&self.responder, self.protocol(denial.request)) {
            (Responder::Own(own), _) => own(denial),
            (_, Some(protocol)) => protocol.denied(denial),
            (Responder::ProblemJson, None) => responder::problem_json(denial),
            (Responder::PlainText, None) => responder::plain_text(denial),
        }
    }

    pub(crate) fn respond_refused(&self, refusal: &Rejection, request: &Parts) -> Response<Bytes> {
        let as_text = matches!(self.responder, Responder::PlainText);
        match self.protocol(request) {
            Some(protocol) => protocol.refused(refusal),
            None => responder::refused(refusal, as_text),
        }
    }

    fn protocol(&self, request: &Parts) -> Option<Protocol> {
        if self.grpc { Protocol::of(request) } else { None }
    }
}

/// Turns a layer off and on while it runs. Off, requests pass untouched and their responses carry no
/// field.
///
/// A change is seen by the requests that come after it, on other cores a moment later.
///
/// [`Limiter::set_enabled`] switches off the limiter under all its layers, and leaves the layers on: nothing is
/// denied then, but requests of which a rule cannot say whom they count for are still refused with 400 or 500.
#[derive(Clone)]
pub struct Switch(Arc<sync::Switch>);

impl Switch {
    fn new() -> Switch {
        Switch(Arc::new(sync::Switch::new(true)))
    }

    /// Whether the layer limits.
    pub fn enabled(&self) -> bool {
        // Relaxed: publishes nothing but itself.
        self.0.load(Ordering::Relaxed)
    }

    /// Turns it on or off.
    pub fn set_enabled(&self, enabled: bool) {
        // Relaxed: publishes nothing but itself.
        self.0.store(enabled, Ordering::Relaxed);
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Switch({})", self.enabled())
    }
}

/// Puts limits in front of a service: of axum, hyper, tonic or anything else that tower's layers wrap.
///
/// All rules that apply to a request are charged as one batch: all of them, or none. A denied request
/// gets its answer at once, and the inner service is not called. Every response carries the fields that
/// were picked, by default those of the current draft.
///
/// A denial is a 429 with a problem document; for gRPC, if [switched on](RateLimitBuilder::grpc), it is
/// RESOURCE_EXHAUSTED. A request of which a rule cannot say whom it counts for is a 500 or a 400, never a
/// bucket that many share. All of these have `Cache-Control: no-store`.
///
/// Layers may be nested: see [`Fields::write`] for what their responses say together, and
/// [`Rule::refund_if_denied_within`].
///
/// Clones share the limiter, and so do the services that they make.
///
/// # Example: each client of an axum server by its address
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
    shared: Arc<Shared>,
}

impl RateLimitLayer {
    /// Starts a layer of limits of this limiter.
    pub fn builder(limiter: &Limiter) -> RateLimitBuilder {
        RateLimitBuilder {
            limiter: limiter.clone(),
            rules: Vec::new(),
            fields: None,
            responder: Responder::ProblemJson,
            grpc: false,
            permissive: false,
        }
    }

    /// The switch of this layer, its clones and their services.
    pub fn switch(&self) -> Switch {
        self.shared.switch.clone()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("rules", &self.shared.rules.names())
            .field("permissive", &self.shared.permissive)
            .field("switch", &self.shared.switch)
            .finish_non_exhaustive()
    }
}

/// Makes a [`RateLimitLayer`].
#[must_use]
pub struct RateLimitBuilder {
    limiter: Limiter,
    rules: Vec<Rule>,
    fields: Option<Fields>,
    responder: Responder,
    grpc: bool,
    permissive: bool,
}

impl RateLimitBuilder {
    /// Adds a rule. Those that apply to a request are charged together, or not at all.
    pub fn rule(mut self, rule: Rule) -> RateLimitBuilder {
        self.rules.push(rule);
        self
    }

    /// The fields of every response; without this, [`Style::Ietf`].
    pub fn fields(self, fields: Fields) -> RateLimitBuilder {
        RateLimitBuilder { fields: Some(fields), ..self }
    }

    /// Answers a denial, and a refusal, with a line of text.
    pub fn plain_text(self) -> RateLimitBuilder {
        RateLimitBuilder { responder: Responder::PlainText, ..self }
    }

    /// Answers requests of gRPC and gRPC-Web in their own terms: a denial is RESOURCE_EXHAUSTED with
    /// `grpc-retry-pushback-ms`, a refusal INVALID_ARGUMENT, UNAUTHENTICATED, PERMISSION_DENIED or INTERNAL,
    /// all with the HTTP status 200, as gRPC has it. For servers of tonic, for example. Without this they
    /// are answered like others, which gRPC's clients take for UNAVAILABLE or UNKNOWN.
    ///
    /// Denials that a [custom responder](RateLimitBuilder::respond) answers are left to it, which may call
    /// [`responder::grpc`].
    pub fn grpc(self) -> RateLimitBuilder {
        RateLimitBuilder { grpc: true, ..self }
    }

    /// Answers every denial with what `respond` makes, to which `Cache-Control: no-store` and the fields
    /// are added. It must not wait. Refusals are still answered with a problem document.
    ///
    /// No cache may store a denial. `Cache-Control` is replaced; a field that comes before it for some
    /// caches, such as nginx's `X-Accel-Expires` or `CDN-Cache-Control`, is left as `respond` sets it.
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
        let own = move |denial: &Denial<'_>| respond(denial).map(Into::into);
        RateLimitBuilder { responder: Responder::Own(Box::new(own)), ..self }
    }

    /// Denies nothing, and only reports: what the limits say is a [`Report`](crate::http::Report) in the
    /// request's extensions, and in the response's fields, without `Retry-After`. Allowed calls are
    /// charged as ever.
    pub fn permissive(self, permissive: bool) -> RateLimitBuilder {
        RateLimitBuilder { permissive, ..self }
    }

    /// The layer.
    ///
    /// # Errors
    ///
    /// There is no rule; a rule's limit is another limiter's; a name cannot be written in a field.
    pub fn build(self) -> Result<RateLimitLayer, SetupError> {
        if self.rules.is_empty() {
            return Err(SetupError::new("a layer without a rule limits nothing"));
        }
        let rules: Vec<_> = self.rules.into_iter().map(RuleInUse::new).collect::<Result<_, _>>()?;
        for rule in &rules {
            rule.handle().check_limiter(&self.limiter)?;
        }
        let fields = match self.fields {
            Some(fields) => fields,
            None => Fields::new([Style::Ietf])?,
        };
        let rules =
            Rules { limiter: self.limiter, rules: rules.into(), fields, lists: Default::default() };
        let (responder, grpc, permissive) = (self.responder, self.grpc, self.permissive);
        let shared = Shared { rules, responder, grpc, permissive, switch: Switch::new() };
        Ok(RateLimitLayer { shared: Arc::new(shared) })
    }
}

impl fmt::Debug for RateLimitBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBuilder").field("rules", &self.rules).finish_non_exhaustive()
    }
}
