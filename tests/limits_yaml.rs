//! Limits from YAML through the public API: what loads, and what is refused in which words.

#![cfg(all(feature = "yaml", feature = "boulder"))]

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use tollgate::{Error, Limits};

/// Every fault on a line, without the file's name.
fn faults(text: &str) -> Vec<String> {
    strip(&Limits::from_yaml(text).expect_err(text), "<text>")
}

/// Every fault of an overrides' file beside a good limits' file.
fn override_faults(text: &str) -> Vec<String> {
    let limits = "Own: {burst: 1, count: 1, period: 1s, id: string}";
    strip(&Limits::from_yaml_with_overrides(limits, text).expect_err(text), "<overrides>")
}

fn strip(error: &Error, file: &str) -> Vec<String> {
    assert!(error.is_config(), "{error}");
    let lines = error.to_string();
    let faults: Vec<String> = error.faults().iter().map(|fault| fault.to_string()).collect();
    assert_eq!(lines, faults.join("\n"));
    let strip = |fault: &String| {
        let rest = fault.strip_prefix(file).unwrap_or_else(|| panic!("{fault}"));
        rest.strip_prefix(':').unwrap_or(rest).trim_start().to_string()
    };
    faults.iter().map(strip).collect()
}

/// `burst/count/period` of what applies to an id.
fn numbers<'a>(
    limits: &Limits,
    name: &str,
    id: impl Into<tollgate::Id<'a>>,
) -> Option<(u64, u64, Duration)> {
    let limit = limits.numbers(name, id).expect("a good id")?;
    Some((limit.burst(), limit.count(), limit.period()))
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The defaults of Boulder's README, all three versions.
const DEFAULTS: &str = "\
NewRegistrationsPerIPAddress:
  burst: 20
  count: 20
  period: 1s
NewOrdersPerAccount:
  burst: 300
  count: 300
  period: 180m
";

/// The overrides of seed 000: the list form.
const LIST: &str = "\
- NewRegistrationsPerIPAddress:
    burst: 20
    count: 40
    period: 1s
    ids:
      - 10.0.0.2
      - 10.0.0.5
- NewOrdersPerAccount:
    burst: 300
    count: 600
    period: 180m
    ids:
      - 12345678
      - 87654321
";

/// The overrides of seed 001: the map form.
const MAP: &str = "\
NewRegistrationsPerIPAddress:10.0.0.2:
  burst: 20
  count: 40
  period: 1s
NewOrdersPerAccount:12345678:
  burst: 300
  count: 600
  period: 180m
";

/// The last example of seed 000, and as 001 has it.
const FOO_LIST: &str = "\
- NewFoosPerIPAddress:
    burst: 20
    count: 20
    period: 1s
    ids:
      - 172.23.45.22
";
const FOO_MAP: &str = "\
NewFoosPerIPAddress:172.23.45.22:
  burst: 20
  count: 20
  period: 1s
";
const FOO_DECLARED: &str = "NewFoosPerIPAddress: {burst: 1, count: 1, period: 1s, id: ipAddress}";

fn without_indentation(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_start())).collect()
}

mod seeds {
    use super::*;

    #[test]
    fn the_defaults_load() {
        let limits = Limits::from_yaml(DEFAULTS).unwrap();
        let names: Vec<&str> = limits.names().collect();
        assert_eq!(names, ["NewRegistrationsPerIPAddress", "NewOrdersPerAccount"]);
        assert_eq!(numbers(&limits, "NewOrdersPerAccount", 1), Some((300, 300, 180 * MINUTE)));
        let address = Ipv4Addr::new(64, 112, 117, 1);
        assert_eq!(
            numbers(&limits, "NewRegistrationsPerIPAddress", address),
            Some((20, 20, SECOND))
        );
    }

    #[test]
    fn the_originals_are_refused_by_their_reserved_addresses() {
        let list = override_faults(LIST);
        assert_eq!(list.len(), 2, "{list:#?}");
        assert!(list[0].starts_with("6: [0].NewRegistrationsPerIPAddress.ids[0]: "), "{}", list[0]);
        assert!(list[0].contains("10.0.0.2") && list[0].contains("reserved"), "{}", list[0]);
        assert!(list[1].starts_with("7: [0].NewRegistrationsPerIPAddress.ids[1]: "), "{}", list[1]);
        assert!(list[1].contains("10.0.0.5") && list[1].contains("reserved"), "{}", list[1]);
        let map = override_faults(MAP);
        assert_eq!(map.len(), 1, "{map:#?}");
        assert!(map[0].starts_with("1: NewRegistrationsPerIPAddress:10.0.0.2: "), "{}", map[0]);
        assert!(map[0].contains("reserved"), "{}", map[0]);
    }

