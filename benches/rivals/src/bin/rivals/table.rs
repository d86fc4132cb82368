//! The table of rows.

use std::collections::BTreeMap;

use serde::Serialize;

use rivals::random::Spread;
use rivals::work::Who;

use crate::cases::Case;
use crate::rounds::Medians;
use crate::targets::at_most;

/// One row. `governor_ns` is the better of governor's two hashers. A layer's times are those that it adds to a request.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) keys: usize,
    pub(crate) is_zipf: bool,
    pub(crate) threads: usize,
    pub(crate) tollgate_ns: f64,
    pub(crate) governor_ns: Option<f64>,
    pub(crate) rate_net_ns: Option<f64>,
    /// The times of [`OTHERS`], where they make such calls.
    pub(crate) others_ns: BTreeMap<&'static str, f64>,
    pub(crate) floor_ns: Option<f64>,
    /// The most that [`figure`](Row::figure) may be.
    pub(crate) at_most: Option<f64>,
    #[serde(skip)]
    is_layer: bool,
}

impl Row {
    /// Makes a row of a case; `earlier` are those before it.
    pub(crate) fn new(
        case: &Case,
        (spread, threads): (Spread, usize),
        medians: &Medians,
        earlier: &[Row],
    ) -> Row {
        let ns = |who| medians.get(&who).copied();
        let bare_ns = if case.work.is_layer() { ns(Who::Floor) } else { None };
        let added = |ns: f64| ns - bare_ns.unwrap_or(0.0);
        let governors = [ns(Who::GovernorDefault), ns(Who::GovernorAhash)];
        let on_one_thread = earlier.iter().find(|row| row.threads == 1 && !row.is_zipf);
        Row {
            work: case.name(),
            keys: case.keys,
            is_zipf: spread == Spread::Zipf,
            threads,
            tollgate_ns: added(medians[&Who::Tollgate]),
            governor_ns: governors.into_iter().flatten().reduce(f64::min).map(added),
            rate_net_ns: ns(Who::RateNet),
            others_ns: OTHERS
                .into_iter()
                .filter_map(|(who, name)| Some((name, ns(who)?)))
                .collect(),
            floor_ns: ns(Who::Floor),
            at_most: match (spread, threads) {
                (Spread::Uniform, 1) => at_most(case),
                (Spread::Uniform, _) => {
                    on_one_thread.filter(|one| one.at_most.is_some()).and_then(Row::figure)
                }
                (Spread::Zipf, _) => None,
            },
            is_layer: case.work.is_layer(),
        }
    }

    /// Returns the share of governor's time, or for a layer the time. Targets bound it.
    fn figure(&self) -> Option<f64> {
        if self.is_layer { Some(self.tollgate_ns) } else { self.of_governor() }
    }

    fn of_governor(&self) -> Option<f64> {
        Some(self.tollgate_ns / self.governor_ns?)
    }
}

/// The limiters that promise something else.
const OTHERS: [(Who, &str); 3] =
    [(Who::Runlimit, "runlimit"), (Who::Pingora, "pingora"), (Who::Ratelimit, "ratelimit")];

pub(crate) fn print_table(rows: &[Row]) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    let header =
        "work/keys/threads/tollgate/governor/rate-net/others/floor/of governor/at most/verdict";
    table.set_header(header.split('/'));
    for row in rows {
        let ns = |ns: Option<f64>| ns.map_or("-".to_string(), |ns| format!("{ns:.1}"));
        let share = |share: Option<f64>| share.map_or(String::new(), |share| format!("{share:.2}"));
        let at_most = match row.at_most {
            Some(at_most_ns) if row.is_layer => format!("{at_most_ns:.0} ns"),
            at_most => share(at_most),
        };
        let zipf = if row.is_zipf { ", Zipf" } else { "" };
        let verdict = match (row.figure(), row.at_most) {
            (Some(figure), Some(at_most)) if figure <= at_most => "held",
            (Some(_), Some(_)) => "missed",
            _ => "",
        };
        let others: Vec<_> =
            row.others_ns.iter().map(|(name, ns)| format!("{name} {ns:.1}")).collect();
        table.add_row([
            row.work.clone(),
            format!("{}{zipf}", row.keys),
            row.threads.to_string(),
            ns(Some(row.tollgate_ns)),
            ns(row.governor_ns),
            ns(row.rate_net_ns),
            others.join(", "),
            ns(row.floor_ns),
            share(row.of_governor()),
            at_most,
            verdict.to_string(),
        ]);
    }
    println!("{table}");
}
