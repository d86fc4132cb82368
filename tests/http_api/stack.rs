//! The layer inside and outside of tower-http's layers, and the extractors in axum.
#![cfg(feature = "tower")]

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, OriginalUri};
use axum::routing::{get, post};
use axum::{BoxError, Router};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use tollgate::http::{ClientAddress, Peer, RateLimitLayer, ResponseBody, Rule, extract};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{ServiceBuilder, ServiceExt};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

/// Makes a limit of text ids with this burst, and a clock that stands still.
fn limiter(burst: u64) -> Limiter {
    let limit = Limit::new(burst, 1, Duration::from_secs(60)).unwrap();
    let limits = Limits::builder().limit("n", IdFormat::String, limit).unwrap().build();
    Limiter::with_options(limits, Clock::manual().0).unwrap()
}

fn rule(limiter: &Limiter) -> Rule {
    Rule::new(limiter.limit("n").unwrap(), extract::everyone("all"))
}

fn layer(limiter: &Limiter) -> RateLimitLayer {
    RateLimitLayer::builder(limiter).rule(rule(limiter)).build().unwrap()
}

async fn ask(app: &Router, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

fn request(method: Method, path: &str) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path).header("origin", "https://a.example");
    builder.body(Body::empty()).unwrap()
}

fn app() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/slow", get(|| async { std::future::pending::<()>().await }))
        .route(
            "/panic",
            get(|| async {
                if true {
                    panic!("the handler's own")
                }
            }),
        )
}

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(50))
}

#[tokio::test]
async fn inside_cors_and_timeout_denials_have_fields() {
    let limiter = limiter(2);
    let stack = ServiceBuilder::new()
        .layer(CorsLayer::permissive())
        .layer(timeout())
        .layer(layer(&limiter));
    let app = app().layer(stack);
    let (status, headers, body) = ask(&app, request(Method::GET, "/")).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "hello"));
    assert_eq!(headers["ratelimit"], r#""n";r=1;t=60"#);
    assert_eq!(headers["access-control-allow-origin"], "*");
    // The timeout's own response has an empty body, and no fields, because the limits are inside of it.
    let (status, headers, body) = ask(&app, request(Method::GET, "/slow")).await;
    assert_eq!((status, body.as_str()), (StatusCode::GATEWAY_TIMEOUT, ""));
    assert!(!headers.contains_key("ratelimit"));
    let (status, headers, body) = ask(&app, request(Method::GET, "/")).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers["access-control-allow-origin"], "*", "a browser may read the denial");
    assert!(body.contains("quota-exceeded"), "{body}");
    // The CORS layer answers a preflight request, which costs nothing.
    let mut preflight = request(Method::OPTIONS, "/");
    preflight.headers_mut().insert("access-control-request-method", "POST".parse().unwrap());
    let (status, headers, body) = ask(&app, preflight).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, ""));
    assert!(headers.contains_key("access-control-allow-methods"));
}

