//! Tests layers whose limits several nodes share, by way of a store in memory.
#![cfg(all(feature = "tower", feature = "valkey"))]

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use tollgate::http::AsyncRateLimitLayer;
use tollgate::http::{RateLimitLayer, Report, Rule, extract};
use tollgate::limit::Factor;
use tollgate::limits::{LimitMode, LimitOptions, Shared};
use tollgate::metrics::LimitCounters;
use tollgate::shared::{Store, block_on};
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
use tower::{Layer, ServiceExt};

fn minutely(burst: u64) -> Limit {
    Limit::new(burst, 1, Duration::from_secs(60)).unwrap()
}

fn shared(way: Shared) -> LimitOptions {
    LimitOptions::default().shared(way)
}

/// A limit `Own` of 5 units, and a limit `All` of as many.
fn limits(all: LimitOptions) -> Limits {
    let limits = Limits::builder().limit("Own", IdFormat::String, minutely(5)).unwrap();
    limits.limit_with("All", IdFormat::String, minutely(5), all).unwrap().build()
}

struct Node {
    limiter: Limiter,
}

impl Node {
    fn new(limits: Limits, store: &Store, clock: &Clock) -> Node {
        let options = LimiterOptions::default().store(store.clone()).clock(clock.clone());
        Node { limiter: Limiter::with_options(limits, options.counting(true)).unwrap() }
    }

    fn rule(&self, name: &str) -> Rule {
        Rule::shared(self.limiter.shared(name).unwrap(), extract::everyone("all"))
    }

    fn layer(&self, rules: impl IntoIterator<Item = Rule>) -> AsyncRateLimitLayer {
        let builder = RateLimitLayer::builder(&self.limiter);
        rules.into_iter().fold(builder, |builder, rule| builder.rule(rule)).build_shared().unwrap()
    }

    /// The counters of limit `All`.
    fn counted(&self) -> LimitCounters {
        let counters = self.limiter.counters();
        counters.limits.into_iter().find(|limit| limit.name == "All").unwrap()
    }

    fn left(&self, name: &str) -> Option<u64> {
        block_on(self.limiter.shared(name).unwrap().check("all", 0)).unwrap().remaining()
    }
}

/// Sends a request to a service that answers with `status`.
async fn send(layer: &AsyncRateLimitLayer, status: StatusCode) -> (StatusCode, HeaderMap) {
    let service = layer.layer(tower::service_fn(move |_: Request<()>| {
        let mut response = Response::new(String::new());
        *response.status_mut() = status;
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    let response = service.oneshot(Request::new(())).await.unwrap();
    (response.status(), response.headers().clone())
}

fn field(headers: &HeaderMap) -> &str {
    headers["ratelimit"].to_str().unwrap()
}

#[tokio::test]
async fn layers_of_two_nodes_share_a_limit() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let nodes = [(); 2].map(|()| Node::new(limits(shared(Shared::Exact)), &store, &clock));
    let layers = nodes.each_ref().map(|node| node.layer([node.rule("All")]));
    for left in (0..5).rev() {
        let (status, headers) = send(&layers[left % 2], StatusCode::OK).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(field(&headers), format!("\"All\";r={left};t=60"));
    }
    for layer in &layers {
        let (status, headers) = send(layer, StatusCode::OK).await;
        assert_eq!(
            (status, &headers["retry-after"]),
            (StatusCode::TOO_MANY_REQUESTS, &"60".parse().unwrap())
        );
    }
    let counters = nodes.each_ref().map(|node| node.counted());
    assert_eq!(
        counters.iter().map(|one| (one.allowed, one.denied)).collect::<Vec<_>>(),
        [(3, 1), (2, 1)]
    );
}

/// The options of a layer hold for one that waits for the store.
#[tokio::test]
async fn routes_and_exemptions_of_shared_limits() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let rule = node.rule("All").route(|route: &&'static str| route, "/login");
    let layer = RateLimitLayer::builder(&node.limiter)
        .rule(rule)
        .exempt(|request| request.headers.contains_key("x-exempt"));
    let layer = layer.build_shared().unwrap();
    let ask = async |route: Option<&'static str>, exempt: bool| {
        let service = layer.layer(tower::service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let mut request = Request::new(());
        if let Some(route) = route {
            request.extensions_mut().insert(route);
        }
        if exempt {
            request.headers_mut().insert("x-exempt", "1".parse().unwrap());
        }
        let Ok(response) = service.oneshot(request).await;
        response.status()
    };
    for _ in 0..6 {
        assert_eq!(ask(Some("/login"), true).await, StatusCode::OK);
        assert_eq!(ask(Some("/other"), false).await, StatusCode::OK);
        assert_eq!(ask(None, false).await, StatusCode::NOT_FOUND);
    }
    assert_eq!(node.left("All"), Some(5));
    for expected in [200, 200, 200, 200, 200, 429] {
        assert_eq!(ask(Some("/login"), false).await, expected);
    }
}

#[tokio::test]
async fn rules_are_charged_together_or_not_at_all() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    for way in [Shared::Exact, Shared::Leased] {
        let node = Node::new(limits(shared(way)), &store, &clock);
        let layer = node.layer([node.rule("Own"), node.rule("All").cost(|_| 2)]);
        for _ in 0..2 {
            assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
        }
        let (status, headers) = send(&layer, StatusCode::OK).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&headers), "\"Own\";r=3, \"All\";r=1;t=60", "{way}: nothing was charged");
        assert_eq!((node.left("Own"), node.left("All")), (Some(3), Some(1)));
        let all = node.limiter.shared("All").unwrap();
        let _ = all.reset("all").await.unwrap();
    }
}