    #[test]
    fn the_overrides_load_with_public_addresses() {
        for text in [LIST, MAP] {
            let text = text.replace("10.0.0.", "64.112.117.");
            let limits = Limits::from_yaml_with_overrides(DEFAULTS, &text).unwrap();
            assert_eq!(limits.overrides(), if text.starts_with('-') { 4 } else { 2 });
            let doubled = Some((300, 600, 180 * MINUTE));
            assert_eq!(numbers(&limits, "NewOrdersPerAccount", 12_345_678_u64), doubled);
            assert_eq!(numbers(&limits, "NewOrdersPerAccount", 1), Some((300, 300, 180 * MINUTE)));
            let address = Ipv4Addr::new(64, 112, 117, 2);
            let doubled = Some((20, 40, SECOND));
            assert_eq!(numbers(&limits, "NewRegistrationsPerIPAddress", address), doubled);
        }
    }

    #[test]
    fn a_limit_that_is_not_boulders_is_refused_until_it_is_declared() {
        for (text, path) in [
            (FOO_LIST, "1: [0].NewFoosPerIPAddress"),
            (FOO_MAP, "1: NewFoosPerIPAddress:172.23.45.22"),
        ] {
            let hint = "a limit of one's own is declared before its overrides, with the format of its ids, such as id: ipAddress";
            assert_eq!(
                override_faults(text),
                [format!("{path}: unknown limit \"NewFoosPerIPAddress\"; {hint}")]
            );
            let limits = Limits::from_yaml_with_overrides(FOO_DECLARED, text).unwrap();
            let address = Ipv4Addr::new(172, 23, 45, 22);
            assert_eq!(numbers(&limits, "NewFoosPerIPAddress", address), Some((20, 20, SECOND)));
            let other = Ipv4Addr::new(172, 23, 45, 23);
            assert_eq!(numbers(&limits, "NewFoosPerIPAddress", other), Some((1, 1, SECOND)));
        }
    }

    #[test]
    fn lost_indentation_is_refused_by_name() {
        // Seed 002 has the defaults, the list and the last example so.
        let defaults = faults(&without_indentation(DEFAULTS));
        assert_eq!(
            defaults,
            [
                "1: NewRegistrationsPerIPAddress: null: a map with burst, count and period is allowed",
                "2: burst: \"burst\" where a limit's name is allowed: is it a field to indent?",
                "3: count: \"count\" where a limit's name is allowed: is it a field to indent?",
                "4: period: \"period\" where a limit's name is allowed: is it a field to indent?",
                "5: NewOrdersPerAccount: null: a map with burst, count and period is allowed",
                "6: burst: the name was given before, on line 2 of the same map",
                "7: count: the name was given before, on line 3 of the same map",
                "8: period: the name was given before, on line 4 of the same map",
            ]
        );
        for (text, name) in
            [(LIST, "NewRegistrationsPerIPAddress"), (FOO_LIST, "NewFoosPerIPAddress")]
        {
            let found = override_faults(&without_indentation(text));
            assert!(found[0].starts_with(&format!("1: [0].{name}: ")), "{found:#?}");
            assert!(found[found.len() - 1].contains("invalid yaml: "), "{found:#?}");
        }
    }

