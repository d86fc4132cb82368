//! Formats the sections of the page.

use maud::{Markup, html};

use super::chart::{self, Bars, Columns};
use super::closeness::{Shares, TENTHS};
use super::figure::Figure;
use super::page::Run;
use super::tables::{Cell, Table, foreign};
use super::timeline::{Bin, Timeline};
use super::{Row, overrides, words};
use crate::comparison::{BY_LIMIT, Changed, Comparison};
use crate::engine::LimitNo;
use crate::summary::LimitCounts;
use crate::text::{counted_grouped, grouped, span, time};

/// A limit of the page. With two files, one of them may lack it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageLimit {
    pub(crate) name: String,
    pub(crate) in_force: Option<LimitNo>,
    pub(crate) shares: Shares,
    pub(crate) candidate: Option<LimitNo>,
    pub(crate) candidate_shares: Shares,
}

/// Formats the comparison with the candidate.
pub(super) fn what_if(run: &Run<'_>, against: &Comparison) -> Markup {
    let timeline = &run.collected.timeline;
    let rows = against.limits.iter().map(|(name, limit)| {
        let counts = limit.columns().map(Cell::Count);
        [Cell::Name(name.clone())].into_iter().chain(counts).collect()
    });
    let by_limit = Table {
        name: "changes",
        limit: None,
        label: "What would change, by limit",
        header: BY_LIMIT.to_vec(),
        rows: rows.collect(),
    };
    let changes = against.changes;
    html! {
        section id="what-if" {
            h2 { "If " (foreign(&against.file)) " took the place of " (foreign(&run.summary.file)) }
            p.quiet {
                (counted_grouped(changes.allowed_by_both, "line")) " would be allowed as before and "
                (grouped(changes.denied_by_both)) " denied as before."
                @if against.not_compared > 0 {
                    " Not compared: " (counted_grouped(against.not_compared, "line"))
                    ", to which only one of the files has an answer."
                }
                @if let Some(skipped) = against.newly_skipped.filter(|skipped| *skipped > 0) {
                    " " (counted_grouped(skipped, "line")) " "
                    (if skipped == 1 { "was" } else { "were" }) " skipped under "
                    (foreign(&against.file)) " alone: a layer answers such requests with a 400."
                }
            }
            div.card { (by_limit.markup()) }
            div.charts {
                (changes_over_time(timeline, None, &all_changes(timeline)))
                (changed(
                    run, "newly-denied", "Newly denied most", &against.top_newly_denied,
                    chart::DENIED,
                ))
                (changed(
                    run, "newly-allowed", "Newly let through most", &against.top_newly_allowed,
                    chart::LET_THROUGH,
                ))
            }
        }
    }
}

/// Formats the section of one limit.
pub(super) fn limit(run: &Run<'_>, limit: &PageLimit) -> Markup {
    let timeline = &run.collected.timeline;
    let in_force = limit.in_force.map(|limit| timeline.row(Row::InForce(limit).index()));
    let candidate = limit.candidate.map(|limit| timeline.row(Row::Candidate(limit).index()));
    let counts = run.summary.limits.get(&limit.name).copied().unwrap_or_default();
    let LimitCounts { allowed, denied, keys, keys_denied } = counts;
    // Newly denied lines count at the candidate's limit, newly allowed ones at the limit in force.
    let bin =
        |bins: &Option<Vec<Bin>>, i: usize| bins.as_ref().map_or(Bin::default(), |all| all[i]);
    let changes = (0..timeline.bins())
        .map(|i| [bin(&candidate, i).newly_denied, bin(&in_force, i).newly_allowed]);
    let changes: Vec<[u64; 2]> = changes.collect();
    // If only this limit has changes, the chart of all lines shows them.
    let has_chart = changes != all_changes(timeline) && changes.iter().any(|bin| *bin != [0, 0]);
    let against = run.candidate_side().zip(run.summary.against.as_ref());
    let files = [(run.side, &run.summary.file)].into_iter();
    html! {
        section id=(format!("limit-{}", limit.name)) data-limit=(limit.name) {
            h2 { code { (limit.name) } }
            @for (side, file) in files.chain(against.map(|(side, against)| (side, &against.file))) {
                p.quiet {
                    (foreign(file)) ": default " (overrides::default(side, &limit.name))
                    (overrides::count(side, &limit.name))
                }
            }
            p {
                (counted_grouped(allowed, "line")) " allowed, " (grouped(denied)) " denied; "
                (counted_grouped(keys, "id")) ", " (grouped(keys_denied)) " of them denied."
            }
            (overrides::applied(run, limit))
            div.charts {
                @if let Some(bins) = in_force { (lines_over_time(timeline, &limit.name, &bins)) }
                @if has_chart { (changes_over_time(timeline, Some(&limit.name), &changes)) }
                (closeness(run, limit))
            }
        }
    }
}

