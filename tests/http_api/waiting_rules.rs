//! A layer whose requests wait: its rules, its fields, and reloads while a request waits.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate::http::{
    Charge, Fields, PlugLimitNames, RateLimitLayer, Report, Reset, Rule, Style, WaitOptions,
    extract,
};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

use super::waiting::*;

/// A permissive layer waits as long as it may, and serves all.
#[tokio::test(start_paused = true)]
async fn permissive_layer_waits_and_denies_nothing() {
    let limiter = limiter();
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let layer = RateLimitLayer::builder(&limiter).rule(rule).permissive(true);
    let layer = layer.build_waiting(WaitOptions::at_most(SECOND / 100), tokio::time::sleep);
    let layer = layer.unwrap();
    let inner = service_fn(|request: Request<()>| {
        let is_allowed = request.extensions().get::<Report>().unwrap().allowed();
        let status = if is_allowed { StatusCode::OK } else { StatusCode::ACCEPTED };
        ready(Ok::<_, Infallible>(Response::builder().status(status).body(String::new()).unwrap()))
    });
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let service = layer.layer(inner);
        calls.spawn(async move { service.oneshot(request(1)).await.unwrap().status() });
    }
    let statuses = calls.join_all().await;
    let of = |status| statuses.iter().filter(|&&it| it == status).count();
    assert_eq!((of(StatusCode::OK), of(StatusCode::ACCEPTED)), (11, 1), "{statuses:?}");
}

/// Sends a request under two rules, of a limit with places and of a window, which waits. A reload may come while it waits. `made`
/// changes both rules, and the handler settles both by `actual`. Returns the units that both limits have left.
async fn over_a_reload(
    is_reloaded: bool,
    made: impl Fn(Rule) -> Rule,
    actual: u64,
    status: StatusCode,
) -> [Option<u64>; 2] {
    let limits = |most| {
        let requests = Limit::new(5, 5, SECOND).unwrap();
        let window = Limit::fixed_window(most, 3_600 * SECOND).unwrap();
        let limits = Limits::builder().limit("Requests", IdFormat::String, requests).unwrap();
        limits.limit("Window", IdFormat::String, window).unwrap().build()
    };
    let limiter = Limiter::with_options(limits(10), clock()).unwrap();
    let handles = ["Requests", "Window"].map(|name| limiter.limit(name).unwrap());
    let layer = handles.iter().fold(RateLimitLayer::builder(&limiter), |layer, handle| {
        layer.rule(made(Rule::new(handle.clone(), extract::everyone("key"))))
    });
    let layer = layer.build_waiting(WaitOptions::at_most(60 * SECOND), tokio::time::sleep).unwrap();
    let inner = service_fn(move |request: Request<()>| {
        for limit in ["Requests", "Window"] {
            let _ = Charge::of(request.extensions()).settle(limit, actual);
        }
        let response = Response::builder().status(status).body(String::new()).unwrap();
        ready(Ok::<_, Infallible>(response))
    });
    assert!(handles[0].spend("key", 5).unwrap().allowed());
    let call = tokio::spawn(layer.layer(inner).oneshot(request(1)));
    tokio::time::sleep(SECOND / 10).await;
    if is_reloaded {
        limiter.reload(limits(20)).unwrap();
    }
    assert_eq!(call.await.unwrap().unwrap().status(), status);
    handles.map(|handle| handle.check("key", 0).unwrap().remaining())
}

#[tokio::test(start_paused = true)]
async fn estimates_of_a_wait_are_settled() {
    for (is_reloaded, of_window) in [(false, 9), (true, 19)] {
        let left = over_a_reload(is_reloaded, |rule| rule.estimate(|_| 4), 1, StatusCode::OK);
        assert_eq!(left.await, [Some(3), Some(of_window)], "{is_reloaded}");
    }
}

#[tokio::test(start_paused = true)]
async fn refunds_of_a_wait_reach_all_limits() {
    let refunded = |rule: Rule| rule.cost(|_| 4).refund_if(|status| status.is_server_error());
    for (is_reloaded, of_window) in [(false, 10), (true, 20)] {
        let left = over_a_reload(is_reloaded, refunded, 0, StatusCode::BAD_GATEWAY).await;
        assert_eq!(left, [Some(4), Some(of_window)], "{is_reloaded}");
    }
}

/// Two rules for one bucket wait as one.
#[tokio::test(start_paused = true)]
async fn one_of_two_rules_waits_for_a_bucket() {
    let limiter = limiter();
    let requests = limiter.limit("Requests").unwrap();
    let rule = |cost| Rule::new(requests.clone(), extract::everyone("key")).cost(move |_| cost);
    let layer = RateLimitLayer::builder(&limiter).rule(rule(1)).rule(rule(10));
    let layer = layer.build_waiting(WaitOptions::at_most(SECOND), tokio::time::sleep).unwrap();
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let begun = Instant::now();
    for _ in 0..3 {
        let status = layer.layer(inner).oneshot(request(1)).await.unwrap().status();
        assert_eq!(status, StatusCode::OK);
    }
    assert_eq!(begun.elapsed(), SECOND / 5, "each costs the burst");
}