    #[test]
    fn the_sample_ids_of_the_text_load_once_they_are_canonical_and_public() {
        let limits = Limits::from_yaml(
            "\
NewRegistrationsPerIPAddress:64.112.117.1: {burst: 1, count: 1, period: 1s}
NewRegistrationsPerIPAddress:2602:80a:6000::42:8329: {burst: 2, count: 1, period: 1s}
NewRegistrationsPerIPv6Range:2602:80a:6000::/48: {burst: 3, count: 1, period: 1s}
NewOrdersPerAccount:12345678: {burst: 4, count: 1, period: 1s}
CertificatesPerDomain:example.com: {burst: 5, count: 1, period: 1s}
CertificatesPerDomain:64.112.117.0: {burst: 6, count: 1, period: 1s}
'CertificatesPerDomain:2602:80a:6000:666::': {burst: 7, count: 1, period: 1s}
CertificatesPerDomainPerAccount:12345678:example.com: {burst: 8, count: 1, period: 1s}
CertificatesPerFQDNSet:64.112.117.1,example.com,example.org: {burst: 9, count: 1, period: 1s}
CertificatesPerFQDNSetPerAccount:12345678:example.com,example.org: {burst: 10, count: 1, period: 1s}
",
        )
        .unwrap();
        let burst = |name, id: &str| limits.numbers(name, id).unwrap().map(|limit| limit.burst());
        for (name, id, wanted) in [
            ("NewRegistrationsPerIPAddress", "64.112.117.1", 1),
            ("NewRegistrationsPerIPAddress", "2602:80a:6000::42:8329", 2),
            ("NewRegistrationsPerIPv6Range", "2602:80a:6000:1::1", 3),
            ("NewOrdersPerAccount", "12345678", 4),
            ("CertificatesPerDomain", "www.example.com", 5),
            ("CertificatesPerDomain", "64.112.117.0", 6),
            ("CertificatesPerDomain", "2602:80a:6000:666::99", 7),
            ("CertificatesPerDomainPerAccount", "12345678:www.example.com", 8),
            ("CertificatesPerFQDNSet", "example.org,EXAMPLE.com,64.112.117.1", 9),
            ("CertificatesPerFQDNSetPerAccount", "12345678:example.org,example.com", 10),
        ] {
            assert_eq!(burst(name, id), Some(wanted), "{name} {id}");
        }
    }
}

mod good {
    use super::*;

