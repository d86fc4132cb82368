//! The program of `docs/calling.md`, against a provider that is overloaded once.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::StatusCode;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tollgate::http::Charge;
use tower::service_fn;

// The program begins here.
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response};
use tollgate::http::{AsyncRateLimit, Denied, Learn, RateLimitLayer, ResponseBody};
use tollgate::http::{Rule, SetupError, WaitOptions, extract};
use tollgate::{IdFormat, Limit, Limiter, Limits};
use tower::{Layer, Service, ServiceExt};

const TOKENS: HeaderName = HeaderName::from_static("x-max-tokens");

/// Puts the limits of a provider in front of a client: 500 requests and 90,000 tokens in any minute, and 8 calls at once.
fn limited<S>(client: S) -> Result<AsyncRateLimit<S>, SetupError> {
    let minute = Duration::from_secs(60);
    let limits = Limits::builder()
        .limit("Requests", IdFormat::String, Limit::at_most(500, minute, 10)?)?
        .limit("Tokens", IdFormat::String, Limit::at_most(90_000, minute, 4_000)?)?
        .limit("AtOnce", IdFormat::String, Limit::concurrency(8)?)?;
    let limiter = Limiter::new(limits.build());
    let key = || extract::everyone("key");
    let requests = Rule::new(limiter.limit("Requests")?, key()).learn(Learn::openai_requests());
    let tokens = Rule::new(limiter.limit("Tokens")?, key()).learn(Learn::openai_tokens());
    let tokens = tokens.estimate(|call| {
        let most = call.headers.get(TOKENS).and_then(|most| most.to_str().ok()?.parse().ok());
        most.unwrap_or(1_000)
    });
    let layer = RateLimitLayer::builder(&limiter)
        .rule(requests)
        .rule(tokens.refund_if(|status| !status.is_success()))
        .rule(Rule::in_flight(limiter.concurrency("AtOnce")?, key()))
        .build_waiting(WaitOptions::at_most(5 * minute).max_waiting(10_000), tokio::time::sleep)?;
    Ok(layer.layer(client))
}

/// Asks up to three times while the provider refuses. The layer waits as long as the provider says, if it says so.
async fn ask<S, B>(client: &AsyncRateLimit<S>, prompt: &str) -> Result<Answer<B>, S::Error>
where
    S: Service<Request<String>, Response = Response<B>> + Clone,
{
    for attempt in 1.. {
        let mut call = Request::new(prompt.to_owned());
        call.headers_mut().insert(TOKENS, HeaderValue::from(1_000));
        let answer = client.clone().oneshot(call).await?;
        let is_refused = matches!(answer.status().as_u16(), 429 | 503);
        if attempt == 3 || !is_refused || answer.extensions().get::<Denied>().is_some() {
            return Ok(answer); // its permit goes back when its body has ended
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    unreachable!("the third attempt returns")
}

type Answer<B> = Response<ResponseBody<B>>;
// The program ends here.

/// A stream of four chunks. Its end settles the tokens, also if nobody reads it to the end.
struct Chunks {
    left: u32,
    charge: Charge,
}

impl Body for Chunks {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Infallible>>> {
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        self.left = left;
        Poll::Ready(Some(Ok(Frame::data("chunk".into()))))
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        let _ = self.charge.settle("Tokens", 250);
    }
}

#[tokio::test]
async fn program_of_the_page_calls_a_provider() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let provider = service_fn(|call: Request<String>| async move {
        let is_overloaded = CALLS.fetch_add(1, Ordering::Relaxed) == 2;
        let charge = Charge::of(call.extensions());
        let mut answer = Response::new(Chunks { left: 4, charge });
        answer.headers_mut().insert("x-ratelimit-remaining-requests", 400.into());
        if is_overloaded {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            answer.headers_mut().insert("retry-after", 2.into());
        }
        Ok::<_, Infallible>(answer)
    });
    let client = limited(provider).unwrap();
    let begun = tokio::time::Instant::now();
    for _ in 0..30 {
        let answer = ask(&client, "Why is the sky blue?").await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 20);
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), 31);
    assert!(begun.elapsed() >= Duration::from_secs(2), "it waited for the provider");
}

#[test]
fn page_shows_this_program() {
    let file = include_str!("calling.rs");
    let (_, program) = file.split_once("// The program begins here.\n").unwrap();
    let (program, _) = program.split_once("// The program ends here.\n").unwrap();
    assert!(include_str!("../../docs/calling.md").contains(program));
    let lines = program.lines().filter(|line| !line.trim().is_empty());
    let lines = lines.filter(|line| !line.starts_with("use ") && !line.trim().starts_with("//"));
    assert!(lines.count() <= 40);
}
