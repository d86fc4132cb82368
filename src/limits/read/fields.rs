//! The fields of an entry: their names, and the values that each may have.

use std::borrow::Cow;

use crate::limits::{LimitMode, names, shown};
use crate::util::decimal::Decimal;

use super::faults::listed;
use super::node::Scalar;

/// A field of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Burst,
    Count,
    Period,
    Limit,
    Window,
    Size,
    DripRate,
    DripSize,
    Max,
    Duration,
    MinInterval,
    RetryAfter,
    Ids,
    Id,
    Algorithm,
    Enabled,
    Mode,
    Shadow,
    MaxDebt,
    MaxKeys,
    Floors,
    Unlimited,
    Shared,
    OnError,
    Fraction,
    For,
    Lease,
    Comment,
    Owner,
    Expires,
}

const WHOLE: &str = "a whole number from 1";
const DECIMAL: &str = "a number from 1";
const DURATION: &str = "a duration such as 60s, 180m or 1h30m";

/// Each field with its name and its allowed values, for messages. In the order of the variants.
#[rustfmt::skip]
const FIELDS: [(Field, &str, &str); 30] = [
    (Field::Burst, "burst", WHOLE),
    (Field::Count, "count", WHOLE),
    (Field::Period, "period", DURATION),
    (Field::Limit, "limit", WHOLE),
    (Field::Window, "window", DURATION),
    (Field::Size, "size", DECIMAL),
    (Field::DripRate, "drip_rate", DURATION),
    (Field::DripSize, "drip_size", DECIMAL),
    (Field::Max, "max", DECIMAL),
    (Field::Duration, "duration", DURATION),
    (Field::MinInterval, "min_interval", "a duration such as 250ms or 1s"),
    (Field::RetryAfter, "retry_after", "a duration such as 250ms or 1s"),
    (Field::Ids, "ids", "a list of ids"),
    (Field::Id, "id", "a format such as ipAddress or string"),
    (Field::Algorithm, "algorithm", "gcra, at_most, fixed_window, token_bucket, leaky_bucket or concurrency"),
    (Field::Enabled, "enabled", "true or false"),
    (Field::Mode, "mode", "enforce or shadow"),
    (Field::Shadow, "shadow", "a map of numbers, as an override has them,"),
    (Field::MaxDebt, "max_debt", "a whole number from 0"),
    (Field::MaxKeys, "max_keys", WHOLE),
    (Field::Floors, "floors", "a map of names with units or percentages, such as {batch: 50%},"),
    (Field::Unlimited, "unlimited", "true"),
    (Field::Shared, "shared", "local, leased or exact"),
    (Field::OnError, "on_error", "deny, allow or local"),
    (Field::Fraction, "fraction", "a number above 0, at most 1,"),
    (Field::For, "for", "a duration such as 30s"),
    (Field::Lease, "lease", "a duration such as 500ms or 1s"),
    (Field::Comment, "comment", "text"),
    (Field::Owner, "owner", "text"),
    (Field::Expires, "expires", "a date such as 2026-12-31"),
];

const _: () = {
    let mut at = 0;
    while at < FIELDS.len() {
        assert!(FIELDS[at].0 as usize == at, "the rows are in the order of the variants");
        at += 1;
    }
};

/// A value for each field of an entry.
pub(super) type ByField<T> = [T; FIELDS.len()];

impl Field {
    pub(super) fn all() -> impl Iterator<Item = Field> {
        FIELDS.iter().map(|(field, ..)| *field)
    }

    pub(super) fn from_name(name: &str) -> Option<Field> {
        FIELDS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    pub(super) fn name(self) -> &'static str {
        FIELDS[self as usize].1
    }

    /// Returns the allowed values, for messages.
    pub(super) fn allowed(self) -> &'static str {
        FIELDS[self as usize].2
    }

    /// Whether the field is a parameter of an algorithm.
    pub(super) fn is_parameter(self) -> bool {
        (self as usize) < Field::Ids as usize
    }
}

/// The values of the field `shared`, each with the number that stands for it.
pub(super) const SHARED: &[(&str, u64)] = &[("local", 0), ("leased", 1), ("exact", 2)];

/// The values of the field `on_error`, each with the number that stands for it.
pub(super) const ON_ERROR: &[(&str, u64)] = &[("deny", 0), ("allow", 1), ("local", 2)];

/// The fields that say how nodes share a limit.
pub(super) const SHARING: [Field; 5] =
    [Field::Shared, Field::OnError, Field::Fraction, Field::For, Field::Lease];

/// A field that may be a parameter of the entry's algorithm.
#[derive(Debug)]
pub(super) struct Parameter<'e> {
    pub(super) line: u64,
    pub(super) key: Cow<'e, str>,
    /// The field with this name; `None` if no built-in algorithm has such a parameter.
    pub(super) field: Option<Field>,
    /// The value if it is a scalar; else the kind of value that the file has there, for messages.
    pub(super) value: Result<Scalar<'e>, &'static str>,
}

impl Parameter<'_> {
    /// Stands for a value whose fault is reported already.
    pub(super) const REFUSED: &'static str = "a refused value";
}

/// An algorithm that files can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileAlgorithm {
    Gcra,
    AtMost,
    FixedWindow,
    TokenBucket,
    LeakyBucket,
    Concurrency,
    /// A custom algorithm, by its position among the registered ones.
    Custom(usize),
}

