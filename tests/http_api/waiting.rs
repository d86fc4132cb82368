//! A layer whose requests wait, in front of a provider that has limits as well, and with callers that give up.
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
    AsyncRateLimitLayer, Charge, Learn, RateLimitLayer, Rule, WaitOptions, extract,
};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

use crate::full_size::full_size;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const REQUESTS: (u64, u64) = (10, 100);
pub(crate) const TOKENS: (u64, u64) = (5_000, 40_000);

/// Follows the runtime's clock, which the tests pause.
pub(crate) fn clock() -> Clock {
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

    fn left(&self, now: u128) -> u64 {
        let each = 1_000_000_000 / u128::from(self.a_second);
        let used = self.full_at.saturating_sub(now).div_ceil(each);
        self.burst - u64::try_from(used).unwrap()
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

    /// Writes the remaining requests as OpenAI does, and the remaining tokens as the current draft does.
    fn answer_with_fields(&self, tokens: u64) -> Response<String> {
        let status = self.answer(tokens);
        let now = self.begun.elapsed().as_nanos();
        let [requests, tokens] = &*self.buckets.lock().unwrap();
        Response::builder()
            .status(status)
            .header("x-ratelimit-remaining-requests", requests.left(now))
            .header("ratelimit", format!(r#""tokens";r={};t=1"#, tokens.left(now)))
            .body(String::new())
            .unwrap()
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

pub(crate) fn limiter() -> Limiter {
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

pub(crate) fn tokens(request: &http::request::Parts) -> u64 {
    request.headers["x-tokens"].to_str().unwrap().parse().unwrap()
}

fn tokens_of(request: &Request<()>) -> u64 {
    request.headers()["x-tokens"].to_str().unwrap().parse().unwrap()
}

/// A layer with both limits of the provider.
pub(crate) fn layer(limiter: &Limiter, options: WaitOptions) -> AsyncRateLimitLayer {
    let rule = |name| Rule::new(limiter.limit(name).unwrap(), extract::everyone("key"));
    RateLimitLayer::builder(limiter)
        .rule(rule("Requests"))
        .rule(rule("Tokens").estimate(tokens))
        .build_waiting(options, tokio::time::sleep)
        .unwrap()
}

/// A layer with the first limit alone, whose requests do not wait for long.
pub(crate) fn layer_of_requests(limiter: &Limiter) -> AsyncRateLimitLayer {
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let options = WaitOptions::at_most(Duration::ZERO);
    RateLimitLayer::builder(limiter).rule(rule).build_waiting(options, tokio::time::sleep).unwrap()
}

pub(crate) fn request(tokens: u64) -> Request<()> {
    Request::builder().header("x-tokens", tokens).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn provider_denies_no_call_and_is_used() {
    let all_calls: u64 = full_size(4_000, 10_000);
    let (limiter, provider) = (limiter(), Provider::new());
    let options = WaitOptions::at_most(Duration::MAX).max_waiting(usize::MAX);
    let layer = layer(&limiter, options);
    let mut calls = tokio::task::JoinSet::new();
    for at in 0..all_calls {
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
    assert_eq!(served.len() as u64, all_calls);
    let all_tokens: u64 = served.iter().map(|(_, tokens)| tokens).sum();
    let took = served.last().unwrap().0.as_secs_f64();
    let requests_took = (all_calls - REQUESTS.0) as f64 / REQUESTS.1 as f64;
    let tokens_took = (all_tokens - TOKENS.0) as f64 / TOKENS.1 as f64;
    let used = requests_took.max(tokens_took) / took;
    println!("{used:.4} of the rate: {took} s for {all_calls} calls and {all_tokens} tokens");
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
    // After the last call no other call takes the places of those that go away.
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

/// The caller's limits are ten times the provider's, whose buckets others have half used. The first response says so, and the
/// provider refuses no call after it.
#[tokio::test(start_paused = true)]
async fn fields_of_the_provider_lower_the_buckets() {
    let all_calls: u64 = full_size(4_000, 10_000);
    let (limiter, provider) = (wide_limiter(), Provider::new());
    {
        let mut buckets = provider.buckets.lock().unwrap();
        buckets[0].full_at = buckets[0].after(REQUESTS.0 / 2, 0).unwrap();
        buckets[1].full_at = buckets[1].after(TOKENS.0 / 2, 0).unwrap();
    }
    let rule = |name| Rule::new(limiter.limit(name).unwrap(), extract::everyone("key"));
    let options = WaitOptions::at_most(Duration::MAX).max_waiting(usize::MAX);
    let layer = RateLimitLayer::builder(&limiter)
        .rule(rule("Requests").learn(Learn::openai_requests()))
        .rule(rule("Tokens").cost(tokens).learn(Learn::rate_limit(Some("tokens"))))
        .build_waiting(options, tokio::time::sleep)
        .unwrap();
    let call = |at: u64| {
        let provider = provider.clone();
        let inner = service_fn(move |request: Request<()>| {
            let provider = provider.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(1 + at % 7)).await;
                let response = provider.answer_with_fields(tokens_of(&request));
                tokio::time::sleep(Duration::from_millis(1 + at % 5)).await;
                Ok::<_, Infallible>(response)
            }
        });
        let service = layer.layer(inner);
        async move { service.oneshot(request(50 + at * 37 % 300)).await.unwrap().status() }
    };
    assert_eq!(call(0).await, StatusCode::OK);
    let calls: tokio::task::JoinSet<_> = (1..all_calls).map(call).collect();
    let statuses = calls.join_all().await;
    let refused = statuses.iter().filter(|&&status| status != StatusCode::OK).count();
    assert_eq!(refused, 0);
    let served = provider.served.lock().unwrap();
    let took = served.last().unwrap().0.as_secs_f64();
    let used = all_calls as f64 / REQUESTS.1 as f64 / took;
    println!("{used:.4} of the rate");
    assert!(used >= 0.97, "{used}");
}

/// As many units as the provider's in a second, and ten times as many at once.
fn wide_limiter() -> Limiter {
    let limit = |(burst, count)| Limit::new(10 * burst, count, SECOND).unwrap();
    let limits = Limits::builder()
        .limit("Requests", IdFormat::String, limit(REQUESTS))
        .unwrap()
        .limit("Tokens", IdFormat::String, limit(TOKENS))
        .unwrap();
    Limiter::with_options(limits.build(), clock()).unwrap()
}

/// A provider that refuses everything for two seconds is left alone for as long.
#[tokio::test(start_paused = true)]
async fn retry_after_holds_requests_back() {
    let limiter = wide_limiter();
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let options = WaitOptions::at_most(60 * SECOND).max_waiting(usize::MAX);
    let layer = RateLimitLayer::builder(&limiter).rule(rule.learn(Learn::openai_requests()));
    let layer = layer.build_waiting(options, tokio::time::sleep).unwrap();
    let (begun, asked) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let call = || {
        let asked = asked.clone();
        let inner = service_fn(move |_: Request<()>| {
            let at = begun.elapsed();
            asked.lock().unwrap().push(at);
            let response = Response::builder();
            let response = match at < 2 * SECOND {
                true => response.status(403).header("retry-after", "2"),
                false => response,
            };
            ready(Ok::<_, Infallible>(response.body(String::new()).unwrap()))
        });
        let service = layer.layer(inner);
        async move { service.oneshot(request(1)).await.unwrap().status() }
    };
    assert_eq!(call().await, StatusCode::FORBIDDEN, "as GitHub denies");
    let calls: tokio::task::JoinSet<_> = (0..20).map(|_| call()).collect();
    assert!(calls.join_all().await.iter().all(|&status| status == StatusCode::OK));
    let asked = asked.lock().unwrap();
    assert!(asked[1..].iter().all(|&at| at >= 2 * SECOND), "{asked:?}");
}

#[test]
fn rule_that_learns_needs_a_waiting_layer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _guard = runtime.enter();
    let limiter = wide_limiter();
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let builder = RateLimitLayer::builder(&limiter).rule(rule.learn(Learn::github()));
    let error = builder.build().unwrap_err().to_string();
    assert!(error.contains("build_waiting()"), "{error}");
}

/// A deadline is kept to the timer's tick, and each waiter of one key sleeps once.
#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_sleep_once() {
    let limiter = limiter();
    let requests = limiter.limit("Requests").unwrap();
    let sleeps = Arc::new(AtomicU64::new(0));
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..10_000 {
        let (limiter, requests, sleeps) = (limiter.clone(), requests.clone(), sleeps.clone());
        waiters.spawn(async move {
            let timer = |time| {
                sleeps.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(time)
            };
            let (begun, at_most) = (Instant::now(), 50 * SECOND);
            let members = [requests.member("key")];
            let waited = limiter.batch(&members).until_allowed(at_most, timer).await;
            assert!(begun.elapsed() <= at_most + Duration::from_millis(2));
            waited.is_ok()
        });
    }
    let granted = waiters.join_all().await.into_iter().filter(|&granted| granted).count();
    assert_eq!(granted, 5_010);
    let sleeps = sleeps.load(Ordering::Relaxed);
    assert!(sleeps <= 5_000 + 5_000 / 100, "{sleeps} sleeps");
}
