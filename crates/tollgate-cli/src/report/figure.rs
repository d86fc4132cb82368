//! A chart with its title, its legend and the table of its numbers.

use maud::{Markup, html};

use super::tables::Table;

pub(crate) struct Figure<'a> {
    pub(crate) title: &'a str,
    /// The classes and the names of the series.
    pub(crate) legend: Vec<(&'a str, Markup)>,
    /// The text for readers who do not see the chart.
    pub(crate) label: String,
    /// The chart as SVG.
    pub(crate) chart: Markup,
    /// The summary line of the closed table.
    pub(crate) summary: String,
    pub(crate) table: Table<'a>,
}

impl Figure<'_> {
    /// Formats the figure. Without rows in the table, there is no chart.
    pub(crate) fn markup(&self) -> Markup {
        html! {
            figure data-chart=(self.table.name) data-limit=[self.table.limit] {
                figcaption {
                    h3 { (self.title) }
                    @if !self.legend.is_empty() {
                        div.legend {
                            @for (class, name) in &self.legend { span class=(class) { (name) } }
                        }
                    }
                }
                @if self.table.rows.is_empty() { p.quiet { "None." } } @else {
                    div role="img" aria-label=(self.label) { (self.chart) }
                    details { summary { (self.summary) } (self.table.markup()) }
                }
            }
        }
    }
}
