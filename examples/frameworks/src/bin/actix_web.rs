//! An actix-web server whose clients are limited by their address: `docs/frameworks.md`.

use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::{Error, ErrorInternalServerError, HttpError};
use actix_web::http::header::TryIntoHeaderPair;
use actix_web::middleware::{Next, from_fn};
use actix_web::{App, HttpResponse, HttpServer, web};
use tollgate::http::{ClientAddress, Fields, Forwarding, HttpLimit, Style};
use tollgate::sweep::SweepOptions;
use tollgate::{IdFormat, Limit, Limiter, Limits};

// The recipe begins.
async fn rate_limit(
    limit: web::Data<HttpLimit>,
    clients: web::Data<ClientAddress>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let client = clients.find_by(request.peer_addr(), |name| request.headers().get_all(name));
    let client = client.map_err(|error| ErrorInternalServerError(error.for_clients()))?;
    let decision = limit.spend(client, 1).map_err(ErrorInternalServerError)?;
    let mut response = if decision.allowed() {
        next.call(request).await?.map_into_boxed_body()
    } else {
        request.into_response(HttpResponse::TooManyRequests().body("too many requests\n"))
    };
    for field in decision.fields() {
        let (name, value) = field.try_into_pair().map_err(HttpError::from)?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}
// The recipe ends.

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 5 requests at once, then one every 12 seconds, for each address.
    let limit = Limit::new(5, 5, Duration::from_secs(60))?;
    let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    let limiter = Limiter::new(limits);
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;

    let fields = Fields::new([Style::Ietf])?;
    let limit = web::Data::new(HttpLimit::new(limiter.limit("PerClient")?, fields));
    // The addresses of your own proxies, such as 10.0.0.1, if clients come through them.
    let proxies = std::env::var("PROXIES").ok();
    let clients = ClientAddress::new().trust(proxies.as_deref(), Forwarding::XForwardedFor)?;
    let clients = web::Data::new(clients);

    let server = HttpServer::new(move || {
        App::new()
            .app_data(limit.clone())
            .app_data(clients.clone())
            .route("/", web::get().to(|| async { "hello\n" }))
            .wrap(from_fn(rate_limit))
    });
    let server = server.bind(std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into()))?;
    println!("listening on http://{}", server.addrs()[0]);
    Ok(server.run().await?)
}