/// The clock may reach the time of the units at any reading: a request is served if it is charged, and only then.
#[tokio::test]
async fn request_is_served_only_if_charged() {
    let mut served = 0;
    for jumps_at in 0..60 {
        let readings = Arc::new(AtomicU64::new(u64::MAX / 2));
        let of_clock = readings.clone();
        let clock = Clock::custom(move || match of_clock.fetch_add(1, Ordering::Relaxed) {
            reading if reading >= u64::MAX / 2 || reading < jumps_at => SECOND,
            _ => 2 * SECOND,
        });
        let limit = Limit::new(1, 1, SECOND).unwrap();
        let limits = Limits::builder().limit("Requests", IdFormat::String, limit).unwrap();
        let limiter = Limiter::with_options(limits.build(), clock).unwrap();
        let layer = layer_of_requests(&limiter);
        let inner =
            service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
        let requests = limiter.limit("Requests").unwrap();
        assert!(requests.spend("key", 1).unwrap().allowed());
        readings.store(0, Ordering::Relaxed);
        let status = layer.layer(inner).oneshot(request(1)).await.unwrap().status();
        readings.store(1_000, Ordering::Relaxed);
        let is_charged = requests.check("key", 0).unwrap().remaining() == Some(0);
        assert_eq!(status == StatusCode::OK, is_charged, "{jumps_at}");
        served += u64::from(is_charged);
    }
    assert!((1..60).contains(&served), "{served} of 60");
}

