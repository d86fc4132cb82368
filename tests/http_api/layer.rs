//! The layer around a service, without a network.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::clock::ManualClock;
use tollgate::http::{
    ClientAddress, Fields, Forwarding, Peer, RateLimitBuilder, RateLimitLayer, Rejection, Report,
    Rule, Style, Who, extract,
};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, Service, ServiceExt};

/// Makes two limits of text ids: `fast` has a burst of 3 and one unit every 1.5 s, `slow` 5 and one every 10 s.
fn limiter() -> (Limiter, ManualClock) {
    let (clock, manual) = Clock::manual();
    let limits = Limits::builder()
        .limit("fast", IdFormat::String, Limit::new(3, 2, Duration::from_secs(3)).unwrap())
        .unwrap()
        .limit("slow", IdFormat::String, Limit::new(5, 1, Duration::from_secs(10)).unwrap())
        .unwrap()
        .limit("address", IdFormat::IpAddress, Limit::new(1, 1, Duration::from_secs(1)).unwrap())
        .unwrap()
        .override_id("fast", "many", Limit::new(30, 20, Duration::from_secs(3)).unwrap())
        .unwrap()
        .build();
    (Limiter::with_options(limits, clock).unwrap(), manual)
}

fn rule(limiter: &Limiter, name: &str) -> Rule {
    let user = extract::header(HeaderName::from_static("user"));
    Rule::new(limiter.limit(name).unwrap(), user)
}

type TestRequest = Request<Empty<Bytes>>;
type Answered = Response<Full<Bytes>>;

/// A service that counts its calls, stores the layer's report, and answers with the status that the request gives.
#[derive(Clone, Default)]
struct Counter {
    calls: Arc<AtomicUsize>,
}

impl Service<TestRequest> for Counter {
    type Response = Answered;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Answered, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: TestRequest) -> Self::Future {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut response = Response::new(Full::from("inner"));
        if let Some(status) = request.headers().get("status") {
            *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).unwrap();
        }
        if let Some(report) = request.extensions().get::<Report>() {
            response.extensions_mut().insert(report.clone());
        }
        std::future::ready(Ok(response))
    }
}

