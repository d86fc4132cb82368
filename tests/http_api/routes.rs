//! Rules for a route of a real axum router, and requests that no rule limits: no spelling of a path gets past its rule.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, OriginalUri};
use axum::routing::{get, post};
use http::{Method, Request, Response, StatusCode};
use tollgate::http::{ClientAddress, Forwarding, Peer, RateLimitBuilder, RateLimitLayer};
use tollgate::http::{Rule, Who, extract};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_http::normalize_path::NormalizePathLayer;

const BURST: u64 = 3;

/// Makes a limit of text ids with a burst of 3, and a clock that stands still.
fn limiter() -> Limiter {
    let limit = Limit::new(BURST, 1, Duration::from_secs(60)).unwrap();
    let limits = Limits::builder().limit("Login", IdFormat::String, limit).unwrap().build();
    Limiter::with_options(limits, Clock::manual().0).unwrap()
}

fn rule(limiter: &Limiter) -> Rule {
    Rule::new(limiter.limit("Login").unwrap(), extract::everyone("all"))
}

fn login(limiter: &Limiter) -> RateLimitLayer {
    let rule = rule(limiter).route(MatchedPath::as_str, "/api/login");
    RateLimitLayer::builder(limiter).rule(rule).build().unwrap()
}

fn left(limiter: &Limiter) -> u64 {
    limiter.limit("Login").unwrap().check("all", 0).unwrap().remaining().unwrap()
}

/// Counts the calls of the handler of logins.
#[derive(Clone, Default)]
struct Logins(Arc<AtomicUsize>);

impl Logins {
    fn routes(&self) -> Router {
        let logins = self.clone();
        let log_in = move || {
            logins.0.fetch_add(1, Relaxed);
            async { "welcome" }
        };
        Router::new()
            .route("/login", get(log_in.clone()).post(log_in))
            .route("/users/{id}", get(|| async { "a user" }))
    }

    fn take(&self) -> usize {
        self.0.swap(0, Relaxed)
    }
}

async fn status<S>(service: &S, method: &str, path: &str) -> StatusCode
where
    S: Service<Request<Body>, Error = Infallible> + Clone,
    S::Response: IntoStatus,
{
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let Ok(response) = service.clone().oneshot(request).await;
    response.status()
}

trait IntoStatus {
    fn status(&self) -> StatusCode;
}

impl<B> IntoStatus for Response<B> {
    fn status(&self) -> StatusCode {
        Response::status(self)
    }
}

const SPELLINGS: [&str; 14] = [
    "/api/login",
    "/api/login?a=b",
    "/api/login/",
    "/api/login//",
    "//api/login",
    "/api//login",
    "/api/./login",
    "/api/users/../login",
    "/api/%6cogin",
    "/api/%6Cogin",
    "/api/login%2f",
    "/API/login",
    "/api/Login",
    "http://example.com/api/login",
];

/// Asks for each spelling by each method, and returns how many requests reached the handler.
async fn served<S>(service: &S, logins: &Logins) -> usize
where
    S: Service<Request<Body>, Error = Infallible> + Clone,
    S::Response: IntoStatus,
{
    for path in SPELLINGS {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "PURGE"] {
            let status = status(service, method, path).await;
            let known = [200, 404, 405, 429].contains(&status.as_u16());
            assert!(known, "{method} {path}: {status}");
        }
    }
    logins.take()
}

#[tokio::test]
async fn no_spelling_of_route_gets_past_its_rule() {
    let logins = Logins::default();
    // At each place where a router can have the layer.
    let limits = [(); 5].map(|()| limiter());
    let [outside, within, merged, methods, both] = &limits;
    let apps = [
        Router::new().nest("/api", logins.routes()).route_layer(login(outside)),
        Router::new().nest("/api", logins.routes().route_layer(login(within))),
        Router::new().merge(Router::new().nest("/api", logins.routes())).route_layer(login(merged)),
        Router::new().nest("/api", logins.routes().layer(login(methods))),
        Router::new()
            .nest("/api", logins.routes())
            .layer(login(both))
            .fallback(|| async { (StatusCode::NOT_FOUND, "no such page") }),
    ];
    for (app, limiter) in apps.iter().zip(&limits) {
        assert_eq!(served(app, &logins).await, BURST as usize);
        assert_eq!(left(limiter), 0);
    }
    // Around the router, the path is normalized before it is matched.
    let limiter = limiter();
    let app = Router::new().nest("/api", logins.routes()).route_layer(login(&limiter));
    let app = NormalizePathLayer::trim_trailing_slash().layer(app);
    for path in ["/api/login/", "/api/login//", "/api/login"] {
        assert_eq!(status(&app, "POST", path).await, StatusCode::OK, "{path}");
    }
    assert_eq!(served(&app, &logins).await, BURST as usize, "those before");
}

