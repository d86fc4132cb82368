//! Real servers on real sockets with real clients: axum and tonic, hyper and curl, HTTP/1.1 and HTTP/2.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tollgate::clock::ManualClock;
use tollgate::http::{ClientAddress, Fields, RateLimitLayer, Reset, Rule, Style, extract};
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tonic::transport::server::TcpConnectInfo;

const DAY: Duration = Duration::from_secs(86_400);

/// Makes a limit by address with a clock that stands still, so that exactly the burst is admitted.
fn limiter(burst: u64) -> (Limiter, ManualClock) {
    let limit = Limit::new(burst, 1, DAY).unwrap();
    let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit).unwrap().build();
    let (clock, manual) = Clock::manual();
    (Limiter::with_options(limits, clock).unwrap(), manual)
}

fn layer(limiter: &Limiter, clients: ClientAddress) -> RateLimitLayer {
    let fields = Fields::new([Style::Ietf, Style::XRateLimit(Reset::Delta)]).unwrap();
    RateLimitLayer::builder(limiter)
        .rule(Rule::new(limiter.limit("PerClient").unwrap(), extract::client(clients)))
        .fields(fields)
        .grpc()
        .build()
        .unwrap()
}

/// An axum server with the layer, on its own port. It counts the requests that reach the handler.
async fn axum_server(limiter: &Limiter) -> (SocketAddr, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
    let counted = Arc::clone(&calls);
    let handler = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "hello" }
    };
    let app = Router::new().route("/", get(handler)).layer(layer(limiter, clients));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    (address, calls)
}

type Body = Full<Bytes>;

