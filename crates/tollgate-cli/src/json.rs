//! Writes JSON in which characters that are not [visible](is_visible) are escaped.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

use crate::escape::is_visible;

/// Writes one JSON value.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(out, Escaping);
    Ok(value.serialize(&mut serializer)?)
}

/// Escapes more characters than JSON requires.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for part in fragment.split_inclusive(|c| !is_visible(c)) {
            let last = part.chars().next_back().filter(|c| !is_visible(*c));
            out.write_all(&part.as_bytes()[..part.len() - last.map_or(0, char::len_utf8)])?;
            for unit in last.iter().flat_map(|c| c.encode_utf16(&mut [0; 2]).to_vec()) {
                write!(out, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}
