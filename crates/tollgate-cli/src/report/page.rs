//! Formats the page: one HTML file without a script, which loads no other file.

use std::collections::{BTreeMap, HashSet};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::denied::denied;
use super::requests::Affected;
use super::sections::{PageLimit, limit, replayed, what_if};
use super::tables::foreign;
use super::{Collected, words};
use crate::candidate::Candidate;
use crate::escape::shortened;
use crate::rules::Rule;
use crate::side::Side;
use crate::summary::Summary;
use crate::text::{counted_grouped, grouped, time};

/// The results of a replay, for the page.
pub(crate) struct Run<'a> {
    /// The path of the trace or the log.
    pub(crate) traffic: &'a str,
    /// The rules of a log; none for a trace.
    pub(crate) rules: &'a [Rule],
    pub(crate) summary: &'a Summary,
    pub(crate) side: &'a Side,
    pub(crate) candidate: Option<&'a Candidate>,
    pub(crate) collected: &'a Collected,
}

impl<'a> Run<'a> {
    pub(super) fn candidate_side(&self) -> Option<&'a Side> {
        self.candidate.map(|candidate| &candidate.side)
    }
}

const STYLE: &str = include_str!("style.css");

/// Forbids the browser to load files and to run scripts, even if an id contained one.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Characters of the traffic's path in the title.
const MAX_TITLE_CHARS: usize = 60;

/// Formats the page as HTML.
pub(crate) fn page(run: &Run<'_>) -> String {
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
                    @for one in &limits { (limit(run, one)) }
                    (denied(run))
                    (replayed(run, &limits))
                }
            }
        }
    };
    page.into_string()
}

/// Returns the limits of the page, sorted by name.
fn limits(run: &Run<'_>) -> Vec<PageLimit> {
    let mut limits: BTreeMap<&str, PageLimit> = BTreeMap::new();
    let shares = run.collected.in_force.shares(run.side);
    for (limit, _) in run.side.tally.by_limit() {
        let entry = limits.entry(run.side.engine.name(limit)).or_default();
        entry.in_force = Some(limit);
        entry.shares = shares.get(limit).copied().unwrap_or_default();
    }
    if let Some(side) = run.candidate_side() {
        let shares = run.collected.candidate.shares(side);
        for (limit, _) in side.tally.by_limit() {
            let entry = limits.entry(side.engine.name(limit)).or_default();
            entry.candidate = Some(limit);
            entry.candidate_shares = shares.get(limit).copied().unwrap_or_default();
        }
    }
    let named = limits.into_iter();
    named.map(|(name, limit)| PageLimit { name: name.to_owned(), ..limit }).collect()
}

/// Counts the clients of a log, or the ids of a trace, that the candidate affects; without a candidate, those
/// that were denied. Returns the unit as well.
fn affected(run: &Run<'_>) -> (&'static str, Affected) {
    let requests = &run.collected.requests;
    let seen = |side: &Side| -> HashSet<(String, String)> {
        let keys = side.tally.seen().map(|(key, _)| side.key(key));
        keys.map(|(limit, id)| (limit.to_owned(), id.to_owned())).collect()
    };
    match (run.rules, run.candidate) {
        ([_, ..], Some(_)) => ("clients", requests.clients_affected()),
        ([_, ..], None) => ("clients", requests.clients_denied()),
        ([], Some(candidate)) => {
            let mut all = seen(run.side);
            all.extend(seen(&candidate.side));
            let count = candidate.affected(run.side).len() as u64;
            ("ids", Affected { count, total: all.len() as u64 })
        }
        ([], None) => {
            let seen = || run.side.tally.seen();
            let count = seen().filter(|(_, key)| key.denied > 0).count() as u64;
            ("ids", Affected { count, total: seen().count() as u64 })
        }
    }
}

fn head(run: &Run<'_>) -> Markup {
    let summary = run.summary;
    let spends = summary.allowed + summary.denied;
    let tile = |name: &str, class: &str, count: u64, note: Option<String>| {
        html! {
            div class=[(count > 0 && !class.is_empty()).then_some(class)] {
                dt { (name) }
                dd data-fact=(name) data-value=(count) {
                    (grouped(count)) @if let Some(note) = note { small { (note) } }
                }
            }
        }
    };
    let share = |count| Some(format!("{} of {}", words::percent(count, spends), grouped(spends)));
    let (unit, affected) = affected(run);
    let verb = if run.candidate.is_some() { "affected" } else { "denied" };
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
            @if summary.errors.is_none() {
                (tile("skipped", "denied", summary.skipped, Some(format!(
                    "{} of {}", words::percent(summary.skipped, summary.lines), grouped(summary.lines),
                ))))
            }
            (tile("allowed", "", summary.allowed, share(summary.allowed)))
            (tile("denied", "denied", summary.denied, share(summary.denied)))
            @if let Some(changes) = summary.against.as_ref().map(|against| against.changes) {
                (tile("newly denied", "denied", changes.newly_denied, share(changes.newly_denied)))
                (tile(
                    "newly let through", "let-through", changes.newly_allowed,
                    share(changes.newly_allowed),
                ))
            }
            @let newly_skipped = summary.against.as_ref().and_then(|against| against.newly_skipped);
            @if let Some(skipped) = newly_skipped.filter(|skipped| *skipped > 0) {
                (tile("newly skipped", "denied", skipped, share(skipped)))
            }
            (tile(
                &format!("{unit} {verb}"), "", affected.count,
                Some(format!("of {}", counted_grouped(affected.total, unit.trim_end_matches('s')))),
            ))
            @if let Some(errors) = summary.errors.filter(|errors| *errors > 0) {
                (tile("errors", "denied", errors, None))
            }
        }
    }
}
