//! Tests limits of every algorithm: parameters, overrides, and limits that are switched off.

use super::refused_values::check;
use super::*;
use tollgate::Limit;

fn of<'a>(limits: &Limits, name: &str, id: impl Into<tollgate::Id<'a>>) -> Option<Limit> {
    limits.limit_for(name, id).expect("a good id")
}

const ALL: &str = "\
RequestsPerClient: {burst: 20, count: 10, period: 1s, id: ipAddress}
SearchPerUser:     {algorithm: fixed_window, limit: 10, window: 60s, id: string}
ApiPerKey:         {limit: 15, window: 60s, burst: 3, id: string, algorithm: token_bucket}
NotesPerUser:      {algorithm: leaky_bucket, size: 10, drip_rate: 250ms, drip_size: 1, id: string}
LegacyPerUser:     {algorithm: leaky_bucket, max: 10, duration: 5s, min_interval: 1s, id: string}
";

#[test]
fn each_has_its_numbers() {
    let limits = read(ALL).unwrap();
    let ms = Duration::from_millis;
    assert_eq!(of(&limits, "SearchPerUser", "a"), Limit::fixed_window(10, MINUTE).ok());
    assert_eq!(of(&limits, "ApiPerKey", "a"), Limit::token_bucket(3, 15, MINUTE).ok());
    assert_eq!(of(&limits, "NotesPerUser", "a"), Limit::leaky_bucket(10, 1, ms(250)).ok());
    assert_eq!(of(&limits, "LegacyPerUser", "a"), Limit::leaky_bucket(10, 2, SECOND).ok());
    let limits = read(
        "A: {algorithm: leaky_bucket, size: 9.5, id: string}\n\
         B: {algorithm: leaky_bucket, size: 1, drip_rate: 1.2ms, drip_size: 2.000001, id: string}\n\
         C: {algorithm: leaky_bucket, min_interval: 0.4ms, id: string}\n\
         D: {algorithm: leaky_bucket, max: 1.5, duration: 1s, id: string}\n",
    )
    .unwrap();
    assert_eq!(of(&limits, "A", "a"), Limit::leaky_bucket(10, 1, SECOND).ok());
    assert_eq!(of(&limits, "B", "a"), Limit::leaky_bucket(1, 3, ms(2)).ok());
    assert_eq!(of(&limits, "C", "a"), Limit::leaky_bucket(1, 1, ms(1)).ok());
    assert_eq!(of(&limits, "D", "a"), Limit::leaky_bucket(2, 1, ms(667)).ok());
}

#[test]
fn at_most_is_a_gcra_limit() {
    let text = "\
A: {algorithm: at_most, limit: 100, window: 60s, burst: 10, id: string}
A:vip: {limit: 1000, window: 60s, burst: 100}
B: {algorithm: at_most, limit: 3, window: 1s, burst: 1, id: string, shadow: {limit: 2, window: 1s, burst: 1}}
";
    let limits = read(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(of(&limits, "A", "a"), Limit::at_most(100, MINUTE, 10).ok());
    assert_eq!(of(&limits, "A", "vip"), Limit::at_most(1000, MINUTE, 100).ok());
    assert_eq!(of(&limits, "B", "a"), Limit::at_most(3, SECOND, 1).ok());
    for (text, faults) in [
        (
            "A: {algorithm: at_most, limit: 5, window: 1s, id: string}",
            "1: A: no burst: a whole number from 1 is wanted",
        ),
        (
            "A: {algorithm: at_most, limit: 5, window: 1s, burst: 5, id: string}",
            "1: A.burst: invalid burst 5: at most 4, one below the limit, is allowed",
        ),
        (
            "A: {algorithm: at_most, limit: 5, window: 1s, burst: 2, count: 1, id: string}",
            "1: A.count: unknown field",
        ),
        (
            "A: {algorithm: at_most, limit: 5, window: 1s, burst: 2, id: string}\nA:x: {burst: 1, count: 1, period: 1s}",
            "2: A:x.count: unknown field: limit, window, burst",
        ),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(faults), "{error}");
    }
}