/// The fields of a request that has waited, and of one that may not wait as long as it needs.
#[tokio::test(start_paused = true)]
async fn responses_show_what_is_left() {
    let limit = Limit::new(4, 4, 60 * SECOND).unwrap();
    let limits = Limits::builder().limit("Requests", IdFormat::String, limit).unwrap();
    let limiter = Limiter::with_options(limits.build(), clock()).unwrap();
    let requests = limiter.limit("Requests").unwrap();
    let rule = Rule::new(requests.clone(), extract::everyone("key")).cost(tokens);
    let layer = RateLimitLayer::builder(&limiter).rule(rule);
    let layer = layer.build_waiting(WaitOptions::at_most(20 * SECOND), tokio::time::sleep).unwrap();
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let ask = async |cost| {
        let response = layer.layer(inner).oneshot(request(cost)).await.unwrap();
        let fields = ["ratelimit", "retry-after"].map(|name| response.headers().get(name).cloned());
        let fields =
            fields.map(|field| field.map_or("".into(), |it| it.to_str().unwrap().to_owned()));
        (response.status().as_u16(), fields)
    };
    assert!(requests.spend("key", 4).unwrap().allowed());
    assert_eq!(ask(1).await, (200, [r#""Requests";r=0;t=15"#.into(), "".into()]));
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(ask(4).await, (429, [r#""Requests";r=2;t=30"#.into(), "30".into()]));
}

/// Requests of several threads see the same unit. The one that does not get it waits.
#[test]
fn no_request_is_denied_by_a_race() {
    let limit = Limit::new(1, 4_000, SECOND).unwrap();
    let limits = Limits::builder().limit("Requests", IdFormat::String, limit).unwrap();
    let limiter = Limiter::new(limits.build());
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let options = WaitOptions::at_most(60 * SECOND);
    let layer = RateLimitLayer::builder(&limiter).rule(rule);
    let layer = layer.build_waiting(options, tokio::time::sleep).unwrap();
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(4).enable_time().build().unwrap();
    let denied = runtime.block_on(async {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let layer = layer.clone();
            calls.spawn(async move {
                let mut denied = 0;
                for _ in 0..250 {
                    let response = layer.layer(inner).oneshot(Request::new(())).await.unwrap();
                    denied += usize::from(response.status() != StatusCode::OK);
                }
                denied
            });
        }
        calls.join_all().await.into_iter().sum::<usize>()
    });
    assert_eq!(denied, 0);
}

/// A rule whose factor is 0 for a request does not limit it, and another rule of the bucket does.
#[tokio::test(start_paused = true)]
async fn other_rule_counts_beside_factor_of_zero() {
    use tollgate::limit::Factor;

    for others in [1, 2] {
        let limiter = limiter();
        let requests = limiter.limit("Requests").unwrap();
        let rule = || Rule::new(requests.clone(), extract::everyone("key")).cost(|_| 10);
        let build = || {
            let lifted = RateLimitLayer::builder(&limiter).rule(rule().factor(|_| Factor::ZERO));
            (0..others).fold(lifted, |layer, _| layer.rule(rule()))
        };
        let inner =
            service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
        let options = WaitOptions::at_most(std::time::Duration::ZERO);
        let waiting = build().build_waiting(options, tokio::time::sleep).unwrap();
        let ask = async || waiting.layer(inner).oneshot(request(1)).await.unwrap().status();
        assert_eq!([ask().await, ask().await].map(|it| it.as_u16()), [200, 429], "{others}");
        assert!(requests.reset("key").unwrap().allowed());
        let layer = build().build().unwrap();
        let ask = async || layer.layer(inner).oneshot(request(1)).await.unwrap().status();
        assert_eq!([ask().await, ask().await].map(|it| it.as_u16()), [200, 429], "{others}");
    }
}

/// An allowed call of a token bucket tells when the next one is allowed, also if it has waited itself.
#[tokio::test(start_paused = true)]
async fn waiting_leaves_the_next_wait_in_fields() {
    let limit = Limit::token_bucket(1, 10, SECOND).unwrap();
    let limits = Limits::builder().limit("Requests", IdFormat::String, limit).unwrap();
    let limiter = Limiter::with_options(limits.build(), clock()).unwrap();
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let fields = Fields::new([Style::PlugLimit(PlugLimitNames::default())]).unwrap();
    let layer = RateLimitLayer::builder(&limiter).rule(rule).fields(fields);
    let layer = layer.build_waiting(WaitOptions::at_most(20 * SECOND), tokio::time::sleep).unwrap();
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    for at in 0..3 {
        let response = layer.layer(inner).oneshot(request(1)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["retry-after"], "1", "{at}");
    }
}

/// A layer within denies the request. The client waits for both layers, also if it has waited for the outer one.
#[tokio::test(start_paused = true)]
async fn waiting_raises_the_wait_of_inner_denials() {
    let limits = Limits::builder()
        .limit("Requests", IdFormat::String, Limit::new(1, 1, 10 * SECOND).unwrap())
        .unwrap()
        .limit("InFlight", IdFormat::String, Limit::concurrency(1).unwrap())
        .unwrap();
    let limiter = Limiter::with_options(limits.build(), clock()).unwrap();
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let options = WaitOptions::at_most(20 * SECOND);
    let outer = RateLimitLayer::builder(&limiter).rule(rule);
    let outer = outer.build_waiting(options, tokio::time::sleep).unwrap();
    let in_flight = limiter.concurrency("InFlight").unwrap();
    let rule = Rule::in_flight(in_flight.clone(), extract::everyone("key"));
    let within = RateLimitLayer::builder(&limiter).rule(rule).build().unwrap();
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let _permit = in_flight.acquire("key", 1).unwrap();
    for at in 0..3 {
        let service = outer.layer(within.layer(inner));
        let response = service.oneshot(request(1)).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "10", "{at}");
    }
}

/// Callers that come back at once took the permits that they had returned: of eight callers four had all calls but one.
#[tokio::test(start_paused = true)]
async fn permits_go_round_among_busy_callers() {
    let limits = Limits::builder();
    let limits = limits.limit("AtOnce", IdFormat::String, Limit::concurrency(4).unwrap()).unwrap();
    let limiter = Limiter::with_options(limits.build(), clock()).unwrap();
    let at_once = limiter.concurrency("AtOnce").unwrap();
    let layer = RateLimitLayer::builder(&limiter)
        .rule(Rule::in_flight(at_once, extract::everyone("key")))
        .build_waiting(WaitOptions::at_most(10 * SECOND), tokio::time::sleep)
        .unwrap();
    let inner = service_fn(|_: Request<()>| async {
        tokio::time::sleep(SECOND / 10).await;
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let end = Instant::now() + 10 * SECOND;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let service = layer.layer(inner);
        callers.spawn(async move {
            let mut served = 0;
            while Instant::now() < end {
                let response = service.clone().oneshot(request(1)).await.unwrap();
                served += u32::from(response.status() == StatusCode::OK);
            }
            served
        });
    }
    let served = callers.join_all().await;
    assert!(served.iter().all(|served| (40..=60).contains(served)), "{served:?}");
}

/// A client that obeyed the time of a limit in flight came once in a second: the permit that the fields showed as taken was its own.
#[tokio::test(start_paused = true)]
async fn own_permit_holds_up_no_next_request() {
    let rate = Limit::new(50, 10, SECOND).unwrap();
    let limits =
        Limits::builder().limit("AtOnce", IdFormat::String, Limit::concurrency(1).unwrap());
    let limits = limits.unwrap().limit("Rate", IdFormat::String, rate).unwrap();
    let limiter = Limiter::with_options(limits.build(), clock()).unwrap();
    let layer = RateLimitLayer::builder(&limiter)
        .rule(Rule::in_flight(limiter.concurrency("AtOnce").unwrap(), extract::everyone("key")))
        .rule(Rule::new(limiter.limit("Rate").unwrap(), extract::everyone("key")))
        .fields(Fields::new([Style::Ietf, Style::XRateLimit(Reset::Delta)]).unwrap())
        .build()
        .unwrap();
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let response = layer.layer(inner).oneshot(request(1)).await.unwrap();
    let field = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(field("ratelimit"), r#""AtOnce";r=0;t=0, "Rate";r=49;t=1"#);
    assert_eq!([field("x-ratelimit-remaining"), field("x-ratelimit-reset")], ["0", "0"]);
}
