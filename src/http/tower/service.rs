//! The service that a layer makes: it asks the limits, and then calls the inner service or answers by itself.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{Request, Response, StatusCode, response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::decision::Decision;
use crate::http::Fields;
use crate::http::http_limit::NO_STORE;
use crate::http::tower::answer::{Asked, RequestOutcome};
use crate::http::tower::charge::UntilEnd;
use crate::http::tower::denied::Denied;
use crate::http::tower::grpc::raise_pushback;
use crate::http::tower::layer::LayerState;
use crate::http::tower::outcome::OnResponse;
use crate::http::tower::report::Report;
use crate::http::tower::responder::Rejected;
use crate::http::tower::response_state::ResponseState;
use crate::http::tower::{Denial, Outcome, Rejection, ResponseBody};
#[cfg(feature = "tracing")]
use crate::observe::events;

/// A service behind limits, made by a [`RateLimitLayer`](crate::http::RateLimitLayer).
///
/// It is ready when the inner service is ready, so a request that will be denied waits for that as well.
///
/// A ready service may hold a permit, such as that of tower's `ConcurrencyLimit`. A denied or rejected request does not use the
/// permit. So this service drops the inner one, which frees the permit, and continues with a clone of the inner one.
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
/// use tollgate::http::RateLimit;
/// use tower::Service;
///
/// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
/// let mut service: RateLimit<_> = layer.layer(inner);
/// runtime.block_on(service.call(get()))?;
/// assert_eq!(runtime.block_on(service.call(get()))?.status(), 429);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    pub(crate) state: Arc<LayerState>,
}

/// Marks a 429 of the inner service to which this layer has added the fields of an allowed request. The mark tells an outer layer
/// that these are not the fields of a denial.
#[derive(Clone, Copy, Debug)]
struct AllowedFields;

pin_project! {
    /// The future of the inner service's response, or the layer's own answer.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Inner {
            #[pin]
            future: F,
            outcome: Option<(RequestOutcome, Arc<LayerState>)>,
            on_response: Option<Box<OnResponse>>,
        },
        Answered { response: Option<Box<Response<Bytes>>> },
    }
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, state: Arc<LayerState>) -> RateLimit<S> {
        RateLimit { inner, state }
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S::Future> {
        let state = &self.state;
        if !state.switch.enabled() {
            return served(self.inner.call(request), None, None);
        }
        let (parts, body) = request.into_parts();
        let on_response = state.before(&parts);
        let asked = state.rules.ask(&parts);
        if on_response.is_none() && !state.permissive && is_done(&asked) {
            return served(self.inner.call(Request::from_parts(parts, body)), None, None);
        }
        self.go_on(asked, (parts, body), on_response)
    }
}

impl<S> RateLimit<S> {
    /// Answers a request that is denied or rejected, unless the layer is permissive. Calls the inner service for all others.
    #[inline]
    pub(crate) fn go_on<B, R>(
        &mut self,
        mut asked: Asked,
        (mut parts, body): (Parts, B),
        on_response: Option<Box<OnResponse>>,
    ) -> ResponseFuture<S::Future>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
    {
        let state = &self.state;
        if let Err(rejection) = &asked {
            state.count(rejection);
        }
        if !state.permissive {
            match &mut asked {
                Ok((decision, _)) if decision.allowed() => {}
                Ok((decision, outcome)) => {
                    if let Some(jitter) = &state.jitter {
                        let by = jitter.next();
                        *decision = decision.waiting_longer(by);
                        outcome.iter_mut().for_each(|outcome| outcome.wait_longer(by));
                    }
                    let response = state.deny(*decision, outcome.as_ref(), on_response, &parts);
                    self.release();
                    return answered(response);
                }
                Err(rejection) => {
                    let response = state.reject(rejection, &parts);
                    self.release();
                    return answered(response);
                }
            }
        } else {
            let report = match &asked {
                Ok((decision, outcome)) => state.report(*decision, outcome.as_ref()),
                Err(rejection) => Report { outcome: Err(rejection.clone()), violated: Vec::new() },
            };
            state.insert_report(report, &mut parts);
        }
        if let Ok((_, Some(outcome))) = &mut asked
            && outcome.held.is_some()
        {
            state.hold(outcome, &mut parts);
        }
        if on_response.is_some() {
            asked = with_outcome(asked);
        }
        let outcome = match asked {
            Ok((_, Some(outcome))) => Some((outcome, Arc::clone(state))),
            _ => None,
        };
        served(self.inner.call(Request::from_parts(parts, body)), outcome, on_response)
    }
}