#[test]
fn concurrency_counts_what_is_in_flight() {
    let text = "\
Streams: {algorithm: concurrency, max: 4, retry_after: 250ms, id: string}
Streams:vip: {max: 16}
Jobs: {algorithm: concurrency, max: 1, id: string, mode: shadow}
";
    let limits = read(text).unwrap_or_else(|error| panic!("{error}"));
    let streams = |max| Limit::concurrency(max).unwrap().retry_after(SECOND / 4).ok();
    assert_eq!(of(&limits, "Streams", "a"), streams(4));
    assert_eq!(of(&limits, "Streams", "vip"), Limit::concurrency(16).ok(), "its own retry_after");
    assert_eq!(of(&limits, "Jobs", "a"), Limit::concurrency(1).ok());
    let of = |fields: &str| format!("A: {{algorithm: concurrency, id: string, {fields}}}");
    for (fields, fault) in [
        ("retry_after: 1s", "1: A: no max: a number from 1 is wanted"),
        ("max: 0", "1: A.max: invalid max 0: 1 to 16777215 is allowed"),
        ("max: 2.5", "1: A.max: invalid max 2.5: a whole number from 1 is allowed"),
        ("max: 16777216", "1: A.max: invalid max 16777216: 1 to 16777215 is allowed"),
        ("max: 1, retry_after: 0s", "1: A.retry_after: invalid retry_after 0ns: 1ns to 2^62 ns"),
        ("max: 1, duration: 1s", "1: A.duration: unknown field: max, retry_after"),
        ("max: 1, max_debt: 1", "1: A.max_debt: invalid max_debt 1: what is in flight has no debt"),
        ("max: 1, shadow: {max: 2}", "1: A.shadow: not beside concurrency: mode: shadow"),
        ("max: 1, shared: exact", "1: A.shared: permits are of one process"),
    ] {
        let error = read(&of(fields)).unwrap_err().to_string();
        assert!(error.contains(fault), "{fields}: {error}");
    }
}

#[test]
fn overrides_have_the_numbers_of_their_limits_algorithm() {
    let overrides = "\
- SearchPerUser: {limit: 100, window: 1s, ids: [a, {id: b, comment: ours}]}
- ApiPerKey:k: {limit: 20, window: 2s, burst: 5}
- NotesPerUser: {ids: [c], size: 3}
  LegacyPerUser:d: {max: 2, duration: 1s}
- LegacyPerUser:e: {size: 4, drip_size: 9}
";
    let limits = read_both(ALL, overrides).unwrap();
    for id in ["a", "b"] {
        assert_eq!(of(&limits, "SearchPerUser", id), Limit::fixed_window(100, SECOND).ok());
    }
    assert_eq!(of(&limits, "ApiPerKey", "k"), Limit::token_bucket(5, 20, 2 * SECOND).ok());
    assert_eq!(of(&limits, "NotesPerUser", "c"), Limit::leaky_bucket(3, 1, SECOND).ok());
    let half = Duration::from_millis(500);
    assert_eq!(of(&limits, "LegacyPerUser", "d"), Limit::leaky_bucket(2, 1, half).ok());
    assert_eq!(of(&limits, "LegacyPerUser", "e"), Limit::leaky_bucket(4, 9, SECOND).ok());

    // A name of Boulder's needs no default: its first override sets the algorithm.
    let limits = read(
        "NewOrdersPerAccount:1: {limit: 5, window: 1s, burst: 2}\n\
         NewOrdersPerAccount: {algorithm: token_bucket, limit: 3, window: 1s, burst: 1}\n\
         CertificatesPerDomain:example.com: {limit: 5, window: 1s}\n",
    )
    .unwrap();
    assert_eq!(of(&limits, "NewOrdersPerAccount", 1), Limit::token_bucket(2, 5, SECOND).ok());
    assert_eq!(of(&limits, "NewOrdersPerAccount", 2), Limit::token_bucket(1, 3, SECOND).ok());
    let domain = of(&limits, "CertificatesPerDomain", "example.com");
    assert_eq!(domain, Limit::fixed_window(5, SECOND).ok());
}

