//! A layer whose requests wait: against a provider with limits of its own, and callers that go away.
#![cfg(feature = "tower")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate::http::{
    AsyncRateLimitLayer, Charge, RateLimitLayer, Report, Rule, WaitOptions, extract,
};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);
const REQUESTS: (u64, u64) = (10, 100);
const TOKENS: (u64, u64) = (5_000, 40_000);

/// Follows the runtime's clock, which the tests pause.
fn clock() -> Clock {
    let begun = Instant::now();
    Clock::custom(move || begun.elapsed())
}

/// A provider's bucket in plain integers: nanoseconds of credit.
struct Bucket {
    burst: u64,
    a_second: u64,
    full_at: u128,
}

impl Bucket {
    fn new((burst, a_second): (u64, u64)) -> Bucket {
        Bucket { burst, a_second, full_at: 0 }
    }

    fn after(&self, cost: u64, now: u128) -> Option<u128> {
        let each = 1_000_000_000 / u128::from(self.a_second);
        let full_at = self.full_at.max(now) + each * u128::from(cost);
        (full_at <= now + each * u128::from(self.burst)).then_some(full_at)
    }
}

/// Answers 429 to a call above its limits.
struct Provider {
    begun: Instant,
    buckets: Mutex<[Bucket; 2]>,
    served: Mutex<Vec<(Duration, u64)>>,
}

impl Provider {
    fn new() -> Arc<Provider> {
        let buckets = Mutex::new([Bucket::new(REQUESTS), Bucket::new(TOKENS)]);
        Arc::new(Provider { begun: Instant::now(), buckets, served: Mutex::default() })
    }

