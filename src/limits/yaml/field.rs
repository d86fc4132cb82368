//! The fields of an entry: their names, and what each may hold.

use crate::limits::expiry::Expiry;
use crate::limits::{IdFormat, LimitMode};
use crate::util::decimal::Decimal;

use super::events::Scalar;
use super::faults::{Given, listed};
use super::names::hint;

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
    Ids,
    Id,
    Algorithm,
    Enabled,
    Mode,
    Shadow,
    MaxDebt,
    Comment,
    Owner,
    Expires,
}

/// An algorithm that a file may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Gcra,
    FixedWindow,
    TokenBucket,
    LeakyBucket,
}

impl Named {
    pub(super) const ALL: [Named; 4] =
        [Named::Gcra, Named::FixedWindow, Named::TokenBucket, Named::LeakyBucket];

    pub(super) fn name(self) -> &'static str {
        match self {
            Named::Gcra => "gcra",
            Named::FixedWindow => "fixed_window",
            Named::TokenBucket => "token_bucket",
            Named::LeakyBucket => "leaky_bucket",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<Named> {
        Named::ALL.into_iter().find(|named| named.name() == name)
    }

    /// The fields of its numbers; of leaky_bucket, those of both forms.
    pub(super) fn numbers(self) -> &'static [Field] {
        use Field::{
            Burst, Count, DripRate, DripSize, Duration, Limit, Max, MinInterval, Period, Size,
            Window,
        };
        match self {
            Named::Gcra => &[Burst, Count, Period],
            Named::FixedWindow => &[Limit, Window],
            Named::TokenBucket => &[Limit, Window, Burst],
            Named::LeakyBucket => &[Size, DripRate, DripSize, Max, Duration, MinInterval],
        }
    }
}

impl Field {
    pub(super) const COUNT: usize = Field::ALL.len();

    /// In the order of their numbers.
    pub(super) const ALL: [Field; 21] = [
        Field::Burst,
        Field::Count,
        Field::Period,
        Field::Limit,
        Field::Window,
        Field::Size,
        Field::DripRate,
        Field::DripSize,
        Field::Max,
        Field::Duration,
        Field::MinInterval,
        Field::Ids,
        Field::Id,
        Field::Algorithm,
        Field::Enabled,
        Field::Mode,
        Field::Shadow,
        Field::MaxDebt,
        Field::Comment,
        Field::Owner,
        Field::Expires,
    ];

    pub(super) fn of_name(name: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Field::Burst => "burst",
            Field::Count => "count",
            Field::Period => "period",
            Field::Limit => "limit",
            Field::Window => "window",
            Field::Size => "size",
            Field::DripRate => "drip_rate",
            Field::DripSize => "drip_size",
            Field::Max => "max",
            Field::Duration => "duration",
            Field::MinInterval => "min_interval",
            Field::Ids => "ids",
            Field::Id => "id",
            Field::Algorithm => "algorithm",
            Field::Enabled => "enabled",
            Field::Mode => "mode",
            Field::Shadow => "shadow",
            Field::MaxDebt => "max_debt",
            Field::Comment => "comment",
            Field::Owner => "owner",
            Field::Expires => "expires",
        }
    }

    pub(super) fn allowed(self) -> &'static str {
        match self {
            Field::Burst | Field::Count | Field::Limit => "a whole number from 1",
            Field::Size | Field::DripSize | Field::Max => "a number from 1",
            Field::Period | Field::Window | Field::DripRate | Field::Duration => {
                "a duration such as 60s, 180m or 1h30m"
            }
            Field::MinInterval => "a duration such as 250ms or 1s",
            Field::Ids => "a list of ids",
            Field::Id => "a format such as ipAddress or string",
            Field::Algorithm => "gcra, fixed_window, token_bucket or leaky_bucket",
            Field::Enabled => "true or false",
            Field::Mode => "enforce or shadow",
            Field::Shadow => "a map of numbers, as an override has them,",
            Field::MaxDebt => "a whole number from 0",
            Field::Comment | Field::Owner => "text",
            Field::Expires => "a date such as 2026-12-31",
        }
    }

    /// Whether a file says by it what a limit's numbers are.
    pub(super) fn is_number(self) -> bool {
        (self as usize) < Field::Ids as usize
    }
}

