//! YAML as a stream of nodes with their lines: the one place that knows the parser.

mod gauge;
mod weight;

use std::borrow::Cow;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use gauge::{Gauge, Held};

/// The deepest that lists and maps may be nested.
const DEPTH_MAX: usize = 64;

/// The most anchors: without aliases they are of no use, and the parser keeps each.
const ANCHORS_MAX: usize = 1 << 16;

/// The most nodes of a faulty value that are read past, for the sake of faults after it.
const SKIPPED_MAX: usize = 100_000;

/// A stream of nodes. It holds one token of the text, and of a `[...]` or `{...}` that stands where
/// a key may stand the whole, within bounds ([`Gauge`]).
pub(super) struct Events<'t> {
    parser: Parser<'t, Gauge<'t>>,
    held: Held,
    depth: usize,
    /// What to add to the parser's lines.
    lines_before: u64,
}

/// A node, or the end of one.
pub(super) struct Node<'t> {
    pub(super) line: u64,
    /// Whether it has a tag, such as `!!str`.
    pub(super) is_tagged: bool,
    pub(super) kind: Kind<'t>,
}

pub(super) enum Kind<'t> {
    DocumentStart,
    Scalar(Scalar<'t>),
    Alias,
    List,
    Map,
    /// The end of the innermost list or map.
    End,
    DocumentEnd,
    StreamEnd,
}

pub(super) struct Scalar<'t> {
    pub(super) text: Cow<'t, str>,
    pub(super) style: Style,
    /// How many lines it is written on.
    pub(super) lines: u64,
}

/// How a scalar is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Quoted,
    /// After a `|` or `>`.
    Block,
}

