//! Formats the results of simulated nodes as a part of the summary's JSON or as tables.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use crate::summary::table;
use crate::text::{counted, wait};

/// The results of all nodes, with their fields in the order of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodesResult {
    pub(crate) count: u64,
    /// How requests are spread over the nodes.
    pub(crate) by: &'static str,
    pub(crate) ways: Vec<WayResult>,
}

/// The results of one way to share limits.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WayResult {
    pub(crate) shared: String,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Of all limits.
    pub(crate) over_admission: u64,
    pub(crate) store_calls: u64,
    /// The requests beyond the calls to the store.
    pub(crate) store_calls_saved: u64,
    /// By name.
    pub(crate) limits: BTreeMap<String, LimitResult>,
}

/// The counts of one limit, by the rules of the summary.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct LimitResult {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// The units that the nodes allowed for these calls beyond those that one node with all calls would have allowed.
    pub(crate) over_admission: u64,
    /// The mean of the waits that denials named.
    pub(crate) mean_wait_ns: u64,
}

impl NodesResult {
    /// Appends the tables to a text.
    pub(crate) fn write_text(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n{}, requests by {}:", counted(self.count, "node"), self.by);
        let names = self.ways.first().into_iter().flat_map(|way| way.limits.keys());
        // The ways are side by side: all of the first limit, then all of the next.
        let rows = names.flat_map(|name| {
            self.ways.iter().filter_map(move |way| {
                let LimitResult { allowed, denied, over_admission, mean_wait_ns } =
                    way.limits.get(name)?;
                let counts = [allowed, denied, over_admission].map(u64::to_string);
                let mean_wait = wait(Duration::from_nanos(*mean_wait_ns));
                let texts = [name.clone(), way.shared.clone()];
                Some(texts.into_iter().chain(counts).chain([mean_wait]))
            })
        });
        let header = ["limit", "shared", "allowed", "denied", "over the limit", "mean wait"];
        let _ = writeln!(text, "\n{}", table(&header, rows, 2));
        let rows = self.ways.iter().map(|way| {
            let counts = [way.allowed, way.denied, way.store_calls].map(|count| count.to_string());
            [way.shared.clone()].into_iter().chain(counts).chain([way.saved()])
        });
        let header = ["shared", "allowed", "denied", "store calls", "saved"];
        let _ = writeln!(text, "\n{}", table(&header, rows, 1));
    }
}

impl WayResult {
    /// Returns the share of requests without a call to the store, rounded down.
    fn saved(&self) -> String {
        let requests = u128::from(self.allowed + self.denied);
        let thousandths =
            (u128::from(self.store_calls_saved) * 1000).checked_div(requests).unwrap_or(0);
        format!("{}.{} %", thousandths / 10, thousandths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_side_by_side() {
        let way = |shared: &str, over_admission, store_calls| {
            let limit = LimitResult {
                allowed: 1234 + over_admission,
                denied: 5,
                over_admission,
                mean_wait_ns: 1_500_000,
            };
            WayResult {
                shared: shared.into(),
                allowed: limit.allowed,
                denied: 5,
                over_admission,
                store_calls,
                store_calls_saved: limit.allowed + 5 - store_calls,
                limits: ["A", "B"].map(|name| (name.to_owned(), limit)).into(),
            }
        };
        let ways = vec![way("local", 70, 0), way("exact", 0, 1)];
        let mut text = String::new();
        NodesResult { count: 3, by: "turn", ways }.write_text(&mut text);
        let expected = "
3 nodes, requests by turn:

| limit | shared | allowed | denied | over the limit | mean wait |
|-------|--------|---------|--------|----------------|-----------|
| A     | local  |    1304 |      5 |             70 |       2ms |
| A     | exact  |    1234 |      5 |              0 |       2ms |
| B     | local  |    1304 |      5 |             70 |       2ms |
| B     | exact  |    1234 |      5 |              0 |       2ms |

| shared | allowed | denied | store calls |   saved |
|--------|---------|--------|-------------|---------|
| local  |    1304 |      5 |           0 | 100.0 % |
| exact  |    1234 |      5 |           1 |  99.9 % |
";
        assert_eq!(text, expected);
    }

    #[test]
    fn no_requests_save_nothing() {
        let none = WayResult {
            shared: "exact".into(),
            allowed: 0,
            denied: 0,
            over_admission: 0,
            store_calls: 0,
            store_calls_saved: 0,
            limits: BTreeMap::new(),
        };
        assert_eq!(none.saved(), "0.0 %");
    }
}
