//! The layer for limits that several nodes share: it waits for the store before it calls the inner service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::http::tower::answer::{Asked, Rules};
use crate::http::tower::outcome::OnResponse;
use crate::http::{RateLimit, RateLimitLayer, ResponseBody, ResponseFuture, Switch};
use crate::shared::tower::ask::AskedByStore;

/// A [`RateLimitLayer`] whose limits may be [shared](crate::limits::Shared), from
/// [`build_shared`](crate::http::RateLimitBuilder::build_shared).
///
/// It does all that a `RateLimitLayer` does. Requests that only local limits or the leases of this node decide go on at once;
/// for the others the response waits for the store, at most for its
/// [timeout](crate::limits::StoreOptions::answers_within). If the store does not answer, the limits'
/// [policies](crate::limits::LimitOptions::on_error) decide. An error of the store, such as a text that is no bucket, is
/// answered as any error of the limiter: by a status of 500, without the error's text.
///
/// A request whose future is dropped before the store has answered may have been charged: all of its limits, or none.
/// Refunds of shared limits begin when the response comes and do not delay it, so its fields do not show them.
///
/// # Example
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use http::{Request, Response};
/// use tollgate::http::{RateLimitLayer, Rule, extract};
/// use tollgate::limits::{LimitOptions, Shared};
/// use tollgate::shared::Store;
/// use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let limit = Limit::new(1, 1, Duration::from_secs(60))?;
/// let exact = LimitOptions::default().shared(Shared::Exact);
/// let limits = Limits::builder().limit_with("All", IdFormat::String, limit, exact)?.build();
/// let store = Store::in_memory(Clock::system());
/// let limiter = Limiter::with_options(limits, LimiterOptions::default().store(store))?;
/// let rule = Rule::shared(limiter.shared("All")?, extract::everyone("all"));
/// let layer = RateLimitLayer::builder(&limiter).rule(rule).build_shared()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// let send = |request| runtime.block_on(layer.layer(inner).oneshot(request));
/// assert_eq!(send(Request::new(()))?.status(), 200);
/// assert_eq!(send(Request::new(()))?.status(), 429);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedRateLimitLayer(pub(super) RateLimitLayer);

impl SharedRateLimitLayer {
    /// Returns the switch that this layer shares with its clones and their services.
    pub fn switch(&self) -> Switch {
        self.0.switch()
    }
}

impl<S> Layer<S> for SharedRateLimitLayer {
    type Service = SharedRateLimit<S>;

    fn layer(&self, inner: S) -> SharedRateLimit<S> {
        SharedRateLimit(self.0.layer(inner))
    }
}

impl fmt::Debug for SharedRateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedRateLimitLayer").field(&self.0).finish()
    }
}

/// The service of a [`SharedRateLimitLayer`].
#[derive(Clone)]
pub struct SharedRateLimit<S>(RateLimit<S>);

impl<S: fmt::Debug> fmt::Debug for SharedRateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedRateLimit").field(&self.0).finish()
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
    /// The future of a [`SharedRateLimit`].
    pub struct SharedResponseFuture<S, B>
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

impl<S, B, R> Service<Request<B>> for SharedRateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = SharedResponseFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> SharedResponseFuture<S, B> {
        let shared = &self.0.state;
        if !shared.switch.enabled() {
            return served(self.0.call(request));
        }
        let (parts, body) = request.into_parts();
        let on_response = shared.before(&parts);
        let asked = match Rules::ask_with_store(shared, |shared| &shared.rules, &parts) {
            AskedByStore::Now(asked) => {
                return served(self.0.go_on(asked, (parts, body), on_response));
            }
            AskedByStore::Later(asked) => asked,
        };
        // The service that was polled for readiness is the one that is called. Its clone is polled for the next request.
        let clone = self.0.clone();
        let service = std::mem::replace(&mut self.0, clone);
        let waiting = Some(Box::new(Waiting { service, parts, body, on_response }));
        SharedResponseFuture { state: State::Asks { asked, waiting } }
    }
}

fn served<S: Service<Request<B>>, B>(
    future: ResponseFuture<S::Future>,
) -> SharedResponseFuture<S, B> {
    SharedResponseFuture { state: State::Served { future } }
}

impl<S, B, R> Future for SharedResponseFuture<S, B>
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

impl<S: Service<Request<B>>, B> fmt::Debug for SharedResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedResponseFuture").finish_non_exhaustive()
    }
}
