//! Where results go: standard output, standard error, and the files that were asked for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Failure;
use crate::args::is_standard;
use crate::input::name;
use crate::json::write_json;
use crate::text::Escaped;

/// Where a text is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    Stderr,
}

/// Prints a text as a whole.
pub(crate) fn print(destination: Destination, text: &str) -> Result<(), Failure> {
    let printed = match destination {
        Destination::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        }
        Destination::Stderr => io::stderr().write_all(text.as_bytes()),
    };
    printed.map_err(|error| failure("standard output", &error))
}

/// One JSON object and a line feed.
pub(crate) fn to_json(object: &impl Serialize) -> String {
    let mut json = Vec::new();
    write_json(&mut json, object).expect("numbers and text under names of text are JSON");
    json.push(b'\n');
    String::from_utf8(json).expect("JSON is text")
}

/// A file of results, decisions or a report, if it was asked for.
///
/// A file appears under its name only when a run got to its end: until then it is a file beside
/// that name, which goes away with a run that fails.
pub(crate) struct Results {
    out: Option<BufWriter<Box<dyn Write>>>,
    /// As it was given.
    name: String,
    draft: Option<Draft>,
}

/// A file that is not yet where it belongs.
struct Draft {
    path: PathBuf,
    target: PathBuf,
    is_done: bool,
}

const BUFFER_BYTES: usize = 1 << 17;

impl Results {
    pub(crate) fn open(path: Option<&Path>) -> Result<Results, Failure> {
        let Some(path) = path else {
            return Ok(Results { out: None, name: String::new(), draft: None });
        };
        if is_standard(path) {
            let name = "standard output".to_owned();
            return Ok(Results { out: Some(buffered(io::stdout().lock())), name, draft: None });
        }
        let name = name(path);
        let (file, draft) = open(path).map_err(|error| failure(&name, &error))?;
        Ok(Results { out: Some(buffered(file)), name, draft })
    }

    /// Lets `put` write, if the file was asked for.
    pub(crate) fn write(
        &mut self,
        put: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        match &mut self.out {
            Some(out) => put(out).map_err(|error| failure(&self.name, &error)),
            None => Ok(()),
        }
    }

    /// Brings everything to where it belongs.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.write(|out| out.flush())?;
        // Closed first: some systems move no open file.
        self.out = None;
        let placed = self.draft.as_mut().map_or(Ok(()), Draft::place);
        placed.map_err(|error| failure(&self.name, &error))
    }
}

impl Draft {
    fn place(&mut self) -> io::Result<()> {
        fs::rename(&self.path, &self.target)?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_done {
            // The run has failed already, and says why.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn failure(name: &str, error: &io::Error) -> Failure {
    if error.kind() == ErrorKind::BrokenPipe {
        return Failure::BrokenPipe;
    }
    Failure::NotDone(format!("{}: cannot be written: {error}", Escaped(name)))
}

fn buffered(out: impl Write + 'static) -> BufWriter<Box<dyn Write>> {
    BufWriter::with_capacity(BUFFER_BYTES, Box::new(out))
}

fn open(path: &Path) -> io::Result<(File, Option<Draft>)> {
    let mut target = path.to_owned();
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(metadata) => {
            // Opening it says whether it may be written, and changes nothing.
            let file = OpenOptions::new().write(true).open(path)?;
            if !metadata.is_file() {
                // A device or a pipe is written as it is: a file must not take its place.
                return Ok((file, None));
            }
            // A link stays a link: what it points to is replaced.
            target = path.canonicalize()?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let permissions = fs::metadata(&target).ok().map(|metadata| metadata.permissions());
    let (file, path) = create_beside(&target)?;
    let draft = Draft { path, target, is_done: false };
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    Ok((file, Some(draft)))
}

/// Creates a file in the folder of `target`.
fn create_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    /// Other runs' files that are passed over before giving up.
    const MAX_TRIES: u32 = 100;
    if target.file_name().is_none() {
        return Err(ErrorKind::InvalidFilename.into());
    }
    let mut last = ErrorKind::AlreadyExists.into();
    for attempt in 0..MAX_TRIES {
        let path = target.with_file_name(format!(".tollgate-{}-{attempt}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}
