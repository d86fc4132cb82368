//! A layer that waits, and a provider that asks it to wait: by a block of the id.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate::http::extract;
use tollgate::http::{AsyncRateLimitLayer, Denied, Learn, RateLimitLayer, Rule, WaitOptions};
use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::{IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

use super::waiting::*;

fn limiter_of(limit: Limit) -> Limiter {
    let limits = Limits::builder().limit("Requests", IdFormat::String, limit).unwrap().build();
    Limiter::with_options(limits, clock()).unwrap()
}

fn layer_that_learns(limiter: &Limiter, options: WaitOptions) -> AsyncRateLimitLayer {
    let rule = Rule::new(limiter.limit("Requests").unwrap(), extract::everyone("key"));
    let layer = RateLimitLayer::builder(limiter).rule(rule.learn(Learn::openai_requests()));
    layer.build_waiting(options, tokio::time::sleep).unwrap()
}

/// The number of each call, its time, and whether the layer itself has denied it.
type Seen = Arc<Mutex<Vec<(usize, Duration)>>>;

/// Sends calls through a layer at once. The provider answers the first one after `takes` with a 429 and `Retry-After`.
async fn calls(
    layer: &AsyncRateLimitLayer,
    number: usize,
    (takes, retry_after): (Duration, &'static str),
) -> (Vec<(usize, Duration)>, Vec<StatusCode>) {
    let (begun, seen) = (Instant::now(), Seen::default());
    let mut tasks = Vec::new();
    for call in 0..number {
        let seen = seen.clone();
        let service = layer.layer(service_fn(move |_: Request<()>| {
            let seen = seen.clone();
            async move {
                let is_first = {
                    let mut seen = seen.lock().unwrap();
                    seen.push((call, begun.elapsed()));
                    seen.len() == 1
                };
                if !is_first {
                    return Ok::<_, Infallible>(Response::new(String::new()));
                }
                tokio::time::sleep(takes).await;
                let refusal = Response::builder().status(429).header("retry-after", retry_after);
                Ok(refusal.body(String::new()).unwrap())
            }
        }));
        tasks
            .push(tokio::spawn(async move { service.oneshot(request(1)).await.unwrap().status() }));
        tokio::task::yield_now().await;
    }
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(task.await.unwrap());
    }
    let seen = seen.lock().unwrap().clone();
    (seen, statuses)
}

/// Calls whose time comes while the provider wants none wait again, behind the others: the limit's rate is kept.
#[tokio::test(start_paused = true)]
async fn calls_after_a_pause_keep_the_rate() {
    let limiter = limiter_of(Limit::new(1, 1, SECOND).unwrap());
    let layer = layer_that_learns(&limiter, WaitOptions::at_most(60 * SECOND));
    let (seen, statuses) = calls(&layer, 11, (SECOND / 2, "5")).await;
    let order: Vec<usize> = seen.iter().map(|&(call, _)| call).collect();
    assert_eq!(order, [0, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5]);
    let times: Vec<u64> = seen.iter().map(|&(_, at)| at.as_secs()).collect();
    assert_eq!(times, [0, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(statuses.iter().filter(|&&status| status == StatusCode::OK).count(), 10);
    // No place is left charged.
    let requests = limiter.limit("Requests").unwrap();
    assert_eq!(requests.reserve("key", 1, Duration::MAX).unwrap().wait(), SECOND);
}

/// New calls during the pause take places after its end, in their order and at the limit's rate.
#[tokio::test(start_paused = true)]
async fn calls_in_a_pause_are_served_after_it() {
    let limiter = limiter_of(Limit::new(2, 1, SECOND).unwrap());
    let layer = layer_that_learns(&limiter, WaitOptions::at_most(60 * SECOND));
    let (seen, _) = calls(&layer, 1, (Duration::ZERO, "10")).await;
    assert_eq!(seen.len(), 1);
    let begun = Instant::now();
    let (seen, statuses) = calls(&layer, 5, (Duration::ZERO, "0")).await;
    assert!(begun.elapsed() >= 10 * SECOND);
    let seen: Vec<(usize, u64)> = seen.iter().map(|&(call, at)| (call, at.as_secs())).collect();
    assert_eq!(seen, [(0, 10), (1, 10), (2, 11), (3, 12), (4, 13)]);
    assert_eq!(statuses.len(), 5);
}

/// A call that may not wait is denied while the provider wants none, and its fields say until when.
#[tokio::test(start_paused = true)]
async fn full_queue_does_not_pass_a_pause() {
    for max_waiting in [0, 2] {
        let limiter = limiter_of(Limit::new(50, 50, SECOND).unwrap());
        let options = WaitOptions::at_most(60 * SECOND).max_waiting(max_waiting);
        let layer = layer_that_learns(&limiter, options);
        calls(&layer, 1, (Duration::ZERO, "30")).await;
        let (seen, statuses) = calls(&layer, 10, (Duration::ZERO, "0")).await;
        assert_eq!(seen.len(), max_waiting);
        assert!(seen.iter().all(|&(_, at)| at >= 30 * SECOND), "{seen:?}");
        let denied = statuses.iter().filter(|&&it| it == StatusCode::TOO_MANY_REQUESTS).count();
        assert!(denied >= 10 - max_waiting, "{statuses:?}");
    }
}

/// Returns the status, `Retry-After`, and whether the layer itself has denied the call.
async fn one(layer: &AsyncRateLimitLayer) -> (u16, Option<String>, bool) {
    let inner = service_fn(|_: Request<()>| async {
        let refusal = Response::builder().status(429).header("retry-after", "1000");
        Ok::<_, Infallible>(refusal.body(String::new()).unwrap())
    });
    let response = layer.layer(inner).oneshot(request(1)).await.unwrap();
    let retry_after = response.headers().get("retry-after").map(|it| it.to_str().unwrap().into());
    let is_own = response.extensions().get::<Denied>().is_some();
    (response.status().as_u16(), retry_after, is_own)
}

/// A pause is a block: operators see it and end it, and it denies nothing where no limit does.
#[tokio::test(start_paused = true)]
async fn pause_is_a_block_of_the_id() {
    let limit = || Limit::new(50, 50, SECOND).unwrap();
    let limiter = limiter_of(limit());
    let requests = limiter.limit("Requests").unwrap();
    let layer = layer_that_learns(&limiter, WaitOptions::at_most(SECOND));
    assert!(!one(&layer).await.2);
    assert_eq!(one(&layer).await, (429, Some("1000".into()), true));
    assert!(!requests.spend("key", 1).unwrap().allowed());
    let blocks = limiter.blocks();
    assert_eq!((blocks.len(), &*blocks[0].id), (1, "key"));
    assert!(requests.unblock("key").unwrap());
    assert!(!one(&layer).await.2, "the provider is asked again");
    assert!(one(&layer).await.2);
    limiter.set_enabled(false);
    assert!(!one(&layer).await.2);
    limiter.set_enabled(true);
    assert!(one(&layer).await.2);
    let options = LimitOptions::default().mode(LimitMode::Shadow);
    let shadow = Limits::builder().limit_with("Requests", IdFormat::String, limit(), options);
    limiter.reload(shadow.unwrap().build()).unwrap();
    assert!(!one(&layer).await.2, "a limit in shadow mode denies nothing");
}

/// No response blocks an id for longer than a day, whatever its field says.
#[tokio::test(start_paused = true)]
async fn response_blocks_for_a_day_at_most() {
    for retry_after in ["18446744073709551615", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let limiter = limiter_of(Limit::new(50, 50, SECOND).unwrap());
        let layer = layer_that_learns(&limiter, WaitOptions::at_most(SECOND));
        calls(&layer, 1, (Duration::ZERO, retry_after)).await;
        let requests = limiter.limit("Requests").unwrap();
        assert_eq!(requests.blocked_for("key").unwrap(), Some(Duration::from_secs(86_400)));
    }
}

/// Ids that were refused and never came again cost no memory but that of blocks, which are bounded.
#[tokio::test(start_paused = true)]
async fn blocks_of_many_ids_are_bounded() {
    let limit = Limit::new(1, 1, SECOND).unwrap();
    let limits = Limits::builder().limit("Requests", IdFormat::String, limit).unwrap().build();
    let options = tollgate::LimiterOptions::default().clock(clock()).max_blocks(100);
    let limiter = Limiter::with_options(limits, options).unwrap();
    let rule = Rule::new(limiter.limit("Requests").unwrap(), |parts| {
        tollgate::http::Who::Text(parts.uri.path().to_owned())
    });
    let layer = RateLimitLayer::builder(&limiter).rule(rule.learn(Learn::openai_requests()));
    let layer = layer.build_waiting(WaitOptions::at_most(SECOND), tokio::time::sleep).unwrap();
    for id in 0..300 {
        let inner = service_fn(|_: Request<()>| async {
            let refusal = Response::builder().status(429).header("retry-after", "1000");
            Ok::<_, Infallible>(refusal.body(String::new()).unwrap())
        });
        let request = Request::builder().uri(format!("/{id}")).body(()).unwrap();
        assert_eq!(layer.layer(inner).oneshot(request).await.unwrap().status(), 429);
    }
    assert_eq!(limiter.blocks().len(), 100);
}

/// A request that waits is served at its time after a reload that would refuse its cost now, also if other ids are blocked.
#[tokio::test(start_paused = true)]
async fn blocks_of_others_change_no_place() {
    let limits = |burst| {
        let limit = |burst| Limit::new(burst, 1, SECOND).unwrap();
        let limits = Limits::builder().limit("Requests", IdFormat::String, limit(burst)).unwrap();
        limits.limit("Other", IdFormat::String, limit(1)).unwrap().build()
    };
    let limiter = Limiter::with_options(limits(10), clock()).unwrap();
    limiter.limit("Other").unwrap().block("mallory", 3_600 * SECOND).unwrap();
    let requests = limiter.limit("Requests").unwrap();
    assert!(requests.spend("key", 10).unwrap().allowed());
    let rule = Rule::new(requests, extract::everyone("key")).cost(tokens);
    let layer = RateLimitLayer::builder(&limiter).rule(rule);
    let layer = layer.build_waiting(WaitOptions::at_most(60 * SECOND), tokio::time::sleep).unwrap();
    let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
    let call = tokio::spawn(layer.layer(inner).oneshot(request(8)));
    tokio::time::sleep(SECOND).await;
    limiter.reload(limits(5)).unwrap();
    let begun = Instant::now();
    assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(begun.elapsed().as_secs(), 7);
}

/// Requests that a block refuses are counted as denied.
#[tokio::test(start_paused = true)]
async fn refusals_by_a_block_are_counted() {
    let limit = Limit::new(50, 50, SECOND).unwrap();
    let limits = Limits::builder().limit("Requests", IdFormat::String, limit).unwrap().build();
    let options = tollgate::LimiterOptions::default().clock(clock()).counting(true);
    let limiter = Limiter::with_options(limits, options).unwrap();
    let layer = layer_that_learns(&limiter, WaitOptions::at_most(SECOND));
    for _ in 0..4 {
        assert_eq!(one(&layer).await.0, 429);
    }
    let counted = &limiter.counters().limits[0];
    assert_eq!((counted.allowed, counted.denied), (1, 3));
}

/// A denial by a layer within is not the provider's: others go on.
#[tokio::test(start_paused = true)]
async fn denial_within_blocks_nobody() {
    let limiter = limiter_of(Limit::new(50, 50, SECOND).unwrap());
    let layer = layer_that_learns(&limiter, WaitOptions::at_most(SECOND));
    let within = limiter_of(Limit::new(1, 1, 3_600 * SECOND).unwrap());
    let rule = Rule::new(within.limit("Requests").unwrap(), extract::everyone("key"));
    let within = RateLimitLayer::builder(&within).rule(rule).build().unwrap();
    let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
    for expected in [200, 429] {
        let service = layer.layer(within.layer(inner));
        assert_eq!(service.oneshot(request(1)).await.unwrap().status(), expected);
    }
    assert!(limiter.blocks().is_empty());
}

/// Ids whose normal form is a hash are learned as well.
#[cfg(feature = "boulder")]
#[tokio::test(start_paused = true)]
async fn sets_of_names_are_learned() {
    let limit = Limit::new(50, 50, SECOND).unwrap();
    let limits = Limits::builder().limit("Sets", IdFormat::FqdnSet, limit).unwrap().build();
    let limiter = Limiter::with_options(limits, clock()).unwrap();
    let sets = limiter.limit("Sets").unwrap();
    let rule = Rule::new(sets.clone(), extract::everyone("example.com"));
    let layer = RateLimitLayer::builder(&limiter).rule(rule.learn(Learn::openai_requests()));
    let layer = layer.build_waiting(WaitOptions::at_most(SECOND), tokio::time::sleep).unwrap();
    let inner = service_fn(|_: Request<()>| async {
        let refusal = Response::builder().status(429).header("retry-after", "1000");
        let refusal = refusal.header("x-ratelimit-remaining-requests", "2");
        Ok::<_, Infallible>(refusal.body(String::new()).unwrap())
    });
    layer.layer(inner).oneshot(request(1)).await.unwrap();
    assert_eq!(sets.blocked_for("example.com").unwrap(), Some(1000 * SECOND));
    assert!(sets.unblock("example.com").unwrap());
    assert_eq!(sets.check("example.com", 0).unwrap().remaining(), Some(2));
}

/// Blocks that begin and grow while requests take their places hold these back, and refuse none.
#[test]
fn growing_blocks_refuse_no_request() {
    let limit = Limit::new(1, 10_000, SECOND).unwrap();
    let limits = Limits::builder().limit("Requests", IdFormat::String, limit).unwrap().build();
    let limiter = Limiter::new(limits);
    let layer = layer_that_learns(&limiter, WaitOptions::at_most(60 * SECOND));
    let requests = limiter.limit("Requests").unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = std::time::Instant::now();
            while begun.elapsed() < SECOND / 2 {
                requests.block("key", Duration::from_micros(200)).unwrap();
                requests.unblock("key").unwrap();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let mut calls = tokio::task::JoinSet::new();
                for _ in 0..10 {
                    let inner = service_fn(|_: Request<()>| async {
                        Ok::<_, Infallible>(Response::new(String::new()))
                    });
                    calls.spawn(layer.layer(inner).oneshot(request(1)));
                }
                for response in calls.join_all().await {
                    assert_eq!(response.unwrap().status(), StatusCode::OK);
                }
            }
        });
    });
}
