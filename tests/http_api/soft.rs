//! Soft rules: they let a request pass and mark it.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use tollgate::http::{
    Denied, Fields, RateLimitBuilder, RateLimitLayer, Report, Reset, Rule, Style, WaitOptions,
    extract,
};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

use super::held::Gate;

#[tokio::test]
async fn soft_rules_mark_and_let_pass() {
    let gate = Gate::new();
    let usual = Rule::new(gate.tokens.clone(), extract::everyone("all")).cost(|_| 700).soft();
    let layer = RateLimitLayer::builder(&gate.limiter).rule(gate.streams()).rule(usual);
    let layer = layer.build().unwrap();
    let handler = service_fn(|request: Request<()>| {
        let report = request.extensions().get::<Report>().expect("enforced layers report as well");
        assert!(report.allowed());
        let violated = report.violated().join(" ");
        async { Ok::<_, Infallible>(Response::new(violated)) }
    });
    let mut held = Vec::new();
    for (violated, used) in [("", 700), ("Tokens", 700)] {
        let response = layer.layer(handler).oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let fields = response.headers().clone();
        assert!(!fields.contains_key(header::RETRY_AFTER), "{fields:?}");
        let (parts, body) = response.into_parts();
        assert_eq!(body.collect().await.unwrap().to_bytes(), violated);
        assert_eq!(gate.used(), used);
        held.push(parts);
    }
}

#[tokio::test]
async fn hard_rules_outlast_soft_ones_of_their_bucket() {
    let gate = Gate::new();
    let of_tokens = || Rule::new(gate.tokens.clone(), extract::everyone("all"));
    for (soft, hard) in [(400, 400), (900, 400)] {
        assert!(gate.tokens.reset("all").unwrap().allowed());
        let layer = RateLimitLayer::builder(&gate.limiter)
            .rule(of_tokens().cost(move |_| soft).soft())
            .rule(of_tokens().cost(move |_| hard))
            .build()
            .unwrap();
        let handler = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        });
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(layer.layer(handler).oneshot(Request::new(())).await.unwrap().status());
        }
        assert_eq!(statuses, [200, 200, 429], "{soft}");
    }
}

/// The strict limit `All` and the soft one `Usual`.
struct Both(Limiter);

impl Both {
    fn new(all: Limit, usual: Limit) -> Both {
        let limits = Limits::builder().limit("All", IdFormat::String, all).unwrap();
        let limits = limits.limit("Usual", IdFormat::String, usual).unwrap().build();
        Both(Limiter::with_options(limits, Clock::manual().0).unwrap())
    }

    fn rules(&self) -> RateLimitBuilder {
        let rule = |name| Rule::new(self.0.limit(name).unwrap(), extract::everyone("all"));
        RateLimitLayer::builder(&self.0).rule(rule("All")).rule(rule("Usual").soft())
    }
}

fn one_a(seconds: u64) -> Limit {
    Limit::new(1, 1, Duration::from_secs(seconds)).unwrap()
}

async fn served(_: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new(String::new()))
}

