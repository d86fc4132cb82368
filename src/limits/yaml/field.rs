//! The fields of an entry: their names, and what each may hold.

use crate::limits::IdFormat;

use super::events::Scalar;
use super::faults::{Given, listed};
use super::names::hint;

/// A field of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Burst,
    Count,
    Period,
    Ids,
    Id,
    Algorithm,
}

/// The algorithms of the specification that this version lacks, and the fields that they add.
const LATER_ALGORITHMS: [&str; 3] = ["fixed_window", "token_bucket", "leaky_bucket"];
const LATER_FIELDS: [&str; 8] =
    ["limit", "window", "size", "drip_rate", "drip_size", "max", "duration", "min_interval"];

impl Field {
    /// In the order of [`Field::ALL`].
    pub(super) const NAMES: [&'static str; 6] =
        ["burst", "count", "period", "ids", "id", "algorithm"];

    pub(super) const ALL: [Field; 6] =
        [Field::Burst, Field::Count, Field::Period, Field::Ids, Field::Id, Field::Algorithm];

    /// Those that make a limit.
    pub(super) const NUMBERS: [Field; 3] = [Field::Burst, Field::Count, Field::Period];

    pub(super) fn name(self) -> &'static str {
        Field::NAMES[self as usize]
    }

    pub(super) fn allowed(self) -> &'static str {
        match self {
            Field::Burst | Field::Count => "a whole number from 1",
            Field::Period => "a duration such as 60s, 180m or 1h30m",
            Field::Ids => "a list of ids",
            Field::Id => "a format such as ipAddress or string",
            Field::Algorithm => "gcra",
        }
    }
}

/// A number: digits, and nothing that YAML could take for anything else.
pub(super) fn whole_number(scalar: &Scalar<'_>, field: Field) -> Result<u64, String> {
    let text = &*scalar.text;
    let allowed = field.allowed();
    if !scalar.is_plain {
        return Err(format!("{}: {allowed}, without quotes, is allowed", Given(text)));
    }
    let is_padded = text.len() > 1 && text.starts_with('0');
    if is_padded || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{}: {allowed}, in plain digits, is allowed", Given(text)));
    }
    match text.parse() {
        // Here and not with the numbers that make no limit, so that each that is 0 is named.
        Ok(0) => Err("0: at least 1 is allowed".into()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("{}: at most {} is allowed", Given(text), u64::MAX)),
    }
}

pub(super) fn id_format(text: &str) -> Result<IdFormat, String> {
    let named = IdFormat::ALL.iter().find(|(name, _)| *name == text);
    named.map(|(_, format)| *format).ok_or_else(|| {
        let names: Vec<&str> = IdFormat::ALL.iter().map(|(name, _)| *name).collect();
        format!("{}: {} are allowed{}", Given(text), listed(&names), hint(text, &names))
    })
}

pub(super) fn algorithm(text: &str) -> Result<(), String> {
    if text == "gcra" {
        Ok(())
    } else if is_later_algorithm(text) {
        Err(format!("{}: not in this version; allowed: gcra", Given(text)))
    } else {
        let mut known = vec!["gcra"];
        known.extend(LATER_ALGORITHMS);
        Err(format!("{}: allowed: gcra{}", Given(text), hint(text, &known)))
    }
}

pub(super) fn is_later_algorithm(text: &str) -> bool {
    LATER_ALGORITHMS.contains(&text)
}

pub(super) fn is_later_field(text: &str) -> bool {
    LATER_FIELDS.contains(&text)
}

pub(super) fn unknown_field(given: &str, allowed: &[&str]) -> String {
    format!("unknown field: {} are allowed{}", listed(allowed), hint(given, allowed))
}
