//! Formats the results of a replay as one JSON object or as tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::comparison::Comparison;
use crate::escape::shortened;
#[cfg(feature = "valkey")]
use crate::nodes::NodesResult;
use crate::text::counted;

/// The results of a replay, with their fields in the order of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) lines: u64,
    pub(crate) parsed: u64,
    pub(crate) skipped: u64,
    pub(crate) late: u64,
    /// Lines with errors; `None` for a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<u64>,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// By name.
    pub(crate) limits: BTreeMap<String, LimitCounts>,
    pub(crate) top_denied: Vec<Denied>,
    /// The rules that apply to no line of the log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unused_rules: Vec<String>,
    /// The comparison with the limits of `--against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) against: Option<Comparison>,
    /// The results of `--nodes`.
    #[cfg(feature = "valkey")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<NodesResult>,
    /// The path of `--limits`.
    #[serde(skip)]
    pub(crate) file: String,
}

/// The counts of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LimitCounts {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) keys: u64,
    pub(crate) keys_denied: u64,
}

/// An id and how often its key denied a spend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Denied {
    pub(crate) limit: String,
    pub(crate) id: String,
    pub(crate) denied: u64,
}

impl Summary {
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{}: {} parsed, ", counted(self.lines, "line"), self.parsed);
        // Writing to a string does not fail.
        let _ = match self.errors {
            Some(errors) => writeln!(text, "{}", counted(errors, "error")),
            None => writeln!(text, "{} skipped, {} late", self.skipped, self.late),
        };
        let _ = writeln!(text, "{} allowed, {} denied", self.allowed, self.denied);
        for rule in &self.unused_rules {
            let _ = writeln!(text, "no line is one for --rule {rule}");
        }
        if !self.limits.is_empty() {
            let rows = self.limits.iter().map(|(name, counts)| {
                let LimitCounts { allowed, denied, keys, keys_denied } = counts;
                let counts = [allowed, denied, keys, keys_denied].map(u64::to_string);
                [name.clone()].into_iter().chain(counts)
            });
            let header = ["limit", "allowed", "denied", "keys", "keys denied"];
            let _ = writeln!(text, "\n{}", table(&header, rows, 1));
        }
        if !self.top_denied.is_empty() {
            let rows = self.top_denied.iter().map(|denied| {
                let id = shortened(&denied.id, MAX_ID_CHARS);
                [denied.limit.clone(), id, denied.denied.to_string()].into_iter()
            });
            let _ = writeln!(text, "\n{}", table(&["most denied: limit", "id", "denied"], rows, 2));
        }
        if let Some(against) = &self.against {
            against.write_text(&mut text, &self.file);
        }
        #[cfg(feature = "valkey")]
        if let Some(nodes) = &self.nodes {
            nodes.write_text(&mut text);
        }
        text
    }
}

/// Characters of an id in a table.
pub(crate) const MAX_ID_CHARS: usize = 60;

/// Formats a table. The columns from `numbers_from` on are numbers, aligned to the right.
pub(crate) fn table(
    header: &[&str],
    rows: impl Iterator<Item = impl Iterator<Item = String>>,
    numbers_from: usize,
) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row.collect::<Vec<_>>());
    }
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::to_json;

    fn summary() -> Summary {
        let counts = LimitCounts { allowed: 1234, denied: 5, keys: 6, keys_denied: 1 };
        Summary {
            lines: 1240,
            parsed: 1240,
            skipped: 1,
            late: 0,
            errors: None,
            allowed: 1234,
            denied: 5,
            limits: BTreeMap::from([("PerClient".to_owned(), counts)]),
            top_denied: vec![Denied { limit: "PerClient".into(), id: "a\u{1b}".into(), denied: 5 }],
            unused_rules: Vec::new(),
            against: None,
            #[cfg(feature = "valkey")]
            nodes: None,
            file: "limits.yml".into(),
        }
    }

    #[test]
    fn json_keeps_the_order_of_fields() {
        let expected = concat!(
            r#"{"lines":1240,"parsed":1240,"skipped":1,"late":0,"allowed":1234,"denied":5,"#,
            r#""limits":{"PerClient":{"allowed":1234,"denied":5,"keys":6,"keys_denied":1}},"#,
            r#""top_denied":[{"limit":"PerClient","id":"a\u001b","denied":5}]}"#,
            "\n"
        );
        assert_eq!(to_json(&summary()), expected);
    }

    #[test]
    fn tables_align_numbers_to_the_right() {
        let expected = "\
1240 lines: 1240 parsed, 1 skipped, 0 late
1234 allowed, 5 denied

| limit     | allowed | denied | keys | keys denied |
|-----------|---------|--------|------|-------------|
| PerClient |    1234 |      5 |    6 |           1 |

| most denied: limit | id      | denied |
|--------------------|---------|--------|
| PerClient          | a\\u{1b} |      5 |
";
        assert_eq!(summary().to_text(), expected);
    }
}
