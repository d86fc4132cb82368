//! A layer that learns from a provider: what its refusals hold back, and for how long.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderName, Request, Response, StatusCode};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tollgate::http::{AsyncRateLimitLayer, Learn, RateLimitLayer, Rule, WaitOptions, extract};
use tollgate::{IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt, service_fn};

use super::waiting::{SECOND, clock};

/// A provider whose answers the tests choose, behind a layer that learns.
struct World {
    limiter: Limiter,
    layer: AsyncRateLimitLayer,
    begun: Instant,
}

/// When the provider answers, with which status and which fields.
type Answer = (Duration, u16, &'static [(&'static str, &'static str)]);

const OK: Answer = (Duration::ZERO, 200, &[]);
const LEAVE_ME: Answer = (Duration::ZERO, 429, &[("retry-after", "10")]);

impl World {
    /// A limit of `burst` requests at once, then one a second, for each key. If `is_shared`, all keys have a second one.
    fn new(burst: u64, at_most: Duration, is_shared: bool) -> World {
        let limit = |burst| Limit::new(burst, 1, SECOND).unwrap();
        let limits = Limits::builder().limit("Key", IdFormat::String, limit(burst)).unwrap();
        let limits = limits.limit("All", IdFormat::String, limit(100)).unwrap();
        let limiter = Limiter::with_options(limits.build(), clock()).unwrap();
        let by_key = extract::header(HeaderName::from_static("x-key"));
        let rule = Rule::new(limiter.limit("Key").unwrap(), by_key);
        let mut layer =
            RateLimitLayer::builder(&limiter).rule(rule.learn(Learn::openai_requests()));
        if is_shared {
            let rule = Rule::new(limiter.limit("All").unwrap(), extract::everyone("all"));
            layer = layer.rule(rule.learn(Learn::openai_tokens()));
        }
        let layer = layer.build_waiting(WaitOptions::at_most(at_most), tokio::time::sleep).unwrap();
        World { limiter, layer, begun: Instant::now() }
    }

    /// Sends a request. Returns when the provider got it, if it did, and the response.
    fn call(
        &self,
        key: &'static str,
        (takes, status, fields): Answer,
    ) -> JoinHandle<(Option<Duration>, http::response::Parts)> {
        let (layer, begun) = (self.layer.clone(), self.begun);
        tokio::spawn(async move {
            let (asked, at) = std::sync::mpsc::channel();
            let inner = service_fn(move |_: Request<()>| {
                asked.send(begun.elapsed()).unwrap();
                async move {
                    sleep(takes).await;
                    let response = Response::builder().status(status);
                    let response =
                        fields.iter().fold(response, |it, field| it.header(field.0, field.1));
                    Ok::<_, Infallible>(response.body(String::new()).unwrap())
                }
            });
            let request = Request::builder().header("x-key", key).body(()).unwrap();
            let response = layer.layer(inner).oneshot(request).await.unwrap();
            (at.try_recv().ok(), response.into_parts().0)
        })
    }

    /// Sends a request, and returns when the provider got it.
    async fn asked_at(&self, key: &'static str) -> Duration {
        self.call(key, OK).await.unwrap().0.expect("it is not refused")
    }
}

/// A request that was under way when the provider refused another one ends, and the others are still held back.
#[tokio::test(start_paused = true)]
async fn pause_outlasts_requests_under_way() {
    let world = World::new(10, 60 * SECOND, false);
    let under_way = world.call("a", (SECOND, 200, &[]));
    sleep(SECOND / 2).await;
    assert_eq!(world.call("a", LEAVE_ME).await.unwrap().1.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(under_way.await.unwrap().1.status, StatusCode::OK);
    let at = world.asked_at("a").await;
    assert!(at >= 21 * SECOND / 2, "{at:?}");
}

/// Of two refusals, the later one with the shorter time, the longer time counts.
#[tokio::test(start_paused = true)]
async fn shorter_pause_leaves_the_longer() {
    let world = World::new(10, 60 * SECOND, false);
    let shorter = world.call("a", (SECOND, 429, &[("retry-after", "1")]));
    world.call("a", LEAVE_ME).await.unwrap();
    shorter.await.unwrap();
    let at = world.asked_at("a").await;
    assert!(at >= 10 * SECOND, "{at:?}");
}

/// The provider refuses a request while another one waits for its place. This one goes on only when it may.
#[tokio::test(start_paused = true)]
async fn request_in_the_queue_is_held_back() {
    let world = World::new(1, 60 * SECOND, false);
    let refused = world.call("a", (SECOND / 2, 429, &[("retry-after", "10")]));
    tokio::task::yield_now().await;
    let waits = world.call("a", OK);
    refused.await.unwrap();
    let left = || world.limiter.limit("Key").unwrap().check("a", 0).unwrap().remaining();
    let at = waits.await.unwrap().0.expect("it is not refused");
    assert!(at >= 21 * SECOND / 2, "{at:?}");
    assert_eq!(left(), Some(0));
    sleep(SECOND).await;
    assert_eq!(left(), Some(1), "it is charged once, at the end");
}

#[tokio::test(start_paused = true)]
async fn refusals_hold_back_and_errors_do_not() {
    for (status, pauses) in [(429, true), (503, true), (500, false), (200, false)] {
        let world = World::new(10, 60 * SECOND, false);
        world.call("a", (Duration::ZERO, status, &[("retry-after", "10")])).await.unwrap();
        let at = world.asked_at("a").await;
        assert_eq!(at >= 10 * SECOND, pauses, "{status}: {at:?}");
    }
}

/// A request may wait as long as the provider asks for, or is refused with this time, although the limit has units.
#[tokio::test(start_paused = true)]
async fn pause_may_be_the_longest_wait() {
    for (at_most, is_served) in [(10 * SECOND, true), (9 * SECOND, false)] {
        let world = World::new(10, at_most, false);
        world.call("a", LEAVE_ME).await.unwrap();
        let (at, response) = world.call("a", OK).await.unwrap();
        if is_served {
            assert!(at.unwrap() >= 10 * SECOND);
            continue;
        }
        assert_eq!((at, response.status), (None, StatusCode::TOO_MANY_REQUESTS));
        assert_eq!(response.headers["retry-after"], "10");
        assert_eq!(world.begun.elapsed(), Duration::ZERO, "at once");
    }
}

/// The provider may not have counted a request that is under way, also if it refuses another id meanwhile.
#[tokio::test(start_paused = true)]
async fn units_under_way_are_kept_aside() {
    for is_other_refused in [false, true] {
        let world = World::new(10, SECOND, false);
        let under_way = world.call("a", (SECOND / 2, 200, &[]));
        tokio::task::yield_now().await;
        if is_other_refused {
            world.call("b", LEAVE_ME).await.unwrap();
        }
        let said = &[("x-ratelimit-remaining-requests", "5")];
        world.call("a", (Duration::ZERO, 200, said)).await.unwrap();
        let left = world.limiter.limit("Key").unwrap().check("a", 0).unwrap().remaining();
        assert_eq!(left, Some(4), "{is_other_refused}");
        under_way.await.unwrap();
    }
}

/// The longest pause of all rules counts.
#[tokio::test(start_paused = true)]
async fn pause_of_one_rule_holds_back() {
    let world = World::new(10, 60 * SECOND, true);
    let under_way = world.call("b", (SECOND, 200, &[]));
    tokio::task::yield_now().await;
    world.call("a", LEAVE_ME).await.unwrap();
    let at = world.asked_at("b").await;
    under_way.await.unwrap();
    assert!(at >= 10 * SECOND, "{at:?}");
}

/// A request that goes away without a response is not under way any more.
#[tokio::test(start_paused = true)]
async fn dropped_request_keeps_nothing_aside() {
    let world = World::new(10, SECOND, false);
    let dropped = world.call("a", (SECOND, 200, &[]));
    tokio::task::yield_now().await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    let said = &[("x-ratelimit-remaining-requests", "5")];
    world.call("a", (Duration::ZERO, 200, said)).await.unwrap();
    let left = world.limiter.limit("Key").unwrap().check("a", 0).unwrap().remaining();
    assert_eq!(left, Some(5));
}

/// The time for which the provider holds a request back is a part of its wait. Nobody takes a place in it meanwhile.
#[tokio::test(start_paused = true)]
async fn longest_wait_holds_over_a_pause() {
    let world = World::new(1, 12 * SECOND, false);
    world.call("a", LEAVE_ME).await.unwrap();
    let waits: Vec<_> = (0..4).map(|_| world.call("a", OK)).collect();
    sleep(5 * SECOND).await;
    let error = world.limiter.limit("Key").unwrap().reserve("a", 1, Duration::MAX).unwrap_err();
    assert!(error.is_blocked());
    let mut asked_at = Vec::new();
    for call in waits {
        asked_at.push(call.await.unwrap().0.map(|at| at.as_secs()));
    }
    assert_eq!(asked_at, [Some(10), Some(11), Some(12), None], "one would come after 13 s");
    assert_eq!(world.begun.elapsed().as_secs(), 12);
}

/// The provider asks for more time than the limit, which has no unit either. The refusal tells the longer time.
#[tokio::test(start_paused = true)]
async fn refusal_tells_the_longer_wait() {
    let world = World::new(1, SECOND / 2, false);
    world.call("a", LEAVE_ME).await.unwrap();
    let (at, response) = world.call("a", OK).await.unwrap();
    assert_eq!((at, response.status), (None, StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(response.headers["retry-after"], "10", "{:?}", response.headers);
    assert_eq!(response.headers["ratelimit"], r#""Key";r=0;t=10"#);
}
