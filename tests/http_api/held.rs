//! What a request holds until its response has ended: permits, and estimates that its handler settles.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::{any, get};
use bytes::{Buf, BufMut, Bytes};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tollgate::http::{Charge, RateLimitLayer, Rule, extract};
use tollgate::{Clock, ConcurrencyLimit, IdFormat, KeyedLimit, Limit, Limiter, Limits};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tower::{Layer, ServiceExt, service_fn};
use tower_http::catch_panic::CatchPanicLayer;

use super::frames::Frames;

const MINUTE: Duration = Duration::from_secs(60);

/// At most two streams at once, and 1000 tokens, of everyone.
pub(crate) struct Gate {
    pub(crate) limiter: Limiter,
    streams: ConcurrencyLimit,
    pub(crate) tokens: KeyedLimit,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        let tokens = Limit::new(1000, 1000, MINUTE).unwrap();
        let limits = Limits::builder()
            .limit("Streams", IdFormat::String, Limit::concurrency(2).unwrap())
            .unwrap()
            .limit("Tokens", IdFormat::String, tokens)
            .unwrap();
        let limiter = Limiter::with_options(limits.build(), Clock::manual().0).unwrap();
        let (streams, tokens) =
            (limiter.concurrency("Streams").unwrap(), limiter.limit("Tokens").unwrap());
        Gate { limiter, streams, tokens }
    }

    pub(crate) fn streams(&self) -> Rule {
        Rule::in_flight(self.streams.clone(), extract::everyone("all"))
    }

    fn tokens(&self) -> Rule {
        Rule::new(self.tokens.clone(), extract::everyone("all")).estimate(|_| 600)
    }

    /// The layer with both rules.
    fn layer(&self) -> RateLimitLayer {
        let builder = RateLimitLayer::builder(&self.limiter);
        builder.rule(self.streams()).rule(self.tokens()).build().unwrap()
    }

    pub(crate) fn out(&self) -> u64 {
        self.streams.in_flight("all").unwrap()
    }

    pub(crate) fn used(&self) -> u64 {
        1000 - self.tokens.check("all", 0).unwrap().remaining().unwrap()
    }

    /// Waits until this number of streams is out.
    async fn until(&self, out: u64) {
        for _ in 0..500 {
            if self.out() == out {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} streams are out, not {out}", self.out());
    }
}

#[tokio::test]
async fn in_flight_fields_count_concurrent_requests() {
    let gate = Gate::new();
    let layer = RateLimitLayer::builder(&gate.limiter).rule(gate.streams()).build().unwrap();
    let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(String::new())));
    let response = layer.layer(service).oneshot(Request::new(())).await.unwrap();
    let policy = &response.headers()["ratelimit-policy"];
    assert_eq!(policy, r#""Streams";q=2;qu="concurrent-requests""#);
}

/// A body's chunks, and its trailers.
type Chunks = (mpsc::Receiver<Result<Bytes, String>>, Option<HeaderMap>);

/// A body whose chunks come from a channel, and whose end is that of the channel, or trailers.
fn chunks(
    trailers: Option<HeaderMap>,
) -> (mpsc::Sender<Result<Bytes, String>>, Frames<Chunks, String>) {
    let (sender, chunks) = mpsc::channel(8);
    let body = Frames::new((chunks, trailers), |(chunks, trailers), context| {
        let chunk = std::task::ready!(chunks.poll_recv(context));
        let trailers = || trailers.take().map(|trailers| Ok(Frame::trailers(trailers)));
        Poll::Ready(chunk.map(|chunk: Result<_, _>| chunk.map(Frame::data)).or_else(trailers))
    });
    (sender, body)
}

