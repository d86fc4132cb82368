//! Writes results to standard output, to standard error and to files.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anstream::AutoStream;
use clap::builder::Styles;
use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use tempfile::TempPath;

use crate::Failure;
use crate::args::is_standard;
use crate::escape::Escaped;
use crate::input::name;
use crate::json::write_json;
use crate::text::reason;

/// The stream that a text is printed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    Stderr,
}

/// Prints a whole text. A reader that has closed the stream, as `head` does, needs no text: the run goes on, so that its
/// exit status says what it has found.
pub(crate) fn print(destination: Destination, text: &str) -> Result<(), Failure> {
    let (name, printed) = match destination {
        Destination::Stdout => {
            let mut out = io::stdout().lock();
            let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            ("standard output", printed)
        }
        Destination::Stderr => ("standard error", io::stderr().write_all(text.as_bytes())),
    };
    unless_closed(printed).map_err(|error| failure(name, &error))
}

/// Prints messages on standard error, one a line. A closed standard error is as for [`print`].
pub(crate) fn print_messages(text: &str) -> Result<(), Failure> {
    let printed = print_styled(&text.split_inclusive('\n').map(message).collect::<String>());
    unless_closed(printed).map_err(|error| failure("standard error", &error))
}

/// Prints a text on standard error. Its styles are for a terminal; another output gets the text without them, as does a
/// terminal if the variable `NO_COLOR` is set.
pub(crate) fn print_styled(text: &str) -> io::Result<()> {
    AutoStream::auto(io::stderr()).write_all(text.as_bytes())
}

/// Styles the start of a message, its place or `warning`, as clap styles the start of its errors.
fn message(line: &str) -> String {
    const WARNING: Style = AnsiColor::Yellow.on_default().bold();
    let Some((start, rest)) = line.split_once(": ") else { return line.to_owned() };
    let style = if start == "warning" { WARNING } else { *Styles::styled().get_error() };
    format!("{style}{start}:{style:#} {rest}")
}

/// Formats one JSON object and a line feed.
pub(crate) fn to_json(object: &impl Serialize) -> String {
    let mut json = Vec::new();
    write_json(&mut json, object).expect("every key is a string");
    json.push(b'\n');
    String::from_utf8(json).expect("JSON is UTF-8")
}

/// A results file, `--decisions` or `--report`, if the arguments name one.
///
/// A run writes to a temporary file in the same folder and renames it at the end. A run that fails leaves
/// the file that was there before, and removes the temporary one.
#[derive(Default)]
pub(crate) struct Results {
    out: Option<BufWriter<Box<dyn Write>>>,
    /// The path from the arguments.
    name: String,
    /// The temporary file and the path that it gets.
    rename: Option<(TempPath, PathBuf)>,
}

const BUFFER_BYTES: usize = 1 << 17;

impl Results {
    pub(crate) fn open(path: Option<&Path>) -> Result<Results, Failure> {
        let mut results = Results::default();
        let Some(path) = path else { return Ok(results) };
        let out: Box<dyn Write> = if is_standard(path) {
            results.name = "standard output".into();
            Box::new(io::stdout().lock())
        } else {
            results.name = name(path);
            let (out, rename) = open(path).map_err(|error| failure(&results.name, &error))?;
            results.rename = rename;
            out
        };
        results.out = Some(BufWriter::with_capacity(BUFFER_BYTES, out));
        Ok(results)
    }

    /// Calls `put` with the file, if there is one. Once the reader of a pipe has closed it, there is none.
    pub(crate) fn write(
        &mut self,
        put: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let Some(out) = &mut self.out else { return Ok(()) };
        match put(out) {
            Err(error) if is_closed(&error) => {
                self.out = None;
                Ok(())
            }
            written => written.map_err(|error| failure(&self.name, &error)),
        }
    }

    /// Flushes the file and gives it its name.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.write(|out| out.flush())?;
        // Some systems cannot rename an open file.
        self.out = None;
        let renamed = self.rename.map_or(Ok(()), |(temporary, target)| temporary.persist(target));
        renamed.map_err(|error| failure(&self.name, &error.error))
    }
}

/// Returns whether a write has failed because the reader of a pipe closed it.
fn is_closed(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

fn unless_closed(printed: io::Result<()>) -> io::Result<()> {
    match printed {
        Err(error) if is_closed(&error) => Ok(()),
        printed => printed,
    }
}

fn failure(name: &str, error: &io::Error) -> Failure {
    Failure::NotDone(format!("{}: cannot be written: {}", Escaped(name), reason(error)))
}

type Opened = (Box<dyn Write>, Option<(TempPath, PathBuf)>);

fn open(path: &Path) -> io::Result<Opened> {
    let mut target = path.to_owned();
    let mut permissions = None;
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(metadata) => {
            // This fails if the run may not write to the file, and does not change it.
            let file = OpenOptions::new().write(true).open(path)?;
            if !metadata.is_file() {
                // A device or a pipe: no file must replace it.
                return Ok((Box::new(file), None));
            }
            // Of a symbolic link, replace the file that it points to.
            target = path.canonicalize()?;
            permissions = Some(metadata.permissions());
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if target.file_name().is_none() {
        return Err(ErrorKind::InvalidFilename.into());
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    // `tempfile_in` would add the path of the temporary file to an error, and deny others to read the file.
    let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tollgate-").suffix(".tmp");
    let file = builder.make_in(folder.unwrap_or(Path::new(".")), create)?;
    let (file, temporary) = file.into_parts();
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    Ok((Box::new(file), Some((temporary, target))))
}
