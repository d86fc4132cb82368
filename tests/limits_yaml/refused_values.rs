//! Tests refused names, fields, numbers and ids, with the texts of their faults.

use super::*;

/// Valid parameters of an override.
pub(crate) const REST: &str = "burst: 1, count: 1, period: 1s";

#[track_caller]
pub(crate) fn check(table: &[(&str, &[&str])], faults: fn(&str) -> Vec<String>) {
    for (text, wanted) in table {
        let text = text.replace("$REST", REST);
        assert_eq!(faults(&text), *wanted, "{text}");
    }
}

#[test]
fn numbers() {
    let whole = "a whole number from 1, in plain digits, is allowed";
    for given in ["20.7", "1_000", "0x10", "+5", "-1", "1e3", "true", "020", "00", "1 2", "\u{661}"]
    {
        let text =
            format!("NewOrdersPerAccount:\n  burst: {given}\n  count: {given}\n  period: 1s\n");
        let fault = |line, field| {
            format!("{line}: NewOrdersPerAccount.{field}: invalid {field} {given:?}: {whole}")
        };
        assert_eq!(faults(&text), [fault(2, "burst"), fault(3, "count")], "{given}");
    }
    let at = "1: NewOrdersPerAccount.burst:";
    for (given, wanted) in [
        ("\"20\"", "invalid burst \"20\": a whole number from 1, without quotes, is allowed"),
        ("'20'", "invalid burst \"20\": a whole number from 1, without quotes, is allowed"),
        ("", "invalid burst null: a whole number from 1 is allowed"),
        ("~", "invalid burst null: a whole number from 1 is allowed"),
        ("null", "invalid burst null: a whole number from 1 is allowed"),
        ("0", "invalid burst 0: at least 1 is allowed"),
        ("[1]", "a list: a whole number from 1 is allowed"),
        ("{a: 1}", "a map: a whole number from 1 is allowed"),
        (
            "18446744073709551616",
            "invalid burst \"18446744073709551616\": at most 18446744073709551615 is allowed",
        ),
        ("!!int 20", "a tag is not allowed: write the value alone"),
        ("!x 20", "a tag is not allowed: write the value alone"),
    ] {
        let text = format!("NewOrdersPerAccount: {{burst: {given}, count: 1, period: 1s}}");
        assert_eq!(faults(&text), [format!("{at} {wanted}")], "{given}");
    }
}

#[test]
fn numbers_that_make_no_limit() {
    let limit = |burst: &str, count: &str, period: &str| {
        faults(&format!(
            "NewOrdersPerAccount:\n  burst: {burst}\n  count: {count}\n  period: {period}\n"
        ))
    };
    assert_eq!(
        limit("1", "2000000000", "1s"),
        [
            "3: NewOrdersPerAccount.count: invalid count 2000000000: at most 1000000000, one for each nanosecond of the period, is allowed"
        ]
    );
    assert!(limit("1", "600000000", "1s")[0].contains("1.667 times"));
    let long = limit("9000000000000000000", "1", "1s");
    assert!(
        long[0].starts_with("2: NewOrdersPerAccount.burst: invalid burst 9000000000000000000: "),
        "{long:?}"
    );
    for period in ["0", "0s", "-0s", "0.9ns"] {
        let at = "4: NewOrdersPerAccount.period:";
        assert_eq!(
            limit("1", "1", period),
            [format!("{at} invalid period 0s: more than 0s is allowed")]
        );
    }
}

#[test]
fn each_number_that_is_0() {
    let zeros = "NewOrdersPerAccount: {burst: 0, count: 0, period: 0s}";
    let wanted = [
        "1: NewOrdersPerAccount.burst: invalid burst 0: at least 1 is allowed",
        "1: NewOrdersPerAccount.count: invalid count 0: at least 1 is allowed",
        "1: NewOrdersPerAccount.period: invalid period 0s: more than 0s is allowed",
    ];
    assert_eq!(faults(zeros), wanted);
}

