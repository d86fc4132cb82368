//! Tests ids under `string` that look like other ids, and characters on which YAML readers differ.

use super::refused_values::check;
use super::*;

/// Returns the faults of overrides in a file that first declares the limit `Own`. Lines count from the overrides.
fn own_faults(text: &str) -> Vec<String> {
    override_faults(text)
}

#[test]
fn quotes_and_lists_in_a_plain_key() {
    check(
        &[
            (
                "Own:\"alice\": {$REST, ids: [x]}",
                &[
                    "1: \"Own:\\\"alice\\\"\".ids: unknown field: burst, count, period, unlimited, max_debt, comment, owner and expires are allowed",
                    "1: \"Own:\\\"alice\\\"\": \"\\\"alice\\\"\", of which the quotes are part: Name:id without them, or with the whole key in quotes, is allowed",
                ],
            ),
            (
                "Own:'alice': {$REST}\nOwn:\"al ice: {$REST}",
                &[
                    "1: \"Own:'alice'\": \"'alice'\", of which the quotes are part: Name:id without them, or with the whole key in quotes, is allowed",
                    "2: \"Own:\\\"al ice\": \"\\\"al ice\", of which the quotes are part: Name:id without them, or with the whole key in quotes, is allowed",
                ],
            ),
            (
                "Own:[alice, bob]: {$REST}",
                &[
                    "1: \"Own:[alice, bob]\": \"[alice, bob]\", one id: several have a list of ids; one that is spelled so must be quoted with its name",
                ],
            ),
        ],
        own_faults,
    );
    let limits = read(
        "Own: {burst: 1, count: 1, period: 1s, id: string}\n\
         'Own:\"alice\"': {burst: 2, count: 1, period: 1s}\n\
         \"Own:[a, b]\": {burst: 3, count: 1, period: 1s}\n\
         Own:rock'n'roll: {burst: 4, count: 1, period: 1s}\n\
         Own:[::1]:80: {burst: 5, count: 1, period: 1s}\n",
    )
    .unwrap();
    for (id, burst) in [("\"alice\"", 2), ("[a, b]", 3), ("rock'n'roll", 4), ("[::1]:80", 5)] {
        assert_eq!(numbers(&limits, "Own", id), Some((burst, 1, SECOND)), "{id}");
    }
}

#[test]
fn blanks_at_an_edge() {
    for (written, shown) in [
        ("' alice'", "\" alice\""),
        ("\"alice \"", "\"alice \""),
        ("\"alice\\t\"", "\"alice\\t\""),
        ("' '", "\" \""),
    ] {
        let wanted =
            format!("1: [0].Own.ids[0]: {shown}: an id without blanks at its ends is allowed");
        let text = format!("- Own: {{burst: 1, count: 1, period: 1s, ids: [{written}]}}");
        assert_eq!(override_faults(&text), [wanted], "{written}");
    }
    check(
        &[(
            "\"Own: alice\": {$REST}",
            &["1: \"Own: alice\": \" alice\": an id without blanks at its ends is allowed"],
        )],
        own_faults,
    );
    let limits = "Own: {burst: 1, count: 1, period: 1s, id: string}\nOwn:alice  smith: {burst: 2, count: 1, period: 1s}";
    let limits = read(limits).unwrap();
    assert_eq!(numbers(&limits, "Own", "alice  smith"), Some((2, 1, SECOND)));
}

const LIST: &str = "- Own:\n    burst: 1\n    count: 1\n    period: 1s\n    ids:\n";

