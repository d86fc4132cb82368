//! The section of denials: the ids denied most, and the fields of the log's denied lines.

use maud::{Markup, html};

use super::chart::{self, Bars};
use super::page::Replayed;
use super::requests::{Counts, DeniedBy};
use super::sections::{MAX_LABEL_CHARS, image};
use super::tables::{Cell, Table};
use super::words;
use crate::access_log::Field;
use crate::text::shortened;

/// Values of a field that are shown.
const MAX_VALUES: usize = 10;

/// The ids that were denied most, and the values of the log's fields that were.
pub(super) fn denied(run: &Replayed<'_>) -> Markup {
    html! {
        section id="denied" {
            h2 { "Denied most" }
            @if run.summary.top_denied.is_empty() { p { "Nobody was denied." } }
            div.charts {
                @if !run.summary.top_denied.is_empty() { (by_id(run)) }
                @for (field, denied) in run.collected.requests.denied() { (by_field(run, field, denied)) }
            }
        }
    }
}

fn by_id(run: &Replayed<'_>) -> Markup {
    let denied = &run.summary.top_denied;
    let bars = denied.iter().map(|denied| Bars {
        label: shortened(&denied.id, MAX_LABEL_CHARS),
        counts: vec![(denied.denied, chart::DENIED)],
    });
    let bars: Vec<Bars> = bars.collect();
    let rows = denied.iter().map(|denied| {
        vec![
            Cell::Name(denied.limit.clone()),
            Cell::Foreign(denied.id.clone()),
            Cell::Count(denied.denied),
        ]
    });
    let table = Table {
        name: "denied",
        limit: None,
        label: "Denied most",
        header: &["limit", "id", "denied"],
        rows: rows.collect(),
    };
    html! {
        figure data-chart="denied" {
            figcaption { h3 { "Lines denied, by id" } }
            (image("The ids that were denied most, as in the table", &chart::bars(&bars, true)))
            details { summary { "Table" } (table.markup()) }
        }
    }
}

/// The lines denied by the values of a field; nothing where no denied line has the field.
fn by_field(run: &Replayed<'_>, field: Field, denied: &DeniedBy) -> Markup {
    let most = denied.most(MAX_VALUES);
    if most.is_empty() {
        return html! {};
    }
    let (name, title, header) = match field {
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
    let compared: &[&str] = &[header, "denied now", "denied then"];
    let alone: &[&str] = &[header, "denied"];
    let table = Table {
        name,
        limit: None,
        label: title,
        header: if is_compared { compared } else { alone },
        rows: rows.collect(),
    };
    let left = denied.len() - most.len();
    html! {
        figure {
            figcaption { h3 { (title) } }
            (table.markup())
            @if left > 0 { p.quiet { "And " (words::number(left as u64)) " more, of fewer lines." } }
            @if denied.others != Counts::default() {
                p.quiet { "Further values came too late to be counted apart." }
            }
        }
    }
}