    #[test]
    fn boulders_fixtures_load_with_public_addresses() {
        let limits = Limits::from_yaml_with_overrides(
            "{NewRegistrationsPerIPAddress: {burst: 20, count: 20, period: 1s},
              NewRegistrationsPerIPv6Range: {burst: 30, count: 30, period: 2s}}",
            "\
- NewRegistrationsPerIPAddress: {burst: 40, count: 40, period: 1s, ids: [{id: 64.112.117.1, comment: Foo}]}
- NewRegistrationsPerIPv6Range:
    burst: 50
    count: 50
    period: 2s
    ids: [{id: '2602:80a:6000::/48', comment: Foo}]
- FailedAuthorizationsPerDomainPerAccount: &shared
    burst: 60
    count: 60
    period: 3s
    ids:
      - {id: 1234, comment: Foo}
      - {id: 5678}
- CertificatesPerFQDNSet: {burst: 40, count: 40, period: 1s, ids: [{id: example.com}]}
- CertificatesPerFQDNSet: {burst: 50, count: 50, period: 2s, ids: [{id: 'example.com,example.net'}]}
- CertificatesPerFQDNSet:
    burst: 60
    count: 60
    period: 4s
    ids: [{id: '2602:80a:6000::1,9.9.9.9,example.com'}]
- CertificatesPerDomainPerAccount: {burst: 1337, count: 1337, period: 2160h, ids: [{id: 13371338}]}
  FailedAuthorizationsForPausingPerDomainPerAccount: {burst: 1337, count: 1, period: 24h, ids: [id: 13371338]}
",
        )
        .unwrap();
        assert_eq!(limits.overrides(), 9);
        let address = Ipv4Addr::new(64, 112, 117, 1);
        assert_eq!(
            numbers(&limits, "NewRegistrationsPerIPAddress", address),
            Some((40, 40, SECOND))
        );
        let failed = "FailedAuthorizationsPerDomainPerAccount";
        assert_eq!(numbers(&limits, failed, (5678, "a.example.com")), Some((60, 60, 3 * SECOND)));
        assert_eq!(numbers(&limits, failed, (5679, "a.example.com")), None);
        let sets = "CertificatesPerFQDNSet";
        assert_eq!(numbers(&limits, sets, "example.net,example.com"), Some((50, 50, 2 * SECOND)));
        let pausing = "FailedAuthorizationsForPausingPerDomainPerAccount";
        assert_eq!(
            numbers(&limits, pausing, (13_371_338, "example.com")),
            Some((1337, 1, 1440 * MINUTE))
        );
        assert_eq!(
            numbers(&limits, "CertificatesPerDomainPerAccount", (13_371_338, "example.com")),
            Some((1337, 1337, 2160 * 60 * MINUTE))
        );
    }

    #[test]
    fn all_forms_mix_in_one_file_and_fields_come_in_any_order() {
        let limits = Limits::from_yaml(
            "\u{feff}%YAML 1.2\n---\n\
Own: {id: string, algorithm: gcra, period: 1s, count: 1, burst: 1}
Own:a:b: {period: \"2s\", count: 1, burst: 2}
NewOrdersPerAccount: # ids come first
  ids: [1, {comment: one more, id: '2'}, {id: 3, comment: }]
  period: 1m
  burst: 3
  count: 1
Second.own_limit-2: {burst: 4, count: 1, period: 1s, id: string}
\"Second.own_limit-2:x\": {burst: 5, count: 1, period: 1s}
...
",
        )
        .unwrap();
        assert_eq!(numbers(&limits, "Own", "other"), Some((1, 1, SECOND)));
        assert_eq!(numbers(&limits, "Own", "a:b"), Some((2, 1, 2 * SECOND)));
        for id in 1..4 {
            assert_eq!(numbers(&limits, "NewOrdersPerAccount", id), Some((3, 1, MINUTE)));
        }
        assert_eq!(numbers(&limits, "NewOrdersPerAccount", 4), None);
        assert_eq!(numbers(&limits, "Second.own_limit-2", "x"), Some((5, 1, SECOND)));
        let list = Limits::from_yaml(
            "- NewOrdersPerAccount:7: {burst: 1, count: 1, period: 1s}\n\
             - NewOrdersPerAccount: {burst: 2, count: 1, period: 1s, ids: [8]}\n  \
               CertificatesPerDomain: {burst: 3, count: 1, period: 1s, ids: [example.com, {id: example.org}]}\n",
        )
        .unwrap();
        assert_eq!(list.overrides(), 4);
        assert_eq!(numbers(&list, "NewOrdersPerAccount", 7), Some((1, 1, SECOND)));
        assert_eq!(numbers(&list, "CertificatesPerDomain", "example.org"), Some((3, 1, SECOND)));
    }

    #[test]
    fn the_most_specific_override_of_a_composite_wins() {
        let name = "CertificatesPerDomainPerAccount";
        let whole = format!("{name}:12345678:example.com: {{burst: 2, count: 1, period: 1s}}\n");
        let account = format!("{name}:12345678: {{burst: 1, count: 1, period: 1s}}\n");
        for text in [format!("{whole}{account}"), format!("{account}{whole}")] {
            let limits = Limits::from_yaml(&text).unwrap();
            assert_eq!(
                numbers(&limits, name, (12_345_678, "www.example.com")),
                Some((2, 1, SECOND))
            );
            assert_eq!(numbers(&limits, name, (12_345_678, "example.org")), Some((1, 1, SECOND)));
            assert_eq!(numbers(&limits, name, (1, "example.com")), None);
        }
    }

    #[test]
    fn an_operators_own_limit_may_have_an_override_for_a_reserved_address() {
        let limits = Limits::from_yaml(
            "Own: {burst: 1, count: 1, period: 1s, id: ipAddress}\nOwn:10.0.0.5: {burst: 2, count: 1, period: 1s}",
        )
        .unwrap();
        assert_eq!(numbers(&limits, "Own", Ipv4Addr::new(10, 0, 0, 5)), Some((2, 1, SECOND)));
    }

    #[test]
    fn an_overrides_file_may_have_none() {
        for text in ["{}", "[]", "--- # none\n[]\n"] {
            let limits = Limits::from_yaml_with_overrides(DEFAULTS, text).unwrap();
            assert_eq!(limits.overrides(), 0);
        }
    }

    #[test]
    fn json_is_yaml_and_quoted_brackets_count_for_nothing() {
        let brackets = "[{".repeat(500);
        let text = format!(
            "# {}\n{{\"Own\": {{\"burst\": 1, \"count\": 1, \"period\": \"1s\", \"id\": \"string\"}},\n\
             \"Own:{brackets}\": {{\"burst\": 2, \"count\": 1, \"period\": \"1s\"}}}}\n",
            "[".repeat(1000)
        );
        let limits = Limits::from_yaml(&text).unwrap();
        assert_eq!(numbers(&limits, "Own", &*brackets), Some((2, 1, SECOND)));
    }

    #[test]
    fn a_block_scalar_of_brackets_and_stars_is_text() {
        let text = "\
- NewOrdersPerAccount:
    burst: 1
    count: 1
    period: 1s
    ids:
      - id: 1
        comment: |
          [[[[ {{{{ *a &b !c
          \"' - - - # %
";
        assert_eq!(Limits::from_yaml(text).unwrap().overrides(), 1);
    }

    #[test]
    fn names_and_ids_that_look_like_other_types_are_text() {
        let text = "Own: {burst: 1, count: 1, period: 1s, id: string}\n\
                    'Own:null': {burst: 2, count: 1, period: 1s}\n";
        let ids = "- Own: {burst: 3, count: 1, period: 1s, ids: [true, 1e5, 007, 'null', '~', 0x1F, 1_000]}";
        let limits = Limits::from_yaml_with_overrides(text, &ids.replace("'null', ", "")).unwrap();
        for id in ["true", "1e5", "007", "~", "0x1F", "1_000"] {
            assert_eq!(numbers(&limits, "Own", id), Some((3, 1, SECOND)), "{id}");
        }
        assert_eq!(numbers(&limits, "Own", "null"), Some((2, 1, SECOND)));
    }
}

mod refused {
    use super::*;

    /// `A`: the numbers of an override that are in order.
    const REST: &str = "burst: 1, count: 1, period: 1s";

    #[track_caller]
    fn check(table: &[(&str, &[&str])], faults: fn(&str) -> Vec<String>) {
        for (text, wanted) in table {
            let text = text.replace("$REST", REST);
            assert_eq!(faults(&text), *wanted, "{text}");
        }
    }

    #[test]
    fn numbers() {
        let whole = "a whole number from 1, in plain digits, is allowed";
        for given in
            ["20.7", "1_000", "0x10", "+5", "-1", "1e3", "true", "020", "00", "1 2", "\u{661}"]
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
            long[0]
                .starts_with("2: NewOrdersPerAccount.burst: invalid burst 9000000000000000000: "),
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
                "invalid period \"3000000h\": at most 2^63 - 1 ns, about 2562047h, is allowed"
                    .into(),
            ),
        ] {
            let text = format!("NewOrdersPerAccount: {{burst: 1, count: 1, period: {given}}}");
            assert_eq!(
                faults(&text),
                [format!("1: NewOrdersPerAccount.period: {wanted}")],
                "{given}"
            );
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
                        "2: NewOrdersPerAccount.Burst: unknown field: burst, count, period, ids, id and algorithm are allowed; did you mean burst?",
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
                    &[
                        "1: NewOrdersPerAccount.comment: unknown field: burst, count, period, ids, id and algorithm are allowed",
                    ],
                ),
                (
                    "NewOrdersPerAccount: {$REST, perod: {a: [b]}}",
                    &[
                        "1: NewOrdersPerAccount.perod: unknown field: burst, count, period, ids, id and algorithm are allowed; did you mean period?",
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
                        "1: NewOrdersPerAccount:1.ids: unknown field: burst, count and period are allowed",
                    ],
                ),
                (
                    "A: {$REST, id: ipaddress}\nA:1.1.1.1: {$REST}",
                    &[
                        "1: A.id: invalid id \"ipaddress\": string, ipAddress, regId, ipv6RangeCIDR, identValue, domainOrCIDR, fqdnSet, regId:identValue, regId:domainOrCIDR, regId:domain and regId:fqdnSet are allowed; did you mean ipAddress?",
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
                    "A: {algorithm: fixed_window, limit: 10, window: 60s, id: string}",
                    &[
                        "1: A.algorithm: invalid algorithm \"fixed_window\": not in this version; allowed: gcra",
                    ],
                ),
                (
                    "A: {limit: 15, window: 60s, burst: 3, id: string, algorithm: token_bucket}\nA:x: {$REST}",
                    &[
                        "1: A.algorithm: invalid algorithm \"token_bucket\": not in this version; allowed: gcra",
                    ],
                ),
                (
                    "A: {algorithm: leaky_bucket, max: 10, duration: 5s, min_interval: 1s, id: string}",
                    &[
                        "1: A.algorithm: invalid algorithm \"leaky_bucket\": not in this version; allowed: gcra",
                    ],
                ),
                (
                    "A: {algorithm: GCRA, $REST, id: string}",
                    &[
                        "1: A.algorithm: invalid algorithm \"GCRA\": allowed: gcra; did you mean gcra?",
                    ],
                ),
                (
                    "A: {limit: 10, $REST, id: string}",
                    &[
                        "1: A.limit: unknown field: burst, count, period, ids, id and algorithm are allowed",
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
        let own = "a limit of one's own is declared before its overrides, with the format of its ids, such as id: ipAddress";
        let unknown = |line: u64, path: &str, name: &str, hint: &str| {
            format!("{line}: {path}: unknown limit {name:?}{hint}; {own}")
        };
        for (text, wanted) in [
            (
                "NewOrderPerAccount: {$REST}",
                unknown(1, "NewOrderPerAccount", "NewOrderPerAccount", "; did you mean NewOrdersPerAccount?"),
            ),
            ("UsageRequestsPerIPv10Address: {$REST}", unknown(1, "UsageRequestsPerIPv10Address", "UsageRequestsPerIPv10Address", "")),
            ("Unknown: {$REST}", unknown(1, "Unknown", "Unknown", "")),
            ("'1': {$REST}", unknown(1, "1", "1", "")),
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
                    &[
                        "1: [0].NewOrdersPerAccount.ids: invalid ids \"1\": a list of ids is allowed",
                    ],
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
                        "6: [0].NewOrdersPerAccount.ids[3]: a list: an id, or a map with id and comment, is allowed",
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
                        "1: [0].NewOrdersPerAccount.ids[0].coment: unknown field: id and comment are allowed; did you mean comment?",
                        "1: [0].NewOrdersPerAccount.ids[1].id: the field was given before, on line 1",
                        "1: [0].NewOrdersPerAccount.ids[2].Id: unknown field: id and comment are allowed; did you mean id?",
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
                        "6: [0].CertificatesPerDomain.ids[0].id: invalid domainOrCIDR \"2602:80a:6000:\": is neither a domain (name contains an invalid character, ':') nor an IP address",
                        "6: invalid yaml: mapping values are not allowed in this context; text that has ': ' in it, or ':' at its end, must be quoted",
                    ],
                ),
            ],
            faults,
        );
        // The format's own words follow the id.
        for (name, id) in [
            ("NewOrdersPerAccount", "007"),
            ("NewOrdersPerAccount", "lol"),
            ("CertificatesPerDomain", "www.example.com"),
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
    fn duplicate_ids_with_the_place_where_they_were_given_first() {
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
        let error = Limits::from_yaml_with_overrides(
            "\nNewOrdersPerAccount:1: {burst: 1, count: 1, period: 1s}",
            "- NewOrdersPerAccount: {burst: 1, count: 1, period: 1s, ids: [1]}",
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "<overrides>:1: [0].NewOrdersPerAccount.ids[0]: the id \"1\" was given before, on line 2 of <limits>"
        );
    }

    #[test]
    fn whole_files() {
        check(
            &[
                ("", &["the file is empty: at least one limit is wanted"]),
                ("# nothing\n\n", &["the file is empty: at least one limit is wanted"]),
                ("\u{feff}", &["the file is empty: at least one limit is wanted"]),
                ("null", &["1: the file is null: at least one limit is wanted"]),
                ("---\n", &["2: the file is null: at least one limit is wanted"]),
                ("{}", &["1: the file declares nothing: at least one limit is wanted"]),
                ("\n[]", &["2: the file declares nothing: at least one limit is wanted"]),
                ("- {}\n", &["1: [0]: an empty map: at least one limit is wanted"]),
                ("hello", &["1: \"hello\": a map of limits, or a list of such maps, is allowed"]),
                ("- a", &["1: [0]: \"a\": a map from a limit's name to its numbers is allowed"]),
                ("-", &["1: [0]: null: a map from a limit's name to its numbers is allowed"]),
                ("- - a", &["1: [0]: a list: a map from a limit's name to its numbers is allowed"]),
                (
                    "NewOrdersPerAccount: {$REST}\n---\nNewOrdersPerAccount: {$REST}",
                    &["2: a second document: exactly one is allowed"],
                ),
                (
                    "NewOrdersPerAccount: {$REST}\n---\n",
                    &["2: a second document: exactly one is allowed"],
                ),
                (
                    "NewOrdersPerAccount: &a {$REST}\nCertificatesPerDomain: *a",
                    &["2: CertificatesPerDomain: an alias is not allowed: write the value itself"],
                ),
                (
                    "NewOrdersPerAccount: &a {$REST}\nCertificatesPerDomain: {<<: *a}",
                    &[
                        "2: CertificatesPerDomain.\"<<\": unknown field: burst, count, period, ids, id and algorithm are allowed",
                        "2: CertificatesPerDomain.\"<<\": an alias is not allowed: write the value itself",
                        "2: CertificatesPerDomain: no burst: a whole number from 1 is wanted",
                        "2: CertificatesPerDomain: no count: a whole number from 1 is wanted",
                        "2: CertificatesPerDomain: no period: a duration such as 60s, 180m or 1h30m is wanted",
                    ],
                ),
                (
                    "NewOrdersPerAccount: *a",
                    &["1: an alias is not allowed: write the value itself"],
                ),
                (
                    "!!map {NewOrdersPerAccount: {$REST}}",
                    &["1: a tag is not allowed: write the value alone"],
                ),
                (
                    "a\0b",
                    &["1: not a text: byte 0x00; utf-8 without control characters is allowed"],
                ),
                (
                    "a: b\n\u{1b}",
                    &["2: not a text: byte 0x1b; utf-8 without control characters is allowed"],
                ),
                (
                    "NewOrdersPerAccount: {$REST}\n\"",
                    &[
                        "2: invalid yaml: while scanning a quoted scalar, found unexpected end of stream",
                    ],
                ),
                (
                    "NewOrdersPerAccount:\n\t- a",
                    &["2: invalid yaml: tabs disallowed within this context (block indentation)"],
                ),
            ],
            faults,
        );
    }

    #[test]
    fn defaults_in_an_overrides_file() {
        let wanted = "no ids: an override has a list of them, or one in its key, as Name:id";
        check(
            &[
                ("NewOrdersPerAccount: {$REST}", &[&format!("1: NewOrdersPerAccount: {wanted}")]),
                (
                    "Own: {$REST, ids: [a]}\nOwn: {$REST, ids: [b]}",
                    &["2: Own: the name was given before, on line 1 of the same map"],
                ),
                (
                    "Own: {$REST, id: string}",
                    &[
                        "1: Own.id: unknown field: burst, count, period and ids are allowed; did you mean ids?",
                        &format!("1: Own: {wanted}"),
                    ],
                ),
                ("", &["the file is empty: at least one limit is wanted"]),
                ("null", &["1: the file is null: at least one limit is wanted"]),
            ],
            override_faults,
        );
    }

    #[test]
    fn nesting_above_64_and_not_64() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
            faults(&format!("NewOrdersPerAccount: {{{REST}, x: {open}{close}}}"))
        };
        let unknown = "1: NewOrdersPerAccount.x: unknown field: burst, count, period, ids, id and algorithm are allowed";
        assert_eq!(nested(64), [unknown]);
        assert_eq!(nested(65), [unknown, "1: nested too deep: at most 64 levels are allowed"]);
        assert_eq!(nested(400), [unknown, "1: nested too deep: at most 64 levels are allowed"]);
    }

    #[test]
    fn all_ten_faults_of_a_file_in_its_order() {
        let text = "\
NewOrdersPerAccount:
  burst: 20.7
  count: \"20\"
  perod: 1s
NewOrderPerAccount: {burst: 1, count: 1, period: 1s}
Mine: {burst: 1, count: 1, period: 60, id: string}
Mine:a: {burst: 1, count: 1}
Mine:b: {burst: 1, count: 1, period: 1s, burst: 2}
NewRegistrationsPerIPAddress:10.0.0.1: {burst: 1, count: 1, period: 1s}
Faulty: {burst: 1, count: 1, period: 1s, id: strnig}
Faulty:x: {burst: 1, count: 1, period: 1s}
CertificatesPerDomain:
";
        let places: Vec<(u64, String)> = Limits::from_yaml(text)
            .unwrap_err()
            .faults()
            .iter()
            .map(|fault| (fault.line.unwrap(), fault.path.clone()))
            .collect();
        let places: Vec<(u64, &str)> = places.iter().map(|(line, path)| (*line, &**path)).collect();
        assert_eq!(
            places,
            [
                (1, "NewOrdersPerAccount"),
                (2, "NewOrdersPerAccount.burst"),
                (3, "NewOrdersPerAccount.count"),
                (4, "NewOrdersPerAccount.perod"),
                (5, "NewOrderPerAccount"),
                (6, "Mine.period"),
                (7, "Mine:a"),
                (8, "Mine:b.burst"),
                (9, "NewRegistrationsPerIPAddress:10.0.0.1"),
                (10, "Faulty.id"),
                (12, "CertificatesPerDomain"),
            ]
        );
    }

    #[test]
    fn a_hundred_thousand_faults_are_enough() {
        let found = faults(&"a: 1\n".repeat(200_000));
        assert_eq!(found.len(), 100_001);
        assert_eq!(
            found[100_000],
            "99999: at least 100000 faults: the rest of the file was not read"
        );
    }

    #[test]
    fn what_the_parser_would_hold_back() {
        let wanted = "more than 1048576 commas, colons, quotes and brackets in one text, or in one list or map in brackets: write it without brackets, one item a line";
        assert_eq!(faults(&format!("- [{}", "a,".repeat(2_000_000))), [format!("1: {wanted}")]);
        assert_eq!(
            faults(&format!("a:\n {}", "[],".repeat(2_000_000))).pop(),
            Some(
                "2: invalid yaml: while parsing a block mapping, did not find expected key".into()
            )
        );
    }

    #[test]
    fn a_faulty_value_is_not_read_for_ever() {
        let text = format!("NewOrdersPerAccount: {{{REST}, x:\n [{}]}}", "a,\n ".repeat(200_000));
        let found = faults(&text);
        assert_eq!(found.len(), 2, "{found:?}");
        let wanted = "100001: more than 100000 values where they are not allowed: the rest of the file was not read";
        assert_eq!(found[1], wanted);
    }

    #[test]
    fn a_long_value_is_shortened() {
        let text = format!(
            "NewOrdersPerAccount: {{burst: {}, count: 1, period: 1s}}",
            "9".repeat(1_000_000)
        );
        let given = format!("\"{}\"...", "9".repeat(64));
        let wanted = format!(
            "1: NewOrdersPerAccount.burst: invalid burst {given}: at most 18446744073709551615 is allowed"
        );
        assert_eq!(faults(&text), [wanted]);
        assert!(
            faults(&format!("? {}\n: 1", "a".repeat(1_000_000)))
                .iter()
                .all(|fault| fault.len() < 400)
        );
    }
}

mod files {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn load_from_disk_and_faults_of_both_are_reported() {
        let limits = file(DEFAULTS.as_bytes());
        let overrides = file(MAP.replace("10.0.0.2", "64.112.117.1").as_bytes());
        let loaded = Limits::from_yaml_files(limits.path(), Some(overrides.path())).unwrap();
        assert_eq!(loaded.overrides(), 2);

        let (limits, overrides) = (file(b"Own: 1"), file(b"NewOrdersPerAccount:1:\nOwn:1: 2"));
        let error = Limits::from_yaml_files(limits.path(), Some(overrides.path())).unwrap_err();
        let files: Vec<&str> = error.faults().iter().map(|fault| &*fault.file).collect();
        let (limits, overrides) =
            (limits.path().to_str().unwrap(), overrides.path().to_str().unwrap());
        assert_eq!(files, [limits, limits, overrides, overrides], "{error}");
    }

    #[test]
    fn that_cannot_be_read_are_io_errors_unless_more_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing.yml");
        let error = Limits::from_yaml_files(&missing, None).unwrap_err();
        assert!(error.is_io() && !error.is_config());
        assert!(
            error
                .to_string()
                .starts_with(&format!("{}: cannot be read: no such file", missing.display()))
        );

        let error = Limits::from_yaml_files(dir.path(), Some(&missing)).unwrap_err();
        assert!(error.is_io());
        let text = error.to_string();
        assert!(text.contains("cannot be read: it is a directory\n"), "{text}");
        assert!(text.contains("missing.yml: cannot be read"), "{text}");

        // What the missing file may declare is not called unknown; what is wrong by itself is.
        let overrides = file(b"- Own: {burst: 0, count: 1, period: 1s, ids: [a]}");
        let error = Limits::from_yaml_files(&missing, Some(overrides.path())).unwrap_err();
        assert!(error.is_config());
        let messages: Vec<&str> = error.faults().iter().map(|fault| &*fault.message).collect();
        assert_eq!(messages.len(), 2, "{error}");
        assert_eq!(messages[1], "invalid burst 0: at least 1 is allowed");
    }

    #[test]
    fn that_are_no_text_name_the_line() {
        for (bytes, wanted) in [
            (
                &b"a: b\n\xff\xfe"[..],
                ":2: not a text: byte 0xff; utf-8 without control characters is allowed",
            ),
            (
                b"\x7fELF\x02\x01",
                ":1: not a text: byte 0x02; utf-8 without control characters is allowed",
            ),
        ] {
            let file = file(bytes);
            let error = Limits::from_yaml_files(file.path(), None).unwrap_err();
            assert!(error.is_config());
            assert_eq!(error.to_string(), format!("{}{wanted}", file.path().display()));
        }
    }

    #[test]
    fn above_128_mib_are_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len((128 << 20) + 1).unwrap();
        let error = Limits::from_yaml_files(file.path(), None).unwrap_err();
        assert!(error.is_config());
        assert_eq!(
            error.faults()[0].message,
            "too long: at most 134217728 bytes (128 MiB) are allowed"
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn without_a_length_are_read_no_further_than_128_mib() {
        let error = Limits::from_yaml_files("/dev/zero", None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/dev/zero: too long: at most 134217728 bytes (128 MiB) are allowed"
        );
    }
}