impl<S: Clone> RateLimit<S> {
    /// Replaces the inner service, which is ready, by a clone, which is not. Dropping it frees the permit that it may hold.
    fn release(&mut self) {
        self.inner = self.inner.clone();
    }
}

/// Returns whether the request is allowed, and its response is not changed.
#[inline]
fn is_done(asked: &Asked) -> bool {
    matches!(asked, Ok((decision, None)) if decision.allowed())
}

/// Adds an outcome without limits to a decision that has none. The layer's function for responses is called with an outcome, even if
/// no limit applies to the request.
#[cold]
fn with_outcome(asked: Asked) -> Asked {
    let (decision, outcome) = asked?;
    Ok((decision, outcome.or_else(|| Some(RequestOutcome::new(decision)))))
}

impl LayerState {
    /// Calls the layer's function for requests.
    #[inline]
    pub(crate) fn before(&self, parts: &Parts) -> Option<Box<OnResponse>> {
        self.on_request.as_ref().map(|on_request| Box::new(on_request(parts)))
    }

    /// Calls the layer's function for responses with the head of the response.
    #[cold]
    fn tell<R>(
        &self,
        on_response: OnResponse,
        outcome: &RequestOutcome,
        response: &mut Response<R>,
    ) {
        // The head is moved out and back, because the function does not know the type of the body.
        let (mut head, ()) = Response::new(()).into_parts();
        let mut swap = |head: &mut response::Parts| {
            std::mem::swap(&mut head.status, response.status_mut());
            std::mem::swap(&mut head.version, response.version_mut());
            std::mem::swap(&mut head.headers, response.headers_mut());
            std::mem::swap(&mut head.extensions, response.extensions_mut());
        };
        swap(&mut head);
        on_response(&Outcome { rules: &self.rules, limits: outcome }, &mut head);
        swap(&mut head);
    }

    fn deny(
        &self,
        decision: Decision,
        outcome: Option<&RequestOutcome>,
        on_response: Option<Box<OnResponse>>,
        parts: &Parts,
    ) -> Response<Bytes> {
        let violated = self.rules.violated(outcome, |rule| !rule.is_soft());
        #[cfg(feature = "tracing")]
        if self.logs_denials {
            events::request_denied(parts, &violated, decision.retry_in());
        }
        let is_unavailable = self.responders.unavailable && decision.out_of_room();
        let denial = Denial { decision, violated: &violated, request: parts, is_unavailable };
        let mut response = self.responders.respond(&denial);
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        if let Some(outcome) = outcome {
            let state = ResponseState {
                enforced: true,
                already_denied: false,
                fields_of_denial: None,
                wait_within: None,
            };
            outcome.write(&self.rules, response.headers_mut(), state);
        }
        let violated = violated.iter().map(ToString::to_string).collect();
        let fields = outcome.map_or_else(Fields::none, |it| it.fields_of_denial(&self.rules));
        let wait = decision.retry_in();
        response.extensions_mut().insert(Denied { decision, violated, fields, wait });
        if let Some(on_response) = on_response {
            match outcome {
                Some(outcome) => self.tell(*on_response, outcome, &mut response),
                None => self.tell(*on_response, &RequestOutcome::new(decision), &mut response),
            }
            response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        }
        response
    }

    /// Counts a rejection, and logs it.
    #[cold]
    fn count(&self, rejection: &Rejection) {
        let limiter = &self.rules.limiter.inner;
        let due = limiter.rejections.count(rejection.kind(), limiter.clock.now_ns());
        #[cfg(feature = "tracing")]
        if let Some(count) = due {
            let (reason, status) = (rejection.kind().name(), rejection.status().as_u16());
            events::rejected(reason, status, count, rejection.detail());
        }
        let _ = due;
    }

    fn reject(&self, rejection: &Rejection, parts: &Parts) -> Response<Bytes> {
        let rejected = Rejected { rejection, request: parts };
        let mut response = self.responders.respond_rejected(&rejected);
        response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
        response.extensions_mut().insert(rejection.clone());
        response
    }

