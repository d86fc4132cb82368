//! Tests the examples of the three versions of Boulder's README.

use super::*;

#[test]
fn the_defaults_load() {
    let limits = read(DEFAULTS).unwrap();
    let names: Vec<&str> = limits.names().collect();
    assert_eq!(names, ["NewRegistrationsPerIPAddress", "NewOrdersPerAccount"]);
    assert_eq!(numbers(&limits, "NewOrdersPerAccount", 1), Some((300, 300, 180 * MINUTE)));
    let address = Ipv4Addr::new(64, 112, 117, 1);
    assert_eq!(numbers(&limits, "NewRegistrationsPerIPAddress", address), Some((20, 20, SECOND)));
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
        let limits = read_both(DEFAULTS, &text).unwrap();
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
fn custom_limit_is_refused_until_declared() {
    for (text, path) in
        [(FOO_LIST, "1: [0].NewFoosPerIPAddress"), (FOO_MAP, "1: NewFoosPerIPAddress:172.23.45.22")]
    {
        let hint = "a custom limit is declared before its overrides, with the format of its ids, such as id: ipAddress";
        assert_eq!(
            override_faults(text),
            [format!("{path}: unknown limit \"NewFoosPerIPAddress\"; {hint}")]
        );
        let limits = read_both(FOO_DECLARED, text).unwrap();
        let address = Ipv4Addr::new(172, 23, 45, 22);
        assert_eq!(numbers(&limits, "NewFoosPerIPAddress", address), Some((20, 20, SECOND)));
        let other = Ipv4Addr::new(172, 23, 45, 23);
        assert_eq!(numbers(&limits, "NewFoosPerIPAddress", other), Some((1, 1, SECOND)));
    }
}

#[test]
fn lost_indentation_is_refused_by_name() {
    // Seed 002 has the defaults, the list and the last example without indentation.
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
    for (text, name) in [(LIST, "NewRegistrationsPerIPAddress"), (FOO_LIST, "NewFoosPerIPAddress")]
    {
        let found = override_faults(&without_indentation(text));
        assert!(found[0].starts_with(&format!("1: [0].{name}: ")), "{found:#?}");
        assert!(found[found.len() - 1].contains("invalid yaml: "), "{found:#?}");
    }
}

#[test]
fn sample_ids_load_once_canonical_and_public() {
    let limits = read(
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
    let burst = |name, id: &str| limits.limit_for(name, id).unwrap().map(|limit| limit.burst());
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

/// Tests the files of `tests/seeds`, as the READMEs print them.
mod allow_reserved {
    use std::fs;

    use tollgate::limits::Loader;

    use super::*;

    const DEFAULTS: &str = include_str!("../seeds/defaults.yml");
    const PRINTED: [(&str, &str, usize); 2] = [
        ("list.yml", include_str!("../seeds/list.yml"), 5),
        ("map.yml", include_str!("../seeds/map.yml"), 3),
    ];

    #[test]
    fn printed_overrides_load_only_with_the_option() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("defaults.yml"), DEFAULTS).unwrap();
        for (name, overrides, count) in PRINTED {
            fs::write(path(name), overrides).unwrap();
            let load = |loader: Loader| loader.files(path("defaults.yml"), Some(&path(name)));
            let refused = load(Loader::new()).unwrap_err();
            assert!(refused.faults().iter().all(|fault| fault.message.contains("reserved")));
            let limits = load(Loader::new().allow_reserved(true)).unwrap();
            assert_eq!(limits.overrides(), count, "{name}");
            let address = Ipv4Addr::new(10, 0, 0, 2);
            let doubled = Some((20, 40, SECOND));
            assert_eq!(numbers(&limits, "NewRegistrationsPerIPAddress", address), doubled);
            let address = Ipv4Addr::new(172, 23, 45, 22);
            assert_eq!(numbers(&limits, "NewFoosPerIPAddress", address), Some((20, 20, SECOND)));
        }
    }

    /// Of the 13 sample ids, 5 load without the option and 11 with it. Two are refused for their form, as in Boulder;
    /// the message has the form that loads.
    #[test]
    fn sample_ids_load_in_canonical_form() {
        let allowing = Loader::new().allow_reserved(true);
        for (name, id, loads_without, loads_with) in [
            ("NewRegistrationsPerIPAddress", "10.0.0.1", false, true),
            (
                "NewRegistrationsPerIPAddress",
                "2001:0db8:0000:0000:0000:ff00:0042:8329",
                false,
                false,
            ),
            ("NewRegistrationsPerIPAddress", "2001:db8::ff00:42:8329", false, true),
            ("NewRegistrationsPerIPv6Range", "2001:0db8:0000::/48", false, false),
            ("NewRegistrationsPerIPv6Range", "2001:db8::/48", false, true),
            ("NewOrdersPerAccount", "12345678", true, true),
            ("FailedAuthorizationsPerDomainPerAccount", "12345678:www.example.com", true, true),
            ("FailedAuthorizationsPerDomainPerAccount", "12345678:192.168.1.1", false, true),
            ("FailedAuthorizationsPerDomainPerAccount", "12345678:2001:db8:eeee::1", false, true),
            ("CertificatesPerDomain", "example.com", true, true),
            ("CertificatesPerDomain", "192.168.1.0", false, true),
            ("CertificatesPerDomain", "2001:db8:eeee:eeee::", false, true),
            ("CertificatesPerFQDNSet", "192.168.1.1,example.com,example.org", false, true),
            ("CertificatesPerDomainPerAccount", "12345678:example.com", true, true),
            ("CertificatesPerFQDNSetPerAccount", "12345678:example.com,example.org", true, true),
        ] {
            let text = format!("- {name}: {{burst: 1, count: 1, period: 1s, ids: ['{id}']}}\n");
            assert_eq!(read(&text).is_ok(), loads_without, "{id}");
            match allowing.text(&text) {
                Ok(limits) => assert!(loads_with && limits.overrides() == 1, "{id}"),
                Err(error) => {
                    assert!(!loads_with && error.to_string().contains("canonical form"), "{error}");
                }
            }
        }
    }

    /// The option changes no other rule for ids.
    #[test]
    fn invalid_ids_are_refused_with_the_option() {
        let allowing = Loader::new().allow_reserved(true);
        for (name, id) in [
            ("NewRegistrationsPerIPAddress", "::ffff:10.0.0.1"),
            ("NewRegistrationsPerIPAddress", "fe80::1%eth0"),
            ("NewRegistrationsPerIPv6Range", "2001:db8::/32"),
            ("NewOrdersPerAccount", "007"),
            ("CertificatesPerDomain", "fd00::1"),
        ] {
            let text = format!("- {name}: {{burst: 1, count: 1, period: 1s, ids: ['{id}']}}\n");
            assert!(allowing.text(&text).is_err(), "{id}");
            assert!(
                allowing.texts("{A: {burst: 1, count: 1, period: 1s, id: string}}", &text).is_err()
            );
        }
    }
}
