//! A poem server whose clients are limited by their address: `docs/frameworks.md`.

use std::sync::Arc;
use std::time::Duration;

use poem::error::InternalServerError;
use poem::http::StatusCode;
use poem::listener::{Acceptor, Listener, TcpListener};
use poem::{Endpoint, EndpointExt, Error, IntoResponse, Request, Response, Result, Route, Server};
use tollgate::http::{ClientAddress, Fields, Forwarding, HttpLimit, Style};
use tollgate::sweep::SweepOptions;
use tollgate::{IdFormat, Limit, Limiter, Limits};

// The recipe begins.
async fn rate_limit<E: Endpoint>(
    limit: Arc<HttpLimit>,
    clients: ClientAddress,
    next: Arc<E>,
    request: Request,
) -> Result<Response> {
    let peer = request.remote_addr().as_socket_addr().copied();
    let client = clients.find(peer, request.headers()).map_err(|error| {
        Error::from_string(error.for_clients(), StatusCode::INTERNAL_SERVER_ERROR)
    })?;
    let decision = limit.spend(client, 1).map_err(InternalServerError)?;
    let mut response = if decision.allowed() {
        next.get_response(request).await
    } else {
        StatusCode::TOO_MANY_REQUESTS.with_body("too many requests\n").into_response()
    };
    response.headers_mut().extend(decision.headers().clone());
    Ok(response)
}
// The recipe ends.

#[poem::handler]
fn hello() -> &'static str {
    "hello\n"
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 5 requests at once, then one every 12 seconds, for each address.
    let limit = Limit::new(5, 5, Duration::from_secs(60))?;
    let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    let limiter = Limiter::new(limits);
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;

    let fields = Fields::new([Style::Ietf])?;
    let limit = Arc::new(HttpLimit::new(limiter.limit("PerClient")?, fields));
    // The addresses of your own proxies, such as 10.0.0.1, if clients come through them.
    let proxies = std::env::var("PROXIES").ok();
    let clients = ClientAddress::new().trust(proxies.as_deref(), Forwarding::XForwardedFor)?;

    let app = Route::new().at("/", poem::get(hello)).around(move |next, request| {
        rate_limit(Arc::clone(&limit), clients.clone(), next, request)
    });
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let acceptor = TcpListener::bind(address).into_acceptor().await?;
    let listening = acceptor.local_addr();
    println!("listening on http://{}", listening[0].as_socket_addr().expect("a TCP listener"));
    Ok(Server::new_with_acceptor(acceptor).run(app).await?)
}
