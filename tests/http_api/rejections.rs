//! Requests that a layer rejects before a limit decides: their counts, events and answers; and what a denial holds.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use tollgate::http::{
    ClientAddress, Fields, Forwarding, Peer, RateLimitBuilder, RateLimitLayer, Rejection,
    RejectionKind, Rule, Style, Who, extract, responder,
};
use tollgate::limit::Factor;
use tollgate::{Clock, IdFormat, KeyedLimit, Limit, Limiter, Limits};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

type TestRequest = Request<Empty<Bytes>>;

/// Makes limits of one unit an hour with ids of these formats.
fn limiter() -> Limiter {
    let limit = || Limit::new(1, 1, Duration::from_secs(3600)).unwrap();
    let limits = Limits::builder()
        .limit("Text", IdFormat::String, limit())
        .unwrap()
        .limit("Address", IdFormat::IpAddress, limit())
        .unwrap()
        .limit("Account", IdFormat::RegId, limit())
        .unwrap();
    Limiter::with_options(limits.build(), Clock::manual().0).unwrap()
}

fn field(name: &'static str) -> HeaderName {
    HeaderName::from_static(name)
}

/// A name, and a rule with the fields of a request that it rejects.
type Case = (RejectionKind, u16, Rule, &'static [(&'static str, &'static str)]);

fn cases(limiter: &Limiter) -> Vec<Case> {
    use RejectionKind::{
        ClientAddress as Unknown, CostAboveBurst, Custom, InvalidId, NoId, NoRoute,
    };
    let of = |name| limiter.limit(name).unwrap();
    let proxied = || ClientAddress::new().trust(["10.0.0.0/8"], Forwarding::XForwardedFor).unwrap();
    let all = || Rule::new(of("Text"), extract::everyone("all"));
    let big: Factor = "10000000".parse().unwrap();
    vec![
        (Unknown, 500, Rule::new(of("Address"), extract::client(proxied())), &[]),
        (
            Unknown,
            500,
            Rule::new(of("Address"), extract::client(proxied())),
            &[("x-forwarded-for", "me")],
        ),
        (NoId, 500, Rule::new(of("Text"), extract::extension(|text: &String| text)), &[]),
        (NoId, 400, Rule::new(of("Text"), extract::header(field("x-key"))), &[]),
        (NoId, 400, Rule::new(of("Text"), extract::bearer()), &[]),
        (InvalidId, 400, Rule::new(of("Text"), extract::bearer()), &[("authorization", "bearer ")]),
        (
            InvalidId,
            400,
            Rule::new(of("Text"), extract::header(field("x-key"))),
            &[("x-key", "a"), ("x-key", "b")],
        ),
        (
            InvalidId,
            400,
            Rule::new(of("Account"), extract::header(field("x-key"))),
            &[("x-key", "12ea5")],
        ),
        (NoRoute, 404, all().route(|route: &String| route, "/login"), &[]),
        (CostAboveBurst, 400, all().cost(|_| 2), &[]),
        (RejectionKind::Limiter, 500, all().factor(move |_| big), &[]),
        (
            Custom,
            401,
            Rule::new(of("Text"), |_| {
                Who::Refused(Rejection::new(StatusCode::UNAUTHORIZED, "not logged in"))
            }),
            &[],
        ),
    ]
}

fn request(fields: &[(&'static str, &'static str)], grpc: bool) -> TestRequest {
    let mut request = Request::new(Empty::new());
    request.extensions_mut().insert(Peer::Address([10, 0, 0, 1].into()));
    for (name, value) in fields {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    if grpc {
        *request.method_mut() = Method::POST;
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    }
    request
}

async fn served(_: TestRequest) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("served")))
}

/// Returns the status, the answer as text with its fields, and the rejection.
async fn ask(builder: RateLimitBuilder, asked: TestRequest) -> (u16, String, Option<Rejection>) {
    let service = builder.build().unwrap().layer(tower::service_fn(served));
    let (parts, body) = service.oneshot(asked).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = format!("{:?} {}", parts.headers, String::from_utf8_lossy(&body));
    let rejection = parts.extensions.get().cloned();
    (parts.status.as_u16(), text.replace("%20", " "), rejection)
}

