//! Defines the nodes that limits are read from, and their source.

use std::borrow::Cow;

use crate::limits::shown;

/// The deepest that lists and maps may be nested.
pub(crate) const DEPTH_MAX: usize = 64;

/// A source of nodes: the start of the document, its root, the end of the document, the end of the stream.
pub(crate) trait Nodes<'t> {
    /// Returns the next node.
    fn next(&mut self) -> Result<Node<'t>, StreamFault>;

    /// Skips to the end of the list or map whose start was read last.
    fn skip_to_end(&mut self) -> Result<(), StreamFault>;

    /// Returns what the nodes are, for messages: "the file".
    fn whole(&self) -> &'static str;
}

/// A node, or the end of one.
pub(crate) struct Node<'t> {
    /// The line, from 1; 0 if the source does not know it.
    pub(crate) line: u64,
    pub(crate) value: Value<'t>,
    /// The fault of an alias, or of a tag such as `!!str`.
    pub(crate) fault: Option<&'static str>,
}

pub(crate) enum Value<'t> {
    DocumentStart,
    Scalar(Scalar<'t>),
    List,
    Map,
    /// The end of the innermost list or map.
    End,
    /// An alias or a scalar with a tag.
    #[cfg_attr(not(feature = "yaml"), allow(dead_code, reason = "only files have these"))]
    Refused,
    DocumentEnd,
    StreamEnd,
}

#[derive(Debug)]
pub(crate) struct Scalar<'t> {
    pub(crate) text: Cow<'t, str>,
    pub(crate) style: Style,
    /// The number of lines that it is written on.
    pub(crate) lines: u64,
}

/// The way in which a scalar is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    /// A boolean or a number with a fraction, from a reader that does not keep how it was written: `1.5` for `1.50`.
    #[cfg_attr(not(feature = "serde"), allow(dead_code, reason = "files keep the text"))]
    Typed,
    Quoted,
    /// After a `|` or `>`.
    #[cfg_attr(not(feature = "yaml"), allow(dead_code, reason = "only files have these"))]
    Block,
}

impl Scalar<'_> {
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.style, Style::Plain | Style::Typed)
    }

    /// Whether YAML reads it as null and not as text.
    pub(crate) fn is_null(&self) -> bool {
        self.is_plain() && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

/// The fault at which the stream of nodes ends.
pub(crate) struct StreamFault {
    pub(crate) line: u64,
    pub(crate) message: String,
}

/// Says that a list or map is nested too deep.
pub(crate) fn too_deep() -> String {
    format!("nested too deep: at most {DEPTH_MAX} levels are allowed")
}

/// Shows a scalar in a message.
pub(crate) fn shown_scalar(scalar: &Scalar<'_>) -> String {
    if scalar.is_null() { "null".into() } else { shown(&scalar.text) }
}
