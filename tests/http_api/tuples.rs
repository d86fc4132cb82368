//! Limits of ids with several fields behind the layer, from a file.
#![cfg(all(feature = "tower", feature = "yaml"))]

use std::convert::Infallible;
use std::net::IpAddr;

use http::{Request, Response};
use tollgate::http::{Peer, RateLimitLayer, Rule, Who};
use tollgate::{Clock, Id, Limiter, Limits};
use tower::{Layer, ServiceExt};

const FILE: &str = r#"
PerUser: {burst: 1, count: 1, period: 60s, id: "integer:string"}
PerUser:7:alice: {burst: 2, count: 1, period: 60s}
PerPeer: {burst: 1, count: 1, period: 60s, id: "string:ipAddress:integer"}
PerText: {burst: 1, count: 1, period: 60s, id: "string:string"}
"#;

/// A request's tenant and user.
#[derive(Clone)]
struct Caller(i64, String);

fn limiter() -> Limiter {
    Limiter::with_options(Limits::from_yaml(FILE).unwrap(), Clock::manual().0).unwrap()
}

fn layer(
    limiter: &Limiter,
    name: &str,
    who: impl for<'a> Fn(&'a Caller) -> Who<'a> + Send + Sync + 'static,
) -> RateLimitLayer {
    let rule = Rule::new(limiter.limit(name).unwrap(), move |request| {
        who(request.extensions.get::<Caller>().unwrap())
    });
    RateLimitLayer::builder(limiter).rule(rule).plain_text().build().unwrap()
}

/// Returns the status of a response, and what `RateLimit` says remains.
fn ask(layer: &RateLimitLayer, tenant: i64, user: &str) -> (u16, String) {
    let mut request = Request::new(());
    request.extensions_mut().insert(Caller(tenant, user.to_owned()));
    request.extensions_mut().insert(Peer::Unix);
    let service =
        tower::service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let response = runtime.block_on(layer.layer(service).oneshot(request)).unwrap();
    let said = response.headers().get("ratelimit").map_or("", |value| value.to_str().unwrap());
    let left = said.split(';').find(|part| part.starts_with("r=")).unwrap_or("");
    (response.status().as_u16(), left.to_owned())
}

#[test]
fn a_pair_has_its_bucket_and_override() {
    let limiter = limiter();
    let layer = layer(&limiter, "PerUser", |Caller(tenant, user)| Who::from((tenant, user)));
    assert_eq!(ask(&layer, 7, "bob"), (200, "r=0".into()));
    assert_eq!(ask(&layer, 7, "bob").0, 429);
    assert_eq!(ask(&layer, 8, "bob").0, 200, "another tenant");
    assert_eq!(ask(&layer, 7, "alice"), (200, "r=1".into()), "the override of the file");
    assert_eq!(ask(&layer, -7, "a:b").0, 200);
    let per_user = limiter.limit("PerUser").unwrap();
    assert_eq!(per_user.check("-7:a:b", 1).unwrap().remaining(), Some(0), "the same id as text");
    assert_eq!(ask(&layer, 7, "").0, 400, "text of 1 to 1024 bytes");
}

#[test]
fn pairs_of_text_are_told_apart() {
    let limiter = limiter();
    let borrowed = layer(&limiter, "PerText", |Caller(_, user)| {
        let (first, second) = user.split_once('/').unwrap();
        Who::from((first, second))
    });
    let owned = layer(&limiter, "PerText", |Caller(_, user)| {
        // The two fields are the parts of the user's text before and after its first slash.
        let (first, second) = user.split_once('/').unwrap();
        Who::Text(format!("{}:{second}", first.replace(':', "\\:")))
    });
    for id in ["ab/c", "a/bc", "a:b/c", "a/b:c"] {
        assert_eq!(ask(&borrowed, 1, id).0, 200, "{id}");
        assert_eq!(ask(&owned, 1, id).0, 429, "{id}: one bucket for the fields and their text");
    }
}

#[test]
fn a_triple_with_an_address_and_wrong_types() {
    let limiter = limiter();
    let address = IpAddr::from([192, 0, 2, 1]);
    let triple =
        layer(&limiter, "PerPeer", move |Caller(tenant, user)| Who::from((user, address, *tenant)));
    assert_eq!((ask(&triple, 1, "a").0, ask(&triple, 1, "a").0), (200, 429));
    assert_eq!(ask(&triple, 2, "a").0, 200);
    for wrong in [Id::from((1, "a")), Id::from(1), Id::from(("a", "b", 1))] {
        let id = wrong.to_string();
        let layer = layer(&limiter, "PerPeer", move |_| Who::Text(id.clone()));
        assert_eq!(ask(&layer, 1, "a").0, 400, "{wrong}");
    }
    let swapped = layer(&limiter, "PerUser", |Caller(tenant, user)| Who::from((user, *tenant)));
    assert_eq!(ask(&swapped, 7, "alice").0, 400, "the format is integer:string");
}
