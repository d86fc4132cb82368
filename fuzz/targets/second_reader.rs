//! Reads a file of limits a second time, by serde_yaml: what both readers accept are the same limits, and what one of
//! them refuses alone has a reason that is listed here.

use tollgate::limits::Overrides;
use tollgate::{Error, Limits};

#[path = "../../tests/support/equal.rs"]
mod equal;

/// Parts of the faults that only the reader of files finds, because serde_yaml has parsed the text.
const OF_FILES: &[&str] = &[
    "an alias is not allowed",
    "a tag is not allowed",
    "not a text: ",
    "a carriage return without a line feed",
    "which ends a line to some readers",
    "invalid yaml: ",
    ", in plain digits, is allowed",
    "true or false is allowed",
    "after a '|' or '>'",
    "one id on ",
    "of which the quotes are part",
    "one id: several have a list",
    // A section reads defaults before overrides.
    "unknown limit ",
    "numbers of ",
    "too many anchors",
    "more than ",
];

/// The part of the fault of an id that was a number or a boolean to serde_yaml.
const LOST: &str = "of which the text as written is not known";

/// Compares the result of the reader of files with that of serde_yaml.
pub(crate) fn compare(limits: &str, overrides: Option<&str>, by_file: &Result<Limits, Error>) {
    // The readers of YAML differ in what is YAML.
    let is_yaml = |text: &str| serde_yaml::from_str::<Overrides>(text).is_ok();
    if !is_yaml(limits) || !overrides.is_none_or(is_yaml) {
        return;
    }
    match (by_file, by_serde_yaml(limits, overrides)) {
        (Ok(one), Ok(other)) => {
            // A number that is an id or a comment, which serde_yaml writes in another way.
            let rewrites = ["0x", "0o", "0b", "+", "-0"];
            let has = |text: &str| rewrites.iter().any(|part| text.contains(part));
            if !has(limits) && !overrides.is_some_and(has) {
                equal::assert_equal(one, &other, &(limits, overrides));
            }
        }
        (Ok(_), Err(error)) => {
            assert!(error.contains(LOST), "refused by the second reader alone: {error}");
        }
        (Err(error), Ok(_)) => {
            for fault in error.faults() {
                let is_listed = OF_FILES.iter().any(|part| fault.message.contains(part));
                assert!(is_listed, "refused by the reader of files alone: {fault}");
            }
        }
        (Err(_), Err(_)) => {}
    }
}

fn by_serde_yaml(limits: &str, overrides: Option<&str>) -> Result<Limits, String> {
    let limits: Limits = serde_yaml::from_str(limits).map_err(|error| error.to_string())?;
    let Some(overrides) = overrides else { return Ok(limits) };
    let overrides: Overrides =
        serde_yaml::from_str(overrides).map_err(|error| error.to_string())?;
    limits.with_overrides(&overrides).map_err(|error| error.to_string())
}
