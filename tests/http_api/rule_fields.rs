//! Rules with fields of their own: names a limit, also in batches, nested layers and after reloads.
#![cfg(feature = "tower")]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::{Empty, Full};
use proptest::prelude::*;
use tollgate::http::{
    Fields, PlugLimitNames, RateLimitBuilder, RateLimitLayer, Reset, Rule, SetupError, Style,
    extract,
};
use tollgate::limits::{LimitMode, LimitOptions};
use tollgate::reload::ReloadOptions;
use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
use tower::{Layer, ServiceExt};

const MINUTE: Duration = Duration::from_secs(60);

fn limits(numbers: &[(&str, Limit)]) -> Limits {
    let mut builder = Limits::builder();
    for (name, limit) in numbers {
        builder = builder.limit(name, IdFormat::String, limit.clone()).unwrap();
    }
    builder.build()
}

/// Makes `a` with a burst of 2 and `b` with one of 5, and a unit a minute.
fn limiter() -> Limiter {
    let limit = |burst| Limit::new(burst, 1, MINUTE).unwrap();
    Limiter::with_options(limits(&[("a", limit(2)), ("b", limit(5))]), Clock::manual().0).unwrap()
}

/// Returns PlugLimit's style with the names `x-PREFIX-limit` and so on.
fn named(prefix: &str) -> Style {
    let names = ["limit", "reset", "remaining"].map(|name| format!("x-{prefix}-{name}"));
    Style::PlugLimit(PlugLimitNames::from_names(names).unwrap())
}

fn fields(styles: &[Style]) -> Fields {
    Fields::new(styles.iter().cloned()).unwrap()
}

fn rule(limiter: &Limiter, name: &str) -> Rule {
    Rule::new(limiter.limit(name).unwrap(), extract::everyone("all"))
}

fn own(limiter: &Limiter, name: &str) -> Rule {
    rule(limiter, name).fields(fields(&[named(name)]))
}