#[tokio::test]
async fn responses_refund_shared_charges() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    let refunding = |name| node.rule(name).cost(|_| 2).refund_if(move |status| status == failed);
    let layer = node.layer([refunding("Own"), refunding("All")]);
    assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
    assert_eq!((node.left("Own"), node.left("All")), (Some(3), Some(3)));
    let (status, headers) = send(&layer, failed).await;
    assert_eq!((status, node.left("Own"), node.left("All")), (failed, Some(3), Some(3)));
    assert_eq!(
        field(&headers),
        "\"Own\";r=3;t=60, \"All\";r=1;t=60",
        "its refund is not waited for"
    );
}

/// Nested layers on one limiter: if the inner one denies, the outer one gives its units back.
#[tokio::test]
async fn denials_within_refund_shared_charges() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let outer = node.layer([node.rule("All").refund_if_denied_within()]);
    let inner = node.layer([node.rule("Own").cost(|_| 4)]);
    let within =
        |_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(String::new())));
    for (status, left) in [(200, 4), (429, 4), (429, 4)] {
        let service = outer.layer(inner.layer(tower::service_fn(within)));
        let response = service.oneshot(Request::new(())).await.unwrap();
        assert_eq!((response.status().as_u16(), node.left("All")), (status, Some(left)));
    }
}

#[tokio::test]
async fn reloads_between_local_and_shared_go_on() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(LimitOptions::default()), &store, &clock);
    let layer = node.layer([node.rule("All")]);
    let left = async || field(&send(&layer, StatusCode::OK).await.1).to_owned();
    assert_eq!(left().await, "\"All\";r=4;t=60");
    for (way, shown) in [
        (Shared::Exact, "\"All\";r=4;t=60"),
        (Shared::Local, "\"All\";r=3;t=60"),
        (Shared::Leased, "\"All\";r=3;t=60"),
    ] {
        let _ = node.limiter.reload(limits(shared(way))).unwrap();
        assert_eq!(left().await, shown, "{way}");
    }
    node.limiter.set_enabled(false);
    assert!(!send(&layer, StatusCode::OK).await.1.contains_key("ratelimit"));
}

#[tokio::test]
async fn leases_answer_requests() {
    let (clock, hand) = Clock::manual();
    let store = Store::in_memory(clock.clone());
    let second = Duration::from_secs(1);
    let limit = Limit::new(1000, 100, second).unwrap();
    let limits = Limits::builder();
    let limits = limits.limit_with("All", IdFormat::String, limit, shared(Shared::Leased)).unwrap();
    let node = Node::new(limits.build(), &store, &clock);
    let layer = node.layer([node.rule("All")]);
    for _ in 0..1000 {
        hand.advance(second / 100);
        assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
    }
    assert!(store.calls() < 50, "{} of 1000 asked the store", store.calls());
    assert_eq!(node.counted().allowed, 1000);
}

#[tokio::test]
async fn shadow_mode_and_permissive_layers_let_requests_pass() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let options = shared(Shared::Exact).mode(LimitMode::Shadow);
    let node = Node::new(limits(options), &store, &clock);
    let layer = node.layer([node.rule("All").cost(|_| 4)]);
    for _ in 0..2 {
        let (status, headers) = send(&layer, StatusCode::OK).await;
        assert!(status == StatusCode::OK && !headers.contains_key("ratelimit"), "{headers:?}");
    }
    assert_eq!(node.counted().shadow_denied, 1);

    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let rule = node.rule("All").cost(|_| 2);
    let layer =
        RateLimitLayer::builder(&node.limiter).rule(rule).permissive(true).build_shared().unwrap();
    let service = layer.layer(tower::service_fn(|request: Request<()>| {
        let report = request.extensions().get::<Report>().unwrap();
        std::future::ready(Ok::<_, Infallible>(Response::new(report.violated().join(","))))
    }));
    let mut violated = Vec::new();
    for _ in 0..3 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        violated.push(String::from_utf8(body.to_bytes().to_vec()).unwrap());
    }
    assert_eq!(violated, ["All", "All", "All"], "the shadow limit has left one unit");
}

