//! The table of rows.

use serde::Serialize;

/// One row. `governor_ns` is the better of governor's two hashers.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) work: &'static str,
    pub(crate) threads: usize,
    pub(crate) keys: usize,
    pub(crate) tollgate_ns: f64,
    pub(crate) governor_ns: f64,
    pub(crate) rate_net_ns: f64,
    pub(crate) floor_ns: f64,
}

impl Row {
    pub(crate) fn of_governor(&self) -> f64 {
        self.tollgate_ns / self.governor_ns
    }

    pub(crate) fn of_rate_net(&self) -> f64 {
        self.tollgate_ns / self.rate_net_ns
    }

    pub(crate) fn of_floor(&self) -> f64 {
        self.tollgate_ns / self.floor_ns
    }
}

pub(crate) fn print_table(rows: &[Row]) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "work",
        "keys",
        "threads",
        "tollgate",
        "governor",
        "rate-net",
        "floor",
        "of governor",
        "of rate-net",
        "of floor",
    ]);
    for row in rows {
        table.add_row([
            row.work.to_string(),
            row.keys.to_string(),
            row.threads.to_string(),
            format!("{:.1}", row.tollgate_ns),
            format!("{:.1}", row.governor_ns),
            format!("{:.1}", row.rate_net_ns),
            format!("{:.1}", row.floor_ns),
            format!("{:.2}", row.of_governor()),
            format!("{:.2}", row.of_rate_net()),
            format!("{:.2}", row.of_floor()),
        ]);
    }
    println!("{table}");
}