const ALGORITHMS: &[(&str, FileAlgorithm)] = &[
    ("gcra", FileAlgorithm::Gcra),
    ("at_most", FileAlgorithm::AtMost),
    ("fixed_window", FileAlgorithm::FixedWindow),
    ("token_bucket", FileAlgorithm::TokenBucket),
    ("leaky_bucket", FileAlgorithm::LeakyBucket),
    ("concurrency", FileAlgorithm::Concurrency),
];

impl FileAlgorithm {
    pub(super) fn from_name(name: &str) -> Option<FileAlgorithm> {
        named(name, ALGORITHMS).ok()
    }

    /// Returns the names of the built-in algorithms.
    pub(super) fn names<'a>() -> impl Iterator<Item = &'a str> {
        ALGORITHMS.iter().map(|row| row.0)
    }

    /// Returns the name that files use for a built-in algorithm.
    pub(super) fn name(self) -> &'static str {
        ALGORITHMS.iter().find(|row| row.1 == self).map_or("gcra", |row| row.0)
    }

    /// Returns the fields of the algorithm's parameters; for leaky_bucket, those of both forms. The list of a custom algorithm
    /// is empty: only the function that makes the algorithm knows its fields.
    pub(super) fn parameters(self) -> &'static [Field] {
        use Field::{
            Burst, Count, DripRate, DripSize, Duration, Limit, Max, MinInterval, Period,
            RetryAfter, Size, Window,
        };
        match self {
            FileAlgorithm::Gcra => &[Burst, Count, Period],
            FileAlgorithm::FixedWindow => &[Limit, Window],
            FileAlgorithm::AtMost | FileAlgorithm::TokenBucket => &[Limit, Window, Burst],
            FileAlgorithm::LeakyBucket => &[Size, DripRate, DripSize, Max, Duration, MinInterval],
            FileAlgorithm::Concurrency => &[Max, RetryAfter],
            FileAlgorithm::Custom(_) => &[],
        }
    }
}

pub(super) const MODES: &[(&str, LimitMode)] =
    &[("enforce", LimitMode::Enforce), ("shadow", LimitMode::Shadow)];

/// Returns the value of a name. An error says which names are allowed.
pub(crate) fn named<T: Copy>(text: &str, values: &[(&str, T)]) -> Result<T, String> {
    let value = values.iter().find(|(name, _)| *name == text);
    value.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        unknown_name(text, &names)
    })
}

/// Says which names are allowed instead of a text.
pub(super) fn unknown_name(text: &str, allowed: &[&str]) -> String {
    format!("{}: {}", shown(text), allowed_names(text, allowed))
}

/// Says that a field is unknown, and which are allowed.
pub(crate) fn unknown_field(given: &str, allowed: &[&str]) -> String {
    format!("unknown field: {}", allowed_names(given, allowed))
}

fn allowed_names(given: &str, names: &[&str]) -> String {
    let hint = names::hint(given, names.iter().copied());
    let are = if names.len() == 1 { "is" } else { "are" };
    format!("{} {are} allowed{hint}", listed(names))
}

/// Parses a number from 1.
pub(super) fn whole_number(scalar: &Scalar<'_>, field: Field) -> Result<u64, String> {
    match whole_number_or_0(scalar, field.allowed())? {
        // `Limit` refuses a 0 as well, but only the first one. Here each field that is 0 gets its own fault.
        0 => Err("0: at least 1 is allowed".into()),
        number => Ok(number),
    }
}

/// Parses a whole number from 0. Only plain digits are allowed: YAML readers may take other spellings for another value.
pub(crate) fn whole_number_or_0(scalar: &Scalar<'_>, allowed: &str) -> Result<u64, String> {
    let text = &*scalar.text;
    if !scalar.is_plain() {
        return Err(format!("{}: {allowed}, without quotes, is allowed", shown(text)));
    }
    if is_padded(text) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{}: {allowed}, in plain digits, is allowed", shown(text)));
    }
    text.parse().map_err(|_| format!("{}: at most {} is allowed", shown(text), u64::MAX))
}

/// Whether a number begins with a needless zero: some readers of YAML take it for octal, others for a text.
fn is_padded(text: &str) -> bool {
    text.strip_prefix('0')
        .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
}

/// Parses a number that may have a fraction: digits, a point, at most six digits.
pub(super) fn decimal(scalar: &Scalar<'_>, field: Field) -> Result<Decimal, String> {
    let text = &*scalar.text;
    if !scalar.is_plain() {
        return Err(format!("{}: {}, without quotes, is allowed", shown(text), field.allowed()));
    }
    if is_padded(text) {
        return Err(format!("{}: {}, in plain digits, is allowed", shown(text), field.allowed()));
    }
    Decimal::parse(text).map_err(|reason| {
        let is_negative = reason.starts_with("negative");
        let reason = if is_negative { "at least 1 is allowed" } else { &*reason };
        format!("{}: {reason}", shown(text))
    })
}

/// Parses `true` or `false`, as YAML 1.2 spells them.
pub(crate) fn boolean(scalar: &Scalar<'_>, allowed: &str) -> Result<bool, String> {
    match &*scalar.text {
        "true" if scalar.is_plain() => Ok(true),
        "false" if scalar.is_plain() => Ok(false),
        text => Err(format!("{}: {allowed} is allowed", shown(text))),
    }
}
