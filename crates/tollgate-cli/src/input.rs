//! Where lines come from: a file or standard input, packed by gzip or not.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use memchr::memchr;

use crate::Failure;
use crate::args::is_standard;
use crate::text::Escaped;

/// The lines of an input.
pub(crate) struct Lines {
    /// As it was given; `standard input` for `-`.
    name: String,
    reader: Box<dyn BufRead>,
    /// Bytes of the reader's buffer that the last line was lent from.
    lent: usize,
    /// A line that did not lie in the buffer as one.
    joined: Vec<u8>,
    count: u64,
    size: Option<u64>,
    read: BytesRead,
}

/// How many bytes were read so far: packed ones, where they are packed.
pub(crate) type BytesRead = Rc<Cell<u64>>;

/// A line without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Text(&'a [u8]),
    /// It has more than [`MAX_LINE_BYTES`], and was passed over.
    TooLong,
}

pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 1 << 18;

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Lines, Failure> {
        let read = BytesRead::default();
        let name = name(path);
        let failure =
            |error| Failure::NotDone(format!("{}: cannot be read: {error}", Escaped(&name)));
        let (input, size): (Box<dyn Read>, _) = match is_standard(path) {
            true => (Box::new(io::stdin().lock()), None),
            false => {
                let (file, size) = open(path).map_err(failure)?;
                (Box::new(file), size)
            }
        };
        let input = Counted { inner: input, read: read.clone() };
        let reader = unpacked(input).and_then(without_mark).map_err(failure)?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        Ok(Lines::new(name, Box::new(reader), size, read))
    }

    fn new(name: String, reader: Box<dyn BufRead>, size: Option<u64>, read: BytesRead) -> Lines {
        Lines { name, reader, lent: 0, joined: Vec::new(), count: 0, size, read }
    }

    /// The next line, or `None` at the end. The last line need not end in a line feed.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, Failure> {
        let found = self.find();
        let failure = |error: io::Error| {
            let (name, line) = (Escaped(&self.name), self.count);
            Failure::NotDone(format!("{name}: cannot be read after line {line}: {error}"))
        };
        match found {
            Ok(Found::End) => Ok(None),
            Ok(Found::TooLong) => Ok(Some(Line::TooLong)),
            Ok(Found::Joined) => Ok(Some(Line::Text(&self.joined))),
            // The buffer is not empty: this reads nothing.
            Ok(Found::Buffered(len)) => {
                let buffer = self.reader.fill_buf().map_err(failure)?;
                Ok(Some(Line::Text(&buffer[..len])))
            }
            Err(error) => Err(failure(error)),
        }
    }

    /// The number of the last line, from 1: how many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The size in bytes of what is read, where it is known.
    pub(crate) fn size(&self) -> Option<u64> {
        self.size
    }

    pub(crate) fn bytes_read(&self) -> BytesRead {
        self.read.clone()
    }

    fn find(&mut self) -> io::Result<Found> {
        self.reader.consume(std::mem::take(&mut self.lent));
        let buffer = self.reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(Found::End);
        }
        self.count += 1;
        match memchr(b'\n', buffer) {
            Some(len) => {
                self.lent = len + 1;
                Ok(Found::Buffered(len))
            }
            None => self.join(),
        }
    }

    /// Reads a line that goes on behind the buffer; keeps no more of it than is allowed.
    fn join(&mut self) -> io::Result<Found> {
        self.joined.clear();
        let mut is_too_long = false;
        // Every turn consumes what was read, until the line or the input ends.
        loop {
            let buffer = self.reader.fill_buf()?;
            let end = memchr(b'\n', buffer);
            let part = &buffer[..end.unwrap_or(buffer.len())];
            is_too_long |= self.joined.len() + part.len() > MAX_LINE_BYTES;
            if !is_too_long {
                self.joined.extend_from_slice(part);
            }
            let (is_last, used) =
                (end.is_some() || buffer.is_empty(), end.map_or(part.len(), |end| end + 1));
            self.reader.consume(used);
            if is_last {
                return Ok(if is_too_long { Found::TooLong } else { Found::Joined });
            }
        }
    }
}

enum Found {
    End,
    TooLong,
    Joined,
    /// So many bytes at the front of the reader's buffer.
    Buffered(usize),
}

/// What gzip's header begins with: its magic number, and the one method that there is.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// UTF-8's byte-order mark.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The input, unpacked if its first bytes are gzip's.
fn unpacked(input: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let (first, input) = peek(input)?;
    Ok(match first == GZIP {
        true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, input))),
        false => Box::new(input),
    })
}

/// The input without the byte-order mark that it may begin with.
fn without_mark(input: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let (first, mut input) = peek(input)?;
    if first == MARK {
        input.read_exact(&mut [0; MARK.len()])?;
    }
    Ok(Box::new(input))
}

/// The first three bytes, or as many as there are; and the input with them.
fn peek(mut input: impl Read) -> io::Result<(Vec<u8>, impl Read)> {
    let mut first = Vec::new();
    // A pipe may give them one by one.
    input.by_ref().take(3).read_to_end(&mut first)?;
    Ok((first.clone(), Cursor::new(first).chain(input)))
}

/// A file's name as it was given; `standard input` for `-`.
pub(crate) fn name(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn open(path: &Path) -> io::Result<(File, Option<u64>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

/// Counts what is read.
struct Counted {
    inner: Box<dyn Read>,
    read: BytesRead,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A signal may interrupt a read any number of times; nothing is lost by trying again.
        loop {
            match self.inner.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(len) => {
                    self.read.set(self.read.get() + len as u64);
                    return Ok(len);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8], capacity: usize) -> Vec<Option<Vec<u8>>> {
        let reader = BufReader::with_capacity(capacity, io::Cursor::new(bytes.to_vec()));
        let mut lines = Lines::new("test".into(), Box::new(reader), None, BytesRead::default());
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
    fn lines_are_the_same_whatever_the_buffer_holds() {
        let text = b"first\n\nthird, longer\nlast";
        let expected: Vec<_> =
            text.split(|byte| *byte == b'\n').map(|line| Some(line.to_vec())).collect();
        for capacity in 1..30 {
            assert_eq!(lines(text, capacity), expected, "capacity {capacity}");
            let ended = [&text[..], b"\n"].concat();
            assert_eq!(lines(&ended, capacity), expected, "capacity {capacity}, ended");
        }
        assert_eq!(lines(b"", 8), []);
        assert_eq!(lines(b"\n", 8), [Some(vec![])]);
    }

    #[test]
    fn lines_up_to_a_mebibyte_are_read() {
        let mut text = vec![b'a'; MAX_LINE_BYTES];
        text.push(b'\n');
        text.extend(vec![b'b'; MAX_LINE_BYTES + 1]);
        text.extend(b"\nc");
        let all = lines(&text, 8192);
        assert_eq!(all[0].as_ref().map(Vec::len), Some(MAX_LINE_BYTES));
        assert_eq!(all[1..], [None, Some(b"c".to_vec())]);
    }
}