/// Sends a request through the layer to a service that answers with `body`, whose estimate is settled to 4.
async fn ask<B>(gate: &Gate, body: B) -> Response<tollgate::http::ResponseBody<B>> {
    let body = std::sync::Mutex::new(Some(body));
    let inner = service_fn(|request: Request<()>| {
        assert!(Charge::of(request.extensions()).settle("Tokens", 4).is_some());
        let body = body.lock().unwrap().take().unwrap();
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    gate.layer().layer(inner).oneshot(Request::new(())).await.unwrap()
}

#[tokio::test]
async fn permits_last_until_the_body_ends() {
    let gate = Gate::new();
    let (sender, body) = chunks(None);
    let mut response = ask(&gate, body).await.into_body();
    assert_eq!((gate.out(), gate.used()), (1, 4), "the head alone ends nothing");
    sender.send(Ok("a".into())).await.unwrap();
    assert!(response.frame().await.unwrap().is_ok());
    assert_eq!(gate.out(), 1);
    drop(sender);
    assert!(response.frame().await.is_none());
    assert_eq!((gate.out(), gate.used()), (0, 4), "its end, before it is dropped");
}

/// A task of the handler keeps a clone of the charge longer than the response lasts.
#[tokio::test]
async fn kept_clones_hold_estimates_but_no_permits() {
    let gate = Gate::new();
    let (kept, mut kept_clone) = mpsc::channel(1);
    let inner = service_fn(|request: Request<()>| {
        kept.try_send(Charge::of(request.extensions())).unwrap();
        async { Ok::<_, Infallible>(Response::new(String::from("x"))) }
    });
    let response = gate.layer().layer(inner).oneshot(Request::new(())).await.unwrap();
    let charge = kept_clone.recv().await.unwrap();
    assert_eq!((gate.out(), gate.used()), (1, 600));
    response.into_body().collect().await.unwrap();
    assert_eq!((gate.out(), gate.used()), (0, 600), "the response has ended");
    assert!(charge.settle("Tokens", 4).is_some(), "later");
    drop(charge);
    assert_eq!((gate.out(), gate.used()), (0, 4));
}

#[tokio::test]
async fn errors_trailers_and_drops_end_a_body() {
    let gate = Gate::new();
    let (sender, body) = chunks(None);
    let mut response = ask(&gate, body).await.into_body();
    sender.send(Err("lost".into())).await.unwrap();
    assert!(response.frame().await.unwrap().is_err());
    assert_eq!(gate.out(), 0, "an error");

    let (sender, body) = chunks(Some(HeaderMap::new()));
    let mut response = ask(&gate, body).await.into_body();
    drop(sender);
    assert!(response.frame().await.unwrap().unwrap().is_trailers());
    assert_eq!(gate.out(), 0, "trailers");

    let (_sender, body) = chunks(None);
    let response = ask(&gate, body).await;
    assert_eq!(gate.out(), 1);
    drop(response);
    assert_eq!(gate.out(), 0, "a drop");
}

#[tokio::test]
async fn denials_take_neither_permit_nor_tokens() {
    let gate = Gate::new();
    let held = [gate.streams.acquire("all", 1), gate.streams.acquire("all", 1)];
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let service = gate.layer().layer(inner);
    let denied = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()[header::RETRY_AFTER], "1");
    assert_eq!(gate.used(), 0, "denied by the permits");
    drop(held);
    assert!(gate.tokens.spend("all", 500).unwrap().allowed());
    let denied = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(gate.out(), 0, "denied by the tokens");
}

#[tokio::test]
async fn errors_and_dropped_calls_give_permits_back() {
    let gate = Gate::new();
    let failing = service_fn(|_: Request<()>| async { Err::<Response<Empty<Bytes>>, _>("broken") });
    assert!(gate.layer().layer(failing).oneshot(Request::new(())).await.is_err());
    assert_eq!((gate.out(), gate.used()), (0, 600), "what is not settled stays charged");

    let pending = service_fn(|_: Request<()>| {
        std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>()
    });
    assert!(gate.tokens.reset("all").unwrap().allowed());
    let mut call = Box::pin(gate.layer().layer(pending).oneshot(Request::new(())));
    let waker = std::task::Waker::noop();
    assert!(call.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    assert_eq!(gate.out(), 1);
    drop(call); // the client has gone away before the head
    assert_eq!((gate.out(), gate.used()), (0, 600));
}

#[tokio::test]
async fn failed_answers_cost_nothing_if_refunded() {
    let gate = Gate::new();
    let rule = gate.tokens().refund_if(|status| status.is_server_error());
    let layer = RateLimitLayer::builder(&gate.limiter).rule(rule).build().unwrap();
    for (settled, used) in [(None, 0), (Some(5), 5)] {
        let inner = service_fn(move |request: Request<()>| {
            let charge = Charge::of(request.extensions());
            settled.map(|units| charge.settle("Tokens", units));
            let failed = Response::builder().status(502).body(Empty::<Bytes>::new()).unwrap();
            async { Ok::<_, Infallible>(failed) }
        });
        let _ = layer.layer(inner).oneshot(Request::new(())).await.unwrap();
        assert_eq!(gate.used(), used, "{settled:?}");
    }
}

#[tokio::test]
async fn nested_layers_have_one_charge() {
    let gate = Gate::new();
    let outer = RateLimitLayer::builder(&gate.limiter).rule(gate.tokens()).build().unwrap();
    let inner = RateLimitLayer::builder(&gate.limiter).rule(gate.streams()).build().unwrap();
    let handler = service_fn(|request: Request<()>| {
        let charge = Charge::of(request.extensions());
        assert_eq!(charge.settle("Streams", 0), None, "permits are not settled");
        assert!(charge.settle("Tokens", 7).unwrap().allowed());
        assert_eq!(charge.settle("Tokens", 9), None, "once");
        async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
    });
    let response = outer.layer(inner.layer(handler)).oneshot(Request::new(())).await.unwrap();
    assert_eq!((gate.out(), gate.used()), (1, 7));
    drop(response);
    assert_eq!(gate.out(), 0);
}

/// A server of axum with the layer around its routes.
async fn axum_server(gate: &Gate) -> SocketAddr {
    let events = || async {
        let (sender, body) = chunks(None);
        tokio::spawn(async move {
            // Until the client has gone.
            while sender.send(Ok("data: x\n\n".into())).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let body = axum::body::Body::new(body.map_err(std::io::Error::other));
        ([(header::CONTENT_TYPE, "text/event-stream")], body)
    };
    let upgrade = |Extension(charge): Extension<Charge>, request: Request<axum::body::Body>| async move {
        let upgraded = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let mut echo = TokioIo::new(upgraded.await.unwrap());
            let mut byte = [0];
            while echo.read_exact(&mut byte).await.is_ok() {
                echo.write_all(&byte).await.unwrap();
            }
            drop(charge);
        });
        let response = Response::builder().status(101).header("connection", "upgrade");
        response.header("upgrade", "echo").body(axum::body::Body::empty()).unwrap()
    };
    let panics = || async {
        if true {
            panic!("planned");
        }
    };
    let app = Router::new()
        .route("/events", get(events))
        .route("/text", get(|| async { "hello" }))
        .route("/empty", get(|| async { StatusCode::NO_CONTENT }))
        .route("/upgrade", any(upgrade))
        .route("/panic", get(panics))
        .route("/caught", get(panics).layer(CatchPanicLayer::new()))
        .layer(gate.layer());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

fn request(address: SocketAddr, method: Method, path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("http://{address}{path}");
    let request = Request::builder().method(method).uri(uri).header("host", address.to_string());
    request.body(Empty::new()).unwrap()
}

async fn connect_1(address: SocketAddr) -> http1::SendRequest<Empty<Bytes>> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

#[tokio::test]
async fn streams_of_events_hold_until_the_client_goes() {
    let gate = Gate::new();
    let address = axum_server(&gate).await;
    let get = |path| request(address, Method::GET, path);
    // HTTP/1.1: the client closes its connection after some events.
    let mut sender = connect_1(address).await;
    let mut response = sender.send_request(get("/events")).await.unwrap();
    assert!(response.frame().await.unwrap().is_ok());
    assert_eq!(gate.out(), 1);
    drop((response, sender));
    gate.until(0).await;
    assert!(gate.tokens.reset("all").unwrap().allowed());
    // HTTP/2: two streams of one connection, one after the other is reset.
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let one = sender.send_request(get("/events")).await.unwrap();
    assert!(gate.tokens.reset("all").unwrap().allowed());
    let other = sender.send_request(get("/events")).await.unwrap();
    gate.until(2).await;
    assert!(gate.tokens.reset("all").unwrap().allowed());
    let denied = sender.send_request(get("/text")).await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(one);
    gate.until(1).await;
    drop(other);
    gate.until(0).await;
}

#[tokio::test]
async fn answers_without_a_body_hold_nothing() {
    let gate = Gate::new();
    let address = axum_server(&gate).await;
    for (method, path, status) in [
        (Method::GET, "/text", 200),
        (Method::HEAD, "/text", 200),
        (Method::GET, "/empty", 204),
        (Method::GET, "/missing", 404),
        (Method::GET, "/caught", 500),
    ] {
        assert!(gate.tokens.reset("all").unwrap().allowed());
        let mut sender = connect_1(address).await;
        let response = sender.send_request(request(address, method, path)).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        let _ = response.collect().await.unwrap();
        gate.until(0).await;
        assert_eq!(gate.used(), 600, "{path}");
    }
    assert!(gate.tokens.reset("all").unwrap().allowed());
    let mut sender = connect_1(address).await;
    assert!(sender.send_request(request(address, Method::GET, "/panic")).await.is_err());
    gate.until(0).await;
}

#[tokio::test]
async fn upgraded_connections_hold_until_they_end() {
    let gate = Gate::new();
    let address = axum_server(&gate).await;
    let mut sender = connect_1(address).await;
    let mut request = request(address, Method::GET, "/upgrade");
    request.headers_mut().insert("connection", "upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "echo".parse().unwrap());
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut echo = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    echo.write_all(b"x").await.unwrap();
    let mut byte = [0];
    echo.read_exact(&mut byte).await.unwrap();
    assert_eq!((byte, gate.out()), (*b"x", 1), "the head has been sent long ago");
    drop(echo);
    gate.until(0).await;
}

#[tokio::test]
async fn connected_tunnels_hold_until_the_last_clone() {
    let gate = Gate::new();
    let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keep = kept.clone();
    let tunnel = service_fn(move |request: Request<()>| {
        *keep.lock().unwrap() = Some(Charge::of(request.extensions()));
        async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) }
    });
    let request = Request::builder().method(Method::CONNECT).body(()).unwrap();
    drop(gate.layer().layer(tunnel).oneshot(request).await.unwrap());
    assert_eq!(gate.out(), 1);
    kept.lock().unwrap().take();
    assert_eq!(gate.out(), 0);
}

/// Messages of bytes as they are.
#[derive(Clone, Copy, Default)]
struct Plain;

impl Encoder for Plain {
    type Item = Bytes;
    type Error = tonic::Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

/// A stream of messages from a channel.
struct Messages(mpsc::Receiver<Bytes>);

impl tonic::codegen::tokio_stream::Stream for Messages {
    type Item = Result<Bytes, tonic::Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|message| message.map(Ok))
    }
}

#[tokio::test]
async fn tonic_streams_hold_until_their_trailers() {
    let gate = Gate::new();
    let (sender, receiver) = mpsc::channel(1);
    let receiver = std::sync::Mutex::new(Some(receiver));
    let inner = service_fn(|request: Request<axum::body::Body>| {
        let messages = Messages(receiver.lock().unwrap().take().unwrap());
        async {
            let charge = Charge::of(request.extensions());
            let mut messages = Some(messages);
            let answer = service_fn(move |_: tonic::Request<Bytes>| {
                charge.settle("Tokens", 9);
                let messages = messages.take().unwrap();
                std::future::ready(Ok::<_, tonic::Status>(tonic::Response::new(messages)))
            });
            let mut grpc = tonic::server::Grpc::new(Plain);
            Ok::<_, Infallible>(grpc.server_streaming(answer, request).await)
        }
    });
    let request = Request::post("/s/m").header("content-type", "application/grpc");
    let request = request.body(axum::body::Body::from(&b"\0\0\0\0\x01x"[..])).unwrap();
    let mut response = gate.layer().layer(inner).oneshot(request).await.unwrap().into_body();
    sender.send("message".into()).await.unwrap();
    assert!(response.frame().await.unwrap().unwrap().is_data());
    assert_eq!((gate.out(), gate.used()), (1, 9));
    drop(sender);
    assert!(response.frame().await.unwrap().unwrap().is_trailers());
    assert_eq!((gate.out(), gate.used()), (0, 9));
}
