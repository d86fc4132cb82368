//! Formats the comparison with a candidate as a part of the summary's JSON or as tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::escape::{Escaped, shortened};
use crate::summary::{LimitCounts, MAX_ID_CHARS, table};
use crate::text::{counted, time};

/// The columns of the table of limits.
pub(crate) const BY_LIMIT: [&str; 7] = [
    "limit",
    "newly denied",
    "newly let through",
    "denied by both",
    "allowed by both",
    "denied now",
    "denied then",
];

/// The decisions of the candidate and how they differ from those of the limits in force, with their fields
/// in the order of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    /// The path of `--against`.
    pub(crate) file: String,
    /// Lines with errors under the candidate; `None` for a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<u64>,
    /// Lines that the candidate skips and the limits in force decide; `None` for a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) newly_skipped: Option<u64>,
    /// Spends that only one of the two files decided.
    pub(crate) not_compared: u64,
    /// Lines that the candidate allowed.
    pub(crate) allowed: u64,
    /// Lines that the candidate denied.
    pub(crate) denied: u64,
    #[serde(flatten)]
    pub(crate) changes: Changes,
    /// By name.
    pub(crate) limits: BTreeMap<String, LimitComparison>,
    pub(crate) top_newly_denied: Vec<Changed>,
    pub(crate) top_newly_allowed: Vec<Changed>,
}

/// Counts of the spends that both files decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Changes {
    pub(crate) newly_denied: u64,
    pub(crate) newly_allowed: u64,
    pub(crate) denied_by_both: u64,
    pub(crate) allowed_by_both: u64,
}

/// The counts of one limit. Lines count at the candidate's limits by the rules of the summary. A line that
/// is newly allowed counts at the limit in force that denied it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LimitComparison {
    #[serde(flatten)]
    pub(crate) changes: Changes,
    /// Lines that the limit in force denied.
    pub(crate) denied_in_force: u64,
    /// The counts of the candidate.
    #[serde(flatten)]
    pub(crate) counts: LimitCounts,
}

/// An id with changed decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Changed {
    pub(crate) limit: String,
    pub(crate) id: String,
    /// Lines with a changed decision.
    pub(crate) lines: u64,
    /// Lines that the id's key denied under the limits in force.
    pub(crate) denied_in_force: u64,
    /// Lines that the id's key denied under the candidate.
    pub(crate) denied: u64,
    /// The time of the first of these lines, since the Unix epoch.
    pub(crate) first_at_ns: u64,
}

impl LimitComparison {
    /// Returns the counts in the order of [`BY_LIMIT`].
    pub(crate) fn columns(&self) -> [u64; 6] {
        let LimitComparison { changes, denied_in_force, counts } = self;
        [
            changes.newly_denied,
            changes.newly_allowed,
            changes.denied_by_both,
            changes.allowed_by_both,
            *denied_in_force,
            counts.denied,
        ]
    }
}

impl Comparison {
    /// Appends the tables to a text. `in_force` is the path of `--limits`.
    pub(crate) fn write_text(&self, text: &mut String, in_force: &str) {
        let Changes { newly_denied, newly_allowed, denied_by_both, allowed_by_both } = self.changes;
        // Writing to a string does not fail.
        let (file, in_force) = (Escaped(&self.file), Escaped(in_force));
        let _ = writeln!(text, "\nif {file} took the place of {in_force}:");
        let _ = writeln!(
            text,
            "{} newly denied, {newly_allowed} newly let through, {denied_by_both} denied by both, \
             {allowed_by_both} allowed by both",
            counted(newly_denied, "line"),
        );
        if self.not_compared > 0 {
            let lines = counted(self.not_compared, "line");
            let _ = writeln!(text, "{lines} not compared: only one of the files has an answer");
        }
        if let Some(errors) = self.errors.filter(|errors| *errors > 0) {
            let _ = writeln!(text, "{} under {file}", counted(errors, "error"));
        }
        if let Some(skipped) = self.newly_skipped.filter(|skipped| *skipped > 0) {
            let lines = counted(skipped, "line");
            let _ = writeln!(
                text,
                "{lines} skipped under {file} alone: a layer answers such requests with a 400"
            );
        }
        if !self.limits.is_empty() {
            let rows = self.limits.iter().map(|(name, limit)| {
                let counts = limit.columns().map(|count| count.to_string());
                [name.clone()].into_iter().chain(counts)
            });
            let _ = writeln!(text, "\n{}", table(&BY_LIMIT, rows, 1));
        }
        let changed = [
            ("newly denied most: limit", &self.top_newly_denied),
            ("newly let through most: limit", &self.top_newly_allowed),
        ];
        for (title, changed) in changed.into_iter().filter(|(_, changed)| !changed.is_empty()) {
            let header = [title, "id", "first at", "lines", "denied now", "denied then"];
            let rows = changed.iter().map(|changed| {
                let Changed { limit, id, lines, denied_in_force, denied, first_at_ns } = changed;
                let texts = [limit.clone(), shortened(id, MAX_ID_CHARS), time(*first_at_ns)];
                texts.into_iter().chain([lines, denied_in_force, denied].map(u64::to_string))
            });
            let _ = writeln!(text, "\n{}", table(&header, rows, 3));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_both_files_and_the_ids() {
        let changes =
            Changes { newly_denied: 2, newly_allowed: 1, denied_by_both: 3, allowed_by_both: 4 };
        let counts = LimitCounts { allowed: 5, denied: 5, keys: 2, keys_denied: 1 };
        let limit = LimitComparison { changes, denied_in_force: 4, counts };
        let changed = Changed {
            limit: "PerClient".into(),
            id: "a\u{1b}".into(),
            lines: 2,
            denied_in_force: 3,
            denied: 5,
            first_at_ns: 1_431_857_103_000_000_000,
        };
        let comparison = Comparison {
            file: "new.yml".into(),
            errors: Some(1),
            newly_skipped: None,
            not_compared: 1,
            allowed: 5,
            denied: 5,
            changes,
            limits: BTreeMap::from([("PerClient".to_owned(), limit)]),
            top_newly_denied: vec![changed],
            top_newly_allowed: Vec::new(),
        };
        let mut text = String::new();
        comparison.write_text(&mut text, "old.yml");
        let expected = "
if new.yml took the place of old.yml:
2 lines newly denied, 1 newly let through, 3 denied by both, 4 allowed by both
1 line not compared: only one of the files has an answer
1 error under new.yml

| limit     | newly denied | newly let through | denied by both | allowed by both | denied now | denied then |
|-----------|--------------|-------------------|----------------|-----------------|------------|-------------|
| PerClient |            2 |                 1 |              3 |               4 |          4 |           5 |

| newly denied most: limit | id      | first at                | lines | denied now | denied then |
|--------------------------|---------|-------------------------|-------|------------|-------------|
| PerClient                | a\\u{1b} | 2015-05-17 10:05:03 UTC |     2 |          3 |           5 |
";
        assert_eq!(text, expected);
    }
}
