//! The layer whose requests may wait before they are decided, for a store or for the limits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::http::tower::answer::Asked;
use crate::http::tower::layer::LayerState;
use crate::http::tower::outcome::OnResponse;
use crate::http::{RateLimit, RateLimitLayer, ResponseBody, ResponseFuture, Switch};

/// A [`RateLimitLayer`] whose requests may wait before they are decided: for the store of
/// [shared](crate::limits::Shared) limits, if [`build_shared`](crate::http::RateLimitBuilder) has built it, or until the limits
/// allow them, if [`build_waiting`](crate::http::RateLimitBuilder::build_waiting) has. Both have examples.
///
/// It does all that a `RateLimitLayer` does. The inner service must be `Clone`, because it is called later.
#[derive(Clone)]
pub struct AsyncRateLimitLayer {
    layer: RateLimitLayer,
    ask: Ask,
}

/// Asks the limits about a request.
pub(crate) type Ask = Arc<dyn Fn(&Arc<LayerState>, &Parts) -> AskedLater + Send + Sync>;

/// The limits' answer, now or later.
#[expect(clippy::large_enum_variant, reason = "its caller matches it at once")]
pub(crate) enum AskedLater {
    Now(Asked),
    Later(Pin<Box<dyn Future<Output = Asked> + Send>>),
}

impl AsyncRateLimitLayer {
    pub(crate) fn new(layer: RateLimitLayer, ask: Ask) -> AsyncRateLimitLayer {
        AsyncRateLimitLayer { layer, ask }
    }

    /// Returns the switch that this layer shares with its clones and their services.
    pub fn switch(&self) -> Switch {
        self.layer.switch()
    }
}

impl<S> Layer<S> for AsyncRateLimitLayer {
    type Service = AsyncRateLimit<S>;

    fn layer(&self, inner: S) -> AsyncRateLimit<S> {
        AsyncRateLimit { service: self.layer.layer(inner), ask: Arc::clone(&self.ask) }
    }
}

impl fmt::Debug for AsyncRateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncRateLimitLayer").field(&self.layer).finish()
    }
}

/// The service of a [`AsyncRateLimitLayer`].
#[derive(Clone)]
pub struct AsyncRateLimit<S> {
    service: RateLimit<S>,
    ask: Ask,
}

impl<S: fmt::Debug> fmt::Debug for AsyncRateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncRateLimit").field(&self.service).finish()
    }
}

/// A request that waits for the store, and the service that is ready for it.
struct Waiting<S, B> {
    service: RateLimit<S>,
    parts: Parts,
    body: B,
    on_response: Option<Box<OnResponse>>,
}

pin_project! {
    /// The future of a [`AsyncRateLimit`].
    pub struct AsyncResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        Asks {
            asked: Pin<Box<dyn Future<Output = Asked> + Send>>,
            waiting: Option<Box<Waiting<S, B>>>,
        },
        Served {
            #[pin]
            future: ResponseFuture<S::Future>,
        },
    }
}

impl<S, B, R> Service<Request<B>> for AsyncRateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = AsyncResponseFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> AsyncResponseFuture<S, B> {
        let state = &self.service.state;
        if !state.switch.enabled() {
            return served(self.service.call(request));
        }
        let (parts, body) = request.into_parts();
        let on_response = state.before(&parts);
        let asked = match (self.ask)(state, &parts) {
            AskedLater::Now(asked) => {
                return served(self.service.go_on(asked, (parts, body), on_response));
            }
            AskedLater::Later(asked) => asked,
        };
        // The service that was polled for readiness is the one that is called. Its clone is polled for the next request.
        let clone = self.service.clone();
        let service = std::mem::replace(&mut self.service, clone);
        let waiting = Some(Box::new(Waiting { service, parts, body, on_response }));
        AsyncResponseFuture { state: State::Asks { asked, waiting } }
    }
}

fn served<S: Service<Request<B>>, B>(
    future: ResponseFuture<S::Future>,
) -> AsyncResponseFuture<S, B> {
    AsyncResponseFuture { state: State::Served { future } }
}

impl<S, B, R> Future for AsyncResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let future = match state.as_mut().project() {
                StateProj::Served { future } => return future.poll(context),
                StateProj::Asks { asked, waiting } => {
                    let decided = ready!(asked.as_mut().poll(context));
                    // The state becomes `Served` below, so this is its only turn here.
                    let Some(waiting) = waiting.take() else { return Poll::Pending };
                    let Waiting { mut service, parts, body, on_response } = *waiting;
                    service.go_on(decided, (parts, body), on_response)
                }
            };
            state.set(State::Served { future });
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for AsyncResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncResponseFuture").finish_non_exhaustive()
    }
}
