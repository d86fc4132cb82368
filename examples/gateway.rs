//! A small gateway to a provider of language models: requests by key, tokens by tenant and by user, streams in flight by tenant,
//! all of them or none: `docs/in-flight.md`. The provider is made up: it streams words.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Request, Response};
use http_body::Frame;
use tokio::sync::mpsc;
use tollgate::http::{Charge, RateLimitLayer, Rule, extract};
use tollgate::limits::LimitOptions;
use tollgate::sweep::SweepOptions;
use tollgate::{ConcurrencyLimit, IdFormat, Limit, Limiter, Limits};

const MINUTE: Duration = Duration::from_secs(60);
const TENANT: HeaderName = HeaderName::from_static("x-tenant");
const USER: HeaderName = HeaderName::from_static("x-user");
/// The most tokens of an answer, which the client sends, and the gateway estimates.
const MAX_TOKENS: HeaderName = HeaderName::from_static("x-max-tokens");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // An answer may cost more than its estimate: the bucket then owes up to 4,000 tokens.
    let debt = || LimitOptions::default().max_debt(4_000);
    let tokens = |most| Limit::new(most, most, MINUTE);
    let limits = Limits::builder()
        .limit("RequestsPerKey", IdFormat::String, Limit::new(20, 60, MINUTE)?)?
        .limit_with("TokensPerUser", IdFormat::String, tokens(5_000)?, debt())?
        .limit_with("TokensPerTenant", IdFormat::String, tokens(40_000)?, debt())?
        .limit("StreamsPerTenant", IdFormat::String, Limit::concurrency(4)?)?
        .build();
    let limiter = Limiter::new(limits);
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;
    let streams = limiter.concurrency("StreamsPerTenant")?;

    let layer = RateLimitLayer::builder(&limiter)
        .rule(Rule::new(limiter.limit("RequestsPerKey")?, extract::bearer()))
        .rule(Rule::new(limiter.limit("TokensPerUser")?, extract::header(USER)).estimate(estimate))
        .rule(
            Rule::new(limiter.limit("TokensPerTenant")?, extract::header(TENANT))
                .estimate(estimate),
        )
        .rule(Rule::in_flight(streams.clone(), extract::header(TENANT)))
        .build()?;
    let provider = Arc::new(Provider::default());
    tokio::spawn(control(streams, provider.clone()));
    let app = Router::new().route("/v1/answers", post(answer)).layer(layer).with_state(provider);

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// The tokens that a request is charged until its answer is written.
fn estimate(request: &Parts) -> u64 {
    let given = request.headers.get(MAX_TOKENS).and_then(|value| value.to_str().ok()?.parse().ok());
    given.unwrap_or(1_000).clamp(1, 4_000)
}

/// Streams the provider's answer. Its cost is known when the stream ends, or when the client goes away.
async fn answer(State(provider): State<Arc<Provider>>, request: Request<Body>) -> Response<Body> {
    let charge = Charge::of(request.extensions());
    let (parts, _) = request.into_parts();
    let tokens = provider.complete(estimate(&parts).min(200)).await;
    Response::new(Body::new(Answer { tokens, sent: 0, charge }))
}

/// The body of an answer: a token a frame.
struct Answer {
    tokens: mpsc::Receiver<String>,
    sent: u64,
    charge: Charge,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let token = ready!(self.tokens.poll_recv(context));
        self.sent += u64::from(token.is_some());
        Poll::Ready(token.map(|token| Ok(Frame::data(token.into()))))
    }
}

/// The tokens that were sent are paid, whoever ended the stream.
impl Drop for Answer {
    fn drop(&mut self) {
        for limit in ["TokensPerUser", "TokensPerTenant"] {
            self.charge.settle(limit, self.sent);
        }
    }
}

/// A provider that is slower the more streams it has.
#[derive(Default)]
struct Provider {
    streams: AtomicU64,
    /// The time to the first token of the last answer, in ms.
    latency_ms: AtomicU64,
}

impl Provider {
    /// Begins an answer of `length` tokens.
    async fn complete(self: &Arc<Provider>, length: u64) -> mpsc::Receiver<String> {
        let (sender, tokens) = mpsc::channel(16);
        let busy = self.streams.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        tokio::time::sleep(Duration::from_millis(5 + 5 * busy)).await;
        self.latency_ms.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
        let provider = self.clone();
        tokio::spawn(async move {
            for nth in 0..length {
                if sender.send(format!("token {nth}\n")).await.is_err() {
                    break; // the client has gone
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            provider.streams.fetch_sub(1, Ordering::Relaxed);
        });
        tokens
    }
}

/// A controller: one stream more for each tenant while the provider is quick, half as many when it is slow.
async fn control(streams: ConcurrencyLimit, provider: Arc<Provider>) {
    let mut max = streams.max().unwrap_or(1);
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let is_slow = provider.latency_ms.load(Ordering::Relaxed) > 100;
        max = if is_slow { (max / 2).max(1) } else { (max + 1).min(16) };
        streams.set_max(max);
    }
}
