//! The page's tables.

use maud::{Markup, html};

use super::words;
use crate::text::shortened;

/// A cell of a table.
pub(crate) enum Cell {
    Text(String),
    /// A text that may be broken between words.
    Words(String),
    /// What others wrote: ids and the names of files.
    Foreign(String),
    /// A limit's name, or an algorithm's.
    Name(String),
    Count(u64),
}

/// A table that scrolls in a box of its own. `name` and `limit` say which it is.
pub(crate) struct Table<'a> {
    pub(crate) name: &'a str,
    pub(crate) limit: Option<&'a str>,
    /// What it is, for those who do not see what stands around it.
    pub(crate) label: &'a str,
    pub(crate) header: &'a [&'a str],
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

/// Longer texts of others are cut.
const MAX_FOREIGN_CHARS: usize = 200;

/// What others wrote: nothing in it is obeyed, and it does not turn the writing around it.
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
            return html! { td.n data-value=(count) { (words::number(*count)) } };
        }
    };
    html! { @if is_first { th scope="row" { (content) } } @else { td { (content) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_shown_and_not_obeyed() {
        let hostile =
            "\"'><script>alert(1)</script>&amp;\u{0}\u{1b}[2J\u{202e}gpj.\u{2066}\u{200b}";
        let table = Table {
            name: "t",
            limit: Some("L"),
            label: "a \"label\"",
            header: &["id", "denied"],
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