#[tokio::test]
async fn rejections_are_counted_by_their_reason() {
    let limiter = limiter();
    assert!(!limiter.prometheus().contains("rejected"), "no layer");
    for (kind, status, rule, fields) in cases(&limiter) {
        let before = limiter.counters().rejected(kind);
        let builder = RateLimitLayer::builder(&limiter).rule(rule);
        let (found, text, rejection) = ask(builder, request(fields, false)).await;
        assert_eq!((found, rejection.unwrap().kind()), (status, kind), "{text}");
        assert_eq!(limiter.counters().rejected(kind), before + 1, "{kind:?}");
        let line =
            format!("tollgate_rejected_total{{reason=\"{}\"}} {}\n", kind.name(), before + 1);
        assert!(limiter.prometheus().contains(&line), "{line}");
    }
    assert!(limiter.prometheus().contains("tollgate_rejected_total{reason=\"store\"} 0\n"));
    // A permissive layer counts the requests that it would reject.
    let key = Rule::new(limiter.limit("Text").unwrap(), extract::header(field("x-key")));
    let before = limiter.counters().rejected(RejectionKind::NoId);
    let builder = RateLimitLayer::builder(&limiter).rule(key).permissive(true);
    assert_eq!(ask(builder, request(&[], false)).await.0, 200);
    assert_eq!(limiter.counters().rejected(RejectionKind::NoId), before + 1);
}

/// A layer that shows no fields on allowed requests asks its one rule in a shorter way, with the same answers.
#[tokio::test]
async fn layer_without_fields_answers_alike() {
    let limiter = limiter();
    let of = |name| limiter.limit(name).unwrap();
    let rules = || {
        let mut rules: Vec<_> = cases(&limiter)
            .into_iter()
            .map(|(_, status, rule, fields)| (status, rule, fields))
            .collect();
        let wrong = Rule::new(of("Account"), extract::by(|_| Who::OfServer("not a number".into())));
        rules.push((500, wrong, &[]));
        rules.push((200, Rule::new(of("Text"), |_| Who::NoLimit), &[]));
        rules.push((200, Rule::new(of("Text"), |_| Who::Shared("new".into())), &[]));
        rules.push((429, Rule::new(of("Text"), |_| Who::Text("new".into())), &[]));
        rules.push((429, Rule::new(of("Text"), |_| Who::Id("new".into())), &[]));
        rules
    };
    for has_fields in [true, false] {
        let _ = of("Text").reset("new").unwrap();
        for (at, (status, rule, fields)) in rules().into_iter().enumerate() {
            let shown = Fields::new([Style::Ietf]).unwrap();
            let shown = if has_fields { shown } else { shown.only_on_denials() };
            let builder = RateLimitLayer::builder(&limiter).fields(shown).rule(rule);
            let (found, text, _) = ask(builder, request(fields, false)).await;
            let is_charged = of("Text").check("new", 0).unwrap().remaining() == Some(0);
            assert_eq!(found, status, "{at} {has_fields}: {text}");
            let is_shown = status == 429 || has_fields && is_charged;
            assert_eq!(text.contains("ratelimit"), is_shown, "{at} {has_fields}: {text}");
        }
    }
}

