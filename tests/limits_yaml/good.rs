//! Tests files that load.

use super::*;

#[test]
fn boulders_fixtures_load_with_public_addresses() {
    let limits = read_both(
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
    assert_eq!(numbers(&limits, "NewRegistrationsPerIPAddress", address), Some((40, 40, SECOND)));
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
fn forms_mix_and_fields_come_in_any_order() {
    let limits = read(
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
    let list = read(
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
        let limits = read(&text).unwrap();
        assert_eq!(numbers(&limits, name, (12_345_678, "www.example.com")), Some((2, 1, SECOND)));
        assert_eq!(numbers(&limits, name, (12_345_678, "example.org")), Some((1, 1, SECOND)));
        assert_eq!(numbers(&limits, name, (1, "example.com")), None);
    }
}

#[test]
fn custom_limits_accept_overrides_for_reserved_addresses() {
    let limits = read(
        "Own: {burst: 1, count: 1, period: 1s, id: ipAddress}\nOwn:10.0.0.5: {burst: 2, count: 1, period: 1s}",
    )
    .unwrap();
    assert_eq!(numbers(&limits, "Own", Ipv4Addr::new(10, 0, 0, 5)), Some((2, 1, SECOND)));
}

#[test]
fn a_file_of_overrides_may_be_empty() {
    for text in ["{}", "[]", "--- # none\n[]\n"] {
        let limits = read_both(DEFAULTS, text).unwrap();
        assert_eq!(limits.overrides(), 0);
    }
}

#[test]
fn json_is_yaml_and_quoted_brackets_are_text() {
    let brackets = "[{".repeat(500);
    let text = format!(
        "# {}\n{{\"Own\": {{\"burst\": 1, \"count\": 1, \"period\": \"1s\", \"id\": \"string\"}},\n\
             \"Own:{brackets}\": {{\"burst\": 2, \"count\": 1, \"period\": \"1s\"}}}}\n",
        "[".repeat(1000)
    );
    let limits = read(&text).unwrap();
    assert_eq!(numbers(&limits, "Own", &*brackets), Some((2, 1, SECOND)));
}

#[test]
fn block_scalar_of_brackets_and_stars_is_text() {
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
    assert_eq!(read(text).unwrap().overrides(), 1);
}

#[test]
fn names_and_ids_like_other_types_are_text() {
    let text = "Own: {burst: 1, count: 1, period: 1s, id: string}\n\
                    'Own:null': {burst: 2, count: 1, period: 1s}\n";
    let ids =
        "- Own: {burst: 3, count: 1, period: 1s, ids: [true, 1e5, 007, 'null', '~', 0x1F, 1_000]}";
    let limits = read_both(text, &ids.replace("'null', ", "")).unwrap();
    for id in ["true", "1e5", "007", "~", "0x1F", "1_000"] {
        assert_eq!(numbers(&limits, "Own", id), Some((3, 1, SECOND)), "{id}");
    }
    assert_eq!(numbers(&limits, "Own", "null"), Some((2, 1, SECOND)));
}