#[test]
fn no_limit_and_limits_that_are_switched_off() {
    let limits = read(
        "A: {algorithm: leaky_bucket, max: 10, duration: 0s, id: string}\n\
         A:x: {size: 4}\n\
         B: {enabled: false, burst: 1, count: 1, period: 1s, id: string}\n\
         B:x: {burst: 1, count: 1, period: 1s}\n\
         NewOrdersPerAccount:7: {burst: 1, count: 1, period: 1s}\n\
         NewOrdersPerAccount: {enabled: false}\n\
         C: {enabled: true, burst: 1, count: 1, period: 1s, id: string}\n\
         D: {algorithm: leaky_bucket, size: 1, id: string}\n\
         D:free: {min_interval: 0s}\n",
    )
    .unwrap();
    assert_eq!(of(&limits, "A", "other"), None);
    assert_eq!(of(&limits, "A", "x"), Limit::leaky_bucket(4, 1, SECOND).ok());
    assert_eq!(of(&limits, "D", "free"), None);
    assert!(of(&limits, "C", "a").is_some() && of(&limits, "D", "a").is_some());
    for id in ["x", "other"] {
        assert_eq!(of(&limits, "B", id), None, "{id}");
    }
    for id in [7, 8] {
        assert_eq!(of(&limits, "NewOrdersPerAccount", id), None, "{id}");
    }
    let names: Vec<&str> = limits.names().collect();
    assert_eq!(names, ["NewOrdersPerAccount", "A", "B", "C", "D"]);
}

#[test]
fn invalid_parameters_are_refused() {
    let fields = "limit, window, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed";
    for (entry, wanted) in [
        (
            "algorithm: fixed_window, limit: 0, window: 1s",
            "A.limit: invalid limit 0: at least 1 is allowed",
        ),
        (
            "algorithm: fixed_window, limit: 16777216, window: 1s",
            "A.limit: invalid limit 16777216: at most 16777215 is allowed; count in thousands, or use gcra",
        ),
        (
            "algorithm: fixed_window, limit: 1, window: 1.5ms",
            "A.window: invalid window 1.5ms: whole milliseconds are allowed",
        ),
        (
            "algorithm: fixed_window, limit: 1, window: 0s",
            "A.window: invalid window 0s: at least 1ms is allowed",
        ),
        (
            "algorithm: fixed_window, limit: 1",
            "A: no window: a duration such as 60s, 180m or 1h30m is wanted",
        ),
        (
            "algorithm: token_bucket, limit: 2, window: 1s, burst: 3",
            "A.burst: invalid burst 3: at most the limit 2 is allowed",
        ),
        ("algorithm: leaky_bucket", "A: no size: a number from 1 is wanted"),
        ("algorithm: leaky_bucket, size: 0.5", "A.size: invalid size 0.5: at least 1 is allowed"),
        ("algorithm: leaky_bucket, size: -1", "A.size: invalid size \"-1\": at least 1 is allowed"),
        (
            "algorithm: leaky_bucket, size: 1.0000001",
            "A.size: invalid size \"1.0000001\": a decimal with at most six digits after the point is allowed",
        ),
        (
            "algorithm: leaky_bucket, size: 1, drip_rate: 0.5ms",
            "A.drip_rate: invalid drip_rate 500µs: at least 1ms is allowed",
        ),
        (
            "algorithm: leaky_bucket, size: 1, drip_size: 0.5",
            "A.drip_size: invalid drip_size 0.5: at least 1 is allowed",
        ),
        (
            "algorithm: leaky_bucket, max: 05, duration: 1s",
            "A.max: invalid max \"05\": a number from 1, in plain digits, is allowed",
        ),
        (
            "algorithm: leaky_bucket, max: 0.5, duration: 1s",
            "A.max: invalid max 0.5: at least 1 is allowed",
        ),
        (
            "algorithm: leaky_bucket, max: 1, duration: -1s",
            "A.duration: invalid duration \"-1s\": negative; more than 0s is allowed",
        ),
        (
            "algorithm: leaky_bucket, max: 1, duration: 1s, size: 1",
            "A.size: not beside max, duration and min_interval: they are the older form of the same numbers",
        ),
        (
            "enabled: no, burst: 1, count: 1, period: 1s",
            "A.enabled: invalid enabled \"no\": true or false is allowed",
        ),
        (
            "enabled: false, burst: 1",
            "A: no count: a whole number from 1 is wanted\n1: A: no period: a duration such as 60s, 180m or 1h30m is wanted",
        ),
        (
            "algorithm: fixed_window, limit: 1, window: 1s, burst: 1",
            &*format!("A.burst: unknown field: {fields}"),
        ),
        (
            "algorithm: fixed_window, limit: 1, windwo: 1, window: 1s",
            &*format!("A.windwo: unknown field: {fields}; did you mean window?"),
        ),
    ] {
        let text = format!("A: {{id: string, {entry}}}");
        assert_eq!(faults(&text).join("\n"), format!("1: {wanted}"), "{entry}");
    }
}

