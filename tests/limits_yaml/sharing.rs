//! Tests the words of shared limits, and the section of their store.

use std::sync::Arc;

use tollgate::algorithm::{Algorithm, Outcome};
use tollgate::limit::Factor;
use tollgate::limits::{
    LimitEntry, LimitOptions, LimitsBuilder, Loader, OnError, Shared, StoreOptions,
};
use tollgate::{Decision, IdFormat, Limit};

use super::refused_values::check;
use super::*;

type Words = (Shared, Option<OnError>, Option<Factor>, Option<Duration>, Option<Duration>);

fn words(limit: LimitEntry<'_>) -> Words {
    (limit.shared(), limit.on_error(), limit.fraction(), limit.allow_for(), limit.lease())
}

#[test]
fn limits_have_the_words_of_sharing() {
    let limits = read(
        "A: {burst: 20, count: 10, period: 1s, id: string, shared: local}\n\
         B: {burst: 20, count: 10, period: 1s, id: string, shared: leased}\n\
         C: {shared: exact, on_error: allow, for: 2m, fraction: 0.25, algorithm: fixed_window, limit: 4, window: 1s, id: string}\n\
         D: {lease: 200ms, on_error: deny, shared: leased, burst: 4, count: 1, period: 1s, id: string, mode: shadow}\n\
         E: {fraction: '1', on_error: local, shared: exact, algorithm: token_bucket, limit: 4, window: 1s, burst: 2, id: string}\n\
         F: {enabled: false, shared: exact, id: string}\n\
         B:alice: {burst: 40, count: 10, period: 1s}\n",
    )
    .unwrap();
    let of = |name: &str| words(limits.limit(name).unwrap());
    let part = |text: &str| Some(text.parse().unwrap());
    let (local, leased, exact) = (Shared::Local, Shared::Leased, Shared::Exact);
    assert_eq!(of("A"), (local, None, None, None, None));
    assert_eq!(of("B"), (leased, Some(OnError::Local), part("0.1"), None, Some(SECOND)));
    assert_eq!(of("C"), (exact, Some(OnError::Allow), part("0.25"), Some(2 * MINUTE), None));
    assert_eq!(of("D"), (leased, Some(OnError::Deny), None, None, Some(SECOND / 5)));
    assert_eq!(of("E"), (exact, Some(OnError::Local), part("1"), None, None));
    assert_eq!(of("F").0, exact);
    let now = std::time::SystemTime::now();
    assert_eq!(limits.explain("B", "alice", now).unwrap().shared(), leased);
    assert_eq!(limits.store(), None);
}

#[test]
fn faulty_words_are_refused() {
    check(
        &[
            (
                "A: {$REST, id: string,\n shared: lesed, on_error: ignore,\n fraction: 2.0000001, for: 30, lease: 1}",
                &[
                    "2: A.shared: invalid shared \"lesed\": local, leased and exact are allowed; did you mean leased?",
                    "2: A.on_error: invalid on_error \"ignore\": deny, allow and local are allowed",
                    "3: A.fraction: invalid fraction \"2.0000001\": a decimal with at most six digits after the point is allowed",
                    "3: A.for: invalid for \"30\": missing unit; a duration such as 60s, 180m or 1h30m is allowed (ns, us, ms, s, m, h)",
                    "3: A.lease: invalid lease \"1\": missing unit; a duration such as 60s, 180m or 1h30m is allowed (ns, us, ms, s, m, h)",
                ],
            ),
            (
                "A: {$REST, id: string, shared: , on_error: , fraction: , for: [1s], lease: {}}",
                &[
                    "1: A.shared: invalid shared null: local, leased or exact is allowed",
                    "1: A.on_error: invalid on_error null: deny, allow or local is allowed",
                    "1: A.fraction: invalid fraction null: a number above 0, at most 1, is allowed",
                    "1: A.for: a list: a duration such as 30s is allowed",
                    "1: A.lease: a map: a duration such as 500ms or 1s is allowed",
                ],
            ),
            (
                "A: {$REST, id: string, shared: exact, fraction: -0.5}",
                &["1: A.fraction: invalid fraction \"-0.5\": more than 0 is allowed"],
            ),
            (
                "A: {$REST, id: string, sharde: exact}",
                &[
                    "1: A.sharde: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed; did you mean shared?",
                ],
            ),
            (
                "A: {$REST, id: string, shared: leased, on_error: allow,\n fraction: 0,\n for: 0s,\n lease: 11s}",
                &[
                    "2: A.fraction: invalid fraction 0: more than 0 and at most 1 is allowed",
                    "3: A.for: invalid for 0s: from 1ms to 1h is allowed",
                    "4: A.lease: invalid lease 11s: from 200ms to 10s is allowed",
                ],
            ),
        ],
        faults,
    );
}