/// Returns a field of a response, empty if it is not there.
fn field<B>(response: &Response<B>, name: &str) -> String {
    let field = response.headers().get(name);
    field.map_or(String::new(), |field| field.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn fields_show_hard_limits_alone() {
    let minute = Duration::from_secs(60);
    let limit = |most| Limit::new(most, most, minute).unwrap();
    for (all, usual) in [(100, 10), (10, 100)] {
        let both = Both::new(limit(all), limit(usual));
        let style = Style::XRateLimit(Reset::Delta);
        let layer = both.rules().fields(Fields::new([style, Style::Ietf]).unwrap());
        let layer = layer.build().unwrap();
        let response = layer.layer(service_fn(served)).oneshot(Request::new(())).await.unwrap();
        let fields = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|it| field(&response, it));
        assert_eq!(fields, [all, all - 1].map(|it| it.to_string()));
        assert!(!field(&response, "ratelimit").contains("Usual"));
    }
}

/// The soft rule has its own fields.
#[tokio::test]
async fn soft_rules_write_no_fields_of_their_own() {
    let both = Both::new(one_a(1), one_a(3_600));
    let rule = |name| Rule::new(both.0.limit(name).unwrap(), extract::everyone("all"));
    let of_usual = Fields::new([Style::XRateLimit(Reset::Delta)]).unwrap();
    let layer = RateLimitLayer::builder(&both.0)
        .rule(rule("All"))
        .rule(rule("Usual").soft().fields(of_usual))
        .build()
        .unwrap();
    for status in [200, 429] {
        let response = layer.layer(service_fn(served)).oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), status);
        assert!(field(&response, "ratelimit").starts_with(r#""All";r=0"#));
        assert_eq!(field(&response, "x-ratelimit-limit"), "");
    }
}

#[tokio::test]
async fn denials_name_hard_limits_alone() {
    let both = Both::new(one_a(1), one_a(3_600));
    let layer = both.rules().build().unwrap();
    let ask = async || layer.layer(service_fn(served)).oneshot(Request::new(())).await.unwrap();
    assert_eq!(ask().await.status(), StatusCode::OK);
    let response = ask().await;
    assert_eq!(field(&response, "ratelimit"), r#""All";r=0;t=1"#);
    assert_eq!(field(&response, "retry-after"), "1");
    assert_eq!(response.extensions().get::<Denied>().unwrap().violated(), ["All"]);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains(r#""violated-policies":["All"]"#), "{body:?}");
}

#[tokio::test]
async fn denied_waits_are_those_of_hard_limits() {
    let both = Both::new(one_a(1), one_a(3_600));
    let options = WaitOptions::at_most(Duration::ZERO);
    let layer = both.rules().build_waiting(options, tokio::time::sleep).unwrap();
    let ask = async || layer.layer(service_fn(served)).oneshot(Request::new(())).await.unwrap();
    assert_eq!(ask().await.status(), StatusCode::OK);
    let response = ask().await;
    assert_eq!(
        (response.status(), &*field(&response, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, "1")
    );
    assert_eq!(field(&response, "ratelimit"), r#""All";r=0;t=1"#);
}

/// A refund of the strict limit brings its present numbers, not those of the soft one.
#[tokio::test]
async fn refunds_show_hard_limits_alone() {
    let all = Limit::new(10, 10, Duration::from_secs(60)).unwrap();
    let both = Both::new(all, one_a(3_600));
    let rule = |name| Rule::new(both.0.limit(name).unwrap(), extract::everyone("all"));
    let layer = RateLimitLayer::builder(&both.0)
        .rule(rule("All").refund_if(|status| status.is_success()))
        .rule(rule("Usual").soft())
        .fields(Fields::new([Style::XRateLimit(Reset::Delta)]).unwrap())
        .build()
        .unwrap();
    for _ in 0..2 {
        let response = layer.layer(service_fn(served)).oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(&response, "x-ratelimit-remaining"), "10");
    }
}

/// The names that the report of each request has while the handler serves it.
#[tokio::test(start_paused = true)]
async fn waiting_keeps_the_mark_of_soft_rules() {
    let begun = tokio::time::Instant::now();
    let clock = Clock::custom(move || begun.elapsed());
    let tenth = Limit::new(1, 10, Duration::from_secs(1)).unwrap();
    let limits = Limits::builder().limit("All", IdFormat::String, tenth).unwrap();
    let limits = limits.limit("Usual", IdFormat::String, one_a(3_600)).unwrap().build();
    let both = Both(Limiter::with_options(limits, clock).unwrap());
    let options = WaitOptions::at_most(Duration::from_secs(60));
    let handler = service_fn(|request: Request<()>| async move {
        let report = request.extensions().get::<Report>().unwrap();
        assert!(report.allowed());
        Ok::<_, Infallible>(Response::new(report.violated().join(" ")))
    });
    for fields in [Fields::new([Style::Ietf]).unwrap(), Fields::none()] {
        assert!(both.0.limit("Usual").unwrap().reset("all").is_ok());
        let layer = both.rules().fields(fields);
        let layer = layer.build_waiting(options, tokio::time::sleep).unwrap();
        for violated in ["", "Usual", "Usual"] {
            let response = layer.layer(handler).oneshot(Request::new(())).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert!(!response.headers().contains_key(header::RETRY_AFTER));
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), violated);
        }
    }
    assert_eq!(begun.elapsed(), Duration::from_millis(500), "all but the first have waited");
}

/// Soft rules by which nothing is wrong: one has the units, one costs nothing, one has no limit.
#[tokio::test(start_paused = true)]
async fn waiting_marks_no_request_that_fits() {
    let begun = tokio::time::Instant::now();
    let clock = Clock::custom(move || begun.elapsed());
    let tenth = Limit::new(1, 10, Duration::from_secs(1)).unwrap();
    let limits = ["Free", "Lifted", "Roomy"].into_iter().fold(Limits::builder(), |limits, name| {
        let most = if name == "Roomy" { 10 } else { 1 };
        let limit = Limit::new(most, 1, Duration::from_secs(3_600)).unwrap();
        limits.limit(name, IdFormat::String, limit).unwrap()
    });
    let limits = limits.limit("All", IdFormat::String, tenth).unwrap().build();
    let limiter = Limiter::with_options(limits, clock).unwrap();
    let rule = |name| Rule::new(limiter.limit(name).unwrap(), extract::everyone("all"));
    let layer = RateLimitLayer::builder(&limiter)
        .rule(rule("All"))
        .rule(rule("Roomy").soft())
        .rule(rule("Free").cost(|_| 0).soft())
        .rule(rule("Lifted").factor(|_| tollgate::limit::Factor::ZERO).soft());
    let options = WaitOptions::at_most(Duration::from_secs(60));
    let layer = layer.build_waiting(options, tokio::time::sleep).unwrap();
    let handler = service_fn(|request: Request<()>| async move {
        let report = request.extensions().get::<Report>().unwrap();
        Ok::<_, Infallible>(Response::new(report.violated().join(" ")))
    });
    for _ in 0..4 {
        let response = layer.layer(handler).oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    }
    assert_eq!(begun.elapsed(), Duration::from_millis(300));
}
