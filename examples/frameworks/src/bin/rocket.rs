//! A Rocket server whose clients are limited by their address: `docs/frameworks.md`.

use std::net::SocketAddr;
use std::time::Duration;

use rocket::fairing::AdHoc;
use rocket::http::Status;
use rocket::outcome::IntoOutcome;
use rocket::request::{FromRequest, Outcome};
use rocket::{Config, Request, Response};
use tollgate::http::{ClientAddress, Fields, Forwarding, HttpDecision, HttpLimit, Style};
use tollgate::sweep::SweepOptions;
use tollgate::{IdFormat, Limit, Limiter, Limits};

// The recipe begins.
struct Allowed;
#[rocket::async_trait]
impl<'r> FromRequest<'r> for Allowed {
    type Error = ();
    async fn from_request(request: &'r Request<'_>) -> Outcome<Allowed, ()> {
        let limit: &HttpLimit = request.rocket().state().expect("main manages the limit");
        let clients: &ClientAddress = request.rocket().state().expect("main manages the clients");
        let client = clients.find_by(request.remote(), |name| request.headers().get(name));
        // Rocket may call the guard several times for a request, which is charged once.
        let decision = request.local_cache(|| limit.spend(client.ok()?, 1).ok()).as_ref();
        let denied = decision.map_or(Status::InternalServerError, |_| Status::TooManyRequests);
        let allowed = decision.filter(|decision| decision.allowed());
        allowed.map(|_| Allowed).or_error((denied, ()))
    }
}
fn write_fields(request: &Request<'_>, response: &mut Response<'_>) {
    let decision = request.local_cache(|| None::<HttpDecision>);
    for (name, value) in decision.iter().flat_map(HttpDecision::fields) {
        response.set_raw_header(name.to_owned(), value.to_owned());
    }
}
// The recipe ends.

#[rocket::get("/")]
fn hello(_allowed: Allowed) -> &'static str {
    "hello\n"
}

#[rocket::catch(429)]
fn too_many_requests() -> &'static str {
    "too many requests\n"
}

#[rocket::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 5 requests at once, then one every 12 seconds, for each address.
    let limit = Limit::new(5, 5, Duration::from_secs(60))?;
    let limits = Limits::builder().limit("PerClient", IdFormat::IpAddress, limit)?.build();
    let limiter = Limiter::new(limits);
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;

    let fields = Fields::new([Style::Ietf])?;
    let limit = HttpLimit::new(limiter.limit("PerClient")?, fields);
    // The addresses of your own proxies, such as 10.0.0.1, if clients come through them.
    let proxies = std::env::var("PROXIES").ok();
    let clients = ClientAddress::new().trust(proxies.as_deref(), Forwarding::XForwardedFor)?;

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let address: SocketAddr = address.parse()?;
    let config = Config::figment().merge(("address", address.ip())).merge(("port", address.port()));
    let _rocket = rocket::custom(config)
        .manage(limit)
        .manage(clients)
        .mount("/", rocket::routes![hello])
        .register("/", rocket::catchers![too_many_requests])
        .attach(AdHoc::on_response("rate limit", |request, response| {
            Box::pin(async move { write_fields(request, response) })
        }))
        .attach(AdHoc::on_liftoff("address", |rocket| {
            let (ip, port) = (rocket.config().address, rocket.config().port);
            Box::pin(async move { println!("listening on http://{}", SocketAddr::new(ip, port)) })
        }))
        .launch()
        .await?;
    Ok(())
}
