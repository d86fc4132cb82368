//! Reads lines from a file or from standard input, decompresses gzip, and shows the progress.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Failure;
use crate::args::is_standard;
use crate::escape::Escaped;
use crate::output::print_messages;
use crate::text::reason;

/// The lines of an input.
pub(crate) struct Lines {
    /// The path from the arguments; `standard input` for `-`.
    name: String,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    count: u64,
    /// Hidden if standard error is no terminal.
    bar: ProgressBar,
}

/// A line without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Text(&'a [u8]),
    /// The line has more than [`MAX_LINE_BYTES`] and was skipped.
    TooLong,
}

pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 1 << 18;

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Lines, Failure> {
        let name = name(path);
        let failure = |error| {
            Failure::NotDone(format!("{}: cannot be read: {}", Escaped(&name), reason(&error)))
        };
        let (input, bar) = open(path).map_err(failure)?;
        let reader = decompressed(bar.wrap_read(input)).and_then(without_byte_order_mark);
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader.map_err(failure)?);
        Ok(Lines::new(name, Box::new(reader), bar))
    }

    fn new(name: String, reader: Box<dyn BufRead>, bar: ProgressBar) -> Lines {
        Lines { name, reader, line: Vec::new(), count: 0, bar }
    }

    /// Reads the next line; returns `None` at the end. The last line need not end in a line feed.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, Failure> {
        self.read().map_err(|error| {
            let (name, line) = (Escaped(&self.name), self.count);
            Failure::NotDone(format!(
                "{name}: cannot be read after line {line}: {}",
                reason(&error)
            ))
        })?;
        Ok(match &*self.line {
            [] => None,
            [text @ .., b'\n'] => Some(Line::Text(text)),
            text if text.len() > MAX_LINE_BYTES => Some(Line::TooLong),
            text => Some(Line::Text(text)),
        })
    }

    /// Reads a line with its line feed into `self.line`. Of a line that is too long, the buffer holds one
    /// byte more than is allowed.
    fn read(&mut self) -> io::Result<()> {
        self.line.clear();
        let mut part = self.reader.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        part.read_until(b'\n', &mut self.line)?;
        self.count += u64::from(!self.line.is_empty());
        if self.line.len() > MAX_LINE_BYTES && !self.line.ends_with(b"\n") {
            self.reader.skip_until(b'\n')?;
        }
        Ok(())
    }

    /// Returns how many lines were read, which is the number of the last line.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Prints a line on standard error, above the progress bar.
    pub(crate) fn report(&self, text: &str) {
        self.bar.suspend(|| {
            // If standard error is closed, there is no place to report that.
            let _ = print_messages(&format!("{text}\n"));
        });
    }

    /// Removes the progress bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns a file's path as the arguments have it; `standard input` for `-`.
pub(crate) fn name(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn open(path: &Path) -> io::Result<(Box<dyn Read>, ProgressBar)> {
    let mut size = None;
    let input: Box<dyn Read> = if is_standard(path) {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        size = metadata.is_file().then_some(metadata.len());
        Box::new(file)
    };
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{bar:40} {bytes} of {total_bytes}, {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} in {elapsed}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    Ok((input, bar.with_style(style)))
}

/// The start of a gzip header: its magic number, and the only method.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// The byte-order mark of UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Decompresses the input if it begins as gzip does.
fn decompressed(input: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let (first, input) = peek(input)?;
    Ok(match first == GZIP {
        true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, input))),
        false => Box::new(input),
    })
}

/// Skips a byte-order mark at the start of the input.
fn without_byte_order_mark(input: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let (first, mut input) = peek(input)?;
    if first == BYTE_ORDER_MARK {
        input.read_exact(&mut [0; BYTE_ORDER_MARK.len()])?;
    }
    Ok(Box::new(input))
}

/// Returns the first three bytes, or all if there are fewer, and the whole input.
fn peek(mut input: impl Read) -> io::Result<(Vec<u8>, impl Read)> {
    let mut first = Vec::new();
    // A pipe may return them one by one.
    input.by_ref().take(3).read_to_end(&mut first)?;
    Ok((first.clone(), Cursor::new(first).chain(input)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], capacity: usize) -> Vec<Option<Vec<u8>>> {
        let reader = BufReader::with_capacity(capacity, Cursor::new(bytes.to_vec()));
        let mut lines = Lines::new("test".into(), Box::new(reader), ProgressBar::hidden());
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(match line {
                Line::Text(text) => Some(text.to_vec()),
                Line::TooLong => None,
            });
        }
        assert_eq!(lines.count(), all.len() as u64);
        all
    }

    #[test]
    fn lines_do_not_depend_on_the_buffer() {
        let text = b"first\n\nthird, longer\nlast";
        let expected: Vec<_> =
            text.split(|byte| *byte == b'\n').map(|line| Some(line.to_vec())).collect();
        for capacity in 1..30 {
            assert_eq!(lines(text, capacity), expected, "capacity {capacity}");
            let with_line_feed = [&text[..], b"\n"].concat();
            assert_eq!(lines(&with_line_feed, capacity), expected, "capacity {capacity}");
        }
        assert_eq!(lines(b"", 8), []);
        assert_eq!(lines(b"\n", 8), [Some(vec![])]);
    }

    #[test]
    fn lines_longer_than_a_mebibyte_are_skipped() {
        let mut text = vec![b'a'; MAX_LINE_BYTES];
        text.push(b'\n');
        text.extend(vec![b'b'; MAX_LINE_BYTES + 1]);
        text.extend(b"\nc\n");
        text.extend(vec![b'd'; MAX_LINE_BYTES]);
        let all = lines(&text, 8192);
        assert_eq!(all[0].as_ref().map(Vec::len), Some(MAX_LINE_BYTES));
        assert_eq!(all[1..3], [None, Some(b"c".to_vec())]);
        assert_eq!(all[3].as_ref().map(Vec::len), Some(MAX_LINE_BYTES));
    }
}
