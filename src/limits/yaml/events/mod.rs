//! Reads YAML as a stream of nodes with their lines. No other module knows the parser.

mod bounded_input;
mod indicators;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use crate::limits::read::{DEPTH_MAX, Node, Nodes, Scalar, StreamFault, Style, Value, too_deep};

use bounded_input::{BoundedInput, HeldBack};

/// The most anchors. They have no use without aliases, and the parser keeps each.
const ANCHORS_MAX: usize = 1 << 16;

/// The most nodes of a faulty value that are skipped, so that faults after it are found.
const SKIPPED_MAX: usize = 100_000;

/// A stream of nodes. The parser holds one token of the text. A `[...]` or `{...}` where a key may be is held whole,
/// within the bound of [`BoundedInput`].
pub(super) struct Events<'t> {
    parser: Parser<'t, BoundedInput<'t>>,
    held: HeldBack,
    depth: usize,
    /// The text that the parser reads.
    text: &'t str,
    /// The lines before the parser's first.
    lines_before: u64,
    /// The line of a tab before the root. The parser takes it for spaces, unlike one on a later line.
    tab_before_root: Option<u64>,
}

const ALIAS: &str = "an alias is not allowed: write the value itself";
const TAG: &str = "a tag is not allowed: write the value alone";
const TAB: &str = "a tab at the start of the line: only spaces are allowed there";

impl<'t> Events<'t> {
    /// Returns the nodes of `text`. The text is copied to `spare` if it needs another beginning.
    pub(super) fn new(text: &'t str, spare: &'t mut String) -> Events<'t> {
        let tab_before_root = tab_before_root(text);
        let (text, lines_before) = match flow_root(text) {
            // A collection on the line of its `---` cannot be a key, so the parser streams it.
            Some(start) => {
                spare.reserve_exact("--- ".len() + text.len() - start);
                spare.push_str("--- ");
                spare.push_str(&text[start..]);
                (&**spare, text[..start].matches('\n').count() as u64)
            }
            None => (text, 0),
        };
        let held = HeldBack::default();
        let parser = Parser::new(BoundedInput::new(text, held.clone()));
        Events { parser, held, depth: 0, text, lines_before, tab_before_root }
    }

    /// Counts the depth, and checks it and the number of anchors.
    fn check(&mut self, line: u64, value: &Value<'_>, anchor: usize) -> Result<(), StreamFault> {
        match value {
            Value::List | Value::Map => self.depth += 1,
            Value::End => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let message = if self.depth > DEPTH_MAX {
            too_deep()
        } else if anchor > ANCHORS_MAX {
            format!("too many anchors: at most {ANCHORS_MAX} are allowed")
        } else {
            return Ok(());
        };
        Err(StreamFault { line, message })
    }

    fn line(&self, mark: &Marker) -> u64 {
        self.lines_before.saturating_add(mark.line() as u64)
    }

    #[cold]
    fn syntax(&self, error: &ScanError) -> StreamFault {
        let info = error.info();
        let is_indentation =
            ["tab", "block ", "<document start>"].iter().any(|part| info.contains(part));
        if let Some(line) = self.tab_from(error.marker().line()).filter(|_| is_indentation) {
            return StreamFault {
                line: self.lines_before.saturating_add(line),
                message: TAB.into(),
            };
        }
        let message = if info.contains("recursion limit") {
            too_deep()
        } else if info.contains("unknown anchor") {
            ALIAS.into()
        } else if info.contains("mapping values are not allowed") {
            format!(
                "invalid yaml: {info}; text that has ': ' in it, or ':' at its end, must be quoted"
            )
        } else {
            format!("invalid yaml: {info}")
        };
        StreamFault { line: self.line(error.marker()), message }
    }

    /// Returns the line of the parser's text that begins with a tab: this line, or the one at which a text ends that
    /// begins on this line.
    fn tab_from(&self, line: usize) -> Option<u64> {
        let mut lines = self.text.lines().enumerate().skip(line.saturating_sub(1));
        let this = lines.next()?;
        let next = lines.find(|(_, text)| !text.trim().is_empty());
        let found = [Some(this), next].into_iter().flatten().find(|(_, text)| has_tab(text));
        found.map(|(before, _)| before as u64 + 1)
    }

    #[cold]
    fn too_much(&mut self) -> StreamFault {
        // The next event, if there is one, is the start of the text that was held back.
        let line = match self.parser.next_event() {
            Some(Ok((_, span))) => self.line(&span.start),
            Some(Err(error)) => self.line(error.marker()),
            None => self.lines_before.saturating_add(1),
        };
        let message = format!(
            "more than {} commas, colons, quotes and brackets in one text, or in one list or map in brackets: write it without brackets, one item a line",
            HeldBack::MAX
        );
        StreamFault { line, message }
    }
}

impl<'t> Nodes<'t> for Events<'t> {
    fn next(&mut self) -> Result<Node<'t>, StreamFault> {
        if let Some(line) = self.tab_before_root.take() {
            return Err(StreamFault { line, message: TAB.into() });
        }
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
            let (value, anchor, is_tagged) = match event {
                Event::Nothing | Event::StreamStart => continue,
                Event::DocumentStart(_) => (Value::DocumentStart, 0, false),
                Event::DocumentEnd => (Value::DocumentEnd, 0, false),
                Event::StreamEnd => (Value::StreamEnd, 0, false),
                Event::Alias(_) => {
                    return Ok(Node { line, value: Value::Refused, fault: Some(ALIAS) });
                }
                Event::Scalar(text, style, anchor, tag) => {
                    let style = match style {
                        ScalarStyle::Plain => Style::Plain,
                        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => Style::Quoted,
                        ScalarStyle::Literal | ScalarStyle::Folded => Style::Block,
                    };
                    let lines = (span.end.line() - span.start.line()) as u64 + 1;
                    let value = match tag {
                        Some(_) => Value::Refused,
                        None => Value::Scalar(Scalar { text, style, lines }),
                    };
                    (value, anchor, tag.is_some())
                }
                Event::SequenceStart(anchor, tag) => (Value::List, anchor, tag.is_some()),
                Event::MappingStart(anchor, tag) => (Value::Map, anchor, tag.is_some()),
                Event::SequenceEnd | Event::MappingEnd => (Value::End, 0, false),
            };
            self.check(line, &value, anchor)?;
            return Ok(Node { line, value, fault: is_tagged.then_some(TAG) });
        }
    }

    /// The skipped value is already reported as a fault, so the number of its nodes is bounded by what a person may
    /// write by mistake.
    fn skip_to_end(&mut self) -> Result<(), StreamFault> {
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
        Err(StreamFault { line, message })
    }

    fn whole(&self) -> &'static str {
        "the file"
    }
}

/// Returns whether a tab is before the first character of a line.
fn has_tab(line: &str) -> bool {
    let content = line.trim_start();
    !content.is_empty() && line[..line.len() - content.len()].contains('\t')
}

/// Returns the line of the text's root, if a tab is before it. Before a `[` or `{` a tab is allowed.
fn tab_before_root(text: &str) -> Option<u64> {
    let is_content = |line: &str| {
        let content = line.trim_start_matches('\u{feff}').trim();
        !(content.is_empty()
            || content.starts_with('#')
            || content == "---"
            || line.starts_with('%'))
    };
    let (before, root) = text.lines().enumerate().find(|(_, line)| is_content(line))?;
    let is_tab = has_tab(root.trim_start_matches('\u{feff}'));
    (is_tab && !root.trim_start().starts_with(['[', '{'])).then_some(before as u64 + 1)
}

/// Returns where the text's root starts, if that is a `[` or `{` at the start of a line.
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
