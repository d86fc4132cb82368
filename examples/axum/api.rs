//! The routes, each behind its limit.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use serde_json::{Value, json};
use tollgate::http::{
    ClientAddress, Fields, PlugLimitNames, Policy, RateLimitLayer, Rule, SetupError, Style, extract,
};
use tollgate::limit::Parameters;
use tollgate::{KeyedLimit, Limit, Limiter};

const PAGE: &str = include_str!("page.html");

/// Lets the page use its own style and script and call this server, and nothing else.
const PAGE_MAY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                        connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'";

/// Makes a route for each limit, one for all limits together, and three routes without a limit.
pub(crate) fn app(limiter: &Limiter) -> Result<Router, Box<dyn Error>> {
    // Behind a proxy: `.trust(["10.0.0.1"], Forwarding::XForwardedFor)?.trusted_hops(1)?`.
    let clients = ClientAddress::new().peer_in::<ConnectInfo<SocketAddr>>();
    let names: Vec<String> = limiter.limits().names().map(Into::into).collect();
    let mut app = Router::new()
        .route("/", get(|| async { ([(CONTENT_SECURITY_POLICY, PAGE_MAY)], Html(PAGE)) }))
        .route("/health", get(|| async { "ok\n" }));
    let mut shown = Vec::new();
    for name in &names {
        let one = Shown::new(limiter, name)?;
        let layer = layer(limiter, &clients, std::slice::from_ref(name), one.style())?;
        let answer = format!("{name}: here you are\n");
        app = app.route(&one.path(), get(|| async { answer }).layer(layer));
        shown.push(one);
    }
    let layer = layer(limiter, &clients, &names, Style::Ietf)?;
    app = app.route("/together", get(|| async { "one of each: here you are\n" }).layer(layer));
    let shown: Arc<[Shown]> = shown.into();
    let limits = move |peer| async move { remaining(&shown, &clients, peer) };
    Ok(app.route("/limits", get(limits)))
}

/// Makes the layer for some limits: which limits apply, which id they count, and the fields of the response.
fn layer(
    limiter: &Limiter,
    clients: &ClientAddress,
    names: &[String],
    style: Style,
) -> Result<RateLimitLayer, SetupError> {
    let mut layer = RateLimitLayer::builder(limiter).fields(Fields::new([style])?);
    for name in names {
        layer = layer.rule(Rule::new(limiter.limit(name)?, extract::client(clients.clone())));
    }
    layer.build()
}

/// A limit that the page shows.
struct Shown {
    handle: KeyedLimit,
    /// `None` if it is switched off.
    limit: Option<Limit>,
}

impl Shown {
    /// Fails if the limit's ids are not addresses.
    fn new(limiter: &Limiter, name: &str) -> Result<Shown, Box<dyn Error>> {
        let handle = limiter.limit(name)?;
        let limit = limiter.limits().limit_for(name, Ipv4Addr::LOCALHOST);
        let limit = limit.map_err(|error| format!("{name} limits no addresses: {error}"))?;
        Ok(Shown { handle, limit })
    }

    fn path(&self) -> String {
        format!("/api/{}", self.handle.name())
    }

    /// The header fields of the project that the algorithm comes from.
    fn style(&self) -> Style {
        match self.limit.as_ref().map(Limit::parameters) {
            Some(Parameters::FixedWindow { .. } | Parameters::TokenBucket { .. }) => {
                Style::PlugLimit(PlugLimitNames::default())
            }
            Some(Parameters::LeakyBucket { .. }) => Style::Sharkey,
            _ => Style::Ietf,
        }
    }

    fn numbers(&self) -> String {
        match self.limit.as_ref().map(Limit::parameters) {
            Some(Parameters::Gcra { burst, count, period }) => {
                format!("{burst} at once, then {count} every {period:?}")
            }
            Some(Parameters::FixedWindow { limit, window }) => {
                format!("{limit} in each window of {window:?}")
            }
            Some(Parameters::TokenBucket { limit, window, burst }) => {
                format!("{burst} at once, then at a steady rate; {limit} in a window of {window:?}")
            }
            Some(Parameters::LeakyBucket { size, drip_rate, drip_size }) => {
                format!("room for {size}, of which {drip_size} drips out every {drip_rate:?}")
            }
            _ => "no limit".to_owned(),
        }
    }

    fn json(&self, peer: SocketAddr, clients: &ClientAddress) -> Result<Value, Box<dyn Error>> {
        let name = self.handle.name();
        let client = clients.find(Some(peer), &HeaderMap::new())?;
        let mut json = json!({
            "name": name,
            "algorithm": self.limit.as_ref().map_or("off", Limit::algorithm),
            "numbers": self.numbers(),
            "path": self.path(),
        });
        if let Some(limit) = &self.limit {
            // A token bucket can deny while much of its window's quota remains, so the units that can be spent now are
            // listed separately.
            json["now"] = spendable(&self.handle, client, limit.burst())?.into();
            json["at_once"] = limit.burst().into();
            json["remaining"] = self.handle.check(client, 0)?.remaining().into();
            json["quota"] = Policy::new(name, limit)?.quota().into();
        }
        Ok(json)
    }
}

/// Finds the largest cost, at most `at_once`, that is allowed now. A check charges nothing.
fn spendable(handle: &KeyedLimit, client: IpAddr, at_once: u64) -> Result<u64, tollgate::Error> {
    let (mut enough, mut too_much) = (0, at_once.saturating_add(1));
    while too_much - enough > 1 {
        let cost = enough + (too_much - enough) / 2;
        if handle.check(client, cost)?.allowed() {
            enough = cost;
        } else {
            too_much = cost;
        }
    }
    Ok(enough)
}

/// Lists the units that remain for the client in each limit.
fn remaining(
    shown: &[Shown],
    clients: &ClientAddress,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> impl IntoResponse + use<> {
    let all: Result<Vec<Value>, _> = shown.iter().map(|one| one.json(peer, clients)).collect();
    let (status, body) = match all {
        Ok(all) => (StatusCode::OK, Value::from(all)),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({"detail": error.to_string()})),
    };
    let head: [(HeaderName, &str); 2] =
        [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    (status, head, body.to_string())
}
