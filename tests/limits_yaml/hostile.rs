//! Tests that errors and warnings of a hostile file have no characters that a terminal obeys.

use std::time::SystemTime;

use super::*;

const HOSTILE: &str = "\u{1b}[2J\u{7}\u{9b}31m\u{7f}\u{202e}\u{200b}";
const ESCAPED: &str = "\\u{1b}[2J\\u{7}\\u{9b}31m\\u{7f}\\u{202e}\\u{200b}";
/// The text as YAML writes it in double quotes.
const IN_YAML: &str = "\\e[2J\\a\\x9b31m\\x7f\\u202e\\u200b";

#[track_caller]
fn is_tame(text: &str) {
    let wild: Vec<char> =
        text.chars().filter(|c| c.is_control() || "\u{202e}\u{200b}".contains(*c)).collect();
    assert!(wild.is_empty(), "{wild:?} in {text:?}");
    assert!(text.contains(ESCAPED), "{text:?}");
}

#[test]
fn warnings_and_places_are_tame() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{HOSTILE}.yml"));
    let text = format!(
        "A: {{burst: 9, count: 1, period: 1s, id: string}}\n'A:plain': {{burst: 1, count: 1, period: 1s}}\n\"A:{IN_YAML}\": {{burst: 1, count: 1, period: 1s}}\n"
    );
    std::fs::write(&path, text).unwrap();
    let limits = Limits::from_yaml_files(&path, None).unwrap();
    let warnings = limits.warnings(SystemTime::now());
    let hostile = &warnings[1];
    assert_eq!(hostile.id, HOSTILE, "the fields are what was given");
    let text = hostile.to_string();
    is_tame(&text);
    let path = format!("A:{ESCAPED}: the override of {ESCAPED} is stricter");
    assert!(text.contains(&path), "{text}");
    is_tame(&hostile.location.as_ref().unwrap().to_string());
    let limit = limits.limit("A").unwrap();
    is_tame(&format!("{:?}", limit.override_of(HOSTILE).unwrap().unwrap()));
}

#[test]
fn faults_are_tame() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{HOSTILE}.yml"));
    let text = format!("\"A{IN_YAML}\": {{\"b{IN_YAML}\": \"{IN_YAML}\"}}\nB: \"{IN_YAML}\"\n");
    std::fs::write(&path, text).unwrap();
    let error = Limits::from_yaml_files(&path, None).unwrap_err();
    for (line, fault) in error.to_string().lines().zip(error.faults()) {
        assert_eq!(line, fault.to_string());
        is_tame(line);
    }
    let missing = Limits::from_yaml_files(folder.path().join(HOSTILE), None).unwrap_err();
    is_tame(&missing.to_string());
    is_tame(&format!("{missing:?}"));
}

#[test]
fn refused_names_and_ids_are_tame() {
    let limits = read(DEFAULTS).unwrap();
    is_tame(&limits.limit(HOSTILE).map(drop).unwrap_err().to_string());
    is_tame(&limits.limit_for("NewOrdersPerAccount", HOSTILE).unwrap_err().to_string());
}
