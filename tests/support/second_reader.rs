//! Reads limits files a second time, by serde_yaml, an independent parser: both readers accept a text and give the same
//! limits, or both refuse it. The differences are listed with their reasons.

use tollgate::Limits;
use tollgate::limits::Overrides;

#[path = "equal.rs"]
pub(crate) mod equal;

use equal::assert_equal;

/// The reader that accepts a text, where the other refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepts {
    File,
    Section,
}

/// Why serde_yaml or serde does not know what the reader of files knows.
const BYTE_ORDER_MARK: &str = "serde_yaml does not skip a byte-order mark before a directive";
const NUMBER: &str = "serde_yaml has parsed a number or a boolean, so the text of the id is lost";
const NUMBER_1_1: &str = "serde_yaml reads numbers that YAML's versions read differently";
const ALIAS: &str = "serde_yaml puts the value in the place of its alias";
const TAG: &str = "serde_yaml does not pass on the tags of YAML's own types";
const ORDER: &str =
    "a section reads defaults before overrides, because not every format has an order";
const STYLE: &str = "serde does not pass on how a text is written: quotes, lines, blocks";
const LINE_END: &str = "serde_yaml gives no character of comments, and reads these as line ends";

/// The differences, each by a part of its texts.
const DIFFERENCES: &[(Accepts, &str, &str)] = &[
    (Accepts::File, "\u{feff}%YAML", BYTE_ORDER_MARK),
    (Accepts::File, "[true, 1e5, ", NUMBER),
    (Accepts::Section, "*a", ALIAS),
    (Accepts::Section, "!!map", TAG),
    (Accepts::Section, "!!int", TAG),
    (Accepts::Section, "}\nOwn: {burst: 1, count: 1, period: 1s, id: string}", ORDER),
    (Accepts::Section, "burst: 0x10", NUMBER_1_1),
    (Accepts::Section, "burst: +5", NUMBER_1_1),
    (Accepts::Section, "\r", LINE_END),
    (Accepts::Section, "\u{85}", LINE_END),
    (Accepts::Section, "\u{2028}", LINE_END),
    (Accepts::Section, "\u{2029}", LINE_END),
    (Accepts::Section, "- >-\n", STYLE),
    (Accepts::Section, "- id: |-\n", STYLE),
    (Accepts::Section, "? |-\n  Own:alice\n", STYLE),
    (Accepts::Section, "- alice\n      - bob\n", STYLE),
    (Accepts::Section, "- id: alice\n        smith\n", STYLE),
    (Accepts::Section, "- \"alice\\\n", STYLE),
    (Accepts::Section, "Own:'alice': ", STYLE),
    (Accepts::Section, "Own:[alice, bob]: ", STYLE),
];

/// Compares the limits that the reader of files has read, if it has, with those of serde_yaml.
#[track_caller]
pub(crate) fn compare(limits: &str, overrides: Option<&str>, by_file: Option<&Limits>) {
    let text = format!("{limits}\n%%%\n{}", overrides.unwrap_or_default());
    let accepts = match (by_file, by_serde_yaml(limits, overrides)) {
        (Some(one), Ok(other)) => return assert_equal(one, &other, &text),
        (None, Err(_)) => return,
        (Some(_), Err(_)) => Accepts::File,
        (None, Ok(_)) => Accepts::Section,
    };
    let is_listed = DIFFERENCES.iter().any(|(by, part, _)| *by == accepts && text.contains(part));
    assert!(is_listed, "accepted by {accepts:?} alone:\n{text}");
}

fn by_serde_yaml(limits: &str, overrides: Option<&str>) -> Result<Limits, String> {
    let string = |error: serde_yaml::Error| error.to_string();
    let limits: Limits = serde_yaml::from_str(limits).map_err(string)?;
    let Some(overrides) = overrides else { return Ok(limits) };
    let overrides: Overrides = serde_yaml::from_str(overrides).map_err(string)?;
    limits.with_overrides(&overrides).map_err(|error| error.to_string())
}

#[test]
fn a_difference_must_be_listed() {
    let good = "Own: {burst: 1, count: 1, period: 1s, id: string}";
    let compared = |text: &str, by_file: Option<&Limits>| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| compare(text, None, by_file)))
    };
    let limits = Limits::from_yaml(good).unwrap();
    assert!(compared(good, Some(&limits)).is_ok());
    assert!(compared(good, None).is_err(), "accepted by one");
    assert!(compared(&good.replace("burst: 1", "burst: 2"), Some(&limits)).is_err(), "unequal");
    assert!(compared("Own: 1", Some(&limits)).is_err(), "refused by one");
}