fn layer(limiter: &Limiter, rules: impl IntoIterator<Item = Rule>) -> RateLimitBuilder {
    rules.into_iter().fold(RateLimitLayer::builder(limiter), RateLimitBuilder::rule)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Returns the status of a response, and its fields except those of a denial's body, in the order of their names.
fn line<B>(response: &Response<B>) -> String {
    let headers = response
        .headers()
        .iter()
        .filter(|(name, _)| !["content-type", "cache-control"].contains(&name.as_str()));
    let mut lines: Vec<_> =
        headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines.insert(0, response.status().as_str().to_owned());
    lines.join(" | ")
}

/// Sends a request through the layers, the outermost first, to a service that answers with the request's `status`.
fn ask(layers: &[&RateLimitLayer]) -> String {
    ask_with(layers, Request::new(Empty::new()))
}

fn ask_with(layers: &[&RateLimitLayer], request: Request<Empty<Bytes>>) -> String {
    let service = tower::service_fn(async |request: Request<Empty<Bytes>>| {
        let status =
            request.headers().get("status").map_or(200, |it| it.to_str().unwrap().parse().unwrap());
        let response = Response::builder().status(status).body(Full::<Bytes>::default());
        Ok::<_, Infallible>(response.unwrap())
    });
    block_on(async {
        match layers {
            [one] => line(&one.layer(service).oneshot(request).await.unwrap()),
            [outer, inner] => {
                line(&outer.layer(inner.layer(service)).oneshot(request).await.unwrap())
            }
            _ => {
                let (outer, middle, inner) = (layers[0], layers[1], layers[2]);
                let nested = outer.layer(middle.layer(inner.layer(service)));
                line(&nested.oneshot(request).await.unwrap())
            }
        }
    })
}

#[test]
fn each_rule_of_a_batch_names_its_fields() {
    let limiter = limiter();
    let layer = layer(&limiter, [own(&limiter, "a"), own(&limiter, "b")]).build().unwrap();
    let allowed = "200 | x-a-limit: 2 | x-a-remaining: 1 | x-a-reset: 60 | x-b-limit: 5 | x-b-remaining: 4 | x-b-reset: 60";
    assert_eq!(ask(&[&layer]), allowed);
    let _ = ask(&[&layer]);
    // `a` denies. The fields of `b`, which was not charged, stay its own.
    let denied = "429 | retry-after: 60 | x-a-limit: 2 | x-a-remaining: 0 | x-a-reset: 120 | x-b-limit: 5 | x-b-remaining: 3 | x-b-reset: 120";
    assert_eq!(ask(&[&layer]), denied);
}

#[test]
fn other_rules_have_the_layers_fields() {
    let limiter = limiter();
    let both = [Style::Ietf, named("a")];
    let rules = [rule(&limiter, "a").fields(fields(&both)), rule(&limiter, "b")];
    let layer = layer(&limiter, rules).build().unwrap();
    // Rules with the same style share its list.
    let line = r#"200 | ratelimit-policy: "a";q=2;w=120, "b";q=5;w=300 | ratelimit: "a";r=1;t=60, "b";r=4;t=60 | x-a-limit: 2 | x-a-remaining: 1 | x-a-reset: 60"#;
    assert_eq!(ask(&[&layer]), line);
}

#[test]
fn rules_of_one_style_show_the_stricter() {
    let limiter = limiter();
    let x = || fields(&[Style::XRateLimit(Reset::Delta)]);
    let limits = [rule(&limiter, "b").fields(x()), rule(&limiter, "a").fields(x())];
    let third = Rule::new(limiter.limit("b").unwrap(), extract::everyone("third"));
    let rules = limits.into_iter().chain([third.fields(fields(&[named("t")]))]);
    let layer = layer(&limiter, rules).build().unwrap();
    let line = "200 | x-ratelimit-limit: 2 | x-ratelimit-remaining: 1 | x-ratelimit-reset: 60 | x-t-limit: 5 | x-t-remaining: 4 | x-t-reset: 60";
    assert_eq!(ask(&[&layer]), line);
}

#[test]
fn a_rule_without_fields_still_denies() {
    let limiter = limiter();
    let hidden = rule(&limiter, "a").fields(Fields::none());
    let layer = layer(&limiter, [hidden, rule(&limiter, "b")]).build().unwrap();
    let line = r#"200 | ratelimit-policy: "b";q=5;w=300 | ratelimit: "b";r=3;t=60"#;
    let _ = ask(&[&layer]);
    assert_eq!(ask(&[&layer]), line);
    let denied = r#"429 | ratelimit-policy: "b";q=5;w=300 | ratelimit: "b";r=3 | retry-after: 60"#;
    assert_eq!(ask(&[&layer]), denied);
}

/// `Retry-After` is that of all rules: of two denials the longer one, of two allowed token buckets the longer one.
#[test]
fn retry_after_is_that_of_all_rules() {
    let bucket = |window_s| Limit::token_bucket(1, 11, Duration::from_secs(window_s)).unwrap();
    let limiter =
        Limiter::with_options(limits(&[("a", bucket(100)), ("b", bucket(300))]), Clock::manual().0)
            .unwrap();
    for names in [["a", "b"], ["b", "a"]] {
        for name in names {
            let _ = limiter.limit(name).unwrap().reset("all").unwrap();
        }
        let layer = layer(&limiter, names.map(|name| own(&limiter, name))).build().unwrap();
        for (call, status) in [200, 429].into_iter().enumerate() {
            let answer = ask(&[&layer]);
            assert!(
                answer.starts_with(&format!("{status} | retry-after: 30 | ")),
                "{call}: {answer}"
            );
        }
    }
    // A name of its own shows the wait of its limit alone after an allowed call; on a denial all fields tell one wait.
    for name in ["a", "b"] {
        let _ = limiter.limit(name).unwrap().reset("all").unwrap();
    }
    let wait = PlugLimitNames::from_names(["l", "s", "r", "wait"]).unwrap();
    let a = rule(&limiter, "a").fields(fields(&[Style::PlugLimit(wait)]));
    let layer = layer(&limiter, [a, own(&limiter, "b")]).build().unwrap();
    for (status, wait) in [(200, 10), (429, 30)] {
        let answer = ask(&[&layer]);
        assert!(answer.starts_with(&format!("{status} | ")), "{answer}");
        let wait = format!("| wait: {wait} |");
        assert!(answer.contains("| retry-after: 30 |") && answer.contains(&wait), "{answer}");
    }
}

#[test]
fn permissive_layer_names_fields_without_wait() {
    let limiter = limiter();
    let rules = [own(&limiter, "a"), own(&limiter, "b")];
    let layer = layer(&limiter, rules).permissive(true).build().unwrap();
    let answers = [(); 3].map(|()| ask(&[&layer]));
    let served = "200 | x-a-limit: 2 | x-a-remaining: 0 | x-a-reset: 120 | x-b-limit: 5 | x-b-remaining: 3 | x-b-reset: 120";
    assert_eq!(answers[2], served);
}

#[test]
fn answers_of_other_status_have_the_names() {
    let limiter = limiter();
    let refunding = |name| own(&limiter, name).refund_if(|status| status == 503);
    let layer = layer(&limiter, [refunding("a"), own(&limiter, "b")]);
    let layer = layer.respond(|_| Response::builder().status(403).body("no").unwrap());
    let layer = layer.build().unwrap();
    let with = |status: &str| {
        let request = Request::builder().header("status", status);
        ask_with(&[&layer], request.body(Empty::new()).unwrap())
    };
    let failed = "503 | x-a-limit: 2 | x-a-remaining: 2 | x-a-reset: 0 | x-b-limit: 5 | x-b-remaining: 4 | x-b-reset: 60";
    assert_eq!(with("503"), failed, "the refund shows in the fields of `a`");
    let not_modified = "304 | x-a-limit: 2 | x-a-remaining: 1 | x-a-reset: 60 | x-b-limit: 5 | x-b-remaining: 3 | x-b-reset: 120";
    assert_eq!(with("304"), not_modified);
    let _ = with("204");
    let own = "403 | retry-after: 60 | x-a-limit: 2 | x-a-remaining: 0 | x-a-reset: 120 | x-b-limit: 5 | x-b-remaining: 2 | x-b-reset: 180";
    assert_eq!(with("200"), own);
}

#[test]
fn a_shadow_limit_shows_no_field() {
    let limit = |burst| Limit::new(burst, 1, MINUTE).unwrap();
    let shadow = LimitOptions::default().mode(LimitMode::Shadow);
    let limits = Limits::builder()
        .limit_with("a", IdFormat::String, limit(1), shadow)
        .unwrap()
        .limit("b", IdFormat::String, limit(5))
        .unwrap()
        .build();
    let limiter = Limiter::with_options(limits, Clock::manual().0).unwrap();
    let both = layer(&limiter, [own(&limiter, "a"), own(&limiter, "b")]).build().unwrap();
    let _ = ask(&[&both]);
    let line = "200 | x-b-limit: 5 | x-b-remaining: 3 | x-b-reset: 120";
    assert_eq!(ask(&[&both]), line, "`a` would deny");
    let alone = layer(&limiter, [own(&limiter, "a")]).build().unwrap();
    assert_eq!(ask(&[&alone]), "200");
    assert_eq!(limiter.counters().limits[0].shadow_denied, 2);
}

#[test]
fn reload_keeps_a_rules_names() {
    let removing = || ReloadOptions::default().remove_missing(true);
    let limiter = limiter();
    let layer = layer(&limiter, [own(&limiter, "a"), own(&limiter, "b")]).build().unwrap();
    let limit = |burst| Limit::new(burst, 1, MINUTE).unwrap();
    let b = "x-b-limit: 5 | x-b-remaining: ";
    assert!(ask(&[&layer]).contains("x-a-limit: 2 | x-a-remaining: 1 | "));
    let _ = limiter.reload(limits(&[("a", limit(9)), ("b", limit(5))])).unwrap();
    assert!(ask(&[&layer]).contains("x-a-limit: 9 | "), "the new numbers under the old names");
    // The limit is removed, or has another name: its rule limits nothing and shows nothing.
    for name in ["c", "b"] {
        let new = limits(&[(name, limit(9)), ("b", limit(5))][usize::from(name == "b")..]);
        let _ = limiter.reload_with(new, removing()).unwrap();
        let answer = ask(&[&layer]);
        assert!(answer.starts_with(&format!("200 | {b}")), "{answer}");
    }
    let _ = limiter.reload_with(limits(&[("a", limit(3))]), removing()).unwrap();
    let answer = ask(&[&layer]);
    assert!(answer.starts_with("200 | x-a-limit: 3 | ") && !answer.contains("x-b"), "{answer}");
}

#[test]
fn nested_layers_with_other_names_show_both() {
    let limiter = limiter();
    let one = |name: &str, style: &str| {
        let rule = rule(&limiter, name).fields(fields(&[named(style)]));
        layer(&limiter, [rule]).build().unwrap()
    };
    let (outer, inner) = (one("b", "outer"), one("a", "inner"));
    let _ = ask(&[&outer, &inner]);
    let both = "200 | x-inner-limit: 2 | x-inner-remaining: 0 | x-inner-reset: 120 | x-outer-limit: 5 | x-outer-remaining: 3 | x-outer-reset: 120";
    assert_eq!(ask(&[&outer, &inner]), both);
    let denied = "429 | retry-after: 60 | x-inner-limit: 2 | x-inner-remaining: 0 | x-inner-reset: 120 | x-outer-limit: 5 | x-outer-remaining: 2 | x-outer-reset: 180";
    assert_eq!(ask(&[&outer, &inner]), denied);
    // With the same names the stricter set stands whole, here the denial of the inner layer.
    let outer = one("b", "inner");
    let denied =
        "429 | retry-after: 60 | x-inner-limit: 2 | x-inner-remaining: 0 | x-inner-reset: 120";
    assert_eq!(ask(&[&outer, &inner]), denied);
}

/// A denial by the innermost layer does not protect the fields of a middle layer that allowed the call.
#[test]
fn a_denial_protects_only_its_own_fields() {
    let limit = |burst| Limit::new(burst, 1, MINUTE).unwrap();
    let numbers = [("a", limit(1)), ("b", limit(9)), ("c", limit(5))];
    let limiter = Limiter::with_options(limits(&numbers), Clock::manual().0).unwrap();
    let one = |name: &str, style: &str| {
        let rule = rule(&limiter, name).fields(fields(&[named(style)]));
        layer(&limiter, [rule]).build().unwrap()
    };
    let layers = [&one("c", "shared"), &one("b", "shared"), &one("a", "a")];
    let _ = ask(&layers);
    let denied = "429 | retry-after: 60 | x-a-limit: 1 | x-a-remaining: 0 | x-a-reset: 60 | x-shared-limit: 5 | x-shared-remaining: 3 | x-shared-reset: 120";
    assert_eq!(ask(&layers), denied);
}

/// An outer layer whose names are partly those of an inner denial leaves the denial's set whole.
#[test]
fn partly_shared_names_leave_the_denial_whole() {
    let limiter = limiter();
    let names = PlugLimitNames::from_names(["x-a-limit", "x-a-reset", "x-left"]).unwrap();
    let outer = rule(&limiter, "b").fields(fields(&[Style::PlugLimit(names)]));
    let outer = layer(&limiter, [outer]).build().unwrap();
    let inner = layer(&limiter, [own(&limiter, "a")]).build().unwrap();
    let answers = [(); 3].map(|()| ask(&[&outer, &inner]));
    let denied = "429 | retry-after: 60 | x-a-limit: 2 | x-a-remaining: 0 | x-a-reset: 120";
    assert_eq!(answers[2], denied);
}

fn build_error(limiter: &Limiter, styles: [&[Style]; 2]) -> SetupError {
    let rules = ["a", "b"].into_iter().zip(styles);
    let rules = rules.map(|(name, styles)| rule(limiter, name).fields(fields(styles)));
    layer(limiter, rules).build().unwrap_err()
}

#[test]
fn rules_writing_one_field_in_two_styles_fail() {
    let limiter = limiter();
    let x = Style::XRateLimit(Reset::Delta);
    for (styles, name) in [
        ([&[Style::Ietf][..], &[Style::Draft06]], "ratelimit-policy"),
        ([std::slice::from_ref(&x), &[Style::XRateLimit(Reset::Epoch)]], "x-ratelimit-limit"),
        ([&[named("a"), x.clone()], &[Style::Ietf, Style::Sharkey]], "x-ratelimit-remaining"),
    ] {
        let expected = format!(
            "the rules a and b write the field {name} in two styles: give both the same style, or styles without a \
             common field"
        );
        assert_eq!(build_error(&limiter, styles).to_string(), expected);
    }
    let wait = PlugLimitNames::default().limit(HeaderName::from_static("x-b-reset"));
    let error = build_error(&limiter, [&[Style::PlugLimit(wait)], &[named("b")]]);
    assert!(error.to_string().contains("write the field x-b-reset in two styles"), "{error}");
}

/// A style that rules may have.
fn styles() -> impl Strategy<Value = Vec<Style>> {
    let all = vec![Style::Ietf, Style::XRateLimit(Reset::Delta), named("p"), named("q")];
    prop::sample::subsequence(all, 0..=4)
}

proptest! {
    /// The fields of each style are those of a layer that has only the rules with that style, all of them charged alike.
    #[test]
    fn rules_fields_are_those_of_separate_layers(
        rules in prop::collection::vec((styles(), 1..6u64), 1..5),
        calls in 1..8usize,
    ) {
        let names: Vec<_> = (0..rules.len()).map(|at| format!("l{at}")).collect();
        let numbers: Vec<_> = names.iter().zip(&rules).map(|(name, (_, burst))| {
            (name.as_str(), Limit::new(*burst, 1, MINUTE).unwrap())
        }).collect();
        let fresh = || Limiter::with_options(limits(&numbers), Clock::manual().0).unwrap();
        let limiter = fresh();
        let whole = layer(&limiter, names.iter().zip(&rules).map(|(name, (styles, _))| {
            rule(&limiter, name).fields(fields(styles))
        })).build().unwrap();
        // Each style alone: the other rules of the batch are there, and have no field.
        let alone: Vec<_> = [Style::Ietf, Style::XRateLimit(Reset::Delta), named("p"), named("q")]
            .into_iter()
            .map(|style| {
                let limiter = fresh();
                let built = layer(&limiter, names.iter().zip(&rules).map(|(name, (styles, _))| {
                    let has = styles.contains(&style);
                    let of_rule = if has { fields(std::slice::from_ref(&style)) } else { Fields::none() };
                    rule(&limiter, name).fields(of_rule)
                }));
                built.build().unwrap()
            })
            .collect();
        for _ in 0..calls {
            let all = ask(&[&whole]);
            let mut expected: Vec<String> = Vec::new();
            for layer in &alone {
                expected.extend(ask(&[layer]).split(" | ").map(str::to_owned));
            }
            let mut all: Vec<_> = all.split(" | ").map(str::to_owned).collect();
            expected.sort();
            expected.dedup();
            all.sort();
            prop_assert_eq!(all, expected);
        }
    }
}

/// On a denial every field tells the wait of `Retry-After`, also those of the rules that allow the call or deny it for a
/// shorter time.
#[test]
fn the_fields_of_a_denial_tell_one_wait() {
    let limit = |burst, seconds| Limit::new(burst, 1, Duration::from_secs(seconds)).unwrap();
    let numbers = [("a", limit(10, 30)), ("b", limit(1, 600)), ("c", limit(1, 5))];
    let limiter = Limiter::with_options(limits(&numbers), Clock::manual().0).unwrap();
    let rule = |name, style| rule(&limiter, name).fields(fields(&[style]));
    let rules = [
        rule("a", Style::XRateLimit(Reset::Delta)),
        rule("b", Style::Ietf),
        rule("c", Style::Draft03),
    ];
    let layer = layer(&limiter, rules).build().unwrap();
    let line = ask(&[&layer]);
    assert!(line.ends_with("x-ratelimit-remaining: 9 | x-ratelimit-reset: 30"), "{line}");
    assert_eq!(
        ask(&[&layer]),
        r#"429 | ratelimit-limit: 1, 1;w=5 | ratelimit-policy: "b";q=1;w=600 | ratelimit-remaining: 0 | ratelimit-reset: 600 | ratelimit: "b";r=0;t=600 | retry-after: 600 | x-ratelimit-limit: 10 | x-ratelimit-remaining: 9 | x-ratelimit-reset: 600"#
    );
}

/// Layers whose fields have other names tell one wait.
#[test]
fn an_outer_set_tells_an_inner_denials_wait() {
    let limit = |burst, seconds| Limit::new(burst, 1, Duration::from_secs(seconds)).unwrap();
    let denied =
        r#"429 | ratelimit-policy: "b";q=1;w=600 | ratelimit: "b";r=0;t=600 | retry-after: 600 |"#;
    for (style, expected) in [
        (
            Style::XRateLimit(Reset::Delta),
            "x-ratelimit-limit: 10 | x-ratelimit-remaining: 8 | x-ratelimit-reset: 600",
        ),
        (
            Style::Sharkey,
            "x-ratelimit-clear: 600.000 | x-ratelimit-remaining: 8 | x-ratelimit-reset: 600.000",
        ),
    ] {
        let numbers = [("a", limit(10, 30)), ("b", limit(1, 600))];
        let limiter = Limiter::with_options(limits(&numbers), Clock::manual().0).unwrap();
        let outer = rule(&limiter, "a").fields(fields(&[style]));
        let outer = layer(&limiter, [outer]).build().unwrap();
        let inner = layer(&limiter, [rule(&limiter, "b")]).build().unwrap();
        let _ = ask(&[&outer, &inner]);
        assert_eq!(ask(&[&outer, &inner]), format!("{denied} {expected}"));
    }
}