async fn connect_1(address: SocketAddr) -> http1::SendRequest<Body> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn connect_2(address: SocketAddr) -> http2::SendRequest<Body> {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(address: SocketAddr, version: Version) -> Request<Body> {
    let mut request = Request::new(Body::default());
    *request.version_mut() = version;
    let uri = if version == Version::HTTP_2 { format!("http://{address}/") } else { "/".into() };
    *request.uri_mut() = uri.parse().unwrap();
    request.headers_mut().insert("host", address.to_string().parse().unwrap());
    request
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    async fn from_response(response: Response<hyper::body::Incoming>) -> Answer {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    fn field(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// The expected statuses and fields with a burst of 2, in both versions of HTTP.
fn assert_answers(answers: &[Answer]) {
    for (answer, remaining) in answers.iter().zip(["1", "0"]) {
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "hello"));
        assert_eq!(answer.field("x-ratelimit-limit"), "2");
        assert_eq!(answer.field("x-ratelimit-remaining"), remaining);
        assert_eq!(answer.field("ratelimit-policy"), r#""PerClient";q=2;w=172800"#);
        assert_eq!(answer.field("retry-after"), "");
    }
    let denied = &answers[2];
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.field("retry-after"), "86400");
    assert_eq!(denied.field("ratelimit"), r#""PerClient";r=0;t=86400"#);
    assert_eq!(denied.field("content-type"), "application/problem+json");
    assert_eq!(denied.field("content-length"), denied.body.len().to_string());
    let body: serde_json::Value = serde_json::from_str(&denied.body).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["PerClient"]));
    assert_eq!(answers[3].status, StatusCode::OK, "after the wait, on the same connection");
}

#[tokio::test]
async fn http_1_keeps_its_connection_over_denials() {
    let (limiter, manual) = limiter(2);
    let (address, calls) = axum_server(&limiter).await;
    let mut connection = connect_1(address).await;
    let mut answers = Vec::new();
    for nth in 0..4 {
        if nth == 3 {
            manual.advance(DAY);
        }
        connection.ready().await.unwrap();
        let response = connection.send_request(request(address, Version::HTTP_11)).await.unwrap();
        answers.push(Answer::from_response(response).await);
    }
    assert_answers(&answers);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn http_2_keeps_its_connection_over_denials() {
    let (limiter, manual) = limiter(2);
    let (address, calls) = axum_server(&limiter).await;
    let mut connection = connect_2(address).await;
    let mut answers = Vec::new();
    for nth in 0..4 {
        if nth == 3 {
            manual.advance(DAY);
        }
        let response = connection.send_request(request(address, Version::HTTP_2)).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        answers.push(Answer::from_response(response).await);
    }
    assert_answers(&answers);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_connections_get_exactly_the_burst() {
    const REQUESTS: usize = 10_000;
    let (limiter, _manual) = limiter(100);
    let (address, calls) = axum_server(&limiter).await;
    let (asked, denied) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..64)
        .map(|_| {
            let (asked, denied) = (Arc::clone(&asked), Arc::clone(&denied));
            tokio::spawn(async move {
                let mut connection = connect_1(address).await;
                while asked.fetch_add(1, Ordering::Relaxed) < REQUESTS {
                    connection.ready().await.unwrap();
                    let request = request(address, Version::HTTP_11);
                    let answer =
                        Answer::from_response(connection.send_request(request).await.unwrap())
                            .await;
                    if answer.status == StatusCode::TOO_MANY_REQUESTS {
                        assert_eq!(answer.field("retry-after"), "86400");
                        denied.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert_eq!(answer.body, "hello");
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let (calls, denied) = (calls.load(Ordering::Relaxed), denied.load(Ordering::Relaxed));
    assert_eq!((calls, denied), (100, REQUESTS - 100));
}

/// Returns curl's output with the response's head.
async fn curl(address: SocketAddr, version: &'static str) -> String {
    let asked = tokio::task::spawn_blocking(move || {
        let url = format!("http://{address}/");
        Command::new("curl")
            .args(["--silent", "--include", "--max-time", "10", version, &url])
            .output()
    });
    let output = asked.await.unwrap().expect("this test needs curl: install Debian's package curl");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_sees_the_fields_over_both_versions() {
    for (flag, version) in [("--http1.1", "HTTP/1.1"), ("--http2-prior-knowledge", "HTTP/2")] {
        let (limiter, _manual) = limiter(1);
        let (address, _calls) = axum_server(&limiter).await;
        let allowed = curl(address, flag).await;
        assert!(allowed.starts_with(&format!("{version} 200")), "{allowed}");
        assert!(allowed.contains("ratelimit: \"PerClient\";r=0;t=86400\r\n"), "{allowed}");
        assert!(!allowed.contains("retry-after"), "{allowed}");
        let denied = curl(address, flag).await;
        assert!(denied.starts_with(&format!("{version} 429")), "{denied}");
        assert!(denied.contains("retry-after: 86400\r\n"), "{denied}");
        assert!(denied.ends_with(r#""violated-policies":["PerClient"]}"#), "{denied}");
    }
}

#[tokio::test]
async fn server_without_connect_info_answers_500() {
    let (limiter, _hand) = limiter(1);
    let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
    let app: Router =
        Router::new().route("/", get(|| async { "hello" })).layer(layer(&limiter, clients));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let mut connection = connect_1(address).await;
    let response = connection.send_request(request(address, Version::HTTP_11)).await.unwrap();
    let answer = Answer::from_response(response).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.body.contains("the server could not handle this request"), "{}", answer.body);
}

/// A server behind a proxy on the same machine, with one router on TCP and on a Unix socket.
#[cfg(unix)]
#[tokio::test]
async fn unix_socket_proxy_names_its_clients() {
    use axum::extract::Extension;
    use tokio::net::{UnixListener, UnixStream};
    use tollgate::http::{Forwarding, Peer};

    let (limiter, _manual) = limiter(2);
    let real_ip = Forwarding::Header(http::HeaderName::from_static("x-real-ip"));
    let clients = ClientAddress::new().trust(["unix:"], real_ip).unwrap().peer_by(|extensions| {
        let tcp = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| Peer::from(info.0));
        tcp.or_else(|| extensions.get::<Peer>().copied())
    });
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer(&limiter, clients));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let on_unix = UnixListener::bind(&path).unwrap();
    let of_unix = app.clone().layer(Extension(Peer::Unix));
    tokio::spawn(async move { axum::serve(on_unix, of_unix).await.unwrap() });
    let on_tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = on_tcp.local_addr().unwrap();
    let of_tcp = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(on_tcp, of_tcp).await.unwrap() });

    let stream = TokioIo::new(UnixStream::connect(&path).await.unwrap());
    let (mut by_unix, connection) = http1::handshake::<_, Body>(stream).await.unwrap();
    tokio::spawn(connection);
    let asked = |client: &'static str| {
        let mut request = request(address, Version::HTTP_11);
        if !client.is_empty() {
            request.headers_mut().insert("x-real-ip", client.parse().unwrap());
        }
        request
    };
    for (client, status) in [
        ("192.0.2.1", 200),
        ("192.0.2.1", 200),
        ("192.0.2.1", 429),
        ("192.0.2.2", 200),
        ("", 500),
        ("192.0.2.2, 6.6.6.6", 500),
    ] {
        by_unix.ready().await.unwrap();
        let answer =
            Answer::from_response(by_unix.send_request(asked(client)).await.unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{client}: {}", answer.body);
    }
    // A client on TCP counts by its own address, whatever fields it sends.
    let mut by_tcp = connect_1(address).await;
    let answer =
        Answer::from_response(by_tcp.send_request(asked("192.0.2.1")).await.unwrap()).await;
    assert_eq!((answer.status, answer.field("x-ratelimit-remaining")), (StatusCode::OK, "1"));
    assert_eq!(limiter.stats().cells, 3, "192.0.2.1, 192.0.2.2 and 127.0.0.1");
}

/// A tonic service that answers each request with an empty OK.
#[derive(Clone)]
struct Empty;

impl tonic::server::NamedService for Empty {
    const NAME: &'static str = "test.Empty";
}

impl tower::Service<Request<tonic::body::Body>> for Empty {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<tonic::body::Body>) -> Self::Future {
        std::future::ready(Ok(tonic::Status::ok("").into_http()))
    }
}

#[tokio::test]
async fn tonic_answers_resource_exhausted() {
    let (limiter, _manual) = limiter(1);
    let clients = ClientAddress::new().peer_by(|extensions| {
        extensions.get::<TcpConnectInfo>()?.remote_addr().map(|address| address.ip())
    });
    let layer = layer(&limiter, clients);
    let incoming = tonic::transport::server::TcpIncoming::bind("127.0.0.1:0".parse().unwrap());
    let incoming = incoming.unwrap();
    let address = incoming.local_addr().unwrap();
    let server = tonic::transport::Server::builder().layer(layer).add_service(Empty);
    tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });

    let mut connection = connect_2(address).await;
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let mut request = request(address, Version::HTTP_2);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = format!("http://{address}/test.Empty/Call").parse().unwrap();
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        let answer = Answer::from_response(connection.send_request(request).await.unwrap()).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.field("ratelimit"), r#""PerClient";r=0;t=86400"#);
        statuses.push((
            answer.field("grpc-status").to_owned(),
            answer.field("grpc-message").to_owned(),
            answer.field("retry-after").to_owned(),
        ));
    }
    assert_eq!(statuses[0], ("0".into(), "".into(), "".into()));
    let message = "too many requests: try again in 86400 s";
    assert_eq!(statuses[1], ("8".into(), message.into(), "86400".into()));
}