/// The way that the guide showed first, for comparison.
#[tokio::test]
async fn path_of_nested_request_is_no_route() {
    let (logins, limiter) = (Logins::default(), limiter());
    let by_path = rule(&limiter).when(|request| request.uri.path() == "/api/login");
    let layer = RateLimitLayer::builder(&limiter).rule(by_path).build().unwrap();
    let app = Router::new().nest("/api", logins.routes().layer(layer));
    assert!(served(&app, &logins).await > BURST as usize);
    assert_eq!(left(&limiter), BURST);
}

/// A request whose route is unknown is refused: it could be one for the route of the rule.
#[tokio::test]
async fn request_without_route_is_refused() {
    let (logins, limiter) = (Logins::default(), limiter());
    let routes = || Router::new().nest("/api", logins.routes());
    // The layer is around the router, also with a layer in between that changes paths.
    let around = login(&limiter).layer(routes());
    let normalized =
        login(&limiter).layer(NormalizePathLayer::trim_trailing_slash().layer(routes()));
    let nested = Router::new().nest_service("/api", login(&limiter).layer(logins.routes()));
    for path in SPELLINGS {
        assert_eq!(status(&around, "POST", path).await, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(status(&normalized, "POST", path).await, StatusCode::NOT_FOUND);
    }
    assert_eq!(status(&nested, "POST", "/api/login").await, StatusCode::NOT_FOUND);
    let service = Router::new().nest_service("/api", logins.routes()).route_layer(login(&limiter));
    assert_eq!(status(&service, "POST", "/api/login").await, StatusCode::NOT_FOUND);
    assert_eq!(logins.take(), 0);

    // A request that no route matches: behind a `route_layer` the limits do not see it.
    let routes = || routes().fallback(|| async { "the fallback" });
    let on_routes = routes().route_layer(login(&limiter));
    assert_eq!(status(&on_routes, "GET", "/none").await, StatusCode::OK);
    let on_all = routes().layer(login(&limiter));
    assert_eq!(status(&on_all, "GET", "/none").await, StatusCode::NOT_FOUND);
    let matched = rule(&limiter)
        .route(MatchedPath::as_str, "/api/login")
        .when(|request| request.extensions.get::<MatchedPath>().is_some());
    let matched = RateLimitLayer::builder(&limiter).rule(matched).build().unwrap();
    assert_eq!(status(&routes().layer(matched), "GET", "/none").await, StatusCode::OK);
    assert_eq!(left(&limiter), BURST, "none was charged");
}

#[tokio::test]
async fn rule_is_for_its_routes_alone() {
    let (logins, limiter) = (Logins::default(), limiter());
    let rule = rule(&limiter)
        .route(MatchedPath::as_str, "/api/login")
        .route(MatchedPath::as_str, "/api/users/{id}")
        .when(|request| request.method != Method::HEAD);
    let layer = RateLimitLayer::builder(&limiter).rule(rule).build().unwrap();
    let app = Router::new()
        .nest("/api", logins.routes())
        .route("/login", post(|| async { "another one" }))
        .route_layer(layer);
    for (method, path, expected) in [
        ("POST", "/login", 3),
        ("HEAD", "/api/login", 3),
        ("POST", "/api/login", 2),
        ("GET", "/api/users/7", 1),
        ("GET", "/api/users/%37", 0),
    ] {
        assert_eq!(status(&app, method, path).await, StatusCode::OK, "{method} {path}");
        assert_eq!(left(&limiter), expected, "{method} {path}");
    }
    assert_eq!(status(&app, "GET", "/api/users/8").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&app, "POST", "/login").await, StatusCode::OK);
}

#[test]
fn text_that_is_no_route_is_refused() {
    let limiter = limiter();
    let error = |builder: RateLimitBuilder| builder.build().unwrap_err().to_string();
    let wrong = rule(&limiter).route(MatchedPath::as_str, "api/login");
    assert_eq!(
        error(RateLimitLayer::builder(&limiter).rule(wrong)),
        "Login: invalid route \"api/login\": a route begins with /"
    );
    let layer = RateLimitLayer::builder(&limiter).rule(rule(&limiter));
    assert_eq!(
        error(layer.exempt_routes(MatchedPath::as_str, ["/health", "", "metrics"])),
        "exempt_routes: invalid route \"\": a route begins with /"
    );
}

#[tokio::test]
async fn path_in_two_nests_is_two_ids() {
    let limiter = limiter();
    let by_path = Rule::new(limiter.limit("Login").unwrap(), extract::path::<OriginalUri>());
    let layer = RateLimitLayer::builder(&limiter).rule(by_path).build().unwrap();
    let users = || Router::new().route("/users", get(|| async { "users" })).layer(layer.clone());
    let app = Router::new().nest("/a", users()).nest("/b", users());
    for path in ["/a/users", "/b/users", "/b/users?q=1"] {
        assert_eq!(status(&app, "GET", path).await, StatusCode::OK);
    }
    let left = |id| limiter.limit("Login").unwrap().check(id, 0).unwrap().remaining();
    assert_eq!((left("/a/users"), left("/b/users"), left("/users")), (Some(2), Some(1), Some(3)));
    let (parts, ()) = Request::new(()).into_parts();
    assert!(matches!(extract::path::<OriginalUri>()(&parts), Who::Refused(_)));
}

