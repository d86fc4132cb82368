//! The page's sections.

use maud::{Markup, PreEscaped, html};

use super::chart::{self, Bars, Columns};
use super::closeness::{Shares, TENTHS};
use super::page::Replayed;
use super::tables::{Cell, Table, foreign};
use super::timeline::{Bin, Timeline};
use super::{Row, overrides, words};
use crate::comparison::{BY_LIMIT, Changed, Comparison};
use crate::engine::LimitNo;
use crate::summary::LimitCounts;
use crate::text::{shortened, time};

/// A limit of the page. One of two files may not have it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) name: String,
    pub(crate) in_force: Option<LimitNo>,
    pub(crate) shares: Shares,
    pub(crate) candidate: Option<LimitNo>,
    pub(crate) candidate_shares: Shares,
}

/// Who would be hit, and who would be spared.
pub(crate) fn what_if(run: &Replayed<'_>, against: &Comparison) -> Markup {
    let timeline = &run.collected.timeline;
    let rows = against.limits.iter().map(|(name, limit)| {
        let changes = limit.changes;
        let counts = [
            changes.newly_denied,
            changes.newly_allowed,
            changes.denied_by_both,
            changes.allowed_by_both,
            limit.denied_in_force,
            limit.counts.denied,
        ];
        [Cell::Name(name.clone())].into_iter().chain(counts.map(Cell::Count)).collect()
    });
    let by_limit = Table {
        name: "changes",
        limit: None,
        label: "What would change, by limit",
        header: &BY_LIMIT,
        rows: rows.collect(),
    };
    html! {
        section id="what-if" {
            h2 { "If " (foreign(&against.file)) " took the place of " (foreign(&run.summary.file)) }
            p.quiet {
                (words::number(against.changes.allowed_by_both)) " lines would be allowed as before and "
                (words::number(against.changes.denied_by_both)) " denied as before."
                @if against.not_compared > 0 {
                    " " (words::number(against.not_compared))
                    " are not compared: only one of the files has an answer to them."
                }
            }
            div.card { (by_limit.markup()) }
            div.charts {
                (changes_over_time(timeline, None, &timeline.row(Row::Lines.index())))
                (changed(
                    run, "newly-denied", "Newly denied most", &against.top_newly_denied, chart::DENIED,
                ))
                (changed(
                    run, "newly-allowed", "Newly let through most", &against.top_newly_allowed,
                    chart::LET_THROUGH,
                ))
            }
        }
    }
}

/// One limit: what it did over time, and how close keys came to it.
pub(crate) fn of_limit(run: &Replayed<'_>, limit: &Shown) -> Markup {
    let timeline = &run.collected.timeline;
    let in_force = limit.in_force.map(|limit| timeline.row(Row::InForce(limit).index()));
    let candidate = limit.candidate.map(|limit| timeline.row(Row::Candidate(limit).index()));
    let counts = run.summary.limits.get(&limit.name).copied().unwrap_or_default();
    let LimitCounts { allowed, denied, keys, keys_denied } = counts;
    let changes = changes_of(timeline, in_force.as_deref(), candidate.as_deref());
    // Where only this limit has changes, the chart of all lines has shown them.
    let has_own_changes = changes != changes_only(timeline.row(Row::Lines.index()))
        && changes.iter().any(|bin| *bin != Bin::default());
    let files = [
        (Some(run.side), &run.summary.file),
        (run.candidate, run.summary.against.as_ref().map_or(&run.summary.file, |it| &it.file)),
    ];
    html! {
        section id=(format!("limit-{}", limit.name)) data-limit=(limit.name) {
            h2 { code { (limit.name) } }
            @for (side, file) in files {
                @if let Some(side) = side {
                    p.quiet {
                        (foreign(file)) ": default " (overrides::default(side, &limit.name))
                        (overrides::count(side, &limit.name))
                    }
                }
            }
            p {
                (words::number(allowed)) " lines allowed, " (words::number(denied)) " denied; "
                (words::number(keys)) " ids, " (words::number(keys_denied)) " of them denied."
            }
            (overrides::applied(run, limit))
            div.charts {
                @if let Some(bins) = in_force { (lines_over_time(timeline, &limit.name, &bins)) }
                @if run.candidate.is_some() && has_own_changes {
                    (changes_over_time(timeline, Some(&limit.name), &changes))
                }
                (closeness(run, limit))
            }
        }
    }
}

/// The changes at a limit: those newly denied are the candidate's, those newly let through were denied
/// by the limit in force.
fn changes_of(
    timeline: &Timeline,
    in_force: Option<&[Bin]>,
    candidate: Option<&[Bin]>,
) -> Vec<Bin> {
    let mut bins = vec![Bin::default(); timeline.bins()];
    for (bin, in_force) in bins.iter_mut().zip(in_force.unwrap_or_default()) {
        bin.newly_allowed = in_force.newly_allowed;
    }
    for (bin, candidate) in bins.iter_mut().zip(candidate.unwrap_or_default()) {
        bin.newly_denied = candidate.newly_denied;
    }
    bins
}

