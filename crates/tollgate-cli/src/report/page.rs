//! The page: one file without a script, which loads nothing.

use std::collections::{BTreeMap, HashSet};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::denied::denied;
use super::requests::Hit;
use super::sections::{Shown, of_limit, replayed, what_if};
use super::tables::foreign;
use super::{Collected, words};
use crate::against::Against;
use crate::args::Rule;
use crate::side::Side;
use crate::summary::Summary;
use crate::text::{shortened, time};

/// A run, as the page tells it.
pub(crate) struct Replayed<'a> {
    /// The trace or the log, as the messages call it.
    pub(crate) traffic: &'a str,
    pub(crate) rules: &'a [Rule],
    pub(crate) summary: &'a Summary,
    pub(crate) side: &'a Side,
    pub(crate) candidate: Option<&'a Side>,
    pub(crate) against: Option<&'a Against>,
    pub(crate) collected: &'a Collected,
}

const STYLE: &str = include_str!("style.css");

/// Nothing is loaded, and nothing runs, whatever an id has in it.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page as HTML.
pub(crate) fn page(run: &Replayed<'_>) -> String {
    let limits = limits(run);
    let title = format!("Tollgate: {}", shortened(run.traffic, MAX_TITLE_CHARS));
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="content-security-policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (head(run)) }
                main {
                    @if let Some(against) = &run.summary.against { (what_if(run, against)) }
                    @for limit in &limits { (of_limit(run, limit)) }
                    (denied(run))
                    (replayed(run, &limits))
                }
            }
        }
    };
    page.into_string()
}

const MAX_TITLE_CHARS: usize = 60;

/// The limits that the page shows, by name.
fn limits(run: &Replayed<'_>) -> Vec<Shown> {
    let mut limits: BTreeMap<&str, Shown> = BTreeMap::new();
    let in_force_shares = run.collected.in_force.shares(run.side);
    for (limit, _) in run.side.tally.by_limit() {
        let shown = limits.entry(run.side.engine.name(limit)).or_default();
        shown.in_force = Some(limit);
        shown.shares = in_force_shares.get(limit.index()).copied().unwrap_or_default();
    }
    if let Some(candidate) = run.candidate {
        let candidate_shares = run.collected.candidate.shares(candidate);
        for (limit, _) in candidate.tally.by_limit() {
            let shown = limits.entry(candidate.engine.name(limit)).or_default();
            shown.candidate = Some(limit);
            shown.candidate_shares =
                candidate_shares.get(limit.index()).copied().unwrap_or_default();
        }
    }
    let named = limits.into_iter();
    named.map(|(name, shown)| Shown { name: name.to_owned(), ..shown }).collect()
}

/// How many clients of a log, or ids of a trace, are affected by the candidate; without one, how many were
/// denied. The tile's name, its unit and the counts.
fn hit(run: &Replayed<'_>) -> (String, &'static str, Hit) {
    let what = if run.against.is_some() { "affected" } else { "denied" };
    let (unit, hit) = match (run.rules, run.against) {
        ([_, ..], Some(_)) => ("clients", run.collected.requests.clients_affected()),
        ([_, ..], None) => ("clients", run.collected.requests.clients_denied()),
        ([], Some(against)) => ("ids", ids_affected(run.side, against)),
        ([], None) => ("ids", ids_denied(run.side)),
    };
    (format!("{unit} {what}"), unit, hit)
}

fn ids_denied(side: &Side) -> Hit {
    let count = side.tally.seen().filter(|(.., denied)| *denied > 0).count() as u64;
    Hit { count, of: side.tally.seen().count() as u64 }
}

fn ids_affected(in_force: &Side, against: &Against) -> Hit {
    let mut seen = HashSet::new();
    for side in [in_force, &against.side] {
        seen.extend(side.tally.seen().map(|(key, ..)| side.key(key)));
    }
    Hit { count: against.affected(in_force).len() as u64, of: seen.len() as u64 }
}

fn head(run: &Replayed<'_>) -> Markup {
    let summary = run.summary;
    let spends = summary.allowed + summary.denied;
    let tile = |name: &str, class: &str, count: u64, note: Option<String>| {
        html! {
            div class=[(count > 0 && !class.is_empty()).then_some(class)] {
                dt { (name) }
                dd data-fact=(name) data-value=(count) {
                    (words::number(count)) @if let Some(note) = note { small { (note) } }
                }
            }
        }
    };
    let part =
        |count| Some(format!("{} of {}", words::percent(count, spends), words::number(spends)));
    html! {
        h1 { "What the limits would have done" }
        p.quiet {
            (foreign(run.traffic)) " under " (foreign(&summary.file))
            @if let Some(against) = &summary.against { ", and under " (foreign(&against.file)) }
        }
        @match run.collected.span_ns {
            Some((first_ns, last_ns)) => p.quiet { (time(first_ns)) " to " (time(last_ns)) },
            None => p { "No requests were charged." },
        }
        dl.tiles {
            (tile("lines", "", summary.lines, None))
            (tile("allowed", "", summary.allowed, part(summary.allowed)))
            (tile("denied", "denied", summary.denied, part(summary.denied)))
            @if let Some(against) = &summary.against {
                (tile("newly denied", "denied", against.changes.newly_denied, part(against.changes.newly_denied)))
                (tile("newly let through", "let-through", against.changes.newly_allowed, part(against.changes.newly_allowed)))
            }
            @let (name, of, hit) = hit(run);
            (tile(&name, "", hit.count, Some(format!("of {} {of}", words::number(hit.of)))))
            @if let Some(errors) = summary.errors.filter(|errors| *errors > 0) {
                (tile("errors", "denied", errors, None))
            }
        }
    }
}
