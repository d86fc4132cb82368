//! Each algorithm behind the layer, with a manual clock: its fields, the waits, and a caller's factor.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use proptest::prelude::*;
use tollgate::clock::ManualClock;
use tollgate::http::{
    ClientAddress, Fields, Forwarding, Peer, PlugLimitNames, RateLimitLayer, Report, Rule, Style,
    extract,
};
use tollgate::limit::Factor;
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt};

const SECOND: Duration = Duration::from_secs(1);

fn fixed_window() -> Limit {
    Limit::fixed_window(2, 10 * SECOND).unwrap()
}

/// A token bucket: 2 at once, then one every 3 s, and 12 in each 30 s.
fn token_bucket() -> Limit {
    Limit::token_bucket(2, 12, 30 * SECOND).unwrap()
}

fn leaky_bucket() -> Limit {
    Limit::leaky_bucket(2, 1, Duration::from_millis(1500)).unwrap()
}

fn gcra() -> Limit {
    Limit::new(2, 2, 3 * SECOND).unwrap()
}

fn plug_limit() -> Style {
    Style::PlugLimit(PlugLimitNames::default())
}

/// A layer with one limit. A request's header fields give its cost and factor.
struct Server {
    layer: RateLimitLayer,
    limiter: Limiter,
    manual: ManualClock,
}

impl Server {
    fn new(limit: Limit, style: Style) -> Server {
        Server::with(limit, style, false)
    }

    fn with(limit: Limit, style: Style, permissive: bool) -> Server {
        let limits = Limits::builder().limit("n", IdFormat::String, limit).unwrap().build();
        let (clock, manual) = Clock::manual();
        let limiter = Limiter::with_options(limits, clock).unwrap();
        let rule = Rule::new(limiter.limit("n").unwrap(), extract::everyone("all"))
            .cost(|parts| field(parts, "cost").map_or(1, |cost| cost.parse().unwrap()))
            .factor(|parts| {
                field(parts, "factor").map_or(Factor::ONE, |factor| factor.parse().unwrap())
            })
            .refund_if(|status| status.is_server_error());
        let layer = RateLimitLayer::builder(&limiter)
            .rule(rule)
            .fields(Fields::new([style]).unwrap())
            .permissive(permissive)
            .grpc()
            .build()
            .unwrap();
        Server { layer, limiter, manual }
    }