/// The bins with their changes alone.
fn changes_only(bins: Vec<Bin>) -> Vec<Bin> {
    let changes = bins.into_iter().map(|Bin { newly_denied, newly_allowed, .. }| Bin {
        newly_denied,
        newly_allowed,
        ..Bin::default()
    });
    changes.collect()
}

fn lines_over_time(timeline: &Timeline, limit: &str, bins: &[Bin]) -> Markup {
    over_time(
        timeline,
        Series {
            name: "time",
            title: "Allowed and denied over time",
            limit: Some(limit),
            columns: Columns::Stacked,
            // The denied stand below, where they can be compared.
            of: [("denied", "of-denied"), ("allowed", "of-allowed")],
            colors: [chart::DENIED, chart::ALLOWED],
            counts: bins.iter().map(|bin| [bin.denied, bin.allowed]).collect(),
        },
    )
}

fn changes_over_time(timeline: &Timeline, limit: Option<&str>, bins: &[Bin]) -> Markup {
    over_time(
        timeline,
        Series {
            name: "changes-time",
            title: "Newly denied and newly let through over time",
            limit,
            columns: Columns::Opposed,
            of: [("newly denied", "of-denied"), ("newly let through", "of-let-through")],
            colors: [chart::DENIED, chart::LET_THROUGH],
            counts: bins.iter().map(|bin| [bin.newly_denied, bin.newly_allowed]).collect(),
        },
    )
}

/// Two counts over time.
struct Series<'a> {
    name: &'a str,
    title: &'a str,
    limit: Option<&'a str>,
    columns: Columns,
    /// What is counted, and the class of its swatch.
    of: [(&'a str, &'a str); 2],
    colors: [plotters::style::RGBColor; 2],
    counts: Vec<[u64; 2]>,
}

fn over_time(timeline: &Timeline, series: Series<'_>) -> Markup {
    let width_ns = timeline.width_ns();
    let [first, second]: [Vec<u64>; 2] =
        [0, 1].map(|i| series.counts.iter().map(|counts| counts[i]).collect());
    let totals = [&first, &second].map(|of| words::number(of.iter().sum()));
    if series.counts.iter().all(|counts| *counts == [0, 0]) {
        return figure(&series, html! { p.quiet { "None." } }, html! {});
    }
    let svg = chart::over_time(
        timeline,
        series.columns,
        (&first, series.colors[0]),
        (&second, series.colors[1]),
    );
    let said = format!(
        "{}: {} {}, {} {}, in {} columns of {} each",
        series.title,
        totals[0],
        series.of[0].0,
        totals[1],
        series.of[1].0,
        series.counts.len(),
        words::duration(width_ns),
    );
    let rows = series.counts.iter().enumerate().filter(|(_, counts)| **counts != [0, 0]);
    let rows = rows.map(|(bin, counts)| {
        let start = words::bin_start(timeline.start_ns(bin), width_ns);
        [Cell::Text(start)].into_iter().chain(counts.map(Cell::Count)).collect()
    });
    let table = Table {
        name: series.name,
        limit: series.limit,
        label: series.title,
        header: &["from, UTC", series.of[0].0, series.of[1].0],
        rows: rows.collect(),
    };
    let width = words::duration(width_ns);
    figure(
        &series,
        image(&said, &svg),
        html! {
            details {
                summary { "Table, each " (width) }
                (table.markup())
            }
        },
    )
}

fn figure(series: &Series<'_>, image: Markup, table: Markup) -> Markup {
    html! {
        figure data-chart=(series.name) data-limit=[series.limit] {
            figcaption {
                h3 { (series.title) }
                div.legend { @for (name, class) in series.of { span class=(class) { (name) } } }
            }
            (image)
            (table)
        }
    }
}

/// A drawing, and what is said of it to those who do not see it.
pub(super) fn image(said: &str, svg: &str) -> Markup {
    html! { div role="img" aria-label=(said) { (PreEscaped(svg)) } }
}

