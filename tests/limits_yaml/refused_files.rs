//! Tests files that are refused as a whole, and the number and order of faults.

use super::refused_values::{REST, check};
use super::*;

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
                    "2: CertificatesPerDomain.\"<<\": an alias is not allowed: write the value itself",
                    "2: CertificatesPerDomain.\"<<\": unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed",
                    "2: CertificatesPerDomain: no burst: a whole number from 1 is wanted",
                    "2: CertificatesPerDomain: no count: a whole number from 1 is wanted",
                    "2: CertificatesPerDomain: no period: a duration such as 60s, 180m or 1h30m is wanted",
                ],
            ),
            ("NewOrdersPerAccount: *a", &["1: an alias is not allowed: write the value itself"]),
            (
                "!!map {NewOrdersPerAccount: {$REST}}",
                &["1: a tag is not allowed: write the value alone"],
            ),
            ("a\0b", &["1: not a text: byte 0x00; utf-8 without control characters is allowed"]),
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
                &["2: a tab at the start of the line: only spaces are allowed there"],
            ),
        ],
        faults,
    );
}

/// One fault, with the line of the tab.
#[test]
fn a_tab_in_front_of_a_line() {
    const OWN: &str = "{$REST, id: string}";
    for (text, line) in [
        ("\tA: OWN", 1),
        ("\u{feff}\tA: OWN", 1),
        ("\tA:\n  burst: 1\n  count: 1", 1),
        ("# a\n\n---\n \tA:\n  burst: 1\nB: OWN", 4),
        ("\t- A: OWN", 1),
        ("A: OWN\n\tB: OWN\nC: OWN\n", 2),
        ("\tA: OWN\n\tB: OWN\n\tC: OWN\n", 1),
        ("A: OWN\n\tB:\n\t  burst: 1\n", 2),
        ("A:\n  burst: 1\n  id: string\n\n\tB:\n  burst: 1\nC: OWN", 5),
        ("A:\n\tburst: 1\n\tcount: 1\n", 2),
        ("A:\n  burst: 1\n  \tcount: 1\n", 3),
    ] {
        let wanted =
            format!("{line}: a tab at the start of the line: only spaces are allowed there");
        check(&[(&text.replace("OWN", OWN), &[&wanted])], faults);
    }
    // Tabs in other places are none of indentation.
    let faults =
        faults("\t# a\n\t\nA: {burst: 1,\n\tcount: 1,\n\tperiod: x,\n\tid: string}\t# b\n");
    assert!(faults.iter().all(|fault| fault.contains("A.period: ")), "{faults:?}");
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
                    "1: Own.id: unknown field: burst, count, period, ids, unlimited, max_debt, comment, owner and expires are allowed; did you mean ids?",
                    &format!("1: Own: {wanted}"),
                ],
            ),
            ("", &["the file is empty: overrides are wanted, or [] for none"]),
            ("null", &["1: the file is null: overrides are wanted, or [] for none"]),
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
    let unknown = "1: NewOrdersPerAccount.x: unknown field: burst, count, period, ids, id, unlimited, algorithm, enabled, mode, shadow, max_debt, max_keys, floors, shared, on_error, fraction, for, lease, comment, owner and expires are allowed";
    assert_eq!(nested(64), [unknown]);
    assert_eq!(nested(65), ["1: nested too deep: at most 64 levels are allowed", unknown]);
    assert_eq!(nested(400), ["1: nested too deep: at most 64 levels are allowed", unknown]);
}

#[test]
fn ten_faults_in_order_of_the_file() {
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
    let places: Vec<(u64, String)> = read(text)
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
    let found = faults(&"a: 1\n".repeat(110_000));
    assert_eq!(found.len(), 100_001);
    assert_eq!(found[100_000], "99999: at least 100000 faults: the rest of the file was not read");
}

#[test]
fn text_that_the_parser_would_hold_back() {
    let wanted = "more than 1048576 commas, colons, quotes and brackets in one text, or in one list or map in brackets: write it without brackets, one item a line";
    assert_eq!(faults(&format!("- [{}", "a,".repeat(1_050_000))), [format!("1: {wanted}")]);
    assert_eq!(
        faults(&format!("a:\n {}", "[],".repeat(350_000))).pop(),
        Some("2: invalid yaml: while parsing a block mapping, did not find expected key".into())
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
    let text =
        format!("NewOrdersPerAccount: {{burst: {}, count: 1, period: 1s}}", "9".repeat(1_000_000));
    let given = format!("\"{}\"...", "9".repeat(64));
    let wanted = format!(
        "1: NewOrdersPerAccount.burst: invalid burst {given}: at most 18446744073709551615 is allowed"
    );
    assert_eq!(faults(&text), [wanted]);
    assert!(
        faults(&format!("? {}\n: 1", "a".repeat(1_000_000))).iter().all(|fault| fault.len() < 400)
    );
}