#[test]
fn periods() {
    let allowed = "a duration such as 60s, 180m or 1h30m is allowed";
    let units = "(ns, us, ms, s, m, h)";
    for (given, wanted) in [
        ("60", format!("invalid period \"60\": missing unit; {allowed} {units}")),
        ("'60'", format!("invalid period \"60\": missing unit; {allowed} {units}")),
        ("1d", format!("invalid period \"1d\": unknown unit \"d\"; {allowed} {units}")),
        ("-1s", "invalid period \"-1s\": negative; more than 0s is allowed".into()),
        ("''", format!("invalid period \"\": {allowed} {units}")),
        ("", format!("invalid period null: {allowed}")),
        ("[1s]", format!("a list: {allowed}")),
        (
            "3000000h",
            "invalid period \"3000000h\": at most 2^63 - 1 ns, about 2562047h, is allowed".into(),
        ),
    ] {
        let text = format!("NewOrdersPerAccount: {{burst: 1, count: 1, period: {given}}}");
        assert_eq!(faults(&text), [format!("1: NewOrdersPerAccount.period: {wanted}")], "{given}");
    }
}

#[test]
fn fields() {
    check(
        &[
            (
                "NewOrdersPerAccount:\n  Burst: 1\n  count: 1\n  period: 1s\n",
                &[
                    "1: NewOrdersPerAccount: no burst: a whole number from 1 is wanted",
                    "2: NewOrdersPerAccount.Burst: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed; did you mean burst?",
                ],
            ),
            (
                "NewOrdersPerAccount: {}",
                &[
                    "1: NewOrdersPerAccount: no burst: a whole number from 1 is wanted",
                    "1: NewOrdersPerAccount: no count: a whole number from 1 is wanted",
                    "1: NewOrdersPerAccount: no period: a duration such as 60s, 180m or 1h30m is wanted",
                ],
            ),
            (
                "NewOrdersPerAccount: {$REST, comment: x}",
                &["1: NewOrdersPerAccount.comment: not without ids: it belongs to an override"],
            ),
            (
                "NewOrdersPerAccount: {$REST, perod: {a: [b]}}",
                &[
                    "1: NewOrdersPerAccount.perod: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed; did you mean period?",
                ],
            ),
            (
                "NewOrdersPerAccount: {$REST,\n burst: 2}",
                &["2: NewOrdersPerAccount.burst: the field was given before, on line 1"],
            ),
            (
                "NewOrdersPerAccount: {$REST, ~: 1}",
                &["1: NewOrdersPerAccount: null: a field as the key is allowed"],
            ),
            (
                "NewOrdersPerAccount: {$REST, ? [a] : 1}",
                &["1: NewOrdersPerAccount: a list: a field as the key is allowed"],
            ),
            (
                "NewOrdersPerAccount:1: {$REST, ids: [2]}",
                &[
                    "1: NewOrdersPerAccount:1.ids: unknown field: burst, count, period, unlimited, max_debt, comment, owner and expires are allowed",
                ],
            ),
            (
                "A: {$REST, id: ipaddress}\nA:1.1.1.1: {$REST}",
                &[
                    "1: A.id: invalid id \"ipaddress\": string, ipAddress, regId, integer, bytes, uuid, ipv6RangeCIDR, identValue, domainOrCIDR, fqdnSet, regId:identValue, regId:domainOrCIDR, regId:domain, regId:fqdnSet, or 2 or 3 of them joined by ':', are allowed; did you mean ipAddress?",
                ],
            ),
            (
                "A: {$REST, id: [string]}",
                &["1: A.id: a list: a format such as ipAddress or string is allowed"],
            ),
            (
                "NewOrdersPerAccount: {$REST, id: string}",
                &[
                    "1: NewOrdersPerAccount.id: the ids of NewOrdersPerAccount are regId, not string",
                ],
            ),
        ],
        faults,
    );
}

