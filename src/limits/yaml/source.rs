//! Where the text comes from, and what is refused before it is parsed.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

#[cfg(feature = "watch")]
use super::copy::FileCopy;

/// The longest file: 128 MiB.
const BYTES_MAX: u64 = 128 << 20;

pub(super) enum Source<'s> {
    File(&'s Path),
    /// A name for the faults, and the text.
    Text(&'static str, &'s str),
    #[cfg(feature = "watch")]
    Copy(&'s FileCopy),
}

/// Why there is no text to parse.
#[derive(Clone, Debug, Hash)]
pub(super) struct Refusal {
    /// Whether the file cannot be read; else what is in it is at fault.
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
            Source::Copy(copy) => copy.path().display().to_string(),
        }
    }

    /// The whole text: UTF-8, at most 128 MiB, without control characters, and with line ends that every
    /// reader of YAML, and everybody who looks at it, takes for such.
    pub(super) fn text(&self) -> Result<Cow<'s, str>, Refusal> {
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
            Source::Copy(copy) => {
                let bytes = copy.bytes().map_err(Refusal::clone)?;
                let text = std::str::from_utf8(bytes);
                Cow::Borrowed(text.map_err(|error| not_text(bytes, error.valid_up_to()))?)
            }
        };
        // Without an early end this runs over many bytes at once; where is asked only if there is one.
        if text.bytes().fold(false, |found, byte| found | may_be_refused(byte))
            && let Some(refusal) = refused_character(&text)
        {
            return Err(refusal);
        }
        Ok(text)
    }
}

/// The whole file, at most 128 MiB.
pub(super) fn read(file: &File) -> Result<Vec<u8>, Refusal> {
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    if metadata.is_dir() {
        return Err(Refusal::io("it is a directory"));
    }
    if metadata.len() > BYTES_MAX {
        return Err(too_long());
    }
    // One byte more than there should be, so that the last read finds the end without growing.
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    // A pipe has no length, and a file may have grown.
    if bytes.len() as u64 > BYTES_MAX {
        return Err(too_long());
    }
    Ok(bytes)
}

impl Refusal {
    pub(super) fn io(why: &str) -> Refusal {
        Refusal { is_io: true, line: None, message: format!("cannot be read: {why}") }
    }
}

/// Whether a character that is refused may begin with this byte. Any other byte is no part of one.
fn may_be_refused(byte: u8) -> bool {
    // The first bytes of U+0080 to U+00BF, and of U+2000 to U+2FFF.
    is_control(byte) || matches!(byte, b'\r' | 0xc2 | 0xe2)
}

fn is_control(byte: u8) -> bool {
    (byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r')) || byte == 0x7f
}

/// Says what the first character is that a text may not have, if there is one.
#[cold]
fn refused_character(text: &str) -> Option<Refusal> {
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
        // Readers of YAML 1.1 go on with another line after it, those of 1.2 do not.
        '\u{85}' | '\u{2028}' | '\u{2029}' => format!(
            "U+{:04X}, which ends a line to some readers of YAML and not to others: \"\\u{:04X}\" in double quotes is allowed",
            u32::from(c),
            u32::from(c)
        ),
        '\u{80}'.. => format!("not a text: U+{:04X}; {TEXT}", u32::from(c)),
        _ => return Some(not_text(text.as_bytes(), at)),
    };
    Some(Refusal { is_io: false, line: Some(line_at(text.as_bytes(), at)), message })
}

pub(super) fn unreadable(error: &io::Error) -> Refusal {
    // The system's words start with a capital letter.
    let mut text = error.to_string();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    Refusal::io(&text)
}

fn too_long() -> Refusal {
    let message = format!("too long: at most {BYTES_MAX} bytes (128 MiB) are allowed");
    Refusal { is_io: false, line: None, message }
}

/// What a text may be, for messages.
const TEXT: &str = "utf-8 without control characters is allowed";

fn not_text(bytes: &[u8], at: usize) -> Refusal {
    let byte = bytes.get(at).copied().unwrap_or_default();
    Refusal {
        is_io: false,
        line: Some(line_at(bytes, at)),
        message: format!("not a text: byte {byte:#04x}; {TEXT}"),
    }
}

/// The line that a byte is on, from 1.
fn line_at(bytes: &[u8], at: usize) -> u64 {
    1 + bytes.iter().take(at).filter(|byte| **byte == b'\n').count() as u64
}