#[test]
fn words_that_do_not_fit_are_refused() {
    let local = "without shared: leased or exact: a local limit asks no store";
    let without = ["on_error", "fraction", "for", "lease"]
        .map(|field| format!("1: A.{field}: {field} {local}"));
    for shared in ["", "shared: local, "] {
        let text = format!(
            "A: {{burst: 1, count: 1, period: 1s, id: string, {shared}on_error: allow, fraction: 0.5, for: 1s, lease: 1s}}"
        );
        assert_eq!(faults(&text), without);
    }
    check(
        &[
            (
                "A: {$REST, id: string, shared: exact,\n shadow: {$REST}}",
                &["2: A.shadow: a shared limit has no shadow limit"],
            ),
            (
                "A: {$REST, id: string, shared: leased, on_error: deny,\n fraction: 0.5,\n for: 1s}",
                &[
                    "2: A.fraction: fraction beside on_error: deny, under which a node gives out nothing",
                    "3: A.for: for without on_error: allow: it is the time for which calls are allowed",
                ],
            ),
            (
                "A: {$REST, id: string, shared: exact, for: 1s,\n lease: 1s}",
                &[
                    "1: A.for: for without on_error: allow: it is the time for which calls are allowed",
                    "2: A.lease: lease beside shared: exact, under which a node takes no leases",
                ],
            ),
            // A word at fault may be the one that the others need.
            (
                "A: {$REST, id: string, shared: leazed, lease: 1s, on_error: deny}",
                &[
                    "1: A.shared: invalid shared \"leazed\": local, leased and exact are allowed; did you mean leased?",
                ],
            ),
            (
                "NewOrdersPerAccount:1: {$REST, shared: exact}",
                &[
                    "1: NewOrdersPerAccount:1.shared: not in an override: it belongs to the limit's default",
                ],
            ),
            (
                "NewOrdersPerAccount: {$REST, shared: exact, lease: 1s, ids: [{id: 1, lease: 1s}]}",
                &[
                    "1: NewOrdersPerAccount.ids[0].lease: not in an override: it belongs to the limit's default",
                    "1: NewOrdersPerAccount.shared: not beside ids: it belongs to the limit's default",
                    "1: NewOrdersPerAccount.lease: not beside ids: it belongs to the limit's default",
                ],
            ),
        ],
        faults,
    );
    assert_eq!(
        override_faults("- Own: {burst: 1, count: 1, period: 1s, ids: [a],\n   on_error: deny}"),
        ["2: [0].Own.on_error: not in an override: it belongs to the limit's default"]
    );
}

/// Allows everything.
#[derive(Debug)]
struct Open;

impl Algorithm for Open {
    fn spend(&self, _: u64, _: u64, _: u64) -> Outcome {
        let decision = Decision::for_spend(true, 1, Duration::ZERO, Duration::ZERO);
        Outcome { word: None, decision }
    }
    fn refund(&self, _: u64, _: u64, _: u64) -> Outcome {
        Outcome { word: None, decision: Decision::for_refund(false, 1, Duration::ZERO) }
    }
    fn is_full(&self, _: u64, _: u64) -> bool {
        true
    }
    fn full(&self, _: u64) -> u64 {
        0
    }
    fn max_cost(&self) -> u64 {
        1
    }
    fn name(&self) -> &'static str {
        "open"
    }
}

#[test]
fn a_shared_limit_has_no_custom_algorithm() {
    let wanted =
        "a shared limit has no custom algorithm such as open: a store has the built-in ones";
    let loader = Loader::new().algorithm("open", |_| Ok(Arc::new(Open))).unwrap();
    let text = "A: {algorithm: open, id: string,\n shared: exact}";
    assert_eq!(loader.text(text).unwrap_err().to_string(), format!("<text>:2: A.shared: {wanted}"));

    let open = || Limit::custom(Arc::new(Open)).unwrap();
    let exact = || LimitOptions::default().shared(Shared::Exact);
    let builder = Limits::builder;
    let default = builder().limit_with("A", IdFormat::String, open(), exact());
    // An override of a limit without a default, before and after the default.
    let after = builder().limit_with("A", IdFormat::String, None, exact());
    let after = after.and_then(|limits| limits.override_id("A", "x", open()));
    let before = builder().override_id("NewOrdersPerAccount", 1, open());
    let before = before.and_then(|limits| {
        limits.limit_with("NewOrdersPerAccount", IdFormat::RegId, None, exact())
    });
    for refused in [default, after, before] {
        let error = refused.unwrap_err();
        assert!(error.is_invalid_limit(), "{error:?}");
        assert_eq!(error.to_string(), wanted);
    }
}