fn lines_over_time(timeline: &Timeline, limit: &str, bins: &[Bin]) -> Markup {
    let counts: Vec<[u64; 2]> = bins.iter().map(|bin| [bin.denied, bin.allowed]).collect();
    let title = "Allowed and denied over time";
    // The denied lines are at the bottom, where their heights can be compared.
    let series = [(chart::DENIED, "denied"), (chart::ALLOWED, "allowed")];
    over_time(timeline, ("time", title, Some(limit)), Columns::Stacked, series, &counts)
}

fn all_changes(timeline: &Timeline) -> Vec<[u64; 2]> {
    let bins = timeline.row(Row::Lines.index());
    bins.iter().map(|bin| [bin.newly_denied, bin.newly_allowed]).collect()
}

fn changes_over_time(timeline: &Timeline, limit: Option<&str>, changes: &[[u64; 2]]) -> Markup {
    let title = "Newly denied and newly let through over time";
    let series = [(chart::DENIED, "newly denied"), (chart::LET_THROUGH, "newly let through")];
    over_time(timeline, ("changes-time", title, limit), Columns::Opposed, series, changes)
}

/// Formats the figure of two counts over time. `series` are their classes and names.
fn over_time(
    timeline: &Timeline,
    (name, title, limit): (&str, &str, Option<&str>),
    columns: Columns,
    series: [(&str, &str); 2],
    counts: &[[u64; 2]],
) -> Markup {
    let width_ns = timeline.width_ns();
    let width = span(std::time::Duration::from_nanos(width_ns));
    let totals = [0, 1].map(|i| grouped(counts.iter().map(|counts| counts[i]).sum::<u64>()));
    let rows = counts.iter().enumerate().filter(|(_, counts)| **counts != [0, 0]);
    let rows = rows.map(|(bin, counts)| {
        let start = words::bin_start(timeline.start_ns(bin), width_ns);
        [Cell::Text(start)].into_iter().chain(counts.map(Cell::Count)).collect()
    });
    let [first, second] = series.map(|(_, name)| name);
    let figure = Figure {
        title,
        legend: series.map(|(class, name)| (class, html! { (name) })).to_vec(),
        label: format!(
            "{title}: {} {first}, {} {second}, in {} of {width} each",
            totals[0],
            totals[1],
            counted_grouped(counts.len() as u64, "column"),
        ),
        chart: chart::over_time(timeline, columns, counts, series.map(|(class, _)| class)),
        summary: format!("Table, each {width}"),
        table: Table {
            name,
            limit,
            label: title,
            header: vec!["from, UTC", first, second],
            rows: rows.collect(),
        },
    };
    figure.markup()
}

fn closeness(run: &Run<'_>, limit: &PageLimit) -> Markup {
    let against = run.summary.against.as_ref();
    let counts = |shares: Shares| shares.keys.into_iter().chain([shares.denied]);
    let labels = (0..TENTHS).map(|tenth| format!("{} to {} %", tenth * 10, tenth * 10 + 10));
    let labels = labels.chain(["denied".to_owned()]);
    let both = counts(limit.shares).zip(counts(limit.candidate_shares));
    let (mut bars, mut rows) = (Vec::new(), Vec::new());
    for (label, (in_force, candidate)) in labels.zip(both) {
        if (in_force, candidate) == (0, 0) {
            continue;
        }
        let class = match (&*label, against) {
            ("denied", None) => chart::DENIED,
            _ => chart::ALLOWED,
        };
        let mut counts = vec![(in_force, class)];
        counts.extend(against.map(|_| (candidate, chart::CANDIDATE)));
        let cells = counts.iter().map(|(count, _)| Cell::Count(*count));
        rows.push([Cell::Text(label.clone())].into_iter().chain(cells).collect());
        bars.push(Bars { label, counts });
    }
    let title = "How close ids came to the limit";
    let figure = Figure {
        title,
        legend: match against {
            Some(against) => vec![
                (chart::ALLOWED, foreign(&run.summary.file)),
                (chart::CANDIDATE, foreign(&against.file)),
            ],
            None => vec![
                (chart::ALLOWED, html! { "ids by the largest share in use at once" }),
                (chart::DENIED, html! { "ids denied at least once" }),
            ],
        },
        label: format!(
            "{title}: {} denied, {} used 90 % or more of it",
            counted_grouped(limit.shares.denied, "id"),
            grouped(limit.shares.keys[TENTHS - 1]),
        ),
        chart: chart::bars(&bars),
        summary: "Table".into(),
        table: Table {
            name: "closeness",
            limit: Some(&limit.name),
            label: title,
            header: match against {
                Some(_) => vec!["largest share in use", "ids now", "ids then"],
                None => vec!["largest share in use", "ids"],
            },
            rows,
        },
    };
    figure.markup()
}

