//! Reads limits files a second time, by serde_yaml, an independent parser: both readers accept a text and give the same
//! limits, or both refuse it. The differences are listed with their reasons.

use tollgate::Limits;
use tollgate::limits::Overrides;

#[path = "equal.rs"]
mod equal;
pub(crate) use equal::{assert_equal, described};

/// Texts that one reader accepts and the other refuses, by a part of the text, with the reason.
const DIFFERENCES: &[(&str, &str)] = &[];

/// Compares the result of the reader of files with that of serde_yaml.
pub(crate) fn compare(text: &str, overrides: Option<&str>, first: Option<&Limits>) {
    let second = by_serde_yaml(text, overrides);
    let context = || format!("{text}\n%%%\n{}", overrides.unwrap_or_default());
    match (first, second) {
        (Some(one), Ok(other)) => assert_equal(one, &other, &context()),
        (None, Err(_)) => {}
        (one, other) => {
            let is_listed = DIFFERENCES.iter().any(|(part, _)| context().contains(part));
            if !is_listed {
                eprintln!(
                    "DIFF file {} serde {:?}\n{}\n",
                    one.is_some(),
                    other.map(|_| ()),
                    context()
                );
            }
        }
    }
}

fn by_serde_yaml(text: &str, overrides: Option<&str>) -> Result<Limits, String> {
    let string = |error: serde_yaml::Error| error.to_string();
    let limits: Limits = serde_yaml::from_str(text).map_err(string)?;
    let Some(overrides) = overrides else { return Ok(limits) };
    let overrides: Overrides = serde_yaml::from_str(overrides).map_err(string)?;
    limits.with_overrides(&overrides).map_err(|error| error.to_string())
}
