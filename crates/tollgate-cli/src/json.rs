//! JSON in which no character is raw that a terminal could obey or that a reader does not see.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

use crate::escape::is_visible;

/// One JSON value, in which every character is escaped that a terminal could obey or a reader does not see.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(out, Escaping);
    Ok(value.serialize(&mut serializer)?)
}

/// Escapes more than JSON has to.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        // Each turn is shorter by one character at least.
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_visible(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}