/// A number from 1: digits, and nothing that YAML could take for anything else.
pub(super) fn whole_number(scalar: &Scalar<'_>, field: Field) -> Result<u64, String> {
    match whole_number_or_0(scalar, field)? {
        // Here and not with the numbers that make no limit, so that each that is 0 is named.
        0 => Err("0: at least 1 is allowed".into()),
        number => Ok(number),
    }
}

/// As [`whole_number`], from 0.
pub(super) fn whole_number_or_0(scalar: &Scalar<'_>, field: Field) -> Result<u64, String> {
    let text = &*scalar.text;
    let allowed = field.allowed();
    if !scalar.is_plain() {
        return Err(format!("{}: {allowed}, without quotes, is allowed", Given(text)));
    }
    let is_padded = text.len() > 1 && text.starts_with('0');
    if is_padded || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{}: {allowed}, in plain digits, is allowed", Given(text)));
    }
    text.parse().map_err(|_| format!("{}: at most {} is allowed", Given(text), u64::MAX))
}

pub(super) fn id_format(text: &str) -> Result<IdFormat, String> {
    let named = IdFormat::ALL.iter().find(|(name, _)| *name == text);
    named.map(|(_, format)| *format).ok_or_else(|| {
        let names: Vec<&str> = IdFormat::ALL.iter().map(|(name, _)| *name).collect();
        format!("{}: {} are allowed{}", Given(text), listed(&names), hint(text, &names))
    })
}

/// A number that may have a fraction: digits, a point, at most six digits.
pub(super) fn decimal(scalar: &Scalar<'_>, field: Field) -> Result<Decimal, String> {
    let text = &*scalar.text;
    if !scalar.is_plain() {
        return Err(format!("{}: {}, without quotes, is allowed", Given(text), field.allowed()));
    }
    Decimal::parse(text).map_err(|reason| {
        let is_negative = reason.starts_with("negative");
        let reason = if is_negative { "at least 1 is allowed" } else { &*reason };
        format!("{}: {reason}", Given(text))
    })
}

/// `true` or `false`, as YAML 1.2 spells them.
pub(super) fn switch(scalar: &Scalar<'_>, field: Field) -> Result<bool, String> {
    match &*scalar.text {
        "true" if scalar.is_plain() => Ok(true),
        "false" if scalar.is_plain() => Ok(false),
        text => Err(format!("{}: {} is allowed", Given(text), field.allowed())),
    }
}

pub(super) fn mode(text: &str) -> Result<LimitMode, String> {
    match text {
        "enforce" => Ok(LimitMode::Enforce),
        "shadow" => Ok(LimitMode::Shadow),
        _ => {
            let names = ["enforce", "shadow"];
            Err(format!("{}: {} are allowed{}", Given(text), listed(&names), hint(text, &names)))
        }
    }
}

/// A day, through the end of which an override applies.
pub(super) fn expires(text: &str) -> Result<Expiry, String> {
    Expiry::after_day(text).map_err(|allowed| format!("{}: {allowed}", Given(text)))
}

pub(super) fn algorithm(text: &str) -> Result<Named, String> {
    Named::of_name(text).ok_or_else(|| {
        let names = Named::ALL.map(Named::name);
        format!("{}: {} are allowed{}", Given(text), listed(&names), hint(text, &names))
    })
}

pub(super) fn unknown_field(given: &str, allowed: &[&str]) -> String {
    format!("unknown field: {} are allowed{}", listed(allowed), hint(given, allowed))
}