#[test]
fn algorithms() {
    check(
        &[
            (
                "A: {algorithm: GCRA, $REST, id: string}",
                &[
                    "1: A.algorithm: invalid algorithm \"GCRA\": gcra, at_most, fixed_window, token_bucket, leaky_bucket and concurrency are allowed; did you mean gcra?",
                ],
            ),
            (
                "A: {algorithm: [gcra], $REST, id: string}",
                &[
                    "1: A.algorithm: a list: gcra, at_most, fixed_window, token_bucket, leaky_bucket or concurrency is allowed",
                ],
            ),
            (
                "A: {limit: 10, $REST, id: string}",
                &[
                    "1: A.limit: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed",
                ],
            ),
            (
                "A: {limit: 20, window: 10s, id: string}",
                &[
                    "1: A.limit: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed; did you mean algorithm: fixed_window?",
                    "1: A.window: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed; did you mean algorithm: fixed_window?",
                ],
            ),
            (
                "A: {size: 20, drip_rat: 10s, id: string}",
                &[
                    "1: A.size: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed; did you mean algorithm: leaky_bucket?",
                    "1: A.drip_rat: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed",
                ],
            ),
            (
                "NewOrdersPerAccount: {$REST, ids: [1], algorithm: gcra, id: regId}",
                &[
                    "1: NewOrdersPerAccount.id: not beside ids: it belongs to the limit's default",
                    "1: NewOrdersPerAccount.algorithm: not beside ids: it belongs to the limit's default",
                ],
            ),
        ],
        faults,
    );
}

#[test]
fn names() {
    let own = "a custom limit is declared before its overrides, with the format of its ids, such as id: ipAddress";
    let unknown = |line: u64, path: &str, name: &str, hint: &str| {
        format!("{line}: {path}: unknown limit {name:?}{hint}; {own}")
    };
    let no_id = |path: &str, hint: &str| {
        format!(
            "1: {path}: no id: the format of the limit's ids is wanted, such as id: string, ipAddress or regId{hint}"
        )
    };
    for (text, wanted) in [
        ("NewOrderPerAccount: {$REST}", no_id("NewOrderPerAccount", "; did you mean NewOrdersPerAccount?")),
        ("UsageRequestsPerIPv10Address: {$REST}", no_id("UsageRequestsPerIPv10Address", "")),
        ("Unknown: {$REST}", no_id("Unknown", "")),
        ("'1': {$REST}", no_id("1", "")),
        (
            "NewOrderPerAccount:1: {$REST}",
            unknown(1, "NewOrderPerAccount:1", "NewOrderPerAccount", "; did you mean NewOrdersPerAccount?"),
        ),
        ("Unknown:a: {$REST}", unknown(1, "Unknown:a", "Unknown", "")),
        ("Own:a: {$REST}\nOwn: {$REST, id: string}", unknown(1, "Own:a", "Own", "")),
        ("A: {$REST, id: string}\nA.1:x: {$REST}", unknown(2, "A.1:x", "A.1", "")),
        ("Unknown: ~", format!("{}\n1: Unknown: null: a map with burst, count and period is allowed", unknown(1, "Unknown", "Unknown", ""))),
        ("'': {$REST}", "1: \"\": a limit's name as the key is allowed".into()),
        ("'': 1", "1: \"\": a limit's name as the key is allowed".into()),
        ("? [a]\n: 1", "1: a list: a limit's name as the key is allowed".into()),
        ("~: 1", "1: null: a limit's name as the key is allowed".into()),
        (
            "1a: {$REST, id: string}\n1a:x: {$REST}",
            "1: 1a: invalid name \"1a\": a letter, then letters, digits, '_', '.' or '-', at most 128 characters, is allowed".into(),
        ),
        ("NewOrdersPerAccount: {$REST}\nNewOrdersPerAccount: {$REST}", "2: NewOrdersPerAccount: the name was given before, on line 1 of the same map".into()),
        ("NewOrdersPerAccount:", "1: NewOrdersPerAccount: null: a map with burst, count and period is allowed".into()),
        ("NewOrdersPerAccount: 20", "1: NewOrdersPerAccount: \"20\": a map with burst, count and period is allowed".into()),
        ("NewOrdersPerAccount: [1]", "1: NewOrdersPerAccount: a list: a map with burst, count and period is allowed".into()),
        ("NewOrdersPerAccount:1:\n", "1: NewOrdersPerAccount:1: null: a map with burst, count and period is allowed".into()),
        ("'NewOrdersPerAccount:': {$REST}", "1: NewOrdersPerAccount:: no id after the colon: Name:id is allowed".into()),
    ] {
        let text = text.replace("$REST", REST);
        assert_eq!(faults(&text).join("\n"), wanted, "{text}");
    }
}