fn request(fields: &[(&'static str, &str)]) -> TestRequest {
    let mut request = Request::new(Empty::new());
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

struct TestAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
    report: Option<Report>,
    refusal: Option<Rejection>,
}

impl TestAnswer {
    fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn ask(layer: &RateLimitLayer, inner: &Counter, request: TestRequest) -> TestAnswer {
    let response = layer.layer(inner.clone()).oneshot(request).await.unwrap();
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    TestAnswer {
        status: parts.status,
        headers: std::mem::take(&mut parts.headers),
        body: String::from_utf8(body.to_vec()).unwrap(),
        report: parts.extensions.remove(),
        refusal: parts.extensions.remove(),
    }
}

fn build(builder: RateLimitBuilder) -> (RateLimitLayer, Counter) {
    (builder.build().unwrap(), Counter::default())
}

#[tokio::test]
async fn denied_call_skips_service_and_says_why() {
    let (limiter, hand) = limiter();
    let (layer, inner) =
        build(RateLimitLayer::builder(&limiter).rule(rule(&limiter, "fast").shown_as("q\"x")));
    for remaining in [2, 1, 0] {
        let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
        assert_eq!((said.status, said.body.as_str()), (StatusCode::OK, "inner"));
        assert!(said.field("ratelimit").starts_with(&format!(r#""q\"x";r={remaining};t="#)));
        assert_eq!(said.field("retry-after"), "");
    }
    let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
    assert_eq!(said.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(said.field("content-type"), "application/problem+json");
    assert_eq!(said.field("cache-control"), "no-store");
    assert_eq!(said.field("retry-after"), "2");
    assert_eq!(said.field("ratelimit"), r#""q\"x";r=0;t=2"#);
    let body: serde_json::Value = serde_json::from_str(&said.body).unwrap();
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(body["status"], 429);
    assert_eq!(body["violated-policies"], serde_json::json!(["q\"x"]));
    assert_eq!(inner.calls.load(Ordering::Relaxed), 3);

    let said = ask(&layer, &inner, request(&[("user", "bob")])).await;
    assert_eq!(said.status, StatusCode::OK, "another user");
    hand.advance(Duration::from_secs(2));
    let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
    assert_eq!(said.status, StatusCode::OK, "after Retry-After");
}

#[tokio::test]
async fn rules_are_one_batch_with_an_item_each() {
    let (limiter, _hand) = limiter();
    let slow = rule(&limiter, "slow").cost(|parts| if parts.method == Method::PUT { 4 } else { 1 });
    let (layer, inner) =
        build(RateLimitLayer::builder(&limiter).rule(rule(&limiter, "fast")).rule(slow));
    let mut put = request(&[("user", "alice")]);
    *put.method_mut() = Method::PUT;
    let said = ask(&layer, &inner, put.clone()).await;
    assert_eq!(said.field("ratelimit"), r#""fast";r=2;t=2, "slow";r=1;t=10"#);
    let policies = r#""fast";q=3;w=5, "slow";q=5;w=50"#;
    assert_eq!(said.field("ratelimit-policy"), policies);

    let said = ask(&layer, &inner, put).await;
    assert_eq!(said.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(said.field("ratelimit"), r#""fast";r=2, "slow";r=1;t=30"#, "fast is not charged");
    assert_eq!(said.field("retry-after"), "30");
    assert!(said.body.contains(r#""violated-policies":["slow"]"#), "{}", said.body);
    assert_eq!(limiter.limit("fast").unwrap().check("alice", 0).unwrap().remaining(), Some(2));
}

#[tokio::test]
async fn a_rule_applies_to_its_requests() {
    let (limiter, _manual) = limiter();
    let unless_health = rule(&limiter, "fast").when(|parts| parts.uri.path() != "/health");
    let (layer, inner) = build(RateLimitLayer::builder(&limiter).rule(unless_health));
    for _ in 0..10 {
        let mut health = request(&[]);
        *health.uri_mut() = "/health".parse().unwrap();
        let said = ask(&layer, &inner, health).await;
        assert_eq!((said.status, said.field("ratelimit")), (StatusCode::OK, ""));
    }
    let said = ask(&layer, &inner, request(&[("user", "many")])).await;
    assert_eq!(said.field("ratelimit-policy"), r#""fast";q=30;w=5"#, "overridden");

    let closure = Rule::new(limiter.limit("fast").unwrap(), |parts| match parts.method {
        Method::OPTIONS => Who::NoLimit,
        Method::TRACE => Who::Refused(Rejection::new(StatusCode::METHOD_NOT_ALLOWED, "no")),
        _ => Who::Text(format!("{}:{}", parts.method, parts.uri.path())),
    });
    let (layer, inner) = build(RateLimitLayer::builder(&limiter).rule(closure));
    let said = ask(&layer, &inner, request(&[])).await;
    assert_eq!(said.field("ratelimit"), r#""fast";r=2;t=2"#);
    let mut options = request(&[]);
    *options.method_mut() = Method::OPTIONS;
    assert_eq!(ask(&layer, &inner, options).await.field("ratelimit"), "");
    let mut trace = request(&[]);
    *trace.method_mut() = Method::TRACE;
    let said = ask(&layer, &inner, trace).await;
    assert_eq!(said.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(said.body, r#"{"title":"Method Not Allowed","status":405,"detail":"no"}"#);
}

#[tokio::test]
async fn by_client_limits_each_address_by_itself() {
    let limit = Limit::new(2, 1, Duration::from_secs(3_600)).unwrap();
    let layer = RateLimitLayer::by_client(limit, ClientAddress::new()).unwrap();
    let inner = Counter::default();
    let from = |address: &str| {
        let mut from = request(&[]);
        from.extensions_mut().insert(Peer::Address(address.parse().unwrap()));
        from
    };
    for (address, status) in [
        ("192.0.2.1", StatusCode::OK),
        ("192.0.2.1", StatusCode::OK),
        ("192.0.2.1", StatusCode::TOO_MANY_REQUESTS),
        ("192.0.2.2", StatusCode::OK),
    ] {
        assert_eq!(ask(&layer, &inner, from(address)).await.status, status, "{address}");
    }
    assert_eq!(layer.limiter().stats().cells, 2);
    assert_eq!(layer.limiter().limits().names().next(), Some("PerClient"));
}

#[tokio::test]
async fn unknown_client_is_an_error_without_shared_bucket() {
    let (limiter, _hand) = limiter();
    let clients = extract::client(ClientAddress::new());
    let by_address = Rule::new(limiter.limit("address").unwrap(), clients);
    let (layer, inner) = build(RateLimitLayer::builder(&limiter).rule(by_address).plain_text());
    for _ in 0..3 {
        let said = ask(&layer, &inner, request(&[])).await;
        assert_eq!(said.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(said.body, "the server could not handle this request\n");
    }
    let mut known = request(&[]);
    known.extensions_mut().insert(Peer::from(SocketAddr::from(([192, 0, 2, 1], 80))));
    assert_eq!(ask(&layer, &inner, known).await.status, StatusCode::OK);
    assert_eq!(inner.calls.load(Ordering::Relaxed), 1);

    let (layer, inner) = build(RateLimitLayer::builder(&limiter).rule(rule(&limiter, "fast")));
    let long = "x".repeat(2000);
    for (fields, detail) in [
        (vec![], "the field user is missing"),
        (vec![("user", "")], "must be text of 1 to 1024 bytes"),
        (vec![("user", long.as_str())], "must be text of 1 to 1024 bytes"),
    ] {
        let said = ask(&layer, &inner, request(&fields)).await;
        assert_eq!(said.status, StatusCode::BAD_REQUEST, "{}", said.body);
        assert!(said.body.contains(detail) && said.body.len() < 2000, "{}", said.body);
        let _: serde_json::Value = serde_json::from_str(&said.body).unwrap();
    }
    let mut twice = request(&[("user", "alice")]);
    twice.headers_mut().append("user", "bob".parse().unwrap());
    assert!(ask(&layer, &inner, twice).await.body.contains("the field user occurs more than once"));
    assert_eq!(inner.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn refusal_does_not_reveal_the_proxies() {
    let (limiter, _hand) = limiter();
    let inner = Counter::default();
    let real_ip = Forwarding::Header(HeaderName::from_static("x-real-ip"));
    let xff = Forwarding::XForwardedFor;
    for (forwarding, fields) in [
        (xff.clone(), &[][..]),
        (xff.clone(), &[("x-forwarded-for", "nobody, 10.0.0.2")]),
        (xff, &[("x-forwarded-for", "unknown")]),
        (Forwarding::Forwarded, &[("forwarded", "for=_hidden")]),
        (real_ip, &[("x-real-ip", "unknown")]),
    ] {
        for as_text in [true, false] {
            let clients = ClientAddress::new().trust(["10.0.0.0/8"], forwarding.clone()).unwrap();
            let rule = Rule::new(limiter.limit("address").unwrap(), extract::client(clients));
            let builder = RateLimitLayer::builder(&limiter).rule(rule).grpc();
            let builder = if as_text { builder.plain_text() } else { builder };
            let layer = builder.build().unwrap();
            for grpc in [true, false] {
                let mut asked = request(fields);
                asked.extensions_mut().insert(Peer::from(SocketAddr::from(([10, 0, 0, 1], 80))));
                if grpc {
                    *asked.method_mut() = Method::POST;
                    asked.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
                }
                let said = ask(&layer, &inner, asked).await;
                let shown = format!("{:?} {}", said.headers, said.body).replace("%20", " ");
                assert!(shown.contains("the server could not handle this request"), "{shown}");
                assert!(!shown.contains("10.0.0"), "{shown}");
                // The extension names the proxy, for the server's log.
                let cause = said.refusal.unwrap().cause().unwrap().to_string();
                assert!(cause.contains("the trusted proxy 10.0.0."), "{cause}");
            }
        }
    }
    assert_eq!(inner.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn cost_above_burst_is_an_uncharged_client_error() {
    let (limiter, _hand) = limiter();
    let rule = rule(&limiter, "fast").cost(|_| 4);
    let (layer, inner) = build(RateLimitLayer::builder(&limiter).rule(rule));
    let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
    assert_eq!((said.status, said.field("retry-after")), (StatusCode::BAD_REQUEST, ""));
    assert!(said.body.contains("cost 4 is above the burst 3 of fast"), "{}", said.body);
}

#[tokio::test]
async fn a_permissive_layer_reports_and_denies_nothing() {
    let (limiter, _manual) = limiter();
    let builder = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "fast")).permissive(true);
    let (layer, inner) = build(builder);
    for _ in 0..3 {
        let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
        assert!(said.report.unwrap().allowed());
    }
    let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
    assert_eq!((said.status, said.body.as_str()), (StatusCode::OK, "inner"));
    assert_eq!((said.field("retry-after"), said.field("ratelimit")), ("", r#""fast";r=0;t=2"#));
    let report = said.report.unwrap();
    assert!(!report.allowed() && !report.decision().unwrap().allowed());
    assert_eq!(report.violated(), ["fast"]);
    let said = ask(&layer, &inner, request(&[])).await;
    let report = said.report.unwrap();
    assert_eq!(report.decision().unwrap_err().to_string(), "400: the field user is missing");
    assert_eq!(said.status, StatusCode::OK);
}

#[tokio::test]
async fn a_refund_by_status_shows_in_the_fields() {
    let (limiter, _manual) = limiter();
    let fast = rule(&limiter, "fast").refund_if(|status| status.is_server_error());
    let (layer, inner) =
        build(RateLimitLayer::builder(&limiter).rule(fast).rule(rule(&limiter, "slow")));
    let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
    assert_eq!(said.field("ratelimit"), r#""fast";r=2;t=2, "slow";r=4;t=10"#);
    let said = ask(&layer, &inner, request(&[("user", "alice"), ("status", "503")])).await;
    assert_eq!(said.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(said.field("ratelimit"), r#""fast";r=2;t=2, "slow";r=3;t=10"#);
    let said = ask(&layer, &inner, request(&[("user", "alice"), ("status", "404")])).await;
    assert_eq!(said.field("ratelimit"), r#""fast";r=1;t=2, "slow";r=2;t=10"#);
}

#[tokio::test]
async fn the_switch_turns_all_clones_off_and_on() {
    let (limiter, _manual) = limiter();
    let (layer, inner) = build(RateLimitLayer::builder(&limiter).rule(rule(&limiter, "fast")));
    let (switch, clone) = (layer.switch(), layer.clone());
    switch.set_enabled(false);
    for _ in 0..10 {
        let said = ask(&clone, &inner, request(&[])).await;
        assert_eq!((said.status, said.headers.len()), (StatusCode::OK, 0));
    }
    switch.set_enabled(true);
    let said = ask(&clone, &inner, request(&[("user", "alice")])).await;
    assert_eq!(said.field("ratelimit"), r#""fast";r=2;t=2"#, "nothing was charged");
}

#[tokio::test]
async fn custom_responders_and_text() {
    let (limiter, _manual) = limiter();
    for _ in 0..3 {
        let _ = limiter.limit("fast").unwrap().spend("alice", 1).unwrap();
    }
    let builder = || {
        RateLimitLayer::builder(&limiter)
            .rule(rule(&limiter, "fast"))
            .fields(Fields::new([Style::Sharkey]).unwrap())
    };
    let (layer, inner) = build(builder().plain_text());
    let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
    assert_eq!(said.body, "too many requests: try again in 2 s\n");
    assert_eq!(said.field("x-ratelimit-reset"), "1.500");

    let (layer, inner) = build(builder().respond(|denial| {
        let text = format!("{:?} {}", denial.violated(), denial.request().uri.path());
        Response::builder().status(403).body(text).unwrap()
    }));
    let said = ask(&layer, &inner, request(&[("user", "alice")])).await;
    assert_eq!((said.status.as_u16(), said.body.as_str()), (403, r#"["fast"] /"#));
    assert_eq!(said.field("retry-after"), "2");
}

/// A service that is ready for one call for each permit.
#[derive(Clone)]
struct Gate {
    free: Arc<AtomicUsize>,
    held: bool,
}

impl Service<TestRequest> for Gate {
    type Response = Answered;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Answered, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let take = |free: usize| free.checked_sub(1);
        let (order, relaxed) = (Ordering::Relaxed, Ordering::Relaxed);
        self.held |= self.free.fetch_update(order, relaxed, take).is_ok();
        if self.held { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _: TestRequest) -> Self::Future {
        assert!(std::mem::take(&mut self.held), "called without being ready");
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test]
async fn readiness_is_inner_services_and_denial_keeps_it() {
    let (limiter, _hand) = limiter();
    let layer =
        RateLimitLayer::builder(&limiter).rule(rule(&limiter, "fast").cost(|_| 3)).build().unwrap();
    let gate = Gate { free: Arc::new(AtomicUsize::new(2)), held: false };
    let mut service = layer.layer(gate.clone());
    let ready = |service: &mut _| {
        Service::<TestRequest>::poll_ready(
            service,
            &mut Context::from_waker(std::task::Waker::noop()),
        )
        .is_ready()
    };
    assert!(ready(&mut service));
    let allowed = service.call(request(&[("user", "alice")])).await.unwrap();
    assert_eq!(allowed.status(), StatusCode::OK);
    assert!(ready(&mut service));
    let denied = service.call(request(&[("user", "alice")])).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    // The denied service still holds the last permit, so it can make the next call and no other service can.
    let allowed = service.call(request(&[("user", "bob")])).await.unwrap();
    assert_eq!(allowed.status(), StatusCode::OK);
    assert!(!ready(&mut service), "no permit is left");
}

#[test]
fn unworkable_configuration_fails_when_layer_is_built() {
    let ((one, _), (other, _)) = (limiter(), limiter());
    let error = RateLimitLayer::builder(&one).build().unwrap_err();
    assert_eq!(error.to_string(), "a layer without a rule limits nothing");
    let error = RateLimitLayer::builder(&one).rule(rule(&other, "fast")).build().unwrap_err();
    assert_eq!(error.to_string(), "the handle of fast is of another limiter");
    let broken = rule(&one, "fast").shown_as("a\r\nb: c");
    let error = RateLimitLayer::builder(&one).rule(broken).build().unwrap_err();
    assert!(error.to_string().starts_with(r#"invalid policy name "a\r\nb: c""#), "{error}");
}
