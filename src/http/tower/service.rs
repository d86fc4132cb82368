//! The service: asks the limits before the inner service is called.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::decision::Decision;
use crate::http::tower::answer::{Standing, Told};
use crate::http::tower::layer::Shared;
use crate::http::tower::{Denial, Rejection, ResponseBody};

/// No cache may store a denial (RFC 6585, 4; RFC 9111, 5.2.2.5), nor a refusal: both are about one client.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// A service behind limits. Made by a [`RateLimitLayer`](crate::http::RateLimitLayer).
///
/// It is ready when the inner service is. A denied request leaves the inner service ready for the next
/// one.
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    shared: Arc<Shared>,
}

/// What the limits say of a request that goes on whatever they say: an extension of requests behind a
/// [permissive](crate::http::RateLimitBuilder::permissive) layer.
#[derive(Clone, Debug)]
pub struct Report {
    outcome: Result<Decision, Rejection>,
    violated: Vec<String>,
}

impl Report {
    /// Whether the request would have gone on anyway.
    pub fn allowed(&self) -> bool {
        self.outcome.as_ref().is_ok_and(Decision::allowed)
    }

    /// The decision.
    ///
    /// # Errors
    ///
    /// No limit was asked, because it could not be said whom the request counts for.
    pub fn decision(&self) -> Result<Decision, &Rejection> {
        self.outcome.as_ref().copied()
    }

    /// The names of the limits that would have denied it, as clients see them.
    pub fn violated(&self) -> &[String] {
        &self.violated
    }
}

/// A denial: an extension of the response with which a layer answers a denied request, for a layer further
/// out that writes a log. A rule of an outer layer may
/// [give its cost back](crate::http::Rule::refund_if_denied_within) when it finds one.
///
/// # Example: what a log may say of a response
///
/// ```
/// use tollgate::http::Denied;
///
/// fn limits_that_denied<B>(response: &http::Response<B>) -> &[String] {
///     response.extensions().get::<Denied>().map_or(&[], Denied::violated)
/// }
/// # assert!(limits_that_denied(&http::Response::new(())).is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Denied {
    decision: Decision,
    violated: Vec<String>,
}

impl Denied {
    /// The decision.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// The names of the limits that deny, as clients see them.
    pub fn violated(&self) -> &[String] {
        &self.violated
    }
}

pin_project! {
    /// The response to come, or the answer to a denied call.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Inner { #[pin] future: F, told: Option<(Told, Arc<Shared>)> },
        Answered { response: Option<Response<Bytes>> },
    }
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> RateLimit<S> {
        RateLimit { inner, shared }
    }

    /// The service behind the limits.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S::Future> {
        let shared = &self.shared;
        if !shared.switch.enabled() {
            return through(self.inner.call(request), None);
        }
        let (mut parts, body) = request.into_parts();
        let outcome = shared.rules.ask(&parts);
        if !shared.permissive {
            match &outcome {
                Ok(told) if told.decision.allowed() => {}
                Ok(told) => return answered(shared.deny(told, &parts)),
                Err(refusal) => return answered(shared.refuse(refusal, &parts)),
            }
        } else {
            parts.extensions.insert(shared.report(&outcome));
        }
        let told = outcome.ok().map(|told| (told, Arc::clone(shared)));
        through(self.inner.call(Request::from_parts(parts, body)), told)
    }
}

impl Shared {
    fn deny(&self, told: &Told, parts: &Parts) -> Response<Bytes> {
        let violated = self.rules.violated(told);
        let denial = Denial { decision: told.decision, violated: &violated, request: parts };
        let mut response = self.respond(&denial);
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        let standing = Standing { enforced: true, over_denial: false };
        told.write(&self.rules, response.headers_mut(), standing);
        let violated = violated.iter().map(ToString::to_string).collect();
        response.extensions_mut().insert(Denied { decision: told.decision, violated });
        response
    }

    fn refuse(&self, refusal: &Rejection, parts: &Parts) -> Response<Bytes> {
        let mut response = self.respond_refused(refusal, parts);
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        response.extensions_mut().insert(refusal.clone());
        response
    }

    fn report(&self, outcome: &Result<Told, Rejection>) -> Report {
        match outcome {
            Ok(told) => Report {
                outcome: Ok(told.decision),
                violated: self.rules.violated(told).iter().map(ToString::to_string).collect(),
            },
            Err(refusal) => Report { outcome: Err(refusal.clone()), violated: Vec::new() },
        }
    }
}

impl Shared {
    /// Gives back what the response says, and writes the fields.
    fn finish<R>(&self, told: &mut Told, response: &mut Response<R>) {
        let status = response.status();
        let denied_within = response.extensions().get::<Denied>().is_some();
        self.rules.refund(told, status, denied_within);
        let over_denial = denied_within || status == StatusCode::TOO_MANY_REQUESTS;
        let standing = Standing { enforced: !self.permissive, over_denial };
        told.write(&self.rules, response.headers_mut(), standing);
    }
}

fn through<F>(future: F, told: Option<(Told, Arc<Shared>)>) -> ResponseFuture<F> {
    ResponseFuture { state: State::Inner { future, told } }
}

fn answered<F>(response: Response<Bytes>) -> ResponseFuture<F> {
    ResponseFuture { state: State::Answered { response: Some(response) } }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Inner { future, told } => {
                let mut response = ready!(future.poll(context))?;
                if let Some((mut told, shared)) = told.take() {
                    shared.finish(&mut told, &mut response);
                }
                Poll::Ready(Ok(response.map(ResponseBody::inner)))
            }
            StateProj::Answered { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response.map(ResponseBody::own))),
                // Polled after it was ready, which no caller may do: there is nothing more to come.
                None => Poll::Pending,
            },
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
