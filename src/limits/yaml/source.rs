//! Reads the text of a file, and refuses text with characters that a limits file may not have.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest file: 128 MiB.
const BYTES_MAX: u64 = 128 << 20;

pub(super) enum Source<'s> {
    File(&'s Path),
    /// A name for faults, and the text.
    Text(&'static str, &'s str),
    /// A file that was read before.
    #[cfg(feature = "watch")]
    Copy(&'s Path, Result<&'s [u8], &'s SourceFault>),
}

/// The fault of a file or text that is not parsed.
#[derive(Clone, Debug, Hash)]
pub(super) struct SourceFault {
    /// Whether the file cannot be read; else its content is at fault.
    pub(super) is_io: bool,
    pub(super) line: Option<u64>,
    pub(super) message: String,
}

impl<'s> Source<'s> {
    pub(super) fn name(&self) -> String {
        match self {
            Source::File(path) => path.display().to_string(),
            Source::Text(name, _) => (*name).into(),
            #[cfg(feature = "watch")]
            Source::Copy(path, _) => path.display().to_string(),
        }
    }

    /// Returns the whole text: UTF-8, at most 128 MiB, without control characters, and with line ends that all YAML
    /// readers and editors treat as such.
    pub(super) fn text(&self) -> Result<Cow<'s, str>, SourceFault> {
        let text = match self {
            Source::File(path) => {
                let file = File::open(path).map_err(|error| unreadable(&error))?;
                let bytes = read(&file)?;
                let text = String::from_utf8(bytes).map_err(|error| {
                    not_text(error.as_bytes(), error.utf8_error().valid_up_to())
                })?;
                Cow::Owned(text)
            }
            Source::Text(_, text) if text.len() as u64 > BYTES_MAX => return Err(too_long()),
            Source::Text(_, text) => Cow::Borrowed(*text),
            #[cfg(feature = "watch")]
            Source::Copy(_, bytes) => {
                let bytes = bytes.map_err(SourceFault::clone)?;
                let text = std::str::from_utf8(bytes);
                Cow::Borrowed(text.map_err(|error| not_text(bytes, error.valid_up_to()))?)
            }
        };
        // Without an early exit the compiler vectorises this loop. The place is searched for only after a match.
        if text.bytes().fold(false, |found, byte| found | may_be_refused(byte))
            && let Some(fault) = refused_character(&text)
        {
            return Err(fault);
        }
        Ok(text)
    }
}

/// Reads the whole file, at most 128 MiB.
pub(super) fn read(file: &File) -> Result<Vec<u8>, SourceFault> {
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    if metadata.is_dir() {
        return Err(SourceFault::io("it is a directory"));
    }
    if metadata.len() > BYTES_MAX {
        return Err(too_long());
    }
    // One more byte than the file's length, so that the last read finds the end without growing the buffer.
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    // A pipe has no length, and a file may have grown.
    if bytes.len() as u64 > BYTES_MAX {
        return Err(too_long());
    }
    Ok(bytes)
}

impl SourceFault {
    pub(super) fn io(why: &str) -> SourceFault {
        SourceFault { is_io: true, line: None, message: format!("cannot be read: {why}") }
    }
}

/// Whether a refused character may begin with this byte. No refused character has another first byte.
fn may_be_refused(byte: u8) -> bool {
    // The first bytes of U+0080 to U+00BF, and of U+2000 to U+2FFF.
    is_control(byte) || matches!(byte, b'\r' | 0xc2 | 0xe2)
}

fn is_control(byte: u8) -> bool {
    (byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')) || byte == 0x7f
}

/// Finds the first refused character.
#[cold]
fn refused_character(text: &str) -> Option<SourceFault> {
    let is_refused = |at: usize, c: char| match c {
        '\r' => text.as_bytes().get(at + 1) != Some(&b'\n'),
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => true,
        c => u8::try_from(c).is_ok_and(is_control),
    };
    let (at, c) = text.char_indices().find(|&(at, c)| is_refused(at, c))?;
    let message = match c {
        '\r' => {
            "a carriage return without a line feed: LF and CRLF are allowed at a line's end".into()
        }
        // A line break to readers of YAML 1.1, and none to those of YAML 1.2.
        '\u{85}' | '\u{2028}' | '\u{2029}' => format!(
            "U+{:04X}, which ends a line to some readers of YAML and not to others: \"\\u{:04X}\" in double quotes is allowed",
            u32::from(c),
            u32::from(c)
        ),
        '\u{80}'.. => format!("not a text: U+{:04X}; {TEXT}", u32::from(c)),
        _ => return Some(not_text(text.as_bytes(), at)),
    };
    Some(SourceFault { is_io: false, line: Some(line_at(text.as_bytes(), at)), message })
}

pub(super) fn unreadable(error: &io::Error) -> SourceFault {
    // The system's text starts with a capital letter.
    let mut text = error.to_string();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    SourceFault::io(&text)
}

fn too_long() -> SourceFault {
    let message = format!("too long: at most {BYTES_MAX} bytes (128 MiB) are allowed");
    SourceFault { is_io: false, line: None, message }
}

/// The part of messages that says which text is allowed.
const TEXT: &str = "utf-8 without control characters is allowed";

fn not_text(bytes: &[u8], at: usize) -> SourceFault {
    let byte = bytes.get(at).copied().unwrap_or_default();
    SourceFault {
        is_io: false,
        line: Some(line_at(bytes, at)),
        message: format!("not a text: byte {byte:#04x}; {TEXT}"),
    }
}

/// Returns the line of a byte, from 1.
fn line_at(bytes: &[u8], at: usize) -> u64 {
    1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count() as u64
}
