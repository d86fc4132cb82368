//! Formats the tables of the page.

use maud::{Markup, html};

use crate::escape::shortened;
use crate::text::grouped;

/// A cell of a table.
pub(crate) enum Cell {
    Text(String),
    /// A text that may wrap between words.
    Words(String),
    /// A text from outside: an id or the name of a file.
    Foreign(String),
    /// The name of a limit.
    Name(String),
    Count(u64),
}

/// A table that scrolls in its own box.
pub(crate) struct Table<'a> {
    /// The identifier for tests and scripts.
    pub(crate) name: &'a str,
    pub(crate) limit: Option<&'a str>,
    /// The title for screen readers.
    pub(crate) label: &'a str,
    pub(crate) header: Vec<&'a str>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

impl Table<'_> {
    pub(crate) fn markup(&self) -> Markup {
        let is_count = |column: usize| {
            matches!(self.rows.first().map(|row| &row[column]), Some(Cell::Count(_)))
        };
        html! {
            div.scroll tabindex="0" role="region" aria-label=(self.label) {
                p.hint { span.sideways { "scroll sideways \u{2192}" } span.down { "scroll down \u{2193}" } }
                table data-table=(self.name) data-limit=[self.limit] {
                    thead { tr {
                        @for (column, title) in self.header.iter().enumerate() {
                            th class=[is_count(column).then_some("n")] scope="col" { (title) }
                        }
                    } }
                    tbody {
                        @for row in &self.rows { tr {
                            @for (column, cell) in row.iter().enumerate() { (markup(cell, column == 0)) }
                        } }
                    }
                }
            }
        }
    }
}

/// Characters of a text from outside.
const MAX_FOREIGN_CHARS: usize = 200;

/// Formats a text from outside. Its direction of writing does not affect the text around it.
pub(crate) fn foreign(text: &str) -> Markup {
    html! { bdi { (shortened(text, MAX_FOREIGN_CHARS)) } }
}

fn markup(cell: &Cell, is_first: bool) -> Markup {
    let content = match cell {
        Cell::Text(text) => html! { (text) },
        Cell::Words(text) => return html! { td.w { (text) } },
        Cell::Foreign(text) => foreign(text),
        Cell::Name(name) => html! { code { (name) } },
        Cell::Count(count) => {
            return html! { td.n data-value=(count) { (grouped(*count)) } };
        }
    };
    html! { @if is_first { th scope="row" { (content) } } @else { td { (content) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped() {
        let hostile =
            "\"'><script>alert(1)</script>&amp;\u{0}\u{1b}[2J\u{202e}gpj.\u{2066}\u{200b}";
        let table = Table {
            name: "t",
            limit: Some("L"),
            label: "a \"label\"",
            header: vec!["id", "denied"],
            rows: vec![vec![Cell::Foreign(hostile.into()), Cell::Count(1234)]],
        };
        let text = table.markup().into_string();
        let expected = concat!(
            r#"<div class="scroll" tabindex="0" role="region" aria-label="a &quot;label&quot;">"#,
            r#"<p class="hint"><span class="sideways">scroll sideways →</span>"#,
            r#"<span class="down">scroll down ↓</span></p>"#,
            r#"<table data-table="t" data-limit="L"><thead><tr><th scope="col">id</th>"#,
            r#"<th class="n" scope="col">denied</th></tr></thead><tbody><tr><th scope="row"><bdi>"#,
            r#"&quot;'&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;\u{0}\u{1b}[2J\u{202e}gpj.\u{2066}\u{200b}"#,
            r#"</bdi></th><td class="n" data-value="1234">1,234</td></tr></tbody></table></div>"#,
        );
        assert_eq!(text, expected);
    }
}