#[test]
fn overrides_of_another_algorithm_are_refused() {
    check(
        &[
            (
                "A: {algorithm: fixed_window, limit: 1, window: 1s, id: string}\nA:x: {$REST}",
                &[
                    "2: A:x.burst: unknown field: limit, window, unlimited, max_debt, comment, owner and expires are allowed",
                    "2: A:x.count: unknown field: limit, window, unlimited, max_debt, comment, owner and expires are allowed",
                    "2: A:x.period: unknown field: limit, window, unlimited, max_debt, comment, owner and expires are allowed",
                    "2: A:x: no limit: a whole number from 1 is wanted",
                    "2: A:x: no window: a duration such as 60s, 180m or 1h30m is wanted",
                ],
            ),
            (
                "A: {algorithm: fixed_window, limit: 1, window: 1s, id: string}\nA: {limit: 1, window: 1s, ids: [x], enabled: false}",
                &["2: A: the name was given before, on line 1 of the same map"],
            ),
            (
                "NewOrdersPerAccount: {limit: 1, window: 1s, ids: [1], enabled: false}",
                &[
                    "1: NewOrdersPerAccount.enabled: not beside ids: it belongs to the limit's default",
                ],
            ),
            (
                "NewOrdersPerAccount:1: {limit: 1, window: 1s}\nNewOrdersPerAccount: {$REST}",
                &[
                    "2: NewOrdersPerAccount: numbers of gcra for NewOrdersPerAccount, which has numbers of fixed_window: a limit has one algorithm",
                ],
            ),
        ],
        faults,
    );
}

#[test]
fn in_code_a_limit_has_one_algorithm() {
    let (gcra, window) =
        (Limit::new(1, 1, SECOND).unwrap(), Limit::fixed_window(1, SECOND).unwrap());
    let text = tollgate::IdFormat::String;
    let builder = Limits::builder().limit("A", text, gcra.clone()).unwrap();
    let error = builder.clone().override_id("A", "x", window).unwrap_err();
    assert!(error.is_invalid_limit(), "{error}");
    let limits = builder
        .override_id("A", "x", None)
        .unwrap()
        .limit("B", text, None)
        .unwrap()
        .override_id("B", "x", gcra.clone())
        .unwrap()
        .limit("C", text, gcra.clone())
        .unwrap()
        .disable("C")
        .unwrap()
        .build();
    assert_eq!(of(&limits, "A", "x"), None);
    assert_eq!(of(&limits, "A", "y"), Some(gcra.clone()));
    assert_eq!(of(&limits, "B", "x"), Some(gcra));
    assert_eq!(of(&limits, "B", "y"), None);
    assert_eq!(of(&limits, "C", "y"), None);
}