fn closeness(run: &Replayed<'_>, limit: &Shown) -> Markup {
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
        let color = match (&*label, against) {
            ("denied", None) => chart::DENIED,
            _ => chart::ALLOWED,
        };
        let mut counts = vec![(in_force, color)];
        let mut row = vec![Cell::Text(label.clone()), Cell::Count(in_force)];
        if against.is_some() {
            counts.push((candidate, chart::CANDIDATE));
            row.push(Cell::Count(candidate));
        }
        bars.push(Bars { label, counts });
        rows.push(row);
    }
    let title = "How close ids came to the limit";
    let header: &[&str] = match against {
        Some(_) => &["largest share in use", "ids now", "ids then"],
        None => &["largest share in use", "ids"],
    };
    let table = Table { name: "closeness", limit: Some(&limit.name), label: title, header, rows };
    let said = format!(
        "{title}: {} ids were denied, {} used 90 % or more of it",
        words::number(limit.shares.denied),
        words::number(limit.shares.keys[TENTHS - 1]),
    );
    html! {
        figure data-chart="closeness" data-limit=(limit.name) {
            figcaption {
                h3 { (title) }
                div.legend {
                    @if let Some(against) = against {
                        span.of-allowed { (foreign(&run.summary.file)) }
                        span.of-candidate { (foreign(&against.file)) }
                    } @else {
                        span.of-allowed { "ids by the largest share in use at once" }
                        span.of-denied { "ids denied at least once" }
                    }
                }
            }
            @if bars.is_empty() { p.quiet { "None." } } @else {
                (image(&said, &chart::bars(&bars, false)))
                details { summary { "Table" } (table.markup()) }
            }
        }
    }
}

/// Characters of an id that fit above a bar.
pub(super) const MAX_LABEL_CHARS: usize = 42;

fn changed(
    run: &Replayed<'_>,
    name: &str,
    title: &str,
    changed: &[Changed],
    color: plotters::style::RGBColor,
) -> Markup {
    let entries = changed.iter().map(|changed| {
        let entry = |side| overrides::applying(side, &changed.limit, &changed.id);
        (entry(run.side), run.candidate.map_or(String::new(), entry))
    });
    let entries: Vec<(String, String)> = entries.collect();
    let bars = changed.iter().zip(&entries).map(|(changed, (now, then))| {
        let kinds = overrides::kinds(now, then);
        let id = shortened(&changed.id, MAX_LABEL_CHARS - kinds.len());
        Bars { label: id + &kinds, counts: vec![(changed.lines, color)] }
    });
    let bars: Vec<Bars> = bars.collect();
    let rows = changed.iter().zip(&entries).map(|(changed, (now, then))| {
        vec![
            Cell::Name(changed.limit.clone()),
            Cell::Foreign(changed.id.clone()),
            Cell::Words(now.clone()),
            Cell::Words(then.clone()),
            Cell::Count(changed.lines),
            Cell::Count(changed.denied_in_force),
            Cell::Count(changed.denied),
            Cell::Text(time(changed.first_at_ns)),
        ]
    });
    let table = Table {
        name,
        limit: None,
        label: title,
        header: &[
            "limit",
            "id",
            "limit now",
            "limit then",
            "lines",
            "denied now",
            "denied then",
            "first at",
        ],
        rows: rows.collect(),
    };
    html! {
        figure data-chart=(name) {
            figcaption { h3 { (title) } }
            @if changed.is_empty() { p.quiet { "None." } } @else {
                (image(&format!("{title}, as in the table"), &chart::bars(&bars, true)))
                details { summary { "Table" } (table.markup()) }
            }
        }
    }
}

/// What was replayed, and what the page's words mean.
pub(crate) fn replayed(run: &Replayed<'_>, limits: &[Shown]) -> Markup {
    let sides = [
        Some(("in force", run.side, &run.summary.file)),
        run.candidate
            .zip(run.summary.against.as_ref())
            .map(|(side, it)| ("candidate", side, &it.file)),
    ];
    let rows = sides.into_iter().flatten().flat_map(|(role, side, file)| {
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
        header: &["role", "file", "limit", "default"],
        rows: rows.collect(),
    };
    html! {
        section id="replayed" {
            h2 { "What was replayed" }
            p {
                (foreign(run.traffic)) ": " (words::number(run.summary.lines)) " lines, "
                (words::number(run.summary.parsed)) " parsed, "
                @match run.summary.errors {
                    Some(errors) => { (words::number(errors)) " failed." },
                    None => {
                        (words::number(run.summary.skipped)) " skipped, "
                        (words::number(run.summary.late)) " late."
                    }
                }
                @for (i, rule) in run.rules.iter().enumerate() {
                    (if i == 0 { " Each was charged to " } else { ", and to " })
                    code { (rule.limit) } " by its " code { (rule.field.name()) }
                }
                @if !run.rules.is_empty() { "." }
            }
            div.card { (table.markup()) }
            p.quiet {
                "A denied line counts at the limit that denied it, an allowed one at every limit that it was \
                 charged to. How close an id came is the largest share of what it may have that was in use \
                 at once; ids that were denied are counted apart. Times are UTC."
                @if let Some(against) = &run.summary.against {
                    " Now is with " (foreign(&run.summary.file)) ", the limits in force; then is with " (foreign(&against.file))
                    " in its place."
                }
            }
        }
    }
}
