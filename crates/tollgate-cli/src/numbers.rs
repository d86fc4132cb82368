//! A limit's numbers one by one, by their names in the files.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate::Limit;
use tollgate::limit::Parameters;

use crate::text::{grouped, span};

/// One number of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Units(u64),
    Time(Duration),
}

impl Number {
    pub(crate) fn to_text(self) -> String {
        match self {
            Number::Units(units) => grouped(units),
            Number::Time(time) => span(time),
        }
    }

    /// In JSON: units, or nanoseconds.
    pub(crate) fn to_u64(self) -> u64 {
        match self {
            Number::Units(units) => units,
            Number::Time(time) => nanos(time),
        }
    }

    /// The name in JSON, with the unit of a time.
    pub(crate) fn json_name(self, name: &str) -> String {
        match self {
            Number::Units(_) => name.into(),
            Number::Time(_) => format!("{name}_ns"),
        }
    }
}

/// The numbers in the order in which files have them; of a rule of one's own, the largest cost.
pub(crate) fn numbers(limit: &Limit) -> Vec<(&'static str, Number)> {
    use Number::{Time, Units};
    match limit.parameters() {
        Parameters::Gcra { burst, count, period } => {
            vec![("burst", Units(burst)), ("count", Units(count)), ("period", Time(period))]
        }
        Parameters::FixedWindow { limit, window } => {
            vec![("limit", Units(limit)), ("window", Time(window))]
        }
        Parameters::TokenBucket { limit, window, burst } => {
            vec![("limit", Units(limit)), ("window", Time(window)), ("burst", Units(burst))]
        }
        Parameters::LeakyBucket { size, drip_rate, drip_size } => vec![
            ("size", Units(size)),
            ("drip_rate", Time(drip_rate)),
            ("drip_size", Units(drip_size)),
        ],
        _ => vec![("max_cost", Units(limit.burst()))],
    }
}

/// The most units that a bucket holds: of a token bucket, those of a window.
pub(crate) fn capacity(limit: &Limit) -> u64 {
    match limit.parameters() {
        Parameters::TokenBucket { limit, .. } => limit,
        _ => limit.burst(),
    }
}

/// As one object: the algorithm, and the numbers by their names, times in nanoseconds.
pub(crate) fn to_json(limit: Option<&Limit>) -> Value {
    let Some(limit) = limit else { return Value::Null };
    let mut object = Map::new();
    object.insert("algorithm".into(), json!(limit.algorithm()));
    for (name, number) in numbers(limit) {
        object.insert(number.json_name(name), json!(number.to_u64()));
    }
    Value::Object(object)
}

/// Whole nanoseconds; no time of a limit is too long for them.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
