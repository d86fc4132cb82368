//! Tests rules that refund a charge if the response has a certain status.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use tollgate::http::{Fields, RateLimitLayer, Rule, Style, extract};
use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::{Clock, IdFormat, Limit, Limiter, LimiterOptions, Limits};
use tower::{Layer, ServiceExt};

const HOUR: Duration = Duration::from_secs(3600);

/// Makes a limiter with counters and one limit `A`.
fn limiter(limit: Limit, options: LimitOptions) -> Limiter {
    let limits = Limits::builder().limit_with("A", IdFormat::String, limit, options).unwrap();
    let options = LimiterOptions::default().clock(Clock::manual().0).counting(true);
    Limiter::with_options(limits.build(), options).unwrap()
}

/// Makes a rule for `A` that refunds responses with this status.
fn rule(limiter: &Limiter, status: StatusCode) -> Rule {
    let rule = Rule::new(limiter.limit("A").unwrap(), extract::everyone("all"));
    rule.refund_if(move |found| found == status)
}

/// Sends a request through `rule` to a service that calls `within` and answers with `status`.
async fn ask(
    limiter: &Limiter,
    rule: Rule,
    status: StatusCode,
    within: impl Fn(),
) -> (StatusCode, HeaderMap) {
    let fields = Fields::new([Style::Ietf]).unwrap();
    let layer = RateLimitLayer::builder(limiter).rule(rule).fields(fields).build().unwrap();
    let service = layer.layer(tower::service_fn(|_: Request<Empty<Bytes>>| {
        within();
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = status;
        std::future::ready(Ok::<_, Infallible>(response))
    }));
    let response = service.oneshot(Request::new(Empty::new())).await.unwrap();
    (response.status(), response.headers().clone())
}

/// Makes three requests. The response of the second has the status for which the rule refunds the charge.
async fn ask_thrice(limiter: &Limiter) {
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    for status in [StatusCode::OK, failed, StatusCode::OK] {
        let _ = ask(limiter, rule(limiter, failed), status, || {}).await;
    }
}

#[tokio::test]
async fn refund_uses_the_factor_of_the_charge() {
    // With a factor of 2 a request costs two units. The shadow limit has room for two such requests.
    let options = LimitOptions::default().shadow(Limit::new(4, 1, HOUR).unwrap());
    let limiter = limiter(Limit::new(10, 1, HOUR).unwrap(), options);
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    for (status, left) in [(StatusCode::OK, 8), (failed, 8), (StatusCode::OK, 6)] {
        let rule = rule(&limiter, failed).factor(|_| "2".parse().unwrap());
        let (_, headers) = ask(&limiter, rule, status, || {}).await;
        let decision = limiter.limit("A").unwrap().check("all", 0).unwrap();
        assert_eq!(decision.remaining(), Some(left), "{status}");
        let field = headers["ratelimit"].to_str().unwrap();
        assert!(field.starts_with(&format!(r#""A";r={};"#, left / 2)), "{status}: {field}");
        assert_eq!(limiter.counters().limits[0].shadow_denied, 0, "{status}");
    }
}

#[tokio::test]
async fn denied_request_refunds_nothing_in_either_mode() {
    for mode in [LimitMode::Enforce, LimitMode::Shadow] {
        let options = LimitOptions::default().mode(mode);
        let limiter = limiter(Limit::new(1, 1, HOUR).unwrap(), options);
        ask_thrice(&limiter).await;
        let counted = &limiter.counters().limits[0];
        // The second request is denied, or would be without shadow mode. It is not charged, so its response refunds
        // nothing, and the third request is denied as well.
        assert_eq!(counted.denied + counted.shadow_denied, 2, "{mode:?}");
    }
}

#[tokio::test]
async fn uncharged_shadow_bucket_gets_no_refund() {
    let options = LimitOptions::default().shadow(Limit::new(1, 1, HOUR).unwrap());
    let limiter = limiter(Limit::new(10, 10, HOUR).unwrap(), options);
    ask_thrice(&limiter).await;
    assert_eq!(limiter.counters().limits[0].shadow_denied, 2);
}

#[tokio::test]
async fn refunding_response_has_no_retry_after() {
    let limiter = limiter(Limit::new(5, 1, HOUR).unwrap(), LimitOptions::default());
    let failed_login = StatusCode::UNAUTHORIZED;
    let rule = rule(&limiter, failed_login);
    let handle = limiter.limit("A").unwrap();
    let block = || {
        handle.block("all", HOUR).unwrap();
    };
    let (status, headers) = ask(&limiter, rule, failed_login, block).await;
    assert_eq!(status, failed_login);
    assert!(!headers.contains_key("retry-after"), "the request was allowed: {headers:?}");
    assert_eq!(handle.blocked_for("all").unwrap(), Some(HOUR));
}