/// Formats the figure of the ids with the most changes.
fn changed(
    run: &Run<'_>,
    name: &str,
    title: &str,
    changed: &[Changed],
    class: &'static str,
) -> Markup {
    let (mut bars, mut rows) = (Vec::new(), Vec::new());
    for Changed { limit, id, lines, denied_in_force, denied, first_at_ns } in changed {
        let entry = |side| overrides::entry(side, limit, id);
        let now = entry(run.side);
        let then = run.candidate_side().map_or(String::new(), entry);
        let kinds = overrides::kinds(&now, &then);
        bars.push(Bars { label: chart::fitted(id, &kinds), counts: vec![(*lines, class)] });
        let mut row = vec![Cell::Name(limit.clone()), Cell::Foreign(id.clone())];
        row.extend([now, then].map(Cell::Words));
        row.extend([*lines, *denied_in_force, *denied].map(Cell::Count));
        row.push(Cell::Text(time(*first_at_ns)));
        rows.push(row);
    }
    let header = [
        "limit",
        "id",
        "limit now",
        "limit then",
        "lines",
        "denied now",
        "denied then",
        "first at",
    ];
    let figure = Figure {
        title,
        legend: Vec::new(),
        label: format!("{title}, as in the table"),
        chart: chart::bars(&bars),
        summary: "Table".into(),
        table: Table { name, limit: None, label: title, header: header.to_vec(), rows },
    };
    figure.markup()
}

/// Formats the section about the traffic and the limits, which explains the words of the page.
pub(super) fn replayed(run: &Run<'_>, limits: &[PageLimit]) -> Markup {
    let summary = run.summary;
    let candidate = run.candidate_side().zip(summary.against.as_ref());
    let candidate = candidate.map(|(side, against)| ("candidate", side, &against.file));
    let sides = [("in force", run.side, &summary.file)].into_iter().chain(candidate);
    let rows = sides.flat_map(|(role, side, file)| {
        limits.iter().map(move |limit| {
            vec![
                Cell::Text(role.into()),
                Cell::Foreign(file.clone()),
                Cell::Name(limit.name.clone()),
                Cell::Words(overrides::default(side, &limit.name)),
            ]
        })
    });
    let table = Table {
        name: "limits",
        limit: None,
        label: "The limits",
        header: vec!["role", "file", "limit", "default"],
        rows: rows.collect(),
    };
    html! {
        section id="replayed" {
            h2 { "What was replayed" }
            p {
                (foreign(run.traffic)) ": " (counted_grouped(summary.lines, "line")) ", "
                (grouped(summary.parsed)) " parsed, "
                @match summary.errors {
                    Some(errors) => { (grouped(errors)) " failed." },
                    None => { (grouped(summary.skipped)) " skipped, " (grouped(summary.late)) " late." }
                }
                @for (i, rule) in run.rules.iter().enumerate() {
                    (if i == 0 { " Each was charged to " } else { ", and to " })
                    code { (rule.limit) } " by " code { (rule.text) }
                }
                @if !run.rules.is_empty() { "." }
                @for rule in &summary.unused_rules { " No line is one for " code { (rule) } "." }
            }
            div.card { (table.markup()) }
            p.quiet {
                "A denied line counts at the limit that denied it, an allowed line at every limit that \
                 charged it. How close an id came to its limit is the largest share that was in use at \
                 once; ids that were denied are counted apart. Times are UTC."
                @if let Some(against) = &summary.against {
                    " Now means with " (foreign(&summary.file)) ", the limits in force; then means with "
                    (foreign(&against.file)) " in its place."
                }
            }
        }
    }
}
