//! Gives the nodes of a tree, as a parser gives those of a file.

use std::borrow::Cow;
use std::slice;

use crate::limits::read::{Node, Nodes, Scalar, StreamFault, Style, Value};

use super::tree::Tree;

/// The nodes of a tree, without lines.
pub(super) struct TreeNodes<'t> {
    root: &'t Tree,
    step: Step,
    /// The lists and maps that have begun, from the outermost to the innermost.
    open: Vec<Open<'t>>,
}

/// The part of the document that is next while no list or map is open.
enum Step {
    Start,
    Root,
    End,
    Over,
}

enum Open<'t> {
    List(slice::Iter<'t, Tree>),
    /// The entries, and the value of the key that was returned last.
    Map(slice::Iter<'t, (Tree, Tree)>, Option<&'t Tree>),
}

impl<'t> TreeNodes<'t> {
    pub(super) fn new(root: &'t Tree) -> TreeNodes<'t> {
        TreeNodes { root, step: Step::Start, open: Vec::new() }
    }

    /// Returns the start of a tree, or the whole if it is a scalar.
    fn start(&mut self, tree: &'t Tree) -> Value<'t> {
        match tree {
            Tree::List(values) => {
                self.open.push(Open::List(values.iter()));
                Value::List
            }
            Tree::Map(entries) => {
                self.open.push(Open::Map(entries.iter(), None));
                Value::Map
            }
            other => Value::Scalar(scalar(other)),
        }
    }

    fn next_in_document(&mut self) -> Value<'t> {
        match self.step {
            Step::Start => {
                self.step = Step::Root;
                Value::DocumentStart
            }
            Step::Root => {
                self.step = Step::End;
                self.start(self.root)
            }
            Step::End => {
                self.step = Step::Over;
                Value::DocumentEnd
            }
            Step::Over => Value::StreamEnd,
        }
    }
}

impl<'t> Nodes<'t> for TreeNodes<'t> {
    fn next(&mut self) -> Result<Node<'t>, StreamFault> {
        let next = match self.open.last_mut() {
            None => return Ok(without_line(self.next_in_document())),
            Some(Open::List(values)) => values.next(),
            Some(Open::Map(entries, value)) => value.take().or_else(|| {
                let (key, of_key) = entries.next()?;
                *value = Some(of_key);
                Some(key)
            }),
        };
        Ok(without_line(match next {
            Some(tree) => self.start(tree),
            None => {
                self.open.pop();
                Value::End
            }
        }))
    }

    fn skip_to_end(&mut self) -> Result<(), StreamFault> {
        self.open.pop();
        Ok(())
    }

    fn whole(&self) -> &'static str {
        "the section"
    }
}

fn without_line(value: Value<'_>) -> Node<'_> {
    Node { line: 0, value, fault: None }
}

/// Returns the text that a file would have for a scalar value. Null, a list and a map have none: the text is empty.
pub(super) fn scalar(tree: &Tree) -> Scalar<'_> {
    let (text, style) = match tree {
        Tree::Bool(value) => (Cow::Borrowed(if *value { "true" } else { "false" }), Style::Typed),
        Tree::Integer(value) => (Cow::Owned(value.to_string()), Style::Plain),
        Tree::Float(value) => (Cow::Owned(decimal(*value)), Style::Typed),
        Tree::Text(text) => (Cow::Borrowed(&**text), Style::Quoted),
        Tree::Null | Tree::List(_) | Tree::Map(_) => (Cow::Borrowed(""), Style::Plain),
    };
    Scalar { text, style, lines: 1 }
}

/// Returns a float as a decimal. A finite one always has a point, because `1.0` is no whole number in a file either.
fn decimal(value: f64) -> String {
    let text = value.to_string();
    if value.is_finite() && !text.contains('.') { text + ".0" } else { text }
}