#[tokio::test]
async fn server_faults_are_told_in_general() {
    let limiter = limiter();
    for grpc in [false, true] {
        for as_text in [false, true] {
            for (kind, status, rule, fields) in cases(&limiter) {
                let builder = RateLimitLayer::builder(&limiter).rule(rule).grpc();
                let builder = if as_text { builder.plain_text() } else { builder };
                let (_, text, rejection) = ask(builder, request(fields, grpc)).await;
                let rejection = rejection.unwrap();
                if status == 500 {
                    assert!(text.contains("the server could not handle this request"), "{text}");
                    assert_ne!(rejection.detail(), rejection.reason(), "{kind:?}");
                }
                assert_eq!(rejection.to_string(), format!("{status}: {}", rejection.detail()));
                for word in [
                    "proxy",
                    "peer",
                    "Text",
                    "Address",
                    "extension",
                    "String",
                    "10.0",
                    "regId",
                    "ACME",
                ] {
                    // The cost is told with the limit's name, as clients see it.
                    let is_shown = kind == RejectionKind::CostAboveBurst && word == "Text";
                    assert!(is_shown || !text.contains(word), "{word}: {text}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_invalid_account_is_told_in_general() {
    let limiter = limiter();
    let rule = Rule::new(limiter.limit("Account").unwrap(), extract::header(field("x-key")));
    let builder = RateLimitLayer::builder(&limiter).rule(rule).plain_text();
    let (_, text, _) = ask(builder, request(&[("x-key", "12ea5")], false)).await;
    let expected =
        "invalid id \"12ea5\": must be a number from 0 to 18446744073709551615 in decimal";
    assert!(text.contains(expected), "{text}");
}

#[tokio::test]
async fn a_hook_shapes_rejections() {
    let limiter = limiter();
    for at in 0..cases(&limiter).len() {
        for grpc in [false, true] {
            let (kind, status, rule, fields) = cases(&limiter).swap_remove(at);
            // The function decides for gRPC as well.
            let builder = RateLimitLayer::builder(&limiter).rule(rule).grpc();
            let builder = builder.respond_rejected(|rejected| {
                let shown = responder::rejected_grpc(rejected)
                    .unwrap_or_else(|| responder::rejected_plain_text(rejected));
                let name = rejected.rejection().kind().name();
                let mut response = shown.map(|_| format!("{name} {}", rejected.request().uri));
                response.headers_mut().insert("cache-control", "max-age=9".parse().unwrap());
                response
            });
            let (found, text, rejection) = ask(builder, request(fields, grpc)).await;
            assert_eq!(found, if grpc { 200 } else { status }, "{text}");
            assert!(text.ends_with(&format!("{} /", kind.name())), "{text}");
            assert!(text.contains("no-store") && !text.contains("max-age"), "{text}");
            assert!(rejection.is_some());
        }
    }
}

#[test]
fn constant_id_of_wrong_format_is_refused() {
    let limiter = limiter();
    for (name, id, error) in [
        ("Text", "all", None),
        ("Address", "192.0.2.1", None),
        (
            "Address",
            "all",
            Some(
                "the id of all requests: Address: invalid ipAddress \"all\": must be an IP address",
            ),
        ),
        (
            "Text",
            "",
            Some(
                "the id of all requests: Text: invalid string \"\": must be text of 1 to 1024 bytes",
            ),
        ),
    ] {
        let rule = Rule::new(limiter.limit(name).unwrap(), extract::everyone(id));
        let built = RateLimitLayer::builder(&limiter).rule(rule).build();
        assert_eq!(built.err().map(|error| error.to_string()).as_deref(), error);
    }
    // Another function is called with requests alone.
    let rule = Rule::new(limiter.limit("Address").unwrap(), |_| panic!("no request"));
    assert!(RateLimitLayer::builder(&limiter).rule(rule).build().is_ok());
}

/// A service for each connection, and one permit for all: a denied client that stays connected must not hold it.
#[tokio::test]
async fn a_denial_releases_the_inner_services_permit() {
    let limiter = limiter();
    let by_key = || Rule::new(limiter.limit("Text").unwrap(), extract::header(field("x-key")));
    let layer = RateLimitLayer::builder(&limiter).rule(by_key()).build().unwrap();
    let one_at_once = ConcurrencyLimit::new(tower::service_fn(served), 1);
    let (mut first, mut second) = (layer.layer(one_at_once.clone()), layer.layer(one_at_once));
    let alice = || request(&[("x-key", "alice")], false);
    let bob = request(&[("x-key", "bob")], false);
    for (asked, status) in [(alice(), 200), (alice(), 429), (request(&[], false), 400)] {
        let response = first.ready().await.unwrap().call(asked).await.unwrap();
        assert_eq!(response.status(), status);
        drop(response);
        let is_ready = poll_fn(|context| Poll::Ready(second.poll_ready(context).is_ready())).await;
        assert!(is_ready, "a permit is held after a {status}");
        second = second.clone();
    }
    assert_eq!(second.ready().await.unwrap().call(bob).await.unwrap().status(), 200);
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// An id that the server has made is the server's fault if it is invalid: the client sees nothing of it.
#[test]
fn invalid_id_of_the_server_is_its_error() {
    #[derive(Clone)]
    struct User(&'static str);
    let limiter = limiter();
    let user = || extract::extension(|user: &User| user.0);
    let if_present = || extract::extension_if_present(|user: &User| user.0);
    let account = || limiter.limit("Account").unwrap();
    let text = || Rule::new(limiter.limit("Text").unwrap(), extract::everyone("all"));
    let rules: [(&str, Vec<Rule>); 3] = [
        ("one", vec![Rule::new(account(), user())]),
        ("if present", vec![Rule::new(account(), if_present())]),
        ("in a batch", vec![text(), Rule::new(account(), user())]),
    ];
    for (name, rules) in rules {
        let mut asked = request(&[], false);
        asked.extensions_mut().insert(User("tenant-7/db=prod"));
        let layer =
            rules.into_iter().fold(RateLimitLayer::builder(&limiter), RateLimitBuilder::rule);
        let (status, answer, rejection) = block_on(ask(layer, asked));
        let rejection = rejection.unwrap();
        assert_eq!((status, rejection.kind()), (500, RejectionKind::Limiter), "{name}");
        assert!(!answer.contains("tenant-7"), "{name}: {answer}");
        assert!(rejection.detail().contains("tenant-7"), "{name}: {rejection}");
    }
    // A path is the client's text.
    let path = extract::path::<axum::extract::OriginalUri>();
    let mut asked = request(&[], false);
    asked.extensions_mut().insert(axum::extract::OriginalUri("/a".parse().unwrap()));
    let layer = RateLimitLayer::builder(&limiter).rule(Rule::new(account(), path));
    let (status, _, rejection) = block_on(ask(layer, asked));
    assert_eq!((status, rejection.unwrap().kind()), (400, RejectionKind::InvalidId));
}

#[test]
fn client_on_format_without_addresses_fails_build() {
    let limiter = limiter();
    let client = || extract::client(ClientAddress::new());
    let build = |name| {
        let rule = Rule::new(limiter.limit(name).unwrap(), client());
        RateLimitLayer::builder(&limiter).rule(rule).build().map(|_| ())
    };
    assert!(build("Address").is_ok());
    let error = build("Account").unwrap_err().to_string();
    assert!(error.starts_with("a client's address as the id of Account: "), "{error}");
}

#[test]
fn invalid_constant_id_is_found_in_any_type() {
    let limiter = limiter();
    let build = |name, who: &dyn Fn(KeyedLimit) -> Rule| {
        let rule = who(limiter.limit(name).unwrap());
        RateLimitLayer::builder(&limiter).rule(rule).build().is_ok()
    };
    for (name, valid) in [("Text", true), ("Address", false)] {
        assert_eq!(build(name, &|limit| Rule::new(limit, extract::everyone("a"))), valid);
        assert_eq!(build(name, &|limit| Rule::new(limit, extract::everyone('a'))), valid);
        let text = String::from("a");
        assert_eq!(build(name, &|limit| Rule::new(limit, extract::everyone(&text))), valid);
        assert_eq!(build(name, &|limit| Rule::new(limit, extract::everyone(text.clone()))), valid);
        let boxed = || Box::<str>::from("a");
        assert_eq!(build(name, &|limit| Rule::new(limit, extract::everyone(boxed()))), valid);
    }
    assert!(!build("Text", &|limit| Rule::new(limit, extract::everyone(String::new()))));
}

/// The function of an outer layer cannot make an inner layer's rejection storable.
#[test]
fn rejection_by_an_inner_layer_stays_no_store() {
    let limiter = limiter();
    let text = || limiter.limit("Text").unwrap();
    let inner = Rule::new(text(), extract::header(field("x-key")));
    let inner = RateLimitLayer::builder(&limiter).rule(inner).build().unwrap();
    let outer = RateLimitLayer::builder(&limiter)
        .rule(Rule::new(text(), extract::everyone("all")))
        .on_response(|_| {
            |_, response| {
                response.headers.insert("cache-control", "public".parse().unwrap());
            }
        })
        .build()
        .unwrap();
    let service = outer.layer(inner.layer(tower::service_fn(served)));
    let response = block_on(service.oneshot(request(&[], false))).unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["cache-control"]),
        (400, &"no-store".parse::<http::HeaderValue>().unwrap())
    );
}
