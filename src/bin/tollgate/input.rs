//! Where lines come from: a file, a packed file, or standard input.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use memchr::memchr;

use crate::Failure;
use crate::args::is_standard;

/// The lines of an input.
pub(crate) struct Lines {
    /// As the messages call it.
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
        if is_standard(path) {
            let reader = Counted { inner: io::stdin().lock(), read: read.clone() };
            let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
            return Ok(Lines::new("standard input".into(), Box::new(reader), None, read));
        }
        let name = path.display().to_string();
        let (file, size) =
            open(path).map_err(|error| Failure::Input(format!("{name}: {error}")))?;
        let reader = Counted { inner: file, read: read.clone() };
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        if path.extension().is_some_and(|extension| extension == "gz") {
            let unpacked = MultiGzDecoder::new(reader);
            let reader = BufReader::with_capacity(BUFFER_BYTES, unpacked);
            return Ok(Lines::new(name, Box::new(reader), size, read));
        }
        Ok(Lines::new(name, Box::new(reader), size, read))
    }

    fn new(name: String, reader: Box<dyn BufRead>, size: Option<u64>, read: BytesRead) -> Lines {
        Lines { name, reader, lent: 0, joined: Vec::new(), count: 0, size, read }
    }

    /// The next line, or `None` at the end. The last line need not end in a line feed.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, Failure> {
        let found = self.find();
        let failure = |error: io::Error| {
            let (name, line) = (&self.name, self.count);
            Failure::Input(format!("{name}: cannot be read after line {line}: {error}"))
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

fn open(path: &Path) -> io::Result<(File, Option<u64>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    read: BytesRead,
}

impl<R: Read> Read for Counted<R> {
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
    fn a_line_of_a_mebibyte_is_read_and_a_longer_one_passed_over() {
        let mut text = vec![b'a'; MAX_LINE_BYTES];
        text.push(b'\n');
        text.extend(vec![b'b'; MAX_LINE_BYTES + 1]);
        text.extend(b"\nc");
        let all = lines(&text, 8192);
        assert_eq!(all[0].as_ref().map(Vec::len), Some(MAX_LINE_BYTES));
        assert_eq!(all[1..], [None, Some(b"c".to_vec())]);
    }
}