impl Scalar<'_> {
    pub(super) fn is_plain(&self) -> bool {
        self.style == Style::Plain
    }

    /// Whether YAML takes it for null rather than for text.
    pub(super) fn is_null(&self) -> bool {
        self.is_plain() && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

/// Why there are no more nodes.
pub(super) struct Broken {
    pub(super) line: u64,
    pub(super) message: String,
}

impl<'t> Events<'t> {
    /// The nodes of `text`. `spare` is where it is copied to, if it needs another beginning.
    pub(super) fn new(text: &'t str, spare: &'t mut String) -> Events<'t> {
        let (text, lines_before) = match flow_root(text) {
            // On the line of its `---` no collection can be a key, so that the parser streams it.
            Some(start) => {
                spare.reserve_exact("--- ".len() + text.len() - start);
                spare.push_str("--- ");
                spare.push_str(&text[start..]);
                (&**spare, text[..start].matches('\n').count() as u64)
            }
            None => (text, 0),
        };
        let held = Held::default();
        let parser = Parser::new(Gauge::new(text, held.clone()));
        Events { parser, held, depth: 0, lines_before }
    }

    /// The next node.
    pub(super) fn next(&mut self) -> Result<Node<'t>, Broken> {
        loop {
            let next = self.parser.next_event();
            if self.held.is_exceeded() {
                return Err(self.too_much());
            }
            self.held.clear();
            let (event, span) = match next {
                Some(Ok(next)) => next,
                Some(Err(error)) => return Err(self.syntax(&error)),
                None => (Event::StreamEnd, Default::default()),
            };
            let line = self.line(&span.start);
            let (kind, anchor, is_tagged) = match event {
                Event::Nothing | Event::StreamStart => continue,
                Event::DocumentStart(_) => (Kind::DocumentStart, 0, false),
                Event::DocumentEnd => (Kind::DocumentEnd, 0, false),
                Event::StreamEnd => (Kind::StreamEnd, 0, false),
                Event::Alias(_) => (Kind::Alias, 0, false),
                Event::Scalar(text, style, anchor, tag) => {
                    let style = match style {
                        ScalarStyle::Plain => Style::Plain,
                        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => Style::Quoted,
                        ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
                    };
                    let lines = (span.end.line() - span.start.line()) as u64 + 1;
                    (Kind::Scalar(Scalar { text, style, lines }), anchor, tag.is_some())
                }
                Event::SequenceStart(anchor, tag) => (Kind::List, anchor, tag.is_some()),
                Event::MappingStart(anchor, tag) => (Kind::Map, anchor, tag.is_some()),
                Event::SequenceEnd | Event::MappingEnd => (Kind::End, 0, false),
            };
            self.check(line, &kind, anchor)?;
            return Ok(Node { line, is_tagged, kind });
        }
    }

    /// Reads to the end of a list or map whose start was read last, which is at fault already: so
    /// not much further than anyone wrote by mistake.
    pub(super) fn skip_to_end(&mut self) -> Result<(), Broken> {
        let depth = self.depth;
        let mut line = 0;
        for _ in 0..SKIPPED_MAX {
            if self.depth < depth {
                return Ok(());
            }
            line = self.next()?.line;
        }
        let message = format!(
            "more than {SKIPPED_MAX} values where they are not allowed: the rest of the file was not read"
        );
        Err(Broken { line, message })
    }

    fn check(&mut self, line: u64, kind: &Kind<'_>, anchor: usize) -> Result<(), Broken> {
        match kind {
            Kind::List | Kind::Map => self.depth += 1,
            Kind::End => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let message = if self.depth > DEPTH_MAX {
            too_deep()
        } else if anchor > ANCHORS_MAX {
            format!("too many anchors: at most {ANCHORS_MAX} are allowed")
        } else {
            return Ok(());
        };
        Err(Broken { line, message })
    }

    fn line(&self, mark: &Marker) -> u64 {
        self.lines_before.saturating_add(mark.line() as u64)
    }

    #[cold]
    fn syntax(&self, error: &ScanError) -> Broken {
        let info = error.info();
        let message = if info.contains("recursion limit") {
            too_deep()
        } else if info.contains("unknown anchor") {
            "an alias is not allowed: write the value itself".into()
        } else if info.contains("mapping values are not allowed") {
            format!(
                "invalid yaml: {info}; text that has ': ' in it, or ':' at its end, must be quoted"
            )
        } else {
            format!("invalid yaml: {info}")
        };
        Broken { line: self.line(error.marker()), message }
    }

    #[cold]
    fn too_much(&mut self) -> Broken {
        // What comes next, if anything does, is the start of what was held back.
        let line = match self.parser.next_event() {
            Some(Ok((_, span))) => self.line(&span.start),
            Some(Err(error)) => self.line(error.marker()),
            None => self.lines_before.saturating_add(1),
        };
        let message = format!(
            "more than {} commas, colons, quotes and brackets in one text, or in one list or map in brackets: write it without brackets, one item a line",
            Held::MAX
        );
        Broken { line, message }
    }
}

fn too_deep() -> String {
    format!("nested too deep: at most {DEPTH_MAX} levels are allowed")
}

/// Where the text's only node starts, if that is a `[` or a `{` at the start of a line.
fn flow_root(text: &str) -> Option<usize> {
    let mut start = 0;
    let mut has_marker = false;
    for line in text.split_inclusive('\n') {
        let content = line.trim_start_matches(['\u{feff}', ' ', '\t']);
        match content.as_bytes().first() {
            None | Some(b'\n' | b'\r' | b'#') => {}
            Some(b'[' | b'{') => return Some(start + line.len() - content.len()),
            Some(b'-') if !has_marker && line.trim_end() == "---" => has_marker = true,
            Some(_) => return None,
        }
        start += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_root_in_brackets() {
        for (text, start) in [
            ("{a: 1}", Some(0)),
            ("\u{feff}[]", Some(3)),
            ("# c\n\n---\n  {a: 1}\n", Some(11)),
            ("---\n---\n[]", None),
            ("--- {a: 1}", None),
            ("a: {b: 1}", None),
            ("%YAML 1.2\n---\n[]", None),
            ("- [a]", None),
            ("", None),
        ] {
            assert_eq!(flow_root(text), start, "{text:?}");
        }
    }
}