#[test]
fn ids() {
    check(
        &[
            (
                "- NewOrdersPerAccount: {$REST, ids: []}",
                &["1: [0].NewOrdersPerAccount.ids: an empty list: at least one id is wanted"],
            ),
            (
                "- NewOrdersPerAccount:\n    burst: 0\n    count: 1\n    period: 1s\n    ids: []",
                &[
                    "2: [0].NewOrdersPerAccount.burst: invalid burst 0: at least 1 is allowed",
                    "5: [0].NewOrdersPerAccount.ids: an empty list: at least one id is wanted",
                ],
            ),
            (
                "- NewOrdersPerAccount: {$REST}",
                &[
                    "1: [0].NewOrdersPerAccount: no ids: an override has a list of them, or one in its key, as Name:id",
                ],
            ),
            (
                "- NewOrdersPerAccount: {$REST, ids: 1}",
                &["1: [0].NewOrdersPerAccount.ids: invalid ids \"1\": a list of ids is allowed"],
            ),
            (
                "- NewOrdersPerAccount: {$REST, ids: }",
                &["1: [0].NewOrdersPerAccount.ids: invalid ids null: a list of ids is allowed"],
            ),
            (
                "- NewOrdersPerAccount: {$REST, ids: {id: 1}}",
                &["1: [0].NewOrdersPerAccount.ids: a map: a list of ids is allowed"],
            ),
            (
                "- NewOrdersPerAccount:\n    ids:\n    - ~\n    - null\n    -\n    - [1]\n    - 1\n    burst: 1\n    count: 1\n    period: 1s",
                &[
                    "3: [0].NewOrdersPerAccount.ids[0]: null: an id is wanted; one that is spelled so must be quoted",
                    "4: [0].NewOrdersPerAccount.ids[1]: null: an id is wanted; one that is spelled so must be quoted",
                    "5: [0].NewOrdersPerAccount.ids[2]: null: an id is wanted; one that is spelled so must be quoted",
                    "6: [0].NewOrdersPerAccount.ids[3]: a list: an id, or a map with id, comment, owner and expires, is allowed",
                ],
            ),
            (
                "- NewOrdersPerAccount: {$REST, ids: [{comment: x}, {id: }, {id: {a: 1}}, {id: 1, comment: [x]}, {}]}",
                &[
                    "1: [0].NewOrdersPerAccount.ids[0]: no id: one is wanted",
                    "1: [0].NewOrdersPerAccount.ids[1].id: null: an id is wanted; one that is spelled so must be quoted",
                    "1: [0].NewOrdersPerAccount.ids[2].id: a map: an id is allowed",
                    "1: [0].NewOrdersPerAccount.ids[3].comment: a list: text is allowed",
                    "1: [0].NewOrdersPerAccount.ids[4]: no id: one is wanted",
                ],
            ),
            (
                "- NewOrdersPerAccount: {$REST, ids: [{id: 1, coment: x}, {id: 2, id: 3}, {Id: 4}]}",
                &[
                    "1: [0].NewOrdersPerAccount.ids[0].coment: unknown field: id, comment, owner and expires are allowed; did you mean comment?",
                    "1: [0].NewOrdersPerAccount.ids[1].id: the field was given before, on line 1",
                    "1: [0].NewOrdersPerAccount.ids[2].Id: unknown field: id, comment, owner and expires are allowed; did you mean id?",
                ],
            ),
            (
                "- NewOrdersPerAccount: {$REST, ids: [1, !!str 2, !x {id: 3}]}",
                &[
                    "1: [0].NewOrdersPerAccount.ids[1]: a tag is not allowed: write the value alone",
                    "1: [0].NewOrdersPerAccount.ids[2]: a tag is not allowed: write the value alone",
                ],
            ),
            (
                "- CertificatesPerDomain:\n    burst: 1\n    count: 1\n    period: 1s\n    ids:\n    - 2602:80a:6000::\n",
                &[
                    "6: [0].CertificatesPerDomain.ids[0]: a map: an id that ends in ':' must be quoted, as \"2602:80a:6000::\"",
                ],
            ),
            (
                "- CertificatesPerDomain:\n    burst: 1\n    count: 1\n    period: 1s\n    ids:\n    - id: 2602:80a:6000::\n",
                &[
                    "6: invalid yaml: mapping values are not allowed in this context; text that has ': ' in it, or ':' at its end, must be quoted",
                    "6: [0].CertificatesPerDomain.ids[0].id: invalid domainOrCIDR \"2602:80a:6000:\": is neither a domain (name contains an invalid character, ':') nor an IP address",
                ],
            ),
        ],
        faults,
    );
    // The message of the format follows the id.
    for (name, id) in [
        ("NewOrdersPerAccount", "007"),
        ("NewOrdersPerAccount", "lol"),
        ("CertificatesPerDomain", "8.8.8.8/32"),
        ("NewRegistrationsPerIPv6Range", "10.0.0.0/16"),
        ("NewRegistrationsPerIPAddress", "2602:080a::1"),
    ] {
        let found = faults(&format!("{name}:{id}: {{{REST}}}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("1: {name}:{id}: invalid ")), "{found:?}");
        assert!(found[0].contains(&format!("{id:?}")), "{found:?}");
    }
}

#[test]
fn duplicate_ids_name_the_first_line() {
    check(
        &[
            (
                "- NewOrdersPerAccount: {$REST, ids: [1,\n    2, 1]}\n- NewOrdersPerAccount: {$REST, ids: [{id: 2}]}\n- NewOrdersPerAccount:2: {$REST}",
                &[
                    "2: [0].NewOrdersPerAccount.ids[2]: the id \"1\" was given before, on line 1",
                    "3: [1].NewOrdersPerAccount.ids[0].id: the id \"2\" was given before, on line 2",
                    "4: [2].NewOrdersPerAccount:2: the id \"2\" was given before, on line 2",
                ],
            ),
            (
                "CertificatesPerFQDNSet:example.com,example.org: {$REST}\nCertificatesPerFQDNSet:example.org,example.com: {$REST}",
                &[
                    "2: CertificatesPerFQDNSet:example.org,example.com: the id \"example.org,example.com\" was given before, on line 1",
                ],
            ),
            (
                "NewOrdersPerAccount:1: {burst: 0, count: 1, period: 1s}\nNewOrdersPerAccount:1: {$REST}",
                &[
                    "1: NewOrdersPerAccount:1.burst: invalid burst 0: at least 1 is allowed",
                    "2: NewOrdersPerAccount:1: the id \"1\" was given before, on line 1",
                ],
            ),
        ],
        faults,
    );
    let error = read_both(
        "\nNewOrdersPerAccount:1: {burst: 1, count: 1, period: 1s}",
        "- NewOrdersPerAccount: {burst: 1, count: 1, period: 1s, ids: [1]}",
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "<overrides>:1: [0].NewOrdersPerAccount.ids[0]: the id \"1\" was given before, on line 2 of <limits>"
    );
}
