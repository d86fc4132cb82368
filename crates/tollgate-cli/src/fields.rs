//! Lists the parameters of a limit under their names in limits files.

use std::iter;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate::Limit;
use tollgate::limit::{ParameterValue, Parameters};
use tollgate::limits::LimitEntry;
#[cfg(feature = "valkey")]
use tollgate::limits::Shared;

use crate::text::{grouped, span};

/// A field of an entry in a limits file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// The value for people.
    pub(crate) text: String,
    /// The value in JSON; of a time, nanoseconds.
    pub(crate) json: Value,
    is_time: bool,
}

impl Field {
    pub(crate) fn text(name: &'static str, text: impl ToString) -> Field {
        let text = text.to_string();
        Field { name, json: json!(text), text, is_time: false }
    }

    pub(crate) fn flag(name: &'static str, flag: bool) -> Field {
        Field { name, text: flag.to_string(), json: json!(flag), is_time: false }
    }

    pub(crate) fn units(name: &'static str, units: u64) -> Field {
        Field { name, text: grouped(units), json: json!(units), is_time: false }
    }

    pub(crate) fn limit(name: &'static str, limit: &Limit) -> Field {
        Field { name, text: limit.to_string(), json: to_json(Some(limit)), is_time: false }
    }

    fn time(name: &'static str, time: Duration) -> Field {
        Field { name, text: span(time), json: json!(nanos(time)), is_time: true }
    }

    /// Whether it says that a limit is local, as all are unless their file says more.
    pub(crate) fn is_local(&self) -> bool {
        self.name == SHARED && self.text == "local"
    }

    /// Returns the name in JSON, which has the unit of a time.
    pub(crate) fn json_name(&self) -> String {
        if self.is_time { format!("{}_ns", self.name) } else { self.name.to_owned() }
    }
}

/// Returns the algorithm and its parameters in the order of limits files; of a custom algorithm, the largest
/// cost.
pub(crate) fn fields(limit: &Limit) -> Vec<Field> {
    let parameters = limit.parameters().named().map(|(name, value)| match value {
        ParameterValue::Time(time) => Field::time(name, time),
        ParameterValue::Units(units) => Field::units(name, units),
        other => Field::text(name, format!("{other:?}")),
    });
    iter::once(Field::text(ALGORITHM, limit.algorithm())).chain(parameters).collect()
}

/// The name of the field with the algorithm.
pub(crate) const ALGORITHM: &str = "algorithm";

/// The algorithm that counts permits, not units.
pub(crate) const CONCURRENCY: &str = "concurrency";

/// Returns whether the buckets of a limit are in a store.
#[cfg(feature = "valkey")]
pub(crate) fn is_shared(limit: &LimitEntry<'_>) -> bool {
    limit.shared() != Shared::Local
}

/// Returns false: every limit is local.
#[cfg(not(feature = "valkey"))]
pub(crate) fn is_shared(_: &LimitEntry<'_>) -> bool {
    false
}

/// Returns where the buckets of a limit are, and the other words of a shared limit.
#[cfg(feature = "valkey")]
pub(crate) fn sharing(limit: &LimitEntry<'_>) -> Vec<Field> {
    let mut all = vec![Field::text(SHARED, limit.shared())];
    all.extend(limit.on_error().map(|word| Field::text("on_error", word)));
    all.extend(limit.fraction().map(|part| Field::text("fraction", part)));
    all.extend(limit.allow_for().map(|time| Field::time("for", time)));
    all.extend(limit.lease().map(|time| Field::time("lease", time)));
    all
}

/// Returns nothing: every limit is local.
#[cfg(not(feature = "valkey"))]
pub(crate) fn sharing(_: &LimitEntry<'_>) -> Vec<Field> {
    Vec::new()
}

/// The name of the field that says where the buckets are.
pub(crate) const SHARED: &str = "shared";

/// The names of the fields of [`sharing`].
pub(crate) const SHARING: [&str; 5] = [SHARED, "on_error", "fraction", "for", "lease"];

/// Returns how many units a full bucket holds; of a token bucket, those of a whole window.
pub(crate) fn capacity(limit: &Limit) -> u64 {
    match limit.parameters() {
        Parameters::TokenBucket { limit, .. } => limit,
        _ => limit.burst(),
    }
}

/// Converts a limit to one JSON object of its fields.
pub(crate) fn to_json(limit: Option<&Limit>) -> Value {
    let object = |limit| -> Map<_, _> {
        fields(limit).into_iter().map(|field| (field.json_name(), field.json)).collect()
    };
    limit.map_or(Value::Null, |limit| object(limit).into())
}

/// Converts a time to whole nanoseconds. No time of a limit is too long.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