    /// Puts the report into a request's extensions, joined with that of a layer outside.
    fn insert_report(&self, report: Report, parts: &mut Parts) {
        let report = match parts.extensions.remove::<Report>() {
            Some(outer) => outer.joined(report),
            None => report,
        };
        parts.extensions.insert(report);
    }

    fn report(&self, decision: Decision, outcome: Option<&RequestOutcome>) -> Report {
        let violated = self.rules.violated(outcome, |_| true);
        let violated = violated.iter().map(ToString::to_string).collect();
        Report { outcome: Ok(decision), violated }
    }

    /// Gives a request what it holds until its response has ended, and the report if the layer has not given it yet.
    #[cold]
    #[inline(never)]
    fn hold(&self, outcome: &mut RequestOutcome, parts: &mut Parts) {
        if !self.permissive {
            self.insert_report(self.report(outcome.decision(), Some(outcome)), parts);
        }
        if let Some(held) = &mut outcome.held {
            held.give_to(parts);
        }
    }

    /// Refunds charges according to the response, and writes the fields.
    fn finish<R>(&self, outcome: &mut RequestOutcome, response: &mut Response<R>) {
        let status = response.status();
        if let Some(held) = &mut outcome.held
            && let Some(learning) = held.learning.take()
        {
            // A denial by a layer within says nothing of the provider.
            if response.extensions().get::<Denied>().is_none() {
                learning.learn(status, response.headers());
            }
        }
        let denied = response.extensions().get::<Denied>();
        let wait_within = denied.map(|denied| denied.wait);
        let fields_of_denial = denied.map(|denied| denied.fields.clone());
        let denied_within = fields_of_denial.is_some();
        self.rules.refund(outcome, status, denied_within);
        // A 429 may come from the service itself: a denial. If the 429 is marked, its fields are those of an inner layer that
        // has allowed the request.
        let is_429 = status == StatusCode::TOO_MANY_REQUESTS;
        let is_marked = is_429 && response.extensions().get::<AllowedFields>().is_some();
        let already_denied = denied_within || (is_429 && !is_marked);
        if is_429 && !denied_within && !self.rules.fields.all.are_in(response.headers()) {
            response.extensions_mut().insert(AllowedFields);
        }
        let enforced = !self.permissive;
        let fields_of_denial = fields_of_denial.as_ref();
        let state = ResponseState { enforced, already_denied, fields_of_denial, wait_within };
        outcome.write(&self.rules, response.headers_mut(), state);
        let wait = outcome.decision().retry_in();
        if enforced && wait_within.is_some_and(|within| wait > within) {
            raise_pushback(response.headers_mut(), wait);
            if let Some(denied) = response.extensions_mut().get_mut::<Denied>() {
                denied.wait = wait;
            }
        }
    }
}

fn served<F>(
    future: F,
    outcome: Option<(RequestOutcome, Arc<LayerState>)>,
    on_response: Option<Box<OnResponse>>,
) -> ResponseFuture<F> {
    ResponseFuture { state: State::Inner { future, outcome, on_response } }
}

fn answered<F>(response: Response<Bytes>) -> ResponseFuture<F> {
    ResponseFuture { state: State::Answered { response: Some(Box::new(response)) } }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Inner { future, outcome, on_response } => {
                let mut response = match ready!(future.poll(context)) {
                    Ok(response) => response,
                    Err(error) => {
                        // The request has ended, and its permits go back.
                        *outcome = None;
                        return Poll::Ready(Err(error));
                    }
                };
                let mut held = None;
                if let Some((outcome, state)) = outcome {
                    state.finish(outcome, &mut response);
                    if let Some(on_response) = on_response.take() {
                        let within = response.extensions();
                        let is_answer_of_layer =
                            within.get::<Denied>().is_some() || within.get::<Rejection>().is_some();
                        state.tell(*on_response, outcome, &mut response);
                        if is_answer_of_layer {
                            response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
                        }
                    }
                    held = outcome.held.take();
                }
                *outcome = None;
                let until_end = match held {
                    None => UntilEnd::default(),
                    Some(held) => held.into_body(response.status()),
                };
                Poll::Ready(Ok(response.map(|body| ResponseBody::inner(body, until_end))))
            }
            StateProj::Answered { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response.map(ResponseBody::own))),
                // The caller has polled the future after it was ready, which the contract of `Future` forbids.
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