#[test]
fn more_than_one_line() {
    for (ids, wanted) in [
        (
            "    - alice\n      - bob\n    - carol\n",
            "6: [0].Own.ids[0]: \"alice - bob\", one id on 2 lines: an id on one line is allowed; the items of a list stand in one column",
        ),
        (
            "    - id: alice\n        smith\n",
            "6: [0].Own.ids[0].id: \"alice smith\", one id on 2 lines: an id on one line is allowed",
        ),
        (
            "    - 'alice\n\n      smith'\n",
            "6: [0].Own.ids[0]: \"alice\\nsmith\", one id on 3 lines: an id on one line is allowed",
        ),
        (
            "    - \"alice\\\n      smith\"\n",
            "6: [0].Own.ids[0]: \"alicesmith\", one id on 2 lines: an id on one line is allowed",
        ),
        (
            "    - [alice]\n    - \"alice\\nsmith\"\n",
            "7: [0].Own.ids[1]: \"alice\\nsmith\": an id without line breaks is allowed",
        ),
        (
            "    - \"alice\\Lsmith\"\n",
            "6: [0].Own.ids[0]: \"alice\\u{2028}smith\": an id without line breaks is allowed",
        ),
        ("    - \"\\v\"\n", "6: [0].Own.ids[0]: \"\\u{b}\": an id without line breaks is allowed"),
    ] {
        let found = override_faults(&format!("{LIST}{ids}"));
        assert_eq!(found.last().map(String::as_str), Some(wanted), "{ids}");
    }
    // Other formats check the text only: a long set may have more lines.
    let text = "CertificatesPerFQDNSet:\n  burst: 1\n  count: 1\n  period: 1s\n  ids:\n  - \"example.com,\\\n     example.org\"\n";
    let limits = read(text).unwrap();
    assert!(numbers(&limits, "CertificatesPerFQDNSet", "example.org,example.com").is_some());
}

#[test]
fn blocks_whose_comments_are_part_of_the_id() {
    let wanted = "after a '|' or '>', where every line and comment is part of the id: one line, without either, is allowed";
    for (ids, given) in [
        ("    - |\n      alice # a trial\n", "alice # a trial\\n"),
        ("    - >-\n      alice\n      # a trial\n", "alice # a trial"),
        ("    - id: |-\n        alice\n", "alice"),
    ] {
        let found = override_faults(&format!("{LIST}{ids}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with(&format!("\"{given}\", {wanted}")), "{found:?}");
    }
    let found = override_faults("? |-\n  Own:alice\n: {burst: 1, count: 1, period: 1s}\n");
    assert_eq!(found, [format!("2: Own:alice: \"alice\", {wanted}")]);
}

/// They are refused everywhere, also in comments.
#[test]
fn characters_that_readers_of_yaml_differ_on() {
    let entry = "Own: {burst: 1, count: 1, period: 1s, id: string}";
    for (c, wanted) in [
        ("\r", "a carriage return without a line feed: LF and CRLF are allowed at a line's end"),
        (
            "\u{85}",
            "U+0085, which ends a line to some readers of YAML and not to others: \"\\u0085\" in double quotes is allowed",
        ),
        (
            "\u{2028}",
            "U+2028, which ends a line to some readers of YAML and not to others: \"\\u2028\" in double quotes is allowed",
        ),
        (
            "\u{2029}",
            "U+2029, which ends a line to some readers of YAML and not to others: \"\\u2029\" in double quotes is allowed",
        ),
        ("\u{7f}", "not a text: byte 0x7f; utf-8 without control characters is allowed"),
        ("\u{80}", "not a text: U+0080; utf-8 without control characters is allowed"),
        ("\u{9b}", "not a text: U+009B; utf-8 without control characters is allowed"),
    ] {
        for text in [
            format!("{entry}\n# one{c}Own:alice: {{burst: 9, count: 1, period: 1s}}\n"),
            format!("{entry}\n{c}"),
            format!(
                "{entry} # \u{a0}\u{e9}\u{2027}\n'Own:a{c}b': {{burst: 9, count: 1, period: 1s}}\n"
            ),
        ] {
            assert_eq!(faults(&text), [format!("2: {wanted}")], "{text:?}");
        }
    }
    // Allowed characters that begin with the same byte.
    let text = format!("{entry} # \u{a0}\u{bf}\u{2027}\u{202a}\u{2122}\r\n");
    assert!(read(&text).is_ok());
    let text =
        format!("{entry}\nOwn:a: {{burst: 9, count: 1, period: 1s, comment: \"\\N\\L\\e\"}}\n");
    assert!(read(&text).is_ok());
}