    fn answer(&self, tokens: u64) -> StatusCode {
        let now = self.begun.elapsed();
        let buckets = &mut *self.buckets.lock().unwrap();
        let [requests, all_tokens] = buckets;
        match (requests.after(1, now.as_nanos()), all_tokens.after(tokens, now.as_nanos())) {
            (Some(first), Some(second)) => {
                (requests.full_at, all_tokens.full_at) = (first, second);
                self.served.lock().unwrap().push((now, tokens));
                StatusCode::OK
            }
            _ => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

fn limiter() -> Limiter {
    let limit = |(burst, count)| Limit::new(burst, count, SECOND).unwrap();
    let limits = Limits::builder()
        .limit("Requests", IdFormat::String, limit(REQUESTS))
        .unwrap()
        .limit("Tokens", IdFormat::String, limit(TOKENS))
        .unwrap()
        .limit("InFlight", IdFormat::String, Limit::concurrency(3).unwrap())
        .unwrap();
    Limiter::with_options(limits.build(), clock()).unwrap()
}

fn tokens(request: &http::request::Parts) -> u64 {
    request.headers["x-tokens"].to_str().unwrap().parse().unwrap()
}

/// A layer with both limits of the provider.
fn layer(limiter: &Limiter, options: WaitOptions) -> AsyncRateLimitLayer {
    let rule = |name| Rule::new(limiter.limit(name).unwrap(), extract::everyone("key"));
    RateLimitLayer::builder(limiter)
        .rule(rule("Requests"))
        .rule(rule("Tokens").estimate(tokens))
        .build_waiting(options, tokio::time::sleep)
        .unwrap()
}

/// A layer with the first limit alone, whose requests do not wait for long.
fn layer_of_requests(limiter: &Limiter) -> AsyncRateLimitLayer {
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let options = WaitOptions::at_most(Duration::ZERO);
    RateLimitLayer::builder(limiter).rule(rule).build_waiting(options, tokio::time::sleep).unwrap()
}

fn request(tokens: u64) -> Request<()> {
    Request::builder().header("x-tokens", tokens).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn provider_denies_no_call_and_is_used() {
    const CALLS: u64 = 10_000;
    let (limiter, provider) = (limiter(), Provider::new());
    let options = WaitOptions::at_most(Duration::MAX).max_waiting(usize::MAX);
    let layer = layer(&limiter, options);
    let mut calls = tokio::task::JoinSet::new();
    for at in 0..CALLS {
        let provider = provider.clone();
        let inner = service_fn(move |request: Request<()>| {
            let status =
                provider.answer(request.headers()["x-tokens"].to_str().unwrap().parse().unwrap());
            ready(Ok::<_, Infallible>(
                Response::builder().status(status).body(String::new()).unwrap(),
            ))
        });
        let service = layer.layer(inner);
        // 400 on average: both limits bind, now one and now the other.
        calls.spawn(
            async move { service.oneshot(request(50 + at * 37 % 700)).await.unwrap().status() },
        );
    }
    let statuses = calls.join_all().await;
    assert!(statuses.iter().all(|&status| status == StatusCode::OK));
    let served = provider.served.lock().unwrap();
    assert_eq!(served.len() as u64, CALLS);
    let all_tokens: u64 = served.iter().map(|(_, tokens)| tokens).sum();
    let took = served.last().unwrap().0.as_secs_f64();
    let requests_took = (CALLS - REQUESTS.0) as f64 / REQUESTS.1 as f64;
    let tokens_took = (all_tokens - TOKENS.0) as f64 / TOKENS.1 as f64;
    let used = requests_took.max(tokens_took) / took;
    println!("{used:.4} of the rate: {took} s for {CALLS} calls and {all_tokens} tokens");
    assert!(used >= 0.97, "{used}");
}

/// Twice as many calls come as the provider serves, and every second one goes away at a random moment. The calls that come later
/// take the places of those that have gone.
#[tokio::test(start_paused = true)]
async fn waiters_that_go_away_lose_nothing() {
    let (limiter, provider) = (limiter(), Provider::new());
    let options = WaitOptions::at_most(Duration::MAX).max_waiting(usize::MAX);
    let layer = layer(&limiter, options);
    let mut calls = Vec::new();
    for at in 0..4_000_u64 {
        tokio::time::sleep(SECOND / 200).await;
        let provider = provider.clone();
        let inner = service_fn(move |_: Request<()>| {
            let status = provider.answer(100);
            ready(Ok::<_, Infallible>(
                Response::builder().status(status).body(String::new()).unwrap(),
            ))
        });
        let service = layer.layer(inner);
        let call =
            tokio::spawn(async move { service.oneshot(request(100)).await.unwrap().status() });
        if at % 2 == 1 {
            let abort = call.abort_handle();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(at * 7919 % 5_000)).await;
                abort.abort();
            });
        }
        calls.push((at, call));
    }
    let mut by_status = BTreeMap::new();
    for (at, call) in calls {
        match call.await {
            Ok(status) => *by_status.entry(status.as_u16()).or_insert(0) += 1,
            Err(_) => assert!(at % 2 == 1),
        }
    }
    let served = provider.served.lock().unwrap().clone();
    assert_eq!(by_status.keys().copied().collect::<Vec<_>>(), [200]);
    assert!(served.len() >= 1_000);
    // After the last call nobody takes the places of those that go away.
    let while_calls_come = served.iter().filter(|(at, _)| *at <= 20 * SECOND).count() as f64;
    let used = while_calls_come / (REQUESTS.0 + 20 * REQUESTS.1) as f64;
    println!("{used:.4} of the rate, {} served", served.len());
    assert!(used >= 0.97, "{used}");
    tokio::time::sleep(10 * SECOND).await;
    let left = |name| limiter.limit(name).unwrap().check("key", 0).unwrap().remaining();
    assert_eq!([left("Requests"), left("Tokens")], [Some(REQUESTS.0), Some(TOKENS.0)]);
}

#[tokio::test(start_paused = true)]
async fn wait_that_is_too_long_is_denied() {
    let limiter = limiter();
    let layer = layer(&limiter, WaitOptions::at_most(Duration::from_millis(95)));
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let service = layer.layer(inner);
        calls.spawn(async move { service.oneshot(request(1)).await.unwrap() });
    }
    let responses = calls.join_all().await;
    let allowed = responses.iter().filter(|it| it.status() == StatusCode::OK).count();
    assert_eq!(allowed, 19, "ten at once, and nine within 95 ms");
    let denied = responses.iter().find(|it| it.status() == StatusCode::TOO_MANY_REQUESTS).unwrap();
    assert_eq!(denied.headers()["retry-after"], "1");
    assert!(denied.headers()["ratelimit"].to_str().unwrap().contains(r#""Requests";r=0"#));
    let counters = limiter.counters();
    assert!(!counters.is_counting || counters.limits[0].denied == 11);
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_than_may() {
    let limiter = limiter();
    let layer = layer(&limiter, WaitOptions::at_most(10 * SECOND).max_waiting(5));
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let service = layer.layer(inner);
        calls.spawn(async move { service.oneshot(request(1)).await.unwrap().status() });
    }
    let statuses = calls.join_all().await;
    assert_eq!(statuses.iter().filter(|&&status| status == StatusCode::OK).count(), 15);
    // The queue is empty again.
    let status = layer.layer(inner).oneshot(request(1)).await.unwrap().status();
    assert_eq!(status, StatusCode::OK);
}

/// Requests that wait for permits of others go on when these have ended.
#[tokio::test(start_paused = true)]
async fn permits_and_estimates_wait_and_are_settled() {
    let limiter = limiter();
    let in_flight = limiter.concurrency("InFlight").unwrap();
    let tokens = limiter.limit("Tokens").unwrap();
    let layer = RateLimitLayer::builder(&limiter)
        .rule(Rule::in_flight(in_flight.clone(), extract::everyone("key")))
        .rule(Rule::new(tokens.clone(), extract::everyone("key")).estimate(|_| 1_000))
        .build_waiting(WaitOptions::at_most(60 * SECOND), tokio::time::sleep)
        .unwrap();
    let most = Arc::new(AtomicU64::new(0));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (most, in_flight) = (most.clone(), in_flight.clone());
        let inner = service_fn(move |request: Request<()>| {
            let (most, in_flight) = (most.clone(), in_flight.clone());
            async move {
                let out = in_flight.in_flight("key").unwrap();
                most.fetch_max(out, Ordering::Relaxed);
                tokio::time::sleep(SECOND / 2).await;
                let _ = Charge::of(request.extensions()).settle("Tokens", 10).unwrap();
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        });
        let service = layer.layer(inner);
        calls.spawn(async move { service.oneshot(request(0)).await.unwrap().status() });
    }
    let statuses = calls.join_all().await;
    assert!(statuses.iter().all(|&status| status == StatusCode::OK), "{statuses:?}");
    assert_eq!((most.load(Ordering::Relaxed), in_flight.in_flight("key").unwrap()), (3, 0));
    tokio::time::sleep(SECOND).await;
    assert_eq!(tokens.check("key", 0).unwrap().remaining(), Some(TOKENS.0));
}

#[tokio::test(start_paused = true)]
async fn rejections_do_not_wait() {
    let limiter = limiter();
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::bearer());
    let dear = Rule::new(limiter.limit("Tokens").unwrap(), extract::bearer()).cost(|_| 5_001);
    let inner =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let layer = RateLimitLayer::builder(&limiter).rule(rule).rule(dear);
    let layer = layer.build_waiting(WaitOptions::at_most(SECOND), tokio::time::sleep).unwrap();
    let begun = Instant::now();
    let status = layer.layer(inner).oneshot(request(1)).await.unwrap().status();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let with_key = Request::builder().header("authorization", "Bearer k").body(()).unwrap();
    let status = layer.layer(inner).oneshot(with_key).await.unwrap().status();
    assert_eq!(status, StatusCode::BAD_REQUEST, "a cost above the burst");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

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

/// Sends a request that waits for a limit with places and is counted by a window, too; a reload may come meanwhile. `made` changes
/// both rules, the handler settles both by `actual`. Returns what is left of both.
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