#[test]
fn in_code_the_same_words_are_refused() {
    let gcra = || Limit::new(20, 10, SECOND).unwrap();
    let with = |options: LimitOptions| {
        Limits::builder().limit_with("A", IdFormat::String, gcra(), options)
    };
    let (local, exact) = (LimitOptions::default, || LimitOptions::default().shared(Shared::Exact));
    let leased = || LimitOptions::default().shared(Shared::Leased);
    for (options, wanted) in [
        (
            local().on_error(OnError::Local),
            "on_error without shared: leased or exact: a local limit asks no store",
        ),
        (
            local().lease(SECOND),
            "lease without shared: leased or exact: a local limit asks no store",
        ),
        (
            exact().fraction(Factor::from_millionths(1_000_001)),
            "invalid fraction 1.000001: more than 0 and at most 1 is allowed",
        ),
        (leased().lease(SECOND / 10), "invalid lease 100ms: from 200ms to 10s is allowed"),
        (
            exact().on_error(OnError::Allow).allow_for(61 * MINUTE),
            "invalid for 1h1m: from 1ms to 1h is allowed",
        ),
        (exact().shadow(gcra()), "a shared limit has no shadow limit"),
    ] {
        let error = with(options).unwrap_err();
        assert!(error.is_invalid_limit(), "{error:?}");
        assert_eq!(error.to_string(), wanted);
    }
    let options = leased().on_error(OnError::Allow).allow_for(MINUTE).lease(2 * SECOND);
    let limits = with(options.fraction(Factor::ONE)).unwrap().build();
    assert_eq!(
        words(limits.limit("A").unwrap()),
        (Shared::Leased, Some(OnError::Allow), Some(Factor::ONE), Some(MINUTE), Some(2 * SECOND))
    );
}

const OWN: &str = "Own: {burst: 1, count: 1, period: 1s, id: string}\n";

#[test]
fn a_file_has_a_store() {
    let limits = read(&format!("{OWN}store: {{url: 'redis://u:secret@h:1/2'}}\n")).unwrap();
    let store = StoreOptions::new("redis://u:secret@h:1/2").unwrap();
    assert_eq!(limits.store(), Some(&store));
    assert_eq!(limits.names().collect::<Vec<_>>(), ["Own"]);
    let shown = format!("{limits:?}");
    assert!(shown.contains("redis://***@h:1/2") && !shown.contains("secret"), "{shown}");

    let text = format!(
        "store:\n  timeout: 20ms\n  connect: 1s\n  tag: a b\n  prefix: \"shop:\"\n  url: unix:///run/valkey.sock\n{OWN}"
    );
    let store = StoreOptions::new("unix:///run/valkey.sock").unwrap();
    let store = store.prefix("shop:").unwrap().tag("a b").unwrap();
    let store = store.connect_timeout(SECOND).unwrap().answer_timeout(SECOND / 50).unwrap();
    let given = read_both(&text, "Own:x: {burst: 2, count: 1, period: 1s}").unwrap();
    assert_eq!(given.store(), Some(&store));

    let text = format!("store: {{url: unix:///run/valkey.sock, format: FORMAT}}\n{OWN}");
    for (format, is_boulder) in [("tollgate", false), ("boulder", true)] {
        let given = read_both(&text.replace("FORMAT", format), "{}").unwrap();
        assert_eq!(given.store().unwrap().has_boulder_keys(), is_boulder);
    }
}

