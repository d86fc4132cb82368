//! The answers of a layer to denied and rejected requests.

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use crate::http::Jitter;
use crate::http::tower::grpc::Protocol;
use crate::http::tower::layer::RateLimitBuilder;
use crate::http::tower::responder;
use crate::http::tower::responder::{Denial, Rejected};

type CustomResponder = Box<dyn Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync>;
type RejectedResponder = Box<dyn Fn(&Rejected<'_>) -> Response<Bytes> + Send + Sync>;

/// How a layer answers.
#[derive(Default)]
pub(crate) struct Responders {
    responder: Responder,
    rejected: Option<RejectedResponder>,
    /// Whether gRPC requests get gRPC's own answers.
    grpc: bool,
    /// Whether a denial for lack of room is a 503.
    pub(crate) unavailable: bool,
}

#[derive(Default)]
enum Responder {
    #[default]
    ProblemJson,
    PlainText,
    Custom(CustomResponder),
}

impl Responders {
    pub(crate) fn respond(&self, denial: &Denial<'_>) -> Response<Bytes> {
        match (&self.responder, self.protocol(denial.request)) {
            (Responder::Custom(respond), _) => respond(denial),
            (_, Some(protocol)) => protocol.denied(denial),
            (Responder::ProblemJson, None) => responder::problem_json(denial),
            (Responder::PlainText, None) => responder::plain_text(denial),
        }
    }

    pub(crate) fn respond_rejected(&self, rejected: &Rejected<'_>) -> Response<Bytes> {
        match (&self.rejected, self.protocol(rejected.request), &self.responder) {
            (Some(respond), ..) => respond(rejected),
            (None, Some(protocol), _) => protocol.rejected(rejected.rejection),
            (None, None, Responder::PlainText) => responder::rejected_plain_text(rejected),
            (None, None, _) => responder::rejected_problem_json(rejected),
        }
    }

    fn protocol(&self, request: &Parts) -> Option<Protocol> {
        if self.grpc { Protocol::from_request(request) } else { None }
    }
}

impl RateLimitBuilder {
    fn responding(mut self, responder: Responder) -> RateLimitBuilder {
        self.responders.responder = responder;
        self
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
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
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
        self.responding(Responder::PlainText)
    }

    /// Answers requests of gRPC and gRPC-Web with gRPC's own status, for example with tonic: a denial is
    /// RESOURCE_EXHAUSTED with `grpc-retry-pushback-ms`; a rejection is INVALID_ARGUMENT, UNAUTHENTICATED,
    /// PERMISSION_DENIED, UNIMPLEMENTED or INTERNAL. The HTTP status is 200, as gRPC requires. Without this option gRPC requests get the
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
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
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
    pub fn grpc(mut self) -> RateLimitBuilder {
        self.responders.grpc = true;
        self
    }

    /// Answers every denial with the response of `respond`, which must not block. Rejections still get a problem document, or
    /// the response of [`respond_rejected`](RateLimitBuilder::respond_rejected).
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
        self.responding(Responder::Custom(Box::new(respond)))
    }

    /// Answers every rejection with the response of `respond`, which must not block: requests without a valid id, with a
    /// cost above the burst, or that a fault of the server's set-up concerns. The layer replaces `Cache-Control` by
    /// `no-store`, and counts the rejection by its [kind](crate::http::RejectionKind) in any case. The response is sent as
    /// it is also to gRPC requests: call [`responder::rejected_grpc`] for them.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{ClientAddress, RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::IpAddress, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::client(ClientAddress::new()));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// use tollgate::http::{RejectionKind, responder};
    ///
    /// let builder = RateLimitLayer::builder(&limiter).rule(rule).respond_rejected(|rejected| {
    ///     let rejection = rejected.rejection();
    ///     eprintln!("{}: {}", rejected.request().uri, rejection.detail());
    ///     match rejection.kind() {
    ///         RejectionKind::ClientAddress => Response::builder().status(503).body("come again later".into()).unwrap(),
    ///         _ => responder::rejected_problem_json(rejected),
    ///     }
    /// });
    /// let layer = builder.build()?;
    /// assert_eq!(send(&layer, get())?.status(), 503); // the request has no peer address
    /// assert_eq!(limiter.counters().rejected(RejectionKind::ClientAddress), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn respond_rejected<B: Into<Bytes>>(
        mut self,
        respond: impl Fn(&Rejected<'_>) -> Response<B> + Send + Sync + 'static,
    ) -> RateLimitBuilder {
        let respond = move |rejected: &Rejected<'_>| respond(rejected).map(Into::into);
        self.responders.rejected = Some(Box::new(respond));
        self
    }

    /// Makes the wait of each denial longer by a random time, so that clients that were denied together do not come again
    /// together. Only [enforced](RateLimitBuilder::permissive) denials have a wait.
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
    /// # use tollgate::http::Jitter;
    /// let builder = RateLimitLayer::builder(&limiter).rule(rule);
    /// let layer = builder.retry_jitter(Jitter::up_to(Duration::from_secs(10))).build()?;
    /// send(&layer, get())?;
    /// let wait: u64 = send(&layer, get())?.headers()["retry-after"].to_str()?.parse()?;
    /// assert!((60..=70).contains(&wait));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_jitter(mut self, jitter: Jitter) -> RateLimitBuilder {
        self.jitter = Some(jitter);
        self
    }
}