    fn ask(&self, fields: &[(&'static str, &str)]) -> (StatusCode, HeaderMap) {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = Method::POST;
        for (name, value) in fields {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        call(&self.layer, request)
    }

    /// Returns the status and the fields of a call, separated by `|`.
    fn lines(&self, fields: &[(&'static str, &str)]) -> String {
        let (status, headers) = self.ask(fields);
        let mut lines: Vec<_> = headers
            .iter()
            .filter(|(name, _)| name.as_str() == "retry-after" || name.as_str().contains("limit"))
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines.insert(0, status.as_str().to_owned());
        lines.join(" | ").replace("x-ratelimit-", "x-")
    }
}

fn field<'p>(parts: &'p Parts, name: &str) -> Option<&'p str> {
    parts.headers.get(name).map(|value| value.to_str().unwrap())
}

/// Returns a field's text, or an empty text.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// A service that answers with the status and the `Retry-After` that the request gives.
fn call(layer: &RateLimitLayer, request: Request<Empty<Bytes>>) -> (StatusCode, HeaderMap) {
    let inner = tower::service_fn(|request: Request<Empty<Bytes>>| {
        let mut response = Response::new(Full::<Bytes>::default());
        if let Some(status) = request.headers().get("status") {
            *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).unwrap();
        }
        if let Some(wait) = request.headers().get("inner-wait") {
            response.headers_mut().insert("retry-after", wait.clone());
        }
        if let Some(report) = request.extensions().get::<Report>() {
            let says = if report.allowed() { "yes" } else { "no" };
            response.headers_mut().insert("would-allow", says.parse().unwrap());
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let response = runtime.block_on(layer.layer(inner).oneshot(request)).unwrap();
    (response.status(), response.headers().clone())
}

#[test]
fn each_algorithm_in_the_style_of_its_origin() {
    let table: [(Limit, Style, [&str; 3]); 4] = [
        (
            fixed_window(),
            plug_limit(),
            [
                "200 | x-limit: 2 | x-remaining: 1 | x-reset: 10",
                // The next call would be denied. PlugLimit writes no wait for a fixed window.
                "200 | x-limit: 2 | x-remaining: 0 | x-reset: 10",
                "429 | retry-after: 10 | x-limit: 2 | x-remaining: 0 | x-reset: 10",
            ],
        ),
        (
            token_bucket(),
            plug_limit(),
            [
                "200 | x-limit: 12 12;w=30;burst=2;policy=token_bucket | x-remaining: 11 | x-reset: 30",
                "200 | retry-after: 3 | x-limit: 12 12;w=30;burst=2;policy=token_bucket | x-remaining: 10 | x-reset: 30",
                "429 | retry-after: 3 | x-limit: 12 12;w=30;burst=2;policy=token_bucket | x-remaining: 10 | x-reset: 30",
            ],
        ),
        (
            leaky_bucket(),
            Style::Sharkey,
            [
                "200 | x-clear: 1.500 | x-remaining: 1",
                "200 | x-clear: 3.000 | x-remaining: 0",
                "429 | retry-after: 2 | x-clear: 3.000 | x-remaining: 0 | x-reset: 1.500",
            ],
        ),
        (
            gcra(),
            Style::Ietf,
            [
                r#"200 | ratelimit-policy: "n";q=2;w=3 | ratelimit: "n";r=1;t=2"#,
                r#"200 | ratelimit-policy: "n";q=2;w=3 | ratelimit: "n";r=0;t=2"#,
                r#"429 | ratelimit-policy: "n";q=2;w=3 | ratelimit: "n";r=0;t=2 | retry-after: 2"#,
            ],
        ),
    ];
    for (limit, style, expected) in table {
        let server = Server::new(limit.clone(), style);
        let said = [server.lines(&[]), server.lines(&[]), server.lines(&[])];
        assert_eq!(said, expected, "{limit:?}");
    }
}

#[test]
fn only_pluglimit_tells_an_allowed_call_to_wait() {
    let styles =
        || [plug_limit(), Style::Sharkey, Style::Ietf, Style::Draft06, Style::Draft03].into_iter();
    for limit in [fixed_window(), token_bucket(), leaky_bucket(), gcra()] {
        for style in styles() {
            let server = Server::new(limit.clone(), style.clone());
            let _ = server.ask(&[]);
            let (status, headers) = server.ask(&[]);
            assert_eq!(status, StatusCode::OK);
            let expected = limit == token_bucket() && style == plug_limit();
            assert_eq!(headers.contains_key("retry-after"), expected, "{limit:?} {style:?}");
        }
    }
    // The wait has another name. A client that waits for it is allowed, and gets the next wait of 3 s.
    let names = PlugLimitNames::default().retry_after(HeaderName::from_static("x-wait"));
    let server = Server::new(token_bucket(), Style::PlugLimit(names));
    let _ = server.ask(&[]);
    for _ in 0..5 {
        let (status, headers) = server.ask(&[]);
        assert_eq!((status, text(&headers, "x-wait")), (StatusCode::OK, "3"));
        assert!(!headers.contains_key("retry-after"));
        server.manual.advance(3 * SECOND);
    }
    // A permissive layer writes no wait.
    let server = Server::with(token_bucket(), plug_limit(), true);
    for expected in ["yes", "yes", "no"] {
        let (status, headers) = server.ask(&[]);
        assert_eq!((status, text(&headers, "would-allow")), (StatusCode::OK, expected));
        assert!(!headers.contains_key("retry-after"), "{headers:?}");
    }
}

#[test]
fn the_services_own_retry_after_stays() {
    let server = Server::new(token_bucket(), plug_limit());
    let _ = server.ask(&[]);
    let (status, headers) = server.ask(&[("status", "409"), ("inner-wait", "120")]);
    assert_eq!((status, text(&headers, "retry-after")), (StatusCode::CONFLICT, "120"));
    let (status, headers) = server.ask(&[("inner-wait", "120")]);
    assert_eq!((status, text(&headers, "retry-after")), (StatusCode::TOO_MANY_REQUESTS, "3"));
}

#[test]
fn factor_half_doubles_limits_and_zero_disables() {
    let table = [
        (fixed_window(), plug_limit(), "200 | x-limit: 4 | x-remaining: 3 | x-reset: 10"),
        (
            token_bucket(),
            plug_limit(),
            "200 | x-limit: 24 24;w=30;burst=4;policy=token_bucket | x-remaining: 23 | x-reset: 30",
        ),
        (leaky_bucket(), Style::Sharkey, "200 | x-clear: 0.750 | x-remaining: 3"),
        (gcra(), Style::Ietf, r#"200 | ratelimit-policy: "n";q=4;w=3 | ratelimit: "n";r=3;t=1"#),
    ];
    for (limit, style, expected) in table {
        let server = Server::new(limit.clone(), style.clone());
        let half = [("factor", "0.5")];
        assert_eq!(server.lines(&half), expected);
        for nth in 2..=4 {
            assert_eq!(server.ask(&half).0, StatusCode::OK, "{limit:?}, call {nth}");
        }
        let denied = server.lines(&half);
        assert!(denied.starts_with("429 | ") && denied.contains("retry-after: "), "{denied}");
        // The same bucket for a caller with factor 0: each call is admitted, and its response has no fields.
        for _ in 0..50 {
            assert_eq!(server.lines(&[("factor", "0")]), "200", "{limit:?}");
        }
        assert_eq!(server.ask(&half).0, StatusCode::TOO_MANY_REQUESTS, "0 has charged nothing");

        // The factor 2 halves the limit.
        let server = Server::new(limit.clone(), style);
        let double = [("factor", "2")];
        assert_eq!(server.ask(&double).0, StatusCode::OK);
        assert_eq!(server.ask(&double).0, StatusCode::TOO_MANY_REQUESTS, "{limit:?}");
    }
}

#[test]
fn unrepresentable_factor_is_a_server_error() {
    let server = Server::new(Limit::fixed_window(10_000_000, SECOND).unwrap(), Style::Ietf);
    let (status, headers) = server.ask(&[("factor", "0.5")]);
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!headers.contains_key("ratelimit") && !headers.contains_key("retry-after"));
}

#[test]
fn status_refunds_charge_of_any_algorithm_and_factor() {
    for limit in [fixed_window(), token_bucket(), leaky_bucket(), gcra()] {
        for factor in ["1", "0.5"] {
            let server = Server::new(limit.clone(), Style::Draft03);
            let failed = [("factor", factor), ("status", "503")];
            let full = server.ask(&failed).1["ratelimit-remaining"].clone();
            for _ in 0..10 {
                let (status, headers) = server.ask(&failed);
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{limit:?} * {factor}");
                assert_eq!(headers["ratelimit-remaining"], full, "{limit:?} * {factor}");
            }
            let (status, headers) = server.ask(&[("factor", factor), ("status", "404")]);
            assert_eq!(status, StatusCode::NOT_FOUND);
            assert_ne!(headers["ratelimit-remaining"], full, "{limit:?} * {factor}");
        }
    }
}

#[test]
fn every_algorithm_is_resource_exhausted_to_grpc() {
    for limit in [fixed_window(), token_bucket(), leaky_bucket(), gcra()] {
        let server = Server::new(limit.clone(), plug_limit());
        let grpc = [("content-type", "application/grpc"), ("cost", "2")];
        assert!(!server.ask(&grpc).1.contains_key("grpc-status"));
        let (status, headers) = server.ask(&grpc);
        assert_eq!((status, text(&headers, "grpc-status")), (StatusCode::OK, "8"));
        let wait = text(&headers, "retry-after");
        let message = format!("too many requests: try again in {wait} s");
        assert_eq!(text(&headers, "grpc-message"), message, "{limit:?}");
        let pushback: u64 = text(&headers, "grpc-retry-pushback-ms").parse().unwrap();
        let wait: u64 = wait.parse().unwrap();
        assert!(((wait - 1) * 1000..=wait * 1000).contains(&pushback), "{pushback} {wait}");
    }
}

/// Checks which client's bucket a request is charged to, or with which status it is rejected.
#[test]
fn forged_proxy_fields_move_no_bucket() {
    let limits = Limits::builder().limit("n", IdFormat::IpAddress, gcra()).unwrap().build();
    let proxies = ["10.0.0.0/8"];
    let forged = vec!["6.6.6.6"; 100].join(", ");
    let hundred = format!("203.0.113.5, {}", vec!["10.1.1.1"; 100].join(", "));
    let endless = vec!["10.1.1.1"; 300].join(", ");
    // The case, the peer, the lines of X-Forwarded-For, and the client's address or the status.
    let table: &[(&str, &str, &[&str], &str)] = &[
        ("forged, no proxy", "203.0.113.5", &["6.6.6.6"], "203.0.113.5"),
        ("forged as a proxy", "203.0.113.5", &["10.0.0.1"], "203.0.113.5"),
        ("forged, a proxy", "10.0.0.1", &["6.6.6.6, 203.0.113.5"], "203.0.113.5"),
        ("forged 100 times", "10.0.0.1", &[&forged, "203.0.113.5"], "203.0.113.5"),
        ("doubled", "10.0.0.1", &["203.0.113.5, 203.0.113.5"], "203.0.113.5"),
        ("doubled lines", "10.0.0.1", &["6.6.6.6", "203.0.113.5"], "203.0.113.5"),
        ("a port", "10.0.0.1", &["203.0.113.5:4711"], "203.0.113.5"),
        ("brackets", "10.0.0.1", &["[2001:db8:1:2::5]"], "2001:db8:1:2::"),
        ("brackets and a port", "10.0.0.1", &["[2001:db8:1:2::5]:4711"], "2001:db8:1:2::"),
        ("100 hops", "10.0.0.1", &[&hundred], "203.0.113.5"),
        ("300 hops", "10.0.0.1", &[&endless], "500"),
        ("empty", "10.0.0.1", &[""], "500"),
        ("missing", "10.0.0.1", &[], "500"),
        ("nonsense", "10.0.0.1", &["6.6.6.6, nobody"], "500"),
        ("an open bracket", "10.0.0.1", &["[2001:db8::1"], "500"),
        ("a port of six digits", "10.0.0.1", &["203.0.113.5:123456"], "500"),
    ];
    for (what, peer, lines, expected) in table {
        let limiter = Limiter::with_options(limits.clone(), Clock::manual().0).unwrap();
        let handle = limiter.limit("n").unwrap();
        let clients = ClientAddress::new().trust(proxies, Forwarding::XForwardedFor).unwrap();
        let rule = Rule::new(handle.clone(), extract::client(clients));
        let layer = RateLimitLayer::builder(&limiter).rule(rule).build().unwrap();
        let mut request = Request::new(Empty::<Bytes>::new());
        let peer: IpAddr = peer.parse().unwrap();
        request.extensions_mut().insert(Peer::from(peer));
        for line in *lines {
            request.headers_mut().append("x-forwarded-for", line.parse().unwrap());
        }
        let (status, _) = call(&layer, request);
        match expected.parse::<IpAddr>() {
            Ok(client) => {
                assert_eq!(status, StatusCode::OK, "{what}");
                assert_eq!(handle.check(client, 0).unwrap().remaining(), Some(1), "{what}");
            }
            Err(_) => assert_eq!(status.as_str(), *expected, "{what}"),
        }
        let charged = limiter.stats().cells;
        assert_eq!(charged, usize::from(status == StatusCode::OK), "{what}: no other bucket");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With each algorithm, factor and style, and at any nanosecond, a client that waits for `Retry-After` is admitted
    /// afterwards, and the field has whole seconds.
    #[test]
    fn client_obeying_retry_after_is_then_admitted(
        which in 0..4usize,
        (most, some, span_ms) in (1..12u64, 1..12u64, 100..20_000u64),
        factor in prop::sample::select(vec!["1", "0.5", "0.37", "1.9"]),
        style in prop::sample::select(
            vec![Style::Ietf, Style::Draft06, Style::Sharkey, Style::PlugLimit(PlugLimitNames::default())]
        ),
        calls in prop::collection::vec((1..12u64, 0..1_500_000_000u64), 1..24),
    ) {
        let span = Duration::from_millis(span_ms);
        let limit = match which {
            0 => Limit::fixed_window(most, span),
            1 => Limit::token_bucket(most, most + some, span),
            2 => Limit::leaky_bucket(most, some, span / 10),
            _ => Limit::new(most, some, span),
        };
        let Ok(limit) = limit else { return Ok(()) };
        let Ok(Some(scaled)) = limit.scaled(factor.parse().unwrap()) else { return Ok(()) };
        let server = Server::new(limit, style);
        let mut denials = 0;
        for (cost, between_ns) in calls {
            let cost = cost.min(scaled.burst()).to_string();
            let fields = [("cost", cost.as_str()), ("factor", factor)];
            let (status, headers) = server.ask(&fields);
            if status == StatusCode::TOO_MANY_REQUESTS {
                let wait: u64 = text(&headers, "retry-after").parse().unwrap();
                prop_assert!(wait > 0);
                denials += 1;
                server.manual.advance(Duration::from_secs(wait));
                let (status, again) = server.ask(&fields);
                prop_assert_eq!(status, StatusCode::OK, "{:?} {:?} {:?}", scaled, headers, again);
            } else {
                prop_assert_eq!(status, StatusCode::OK);
            }
            server.manual.advance(Duration::from_nanos(between_ns));
        }
        prop_assert_eq!(server.limiter.stats().cells, 1, "{} denials", denials);
    }
}