#[tokio::test]
async fn outermost_layer_limits_all_other_layers() {
    let limiter = limiter(4);
    let refunds = rule(&limiter).refund_if(|status| status == StatusCode::INTERNAL_SERVER_ERROR);
    let stack = ServiceBuilder::new()
        .layer(RateLimitLayer::builder(&limiter).rule(refunds).build().unwrap())
        .layer(TraceLayer::new_for_http())
        .layer(CorsLayer::permissive())
        .layer(timeout())
        .layer(CatchPanicLayer::new());
    let app = app().layer(stack);
    let said = |headers: &HeaderMap| headers["ratelimit"].to_str().unwrap()[..7].to_owned();
    let (status, headers, _) = ask(&app, request(Method::GET, "/")).await;
    assert_eq!((status, said(&headers)), (StatusCode::OK, r#""n";r=3"#.into()));
    let (status, headers, _) = ask(&app, request(Method::GET, "/slow")).await;
    assert_eq!((status, said(&headers)), (StatusCode::GATEWAY_TIMEOUT, r#""n";r=2"#.into()));
    let (status, headers, _) = ask(&app, request(Method::GET, "/panic")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        said(&headers),
        r#""n";r=2"#,
        "a panic that is caught is a response, and given back"
    );
    for expected in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(ask(&app, request(Method::GET, "/")).await.0, expected);
    }
}

/// Without axum, and with another body type.
#[test]
fn the_stack_needs_nothing_of_the_inner_body() {
    #[derive(Debug)]
    struct NoDefault;
    let body = ResponseBody::<NoDefault>::default();
    assert!(!format!("{body:?}").contains("Inner"));
    let limiter = limiter(1);
    let service = ServiceBuilder::new()
        .layer(CorsLayer::permissive())
        .layer(timeout())
        .layer(layer(&limiter))
        .service_fn(|_: Request<()>| async {
            Ok::<_, BoxError>(http::Response::new(http_body_util::Full::<bytes::Bytes>::default()))
        });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let body = runtime.block_on(async {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        service.oneshot(Request::new(())).await.unwrap().collect().await.unwrap().to_bytes()
    });
    assert!(body.starts_with(b"{\"type\""), "{body:?}");
}

#[tokio::test]
async fn all_bearer_token_spellings_are_one_bucket() {
    let limiter = limiter(100);
    let bearer = || Rule::new(limiter.limit("n").unwrap(), extract::bearer());
    let strict = RateLimitLayer::builder(&limiter).rule(bearer()).build().unwrap();
    let if_present = Rule::new(limiter.limit("n").unwrap(), extract::bearer_if_present());
    let lenient = RateLimitLayer::builder(&limiter).rule(if_present).build().unwrap();
    let (strict, lenient) = (app().layer(strict), app().layer(lenient));
    let with = |values: &[&str]| {
        let mut request = request(Method::GET, "/");
        for value in values {
            request.headers_mut().append("authorization", value.parse().unwrap());
        }
        request
    };
    let mut spent = 0;
    for value in
        ["Bearer t", "bearer t", "BEARER t", "Bearer  t", "Bearer\tt", " Bearer t ", "bEaReR   t\t"]
    {
        for app in [&strict, &lenient] {
            assert_eq!(ask(app, with(&[value])).await.0, StatusCode::OK, "{value:?}");
            spent += 1;
        }
    }
    let left = |id| limiter.limit("n").unwrap().check(id, 0).unwrap().remaining();
    assert_eq!(left("t"), Some(100 - spent));
    assert_eq!(limiter.stats().cells, 1, "and no other bucket");
    // The tokens are case-sensitive.
    assert_eq!(ask(&strict, with(&["Bearer T"])).await.0, StatusCode::OK);
    assert_eq!((left("T"), limiter.stats().cells), (Some(99), 2));

    for values in [&["Bearer"][..], &["Bearer "], &["Bearer a b"], &["Bearer t", "Bearer u"]] {
        for app in [&strict, &lenient] {
            assert_eq!(ask(app, with(values)).await.0, StatusCode::BAD_REQUEST, "{values:?}");
        }
    }
    for values in [&[][..], &["Basic dDp0"], &["Bearert"], &[""]] {
        let (status, _, body) = ask(&strict, with(values)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{values:?}");
        assert!(body.contains("the field authorization has no bearer token"), "{body}");
        assert_eq!(ask(&lenient, with(values)).await.0, StatusCode::OK, "{values:?}");
    }
    assert_eq!(limiter.stats().cells, 2);
}

#[tokio::test]
async fn path_spellings_are_buckets_route_is_one() {
    let paths = ["/p/1", "/p/%31", "/p/2"];
    let routes = || {
        Router::new()
            .route("/p/{id}", get(|| async { "page" }))
            .route("/q", post(|| async { "other" }))
    };
    let limiter = limiter(100);
    let by_path = Rule::new(limiter.limit("n").unwrap(), extract::path::<OriginalUri>());
    let app = routes().layer(RateLimitLayer::builder(&limiter).rule(by_path).build().unwrap());
    for path in paths {
        assert_eq!(ask(&app, request(Method::GET, path)).await.0, StatusCode::OK);
    }
    assert_eq!(limiter.stats().cells, 3, "as they are sent");

    let limiter = self::limiter(100);
    let by_route = Rule::new(limiter.limit("n").unwrap(), extract::extension(MatchedPath::as_str));
    let layer = RateLimitLayer::builder(&limiter).rule(by_route).build().unwrap();
    let (on_routes, on_all) = (routes().route_layer(layer.clone()), routes().layer(layer));
    for path in paths {
        assert_eq!(ask(&on_routes, request(Method::GET, path)).await.0, StatusCode::OK);
    }
    assert_eq!(limiter.stats().cells, 1);
    let left = limiter.limit("n").unwrap().check("/p/{id}", 0).unwrap().remaining();
    assert_eq!(left, Some(97));
    // A path without a route is a 404 behind a `route_layer`. A layer on the whole router has no id for it.
    assert_eq!(ask(&on_routes, request(Method::GET, "/none")).await.0, StatusCode::NOT_FOUND);
    let (status, _, body) = ask(&on_all, request(Method::GET, "/none")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(body.contains("the server could not handle this request"), "{body}");
    let optional =
        Rule::new(limiter.limit("n").unwrap(), extract::extension_if_present(MatchedPath::as_str));
    let layer = RateLimitLayer::builder(&limiter).rule(optional).build().unwrap();
    let app = routes().layer(layer);
    assert_eq!(ask(&app, request(Method::GET, "/none")).await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(&app, request(Method::GET, "/p/1")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn axum_route_denial_refunds_the_global_layer() {
    let minute = Duration::from_secs(60);
    let limits = Limits::builder()
        .limit("Global", IdFormat::String, Limit::new(60, 60, minute).unwrap())
        .unwrap()
        .limit("Login", IdFormat::String, Limit::new(3, 3, minute).unwrap())
        .unwrap()
        .build();
    let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
    let rule = |name| Rule::new(limiter.limit(name).unwrap(), extract::everyone("all"));
    let build = |rule| RateLimitLayer::builder(&limiter).rule(rule).build().unwrap();
    let login = post(|| async { "welcome" }).layer(build(rule("Login")));
    // The layers in between keep the extension by which the outer layer recognizes the denial.
    let between = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(CorsLayer::permissive())
        .layer(timeout())
        .layer(CatchPanicLayer::new());
    let app = app()
        .route("/login", login)
        .layer(between)
        .layer(build(rule("Global").refund_if_denied_within()));
    for call in 1..=50 {
        let (status, headers, _) = ask(&app, request(Method::POST, "/login")).await;
        if call <= 3 {
            assert_eq!(status, StatusCode::OK);
            continue;
        }
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(headers["retry-after"], "20");
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["ratelimit"], r#""Login";r=0;t=20, "Global";r=57"#);
        let policies = r#""Login";q=3;w=60, "Global";q=60;w=60"#;
        assert_eq!(headers["ratelimit-policy"], policies);
    }
    let (status, headers, _) = ask(&app, request(Method::GET, "/")).await;
    assert_eq!(
        (status, &headers["ratelimit"]),
        (StatusCode::OK, &r#""Global";r=56;t=1"#.parse().unwrap())
    );
}

#[tokio::test]
async fn slash_56_is_limited_by_prefix_or_rule() {
    let second = Duration::from_secs(1);
    let limits = || {
        Limits::builder()
            .limit("PerClient", IdFormat::IpAddress, Limit::new(2, 2, second).unwrap())
            .unwrap()
            .limit("PerSite", IdFormat::IpAddress, Limit::new(8, 8, second).unwrap())
            .unwrap()
            .build()
    };
    let let_through = async |rules: fn(&Limiter) -> Vec<Rule>| {
        let limiter = Limiter::with_options(limits(), Clock::manual().0).unwrap();
        let mut builder = RateLimitLayer::builder(&limiter);
        for rule in rules(&limiter) {
            builder = builder.rule(rule);
        }
        let app = app().layer(builder.build().unwrap());
        let mut allowed = 0;
        for network in 0..256u16 {
            let address = Ipv6Addr::new(0x2001, 0xdb8, 1, 0x4200 | network, 0, 0, 0, network);
            let mut request = request(Method::GET, "/");
            request.extensions_mut().insert(Peer::from(IpAddr::from(address)));
            allowed += u32::from(ask(&app, request).await.0 == StatusCode::OK);
        }
        allowed
    };
    fn one(limiter: &Limiter, name: &str, bits: u8) -> Rule {
        let clients = ClientAddress::new().ipv6_prefix(bits).unwrap();
        Rule::new(limiter.limit(name).unwrap(), extract::client(clients))
    }
    assert_eq!(let_through(|l| vec![one(l, "PerClient", 64)]).await, 256, "each has its own");
    assert_eq!(let_through(|l| vec![one(l, "PerClient", 56)]).await, 2);
    let two = |l: &Limiter| vec![one(l, "PerClient", 64), one(l, "PerSite", 48)];
    assert_eq!(let_through(two).await, 8);
}

/// Servers decode percent encoding, strip quotation marks and join fields, each in its way. A client that uses this gets no
/// second bucket, and no request gets past its rule.
#[tokio::test]
async fn cookie_spellings_are_one_id() {
    let limiter = limiter(100);
    let rule = Rule::new(limiter.limit("n").unwrap(), extract::cookie("session"));
    let app = app().layer(RateLimitLayer::builder(&limiter).rule(rule).build().unwrap());
    let rule = Rule::new(limiter.limit("n").unwrap(), extract::cookie_if_present("session"));
    let lenient = self::app().layer(RateLimitLayer::builder(&limiter).rule(rule).build().unwrap());
    let with = |lines: &[&[u8]]| {
        let mut request = request(Method::GET, "/");
        for line in lines {
            request.headers_mut().append("cookie", HeaderValue::from_bytes(line).unwrap());
        }
        request
    };
    let one: [&[&[u8]]; 12] = [
        &[b"session=s1%"],
        &[b"theme=dark; session=s1%"],
        &[b"session=s1% ;theme=dark"],
        &[b"theme=dark", b"session=s1%"],
        &[b";; session = s1% ;"],
        &[b"session=\"s1%\""],
        &[b"session=%731%"],
        &[b"session=s%31%25"],
        &[b"%73ession=s1%"],
        &[b"session=\"%731%25\""],
        &[b"Session=s2; session=s1%; session2=s3; asession=s4"],
        &[b"name=caf\xc3\xa9; session=s1%; session"],
    ];
    for lines in one {
        for app in [&app, &lenient] {
            assert_eq!(ask(app, with(lines)).await.0, StatusCode::OK, "{lines:?}");
        }
    }
    // The rule's name may be a spelling as well: a name with brackets is often sent encoded.
    let rule = Rule::new(limiter.limit("n").unwrap(), extract::cookie("%73ession"));
    let app = self::app().layer(RateLimitLayer::builder(&limiter).rule(rule).build().unwrap());
    assert_eq!(ask(&app, with(&[b"%73ession=s1%"])).await.0, StatusCode::OK);
    assert_eq!(limiter.stats().cells, 1);
    let left = limiter.limit("n").unwrap().check("s1%", 0).unwrap().remaining();
    assert_eq!(left, Some(100 - 25));
    for (lines, why) in [
        (&[&b"session=s1; session=s2"[..]][..], "occurs more than once"),
        (&[b"session=s1", b"%73ession=s2"], "occurs more than once"),
        (&[b"session="], "is empty"),
        (&[b"session=\"\""], "is empty"),
        (&[b"session=\xff"], "is not UTF-8"),
        (&[b"session=%ff"], "is not UTF-8"),
    ] {
        for app in [&app, &lenient] {
            let (status, _, body) = ask(app, with(lines)).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{lines:?}");
            assert!(body.contains(why), "{lines:?}: {body}");
        }
    }
    for lines in [&[][..], &[&b"session"[..]], &[b"Session=s1"], &[b"=s1"]] {
        assert_eq!(ask(&app, with(lines)).await.0, StatusCode::BAD_REQUEST, "{lines:?}");
        assert_eq!(ask(&lenient, with(lines)).await.0, StatusCode::OK, "{lines:?}");
    }
    assert_eq!(limiter.stats().cells, 1);
}

#[test]
fn closure_in_variable_is_an_extractor() {
    fn host(request: &http::request::Parts) -> tollgate::http::Who<'_> {
        request.uri.host().unwrap_or("none").into()
    }
    let limiter = limiter(1);
    let path = extract::by(|request| request.uri.path().into());
    let _ = (
        Rule::new(limiter.limit("n").unwrap(), path),
        Rule::new(limiter.limit("n").unwrap(), host),
    );
}

/// A service that denies by itself may write no `Retry-After`. A limit without units then has a time, and one with units
/// has none.
#[test]
fn empty_limit_has_time_beside_services_denial() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (burst, fields) in [(1, "\"n\";r=0;t=60"), (2, "\"n\";r=1")] {
        let service = ServiceBuilder::new().layer(layer(&limiter(burst))).service_fn(
            |_: Request<()>| async {
                let mut response = http::Response::new(());
                *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                Ok::<_, BoxError>(response)
            },
        );
        let response = runtime.block_on(service.oneshot(Request::new(()))).unwrap();
        assert_eq!(response.headers()["ratelimit"], fields);
    }
}
