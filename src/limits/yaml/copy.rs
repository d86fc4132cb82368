//! A file as it was read, and what tells whether it is still the same.

use std::fs::{self, Metadata};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The coarsest time that a file system notes is 2 s: within that, two changes may look like one.
const COARSEST: Duration = Duration::from_secs(2);

use super::source::{Refusal, read, unreadable};
use crate::util::open;

/// A file as it was read, whole, or why it could not be.
#[derive(Debug)]
pub(crate) struct FileCopy {
    path: PathBuf,
    bytes: Result<Vec<u8>, Refusal>,
    /// `None` where there is no file.
    identity: Option<Identity>,
    is_steady: bool,
}

/// Which file a path leads to, and when it was last changed: whatever can be told without reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    len: u64,
    modified: Option<SystemTime>,
    /// The device, the inode, and the time of the last change, which nobody can set.
    #[cfg(unix)]
    of_unix: (u64, u64, i64, i64),
}

impl FileCopy {
    pub(crate) fn of(path: &Path) -> FileCopy {
        let mut copy =
            FileCopy { path: path.into(), bytes: Ok(Vec::new()), identity: None, is_steady: true };
        copy.bytes = copy.read();
        copy
    }

    fn read(&mut self) -> Result<Vec<u8>, Refusal> {
        let of = |metadata: std::io::Result<Metadata>| metadata.map_err(|error| unreadable(&error));
        // Before it is opened: some devices begin to do something when they are.
        self.note(&of(fs::metadata(&self.path))?)?;
        let file = open::without_waiting().read(true).open(&self.path);
        let file = file.map_err(|error| unreadable(&error))?;
        // And after: something else may have taken the name in between.
        let before = self.note(&of(file.metadata())?)?;
        let bytes = read(&file);
        let after = Identity::of(&of(file.metadata())?);
        self.is_steady = before == after;
        self.identity = Some(after);
        bytes
    }

    /// Notes what a path leads to, and refuses what is neither a file nor a folder, which has words of its own.
    fn note(&mut self, found: &Metadata) -> Result<Identity, Refusal> {
        let identity = Identity::of(found);
        self.identity = Some(identity.clone());
        match found.is_file() || found.is_dir() {
            true => Ok(identity),
            false => Err(Refusal::io("it is neither a file nor a link to one")),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> Result<&[u8], &Refusal> {
        self.bytes.as_deref()
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Whether the file was the same after it was read as before.
    pub(crate) fn is_steady(&self) -> bool {
        self.is_steady
    }
}

/// By what was read alone.
impl Hash for FileCopy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl Identity {
    /// Of the file that a path leads to now.
    pub(crate) fn at(path: &Path) -> Option<Identity> {
        fs::metadata(path).ok().as_ref().map(Identity::of)
    }

    /// Whether the last change was so long ago that another one now would look different.
    pub(crate) fn is_old(&self) -> bool {
        self.modified.is_some_and(|at| at.elapsed().is_ok_and(|ago| ago > COARSEST))
    }

    /// The device and the inode, which stay while a file changes.
    #[cfg(unix)]
    pub(crate) fn file(&self) -> (u64, u64) {
        (self.of_unix.0, self.of_unix.1)
    }

    fn of(metadata: &Metadata) -> Identity {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt as _;
        Identity {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            of_unix: (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