/// Returns the warnings as they are printed, without the file's name.
fn warned(text: &str) -> Vec<String> {
    let limits = "Own: {burst: 1, count: 1, period: 1s, id: string}";
    let limits = read_both(limits, text).expect(text);
    let warnings = limits.warnings(std::time::SystemTime::UNIX_EPOCH);
    assert_eq!(warnings.more, 0);
    let line = |warning: &tollgate::limits::Warning| {
        let at = warning.location.as_ref().expect("a line");
        let (_, text) = warning.message.split_once(" has ").expect("what it has");
        format!("{} {}: {text}", at.line, warning.kind)
    };
    warnings.iter().map(line).collect()
}

#[test]
fn invisible_characters() {
    const SEEN: &str = "which is not seen, or looks like a blank";
    for (c, code, shown) in [
        ("\u{a0}", "U+00A0", "\\u{a0}"),
        ("\u{200b}", "U+200B", "\\u{200b}"),
        ("\\uFEFF", "U+FEFF", "\\u{feff}"),
        ("\u{feff}", "U+FEFF", "\\u{feff}"),
        ("\u{3000}", "U+3000", "\\u{3000}"),
        ("\u{202e}", "U+202E", "\\u{202e}"),
        ("\u{ad}", "U+00AD", "\\u{ad}"),
        ("\\t", "U+0009", "\\u{9}"),
        ("\\e", "U+001B", "\\u{1b}"),
        ("\\u007F", "U+007F", "\\u{7f}"),
        ("\\u009B", "U+009B", "\\u{9b}"),
        ("\u{e0041}", "U+E0041", "\\u{e0041}"),
    ] {
        let text = format!("{LIST}    - bob\n    - \"al{c}ice\"\n").replace("burst: 1", "burst: 9");
        let wanted = format!("7 invisible: {code} in its id, {SEEN}: \"al{shown}ice\"");
        assert_eq!(warned(&text), [wanted], "{c:?}");
    }
    let more = LIST.replace("burst: 1", "burst: 9");
    let wanted = format!("6 invisible: U+00A0 in its id, {SEEN}: \"alice\\u{{a0}}\"");
    assert_eq!(warned(&format!("{more}    - alice\u{a0}\n")), [wanted]);
    let wanted = "6 invisible: U+201C in its id, a quotation mark that is part of it: \"\\u{201c}alice\\u{201d}\"";
    assert_eq!(warned(&format!("{more}    - \u{201c}alice\u{201d}\n")), [wanted]);
    let long = format!("{more}    - {}\u{200b}\n", "x".repeat(100));
    let wanted = format!("6 invisible: U+200B in its id, {SEEN}: \"{}\"...", "x".repeat(64));
    assert_eq!(warned(&long), [wanted]);
    // Visible characters of any script.
    for id in [
        "al ice",
        "\u{e9}t\u{e9}",
        "\u{5d0}\u{5d1}",
        "\u{4e2d}\u{6587}",
        "\u{1f600}",
        "rock\u{2019}n",
        "'quoted'",
        "\u{20ac}",
    ] {
        assert_eq!(warned(&format!("{more}    - \"{id}\"\n")), [""; 0], "{id}");
    }
}

#[cfg(feature = "boulder")]
#[test]
fn ids_that_differ_by_their_form_of_unicode() {
    let more = LIST.replace("burst: 1", "burst: 9");
    let of = |ids: &[&str]| -> Vec<String> {
        warned(&ids.iter().fold(more.clone(), |text, id| text + "    - " + id + "\n"))
    };
    const SAME: &str =
        "unnormalized: an id that differs from another one by its form of Unicode alone:";
    assert_eq!(
        of(&["caf\u{e9}", "cafe\u{301}"]),
        [format!("7 {SAME} \"cafe\\u{{301}}\", and \"caf\\u{{e9}}\" on <overrides>:6")]
    );
    assert_eq!(
        of(&["cafe\u{301}"]),
        [
            "6 unnormalized: an id that is not in the composed form of Unicode, NFC: \"cafe\\u{301}\", which is \"caf\\u{e9}\" there"
        ]
    );
    assert_eq!(
        of(&["\u{fb01}sh", "fish", "\u{ff12}"]),
        [format!("6 {SAME} \"\\u{{fb01}}sh\", and \"fish\" on <overrides>:7")]
    );
    assert_eq!(of(&["caf\u{e9}", "cafe", "\u{fb02}"]), [""; 0]);
}