/// Returns how many of ten requests are answered with 200.
async fn allowed_of_10(layer: &RateLimitLayer, request: impl Fn() -> Request<Body>) -> usize {
    let inner = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(())));
    let service = layer.layer(inner);
    let mut allowed = 0;
    for _ in 0..10 {
        let Ok(response) = service.clone().oneshot(request()).await;
        allowed += usize::from(response.status() == StatusCode::OK);
    }
    allowed
}

#[tokio::test]
async fn exempt_networks_are_not_limited() {
    let limiter = limiter();
    let clients = ClientAddress::new().trust(["10.0.0.1"], Forwarding::XForwardedFor).unwrap();
    let clients = clients.translated(["2001:db8:64::/96"]).unwrap();
    let networks = ["198.51.100.0/24", "2001:db8:7::7", "::ffff:192.0.2.0/120"];
    // The limits of one rule and of several take separate paths.
    for rules in [1, 2] {
        let builder = (0..rules).fold(RateLimitLayer::builder(&limiter), |builder, n| {
            let id = format!("{rules} {n}");
            builder.rule(Rule::new(limiter.limit("Login").unwrap(), extract::everyone(id)))
        });
        let layer = builder.exempt_networks(clients.clone(), networks).unwrap().build().unwrap();
        let of = |peer: &str, field: Option<&str>| {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(Peer::Address(peer.parse().unwrap()));
            if let Some(field) = field {
                request.headers_mut().insert("x-forwarded-for", field.parse().unwrap());
            }
            request
        };
        let before = limiter.stats().cells;
        for (peer, field) in [
            ("198.51.100.7", None),
            ("2001:db8:7::7", None),
            ("192.0.2.1", None),
            ("2001:db8:64::198.51.100.7", None),
            ("64:ff9b::198.51.100.7", None),
            ("10.0.0.1", Some("6.6.6.6, 198.51.100.7")),
        ] {
            assert_eq!(allowed_of_10(&layer, || of(peer, field)).await, 10, "{peer} {field:?}");
        }
        assert_eq!(limiter.stats().cells, before, "nothing was charged");
        // A neighbour in the /64, a client that invents an entry, and a proxy that names no client.
        for (peer, field) in [
            ("2001:db8:7::8", None),
            ("203.0.113.5", Some("198.51.100.7")),
            ("10.0.0.1", Some("198.51.100.7, 203.0.113.5")),
            ("10.0.0.1", None),
        ] {
            let allowed = allowed_of_10(&layer, || of(peer, field)).await;
            assert!(allowed <= BURST as usize, "{peer} {field:?}: {allowed}");
        }
    }
    for (network, expected) in [
        (
            "::/0",
            "invalid exempt network \"::/0\": a layer that exempts every client limits nothing",
        ),
        ("unix:", "invalid exempt network \"unix:\": an address or a CIDR is allowed"),
    ] {
        let builder = RateLimitLayer::builder(&limiter);
        let error = builder.exempt_networks(clients.clone(), [network]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn exempt_requests_are_not_limited_but_seen() {
    let (logins, limiter) = (Logins::default(), limiter());
    let seen = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&seen);
    let layer = RateLimitLayer::builder(&limiter)
        .rule(rule(&limiter))
        .exempt_routes(MatchedPath::as_str, ["/health"])
        .exempt(|request| request.headers.contains_key("x-exempt"))
        .on_response(move |_| {
            let counts = Arc::clone(&counts);
            move |_, _| _ = counts.fetch_add(1, Relaxed)
        })
        .build()
        .unwrap();
    let exempt = || Request::builder().header("x-exempt", "1").body(Body::empty()).unwrap();
    assert_eq!(allowed_of_10(&layer, exempt).await, 10);
    // A request for another route, and one whose route is unknown, are limited.
    let app = Router::new()
        .nest("/api", logins.routes().route("/health", get(|| async { "another one" })))
        .route("/health", get(|| async { "ok" }))
        .layer(layer);
    for _ in 0..10 {
        assert_eq!(status(&app, "GET", "/health").await, StatusCode::OK);
    }
    assert_eq!((seen.load(Relaxed), left(&limiter)), (20, BURST));
    for (path, expected) in
        [("/api/health", 200), ("/none", 404), ("/health/", 404), ("/api/health", 429)]
    {
        assert_eq!(status(&app, "GET", path).await, expected, "{path}");
    }
}
