//! Makes a tower service behind each limiter's layer, and the requests for it.

use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response, StatusCode};
use tollgate::http::{ClientAddress, Fields, RateLimitLayer, Reset, Rule, Style, extract};
use tollgate::{IdFormat, Limit, Limiter, Limits};
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::work::{Contender, Contenders, Round, Setup, Who, Work};

/// Sends a request through a service, and returns the response's status.
type Call = Box<dyn FnMut(Request<()>) -> StatusCode + Send>;

/// The number of requests that are built before the clock starts. They fit into the processor's first caches, in which
/// a server also has a request that it has just read from a connection.
const BUILT_AT_ONCE: usize = 32;

/// Makes a service behind each layer, and the service without one.
pub(crate) fn contenders(setup: Setup) -> Contenders {
    Box::new(move || {
        let burst = if setup.is_allowed() { 1 << 30 } else { 1 };
        let (styles, limits) = match setup.work {
            Work::LayerFields => (vec![Style::Ietf], 1),
            Work::LayerX => (vec![Style::XRateLimit(Reset::Delta)], 1),
            Work::LayerTwo => (vec![Style::Ietf], 2),
            _ => (Vec::new(), 1),
        };
        let has_fields = !styles.is_empty();
        let mut all = vec![
            contender(Who::Tollgate, tollgate(styles, limits, burst.into())),
            contender(Who::Floor, boxed(Bare)),
        ];
        if limits == 1 {
            all.push(contender(Who::GovernorDefault, governor(has_fields, burst)));
        }
        all
    })
}

/// Each number is a client's.
fn contender(who: Who, call: Call) -> Contender {
    let call = Mutex::new(call);
    Contender::timed(who, move |order| {
        let mut call = call.lock().expect("no call has panicked");
        let (mut allowed, mut time) = (0, Duration::ZERO);
        for clients in order.chunks(BUILT_AT_ONCE) {
            let requests: Vec<_> = clients.iter().map(|&client| request(client)).collect();
            let started = Instant::now();
            for request in requests {
                allowed += usize::from(call(request) == StatusCode::OK);
            }
            time += started.elapsed();
        }
        Round { allowed, time }
    })
}

/// The service behind each layer: it answers with an empty response.
#[derive(Clone)]
struct Bare;

impl Service<Request<()>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        black_box(&request);
        std::future::ready(Ok(Response::new(Body::empty())))
    }
}

/// Makes calls of `poll_ready`, `call` and one `poll`.
fn boxed<S, B>(mut service: S) -> Call
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + Send + 'static,
{
    Box::new(move |request| {
        let mut context = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut context).is_ready());
        match pin!(service.call(request)).poll(&mut context) {
            Poll::Ready(Ok(response)) => response.status(),
            Poll::Pending => panic!("the service did not answer in one poll"),
        }
    })
}

/// Makes a request from one of 65,536 addresses.
fn request(client: u32) -> Request<()> {
    let mut request = Request::new(());
    let [.., a, b] = client.to_be_bytes();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, a, b], 80))));
    request
}

/// Makes Tollgate's layer with these styles and this number of limits. `burst` is 1, or more than the calls of the run.
fn tollgate(styles: Vec<Style>, limits: usize, burst: u64) -> Call {
    let day = Duration::from_secs(86_400);
    let limit = Limit::new(burst, if burst > 1 { 1_000_000 } else { 1 }, day).expect("a limit");
    let mut builder = Limits::builder();
    for nth in 0..limits {
        let name = format!("PerClient{nth}");
        builder = builder.limit(&name, IdFormat::IpAddress, limit.clone()).expect("a new name");
    }
    let limiter = Limiter::new(builder.build());
    let fields = Fields::new(styles).expect("the styles write different fields");
    let mut layer = RateLimitLayer::builder(&limiter).fields(fields);
    for nth in 0..limits {
        let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
        let handle = limiter.limit(&format!("PerClient{nth}")).expect("a known name");
        layer = layer.rule(Rule::new(handle, extract::client(clients)));
    }
    boxed(layer.build().expect("rules").layer(Bare))
}

/// Makes tower_governor's layer.
fn governor(has_headers: bool, burst: u32) -> Call {
    let period = Duration::from_millis(if burst > 1 { 1 } else { 86_400_000 });
    let mut config = GovernorConfigBuilder::default();
    config.period(period).burst_size(burst);
    if has_headers {
        boxed(GovernorLayer::new(config.use_headers().finish().expect("a quota")).layer(Bare))
    } else {
        boxed(GovernorLayer::new(config.finish().expect("a quota")).layer(Bare))
    }
}