#[test]
fn a_faulty_store_is_refused() {
    let allowed = "prefix, tag, format, connect and timeout are allowed";
    let table: &[(&str, &[&str])] = &[
        (
            "store: {prefix: 'x:'}",
            &["2: store: no url: a URL such as redis://localhost:6379 is wanted"],
        ),
        (
            "store: {url: 'http://:secret@h'}",
            &[
                "2: store.url: invalid url with the scheme \"http\": redis://, rediss://, valkey://, valkeys://, unix://, redis+unix:// or valkey+unix:// at its start is allowed; the first four also with -cluster or -sentinel, as redis-cluster://",
            ],
        ),
        (
            "store: {url: , prefix: [x], tag: {}}",
            &[
                "2: store.url: null: a URL such as redis://localhost:6379 is allowed",
                "2: store.prefix: a list: text such as tollgate: is allowed",
                "2: store.tag: a map: text is allowed",
            ],
        ),
        (
            "store: {url: redis://h, prefix: 'a b', tag: 'a}', format: Boulder, connect: 0s, timeout: 10}",
            &[
                "2: store.prefix: invalid prefix \"a b\": at most 64 printable characters of ASCII, without blanks and braces, are allowed",
                "2: store.tag: invalid tag \"a}\": text of 1 to 64 bytes, without braces and control characters, is allowed",
                "2: store.format: invalid format \"Boulder\": tollgate or boulder is allowed",
                "2: store.connect: invalid connect 0s: from 1ms to 1m is allowed",
                "2: store.timeout: invalid timeout \"10\": missing unit; a duration such as 60s, 180m or 1h30m is allowed (ns, us, ms, s, m, h)",
            ],
        ),
        (
            "store: {url: redis://h,\n  url: redis://h}",
            &["3: store.url: the field was given before, on line 2"],
        ),
        (
            "store: {url: redis://h}\nstore: {url: redis://h}",
            &["3: store: the name was given before, on line 2 of the same map"],
        ),
        (
            "store: {burst: 1, count: 1, period: 1s, id: string}",
            &[
                "2: store: the name store is reserved for the section of the store that limits share: give the limit another name",
            ],
        ),
        (
            "store:x: {burst: 1, count: 1, period: 1s}",
            &[
                "2: store:x: the name store is reserved for the section of the store that limits share: give the limit another name",
            ],
        ),
    ];
    for (text, wanted) in table {
        assert_eq!(faults(&format!("{OWN}{text}\n")), *wanted, "{text}");
    }
    assert_eq!(
        faults(&format!("{OWN}store: {{url: redis://h, prefx: x}}\n")),
        [format!("2: store.prefx: unknown field: url, {allowed}; did you mean prefix?")]
    );
    let elsewhere = "the name store is reserved for the section of the store that limits share, which is in the map of the defaults, in the file of the limits";
    for text in ["- store: {url: redis://h}\n", "store: {url: redis://h}\n"] {
        let path = if text.starts_with('-') { "[0].store" } else { "store" };
        assert_eq!(override_faults(text), [format!("1: {path}: {elsewhere}")]);
    }
    let error = Limits::builder().limit("store", IdFormat::String, None).unwrap_err();
    assert!(error.is_invalid_name(), "{error:?}");
    assert!(error.to_string().starts_with("the name store is reserved for "), "{error}");
}

/// A URL in the wrong place may have a password.
#[test]
fn no_fault_shows_a_password() {
    for text in [
        "store: redis://:secret@h",
        "store: 'redis://:secret@h'",
        "store: {redis://:secret@h}",
        "store: {url:redis://:secret@h}",
        "store: {redis://:secret@h: 1}",
        "store: [redis://:secret@h]",
        "store: {url: [redis://:secret@h]}",
        "store: {url: ':secret@h'}",
        "store: {url: 'redis://:secret @h'}",
        "store: {url: redis://:secret@h, url: redis://:secret@h}",
        "store: {uri: redis://:secret@h}",
    ] {
        let faults = faults(&format!("{OWN}{text}\n"));
        assert!(!faults.is_empty() && !faults.concat().contains("secret"), "{faults:?}");
    }
}

#[test]
fn a_store_is_given_once_in_all() {
    let store = || StoreOptions::new("redis://code").unwrap();
    let text = format!("{OWN}store: {{url: redis://file}}\n");
    let in_code = || Limits::builder().store(store()).unwrap().build();
    let error = Loader::new().before(in_code()).text(&text).unwrap_err();
    assert_eq!(error.to_string(), "<text>:2: store: the store was given twice");
    let add = move |limits: LimitsBuilder| limits.store(store());
    let error = Loader::new().after(add).text(&text).unwrap_err();
    assert!(error.is_invalid_config(), "{error:?}");
    assert_eq!(error.to_string(), "the store was given twice");

    let limits = Loader::new().before(in_code()).text(OWN).unwrap();
    assert_eq!(limits.store().map(StoreOptions::url), Some("redis://code"));
    let limits = Loader::new().after(add).text(OWN).unwrap();
    assert_eq!(limits.store().map(StoreOptions::url), Some("redis://code"));
}
