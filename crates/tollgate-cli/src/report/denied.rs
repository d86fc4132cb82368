//! Formats the section of denials: the ids and the fields of requests that were denied most.

use maud::{Markup, html};

use super::chart::{self, Bars};
use super::figure::Figure;
use super::page::Run;
use super::requests::{Counts, DeniedBy};
use super::tables::{Cell, Table};
use crate::access_log::Field;
use crate::text::grouped;

/// Values of a field in its table.
const MAX_VALUES: usize = 10;

pub(super) fn denied(run: &Run<'_>) -> Markup {
    html! {
        section id="denied" {
            h2 { "Denied most" }
            @if run.summary.top_denied.is_empty() { p { "No line was denied." } }
            div.charts {
                @if !run.summary.top_denied.is_empty() { (by_id(run)) }
                @for (field, denied) in run.collected.requests.denied() {
                    (by_field(run, field, denied))
                }
            }
        }
    }
}

fn by_id(run: &Run<'_>) -> Markup {
    let denied = &run.summary.top_denied;
    let bars = denied.iter().map(|denied| Bars {
        label: chart::fitted(&denied.id, ""),
        counts: vec![(denied.denied, chart::DENIED)],
    });
    let rows = denied.iter().map(|denied| {
        vec![
            Cell::Name(denied.limit.clone()),
            Cell::Foreign(denied.id.clone()),
            Cell::Count(denied.denied),
        ]
    });
    let figure = Figure {
        title: "Lines denied, by id",
        legend: Vec::new(),
        label: "The ids that were denied most, as in the table".into(),
        chart: chart::bars(&bars.collect::<Vec<_>>()),
        summary: "Table".into(),
        table: Table {
            name: "denied",
            limit: None,
            label: "Denied most",
            header: vec!["limit", "id", "denied"],
            rows: rows.collect(),
        },
    };
    figure.markup()
}

/// Formats the denied lines by the values of a field, if any denied line has the field.
fn by_field(run: &Run<'_>, field: Field, denied: &DeniedBy) -> Markup {
    let most = denied.most(MAX_VALUES);
    if most.is_empty() {
        return html! {};
    }
    let (name, title, column) = match field {
        Field::Path => ("denied-path", "Lines denied, by path without its query", "path"),
        Field::Method => ("denied-method", "Lines denied, by method", "method"),
        Field::Status => {
            ("denied-status", "Lines denied, by the status that the server gave", "status")
        }
        _ => ("denied-user-agent", "Lines denied, by user agent", "user agent"),
    };
    let is_compared = run.candidate.is_some();
    let rows = most.iter().map(|(value, Counts { now, then })| {
        let mut row = vec![Cell::Foreign(value.clone()), Cell::Count(*now)];
        row.extend(is_compared.then_some(Cell::Count(*then)));
        row
    });
    let header = match is_compared {
        true => vec![column, "denied now", "denied then"],
        false => vec![column, "denied"],
    };
    let table = Table { name, limit: None, label: title, header, rows: rows.collect() };
    let rest = denied.len() - most.len();
    html! {
        figure {
            figcaption { h3 { (title) } }
            (table.markup())
            @if rest > 0 { p.quiet { "And " (grouped(rest as u64)) " more, of fewer lines." } }
            @if denied.others != Counts::default() {
                p.quiet { "There were too many values to count all of them separately." }
            }
        }
    }
}