/// Known when the program starts, not by the first request.
#[test]
fn a_layer_without_store_says_so() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let builder = RateLimitLayer::builder(&node.limiter).rule(node.rule("All"));
    let error = builder.build().unwrap_err();
    assert!(error.to_string().contains("build_shared"), "{error}");
}

/// A rule of a local limit, which a reload has shared since.
#[tokio::test]
async fn a_layer_of_local_rules_refuses_shared_limits() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Local)), &store, &clock);
    let rule = Rule::new(node.limiter.limit("All").unwrap(), extract::everyone("all"));
    let layer = RateLimitLayer::builder(&node.limiter).rule(rule).build().unwrap();
    node.limiter.reload(limits(shared(Shared::Exact))).unwrap();
    let within =
        |_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(String::new())));
    let response = layer.layer(tower::service_fn(within)).oneshot(Request::new(())).await.unwrap();
    assert_eq!((response.status().as_u16(), store.calls()), (500, 0));
}

/// Two rules of one bucket count once, as in a layer of local limits.
#[tokio::test]
async fn rules_of_one_bucket_count_once() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let layer = node.layer([node.rule("All"), node.rule("All").cost(|_| 3)]);
    assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
    assert_eq!(node.left("All"), Some(2));
}

/// A shared limit need not apply to a request: a factor of 0 lifts it, and so does the file.
#[tokio::test]
async fn requests_without_a_limit_pass() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let lifted = || node.rule("All").factor(|_| Factor::ZERO);
    for layer in [node.layer([lifted()]), node.layer([lifted(), node.rule("Own")])] {
        assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
    }
    assert_eq!((node.left("Own"), node.left("All")), (Some(4), Some(5)));
    #[cfg(feature = "yaml")]
    {
        let file =
            "All: {enabled: false, burst: 5, count: 1, period: 1m, id: string, shared: exact}";
        let node = Node::new(Limits::from_yaml(file).unwrap(), &store, &clock);
        let layer = node.layer([node.rule("All")]);
        assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
    }
}

/// While a reload moves the buckets of another limit, requests find the limits before it or those after it.
#[test]
fn requests_pass_while_reloads_share_limits() {
    let clock = Clock::system();
    let store = Store::in_memory(clock.clone());
    let large = Limit::new(1_000_000, 1_000_000, Duration::from_secs(60)).unwrap();
    let limits_of = |all: Shared, burst| {
        let many = Limits::builder().limit("Many", IdFormat::String, minutely(burst)).unwrap();
        many.limit_with("All", IdFormat::String, large.clone(), shared(all)).unwrap().build()
    };
    let node = Node::new(limits_of(Shared::Local, 5), &store, &clock);
    let many = node.limiter.limit("Many").unwrap();
    for id in 0..50_000_u32 {
        assert!(many.spend(id.to_string().as_str(), 1).unwrap().allowed());
    }
    let layer = node.layer([node.rule("All")]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut sent = 0;
            while !is_over.load(order) {
                let status = runtime.block_on(send(&layer, StatusCode::OK)).0;
                assert_eq!(status, StatusCode::OK, "after {sent} requests");
                sent += 1;
            }
        });
        let ways = [Shared::Exact, Shared::Local, Shared::Leased, Shared::Local];
        for (burst, way) in (6..14).zip(ways.into_iter().cycle()) {
            node.limiter.reload(limits_of(way, burst)).unwrap();
        }
        is_over.store(true, order);
        sending.join().unwrap();
    });
}

/// A clone is not ready, as tower's contract has it.
struct ReadyOnce(bool);

impl Clone for ReadyOnce {
    fn clone(&self) -> ReadyOnce {
        ReadyOnce(false)
    }
}

impl tower::Service<Request<()>> for ReadyOnce {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        self.0 = true;
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.0), "called without being ready");
        std::future::ready(Ok(Response::new(String::new())))
    }
}

#[tokio::test]
async fn the_ready_service_is_called() {
    let clock = Clock::manual().0;
    let store = Store::in_memory(clock.clone());
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let layer = node.layer([node.rule("All")]);
    let service = layer.layer(ReadyOnce(false));
    assert_eq!(service.oneshot(Request::new(())).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn refunds_of_nothing_ask_nothing() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let layer = node.layer([node.rule("All").cost(|_| 0).refund_if(|_| true)]);
    assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
    assert_eq!(store.calls(), 1, "the check alone");
}

#[tokio::test]
async fn a_switched_off_layer_asks_nothing() {
    let (clock, store) = (Clock::manual().0, Store::in_memory(Clock::manual().0));
    let node = Node::new(limits(shared(Shared::Exact)), &store, &clock);
    let layer = node.layer([node.rule("All").cost(|_| 3)]);
    layer.switch().set_enabled(false);
    for _ in 0..3 {
        assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
    }
    assert_eq!(store.calls(), 0);
    layer.switch().set_enabled(true);
    assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::OK);
    assert_eq!(send(&layer, StatusCode::OK).await.0, StatusCode::TOO_MANY_REQUESTS);
}
