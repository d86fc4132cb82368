//! The layer with blocks, shadow mode, counters and several rules of one limit.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::http::{
    Fields, PlugLimitNames, RateLimitBuilder, RateLimitLayer, Reset, Rule, Style, Who, extract,
};
use tollgate::limit::Factor;
use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
use tower::{Layer, ServiceExt};

const HOUR: Duration = Duration::from_secs(3600);

/// Makes limits with these bursts: `Enforced` 5, `Tried` 1 in shadow mode, `Client` 2 by address.
fn limiter() -> Limiter {
    let shadow = LimitOptions::default().mode(LimitMode::Shadow);
    let of = |burst| Limit::new(burst, burst, HOUR).unwrap();
    let limits = Limits::builder()
        .limit("Enforced", IdFormat::String, of(5))
        .unwrap()
        .limit_with("Tried", IdFormat::String, of(1), shadow)
        .unwrap()
        .limit("Client", IdFormat::IpAddress, of(2))
        .unwrap();
    let options = LimiterOptions::default().clock(Clock::manual().0).counting(true);
    Limiter::with_options(limits.build(), options).unwrap()
}

fn rule(limiter: &Limiter, name: &str) -> Rule {
    Rule::new(limiter.limit(name).unwrap(), extract::everyone("all"))
}

async fn ask(builder: RateLimitBuilder, uri: &str) -> (StatusCode, HeaderMap, String) {
    let layer = builder.build().unwrap();
    let inner = tower::service_fn(|_: Request<Empty<Bytes>>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let request = Request::get(uri).body(Empty::new()).unwrap();
    let (parts, body) = layer.layer(inner).oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn fields_never_invite_blocked_clients_back_early() {
    let limiter = limiter();
    let block = Duration::from_secs(100);
    let _ = limiter.limit("Enforced").unwrap().block("all", block).unwrap();
    let styles = [
        (Style::XRateLimit(Reset::Delta), "x-ratelimit-reset", "100"),
        (Style::PlugLimit(PlugLimitNames::default()), "x-plug-limit-reset", "100"),
        (Style::Sharkey, "x-ratelimit-clear", "100.000"),
        (Style::Draft06, "ratelimit-reset", "100"),
    ];
    for (style, name, value) in styles {
        let fields = Fields::new([style.clone()]).unwrap();
        let builder = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "Enforced"));
        let (status, headers, _) = ask(builder.fields(fields), "/").await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(headers["retry-after"], "100", "{style:?}");
        let told = headers.get(name).or_else(|| headers.get("x-ratelimit-reset"));
        assert_eq!(told.unwrap(), value, "{style:?}: {headers:?}");
    }
}

#[tokio::test]
async fn clients_never_see_a_shadow_mode_limit() {
    let limiter = limiter();
    for style in [Style::Ietf, Style::XRateLimit(Reset::Delta)] {
        let fields = || Fields::new([style.clone()]).unwrap();
        let tried = || {
            let builder = RateLimitLayer::builder(&limiter).rule(rule(&limiter, "Tried"));
            builder.fields(fields())
        };
        let (status, headers, _) = ask(tried(), "/").await;
        assert_eq!((status, headers.len()), (StatusCode::OK, 0), "{headers:?}");
        let (status, headers, _) = ask(tried().rule(rule(&limiter, "Enforced")), "/").await;
        assert_eq!(status, StatusCode::OK);
        let shown = format!("{headers:?}");
        assert!(!shown.contains("Tried"), "{shown}");
        if style == Style::XRateLimit(Reset::Delta) {
            assert_eq!(headers["x-ratelimit-limit"], "5");
            assert_eq!(headers["x-ratelimit-remaining"], "3");
        }
    }
    assert!(limiter.counters().limits[1].shadow_denied > 0, "it was asked");
}

#[tokio::test]
async fn making_a_layer_counts_no_call() {
    let limiter = limiter();
    let builder = RateLimitLayer::builder(&limiter);
    let builder = builder.rule(rule(&limiter, "Enforced")).rule(rule(&limiter, "Tried"));
    let _layer = builder.build().unwrap();
    assert!(limiter.counters().limits.iter().all(|of| of.errors == 0 && of.allowed == 0));
}

fn address(cut: bool) -> impl Fn(&Parts) -> Who<'_> + Send + Sync + 'static {
    move |parts: &Parts| {
        let address: IpAddr = parts.uri.path()[1..].parse().unwrap();
        match address {
            IpAddr::V6(v6) if cut => {
                let network = v6.to_bits() & (u128::MAX << 80);
                Who::from(IpAddr::from(network.to_be_bytes()))
            }
            address => Who::from(address),
        }
    }
}

/// Two rules count a client by two IPv6 prefixes, which for IPv4 are the same bucket.
#[tokio::test]
async fn rules_naming_one_bucket_charge_it_once() {
    let limiter = limiter();
    let client = limiter.limit("Client").unwrap();
    for refunds in [false, true] {
        let layer = || {
            let whole = Rule::new(client.clone(), address(false));
            let whole =
                if refunds { whole.refund_if(|status| status.is_server_error()) } else { whole };
            let cut = Rule::new(client.clone(), address(true));
            RateLimitLayer::builder(&limiter).rule(whole).rule(cut)
        };
        let _ = client.reset("192.0.2.1").unwrap();
        let (status, ..) = ask(layer(), "/192.0.2.1").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(client.check("192.0.2.1", 0).unwrap().remaining(), Some(1));
    }
    let (status, ..) = ask(
        RateLimitLayer::builder(&limiter)
            .rule(Rule::new(client.clone(), address(false)))
            .rule(Rule::new(client.clone(), address(true))),
        "/2001:db8:1:2::3",
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    for bucket in ["2001:db8:1:2::3", "2001:db8:1::"] {
        assert_eq!(client.check(bucket, 0).unwrap().remaining(), Some(1), "{bucket}");
    }
}

#[tokio::test]
async fn cost_above_burst_is_told_in_client_words() {
    let limiter = limiter();
    for also in [false, true] {
        let costly = rule(&limiter, "Enforced").shown_as("requests").cost(|_| 6);
        let builder = RateLimitLayer::builder(&limiter).rule(costly);
        let builder = if also { builder.rule(rule(&limiter, "Tried")) } else { builder };
        let (status, _, body) = ask(builder, "/").await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(body.contains("above the burst 5 of requests"), "{body}");
        assert!(!body.contains("Enforced"), "{body}");
    }
}

#[tokio::test]
async fn factor_out_of_range_told_in_general() {
    let limiter = limiter();
    let factor: Factor = "10000000".parse().unwrap();
    for also in [false, true] {
        let scaled = rule(&limiter, "Enforced").shown_as("requests").factor(move |_| factor);
        let builder = RateLimitLayer::builder(&limiter).rule(scaled);
        let builder = if also { builder.rule(rule(&limiter, "Tried")) } else { builder };
        let (status, _, body) = ask(builder, "/").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(body.contains("the server could not handle this request"), "{body}");
        assert!(!body.contains("Enforced"), "{body}");
    }
}
