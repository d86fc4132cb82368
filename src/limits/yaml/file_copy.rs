//! Reads a file that is watched, with the metadata that tells whether it has changed since.

use std::fs::{self, Metadata};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The coarsest resolution of a file system's times. Two changes within it may look like one.
const COARSEST: Duration = Duration::from_secs(2);

use super::source::{Source, SourceFault, read, unreadable};
use crate::util::open;

/// A file's content, or the fault because of which it was not read.
#[derive(Debug)]
pub(crate) struct FileCopy {
    path: PathBuf,
    bytes: Result<Vec<u8>, SourceFault>,
    /// `None` if there is no file.
    identity: Option<Identity>,
    is_steady: bool,
}

/// The metadata of a file that tell it from others, and from its own earlier content, without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    len: u64,
    modified: Option<SystemTime>,
    /// The device, the inode, and the time of the last change of status, which no program can set.
    #[cfg(unix)]
    of_unix: (u64, u64, i64, i64),
}

impl FileCopy {
    pub(crate) fn read(path: &Path) -> FileCopy {
        let mut copy =
            FileCopy { path: path.into(), bytes: Ok(Vec::new()), identity: None, is_steady: true };
        copy.bytes = copy.read_bytes();
        copy
    }

    fn read_bytes(&mut self) -> Result<Vec<u8>, SourceFault> {
        let checked =
            |metadata: std::io::Result<Metadata>| metadata.map_err(|error| unreadable(&error));
        // Checked before it is opened, because opening a device may start an action.
        self.identify(&checked(fs::metadata(&self.path))?)?;
        let file = open::without_waiting().read(true).open(&self.path);
        let file = file.map_err(|error| unreadable(&error))?;
        // Checked again, because another file may have taken the name in between.
        let before = self.identify(&checked(file.metadata())?)?;
        let bytes = read(&file);
        let after = Identity::new(&checked(file.metadata())?);
        self.is_steady = before == after;
        self.identity = Some(after);
        bytes
    }

    /// Sets the identity, and refuses devices, pipes and the like. A folder gets its own message when it is read.
    fn identify(&mut self, found: &Metadata) -> Result<Identity, SourceFault> {
        let identity = Identity::new(found);
        self.identity = Some(identity.clone());
        match found.is_file() || found.is_dir() {
            true => Ok(identity),
            false => Err(SourceFault::io("it is neither a file nor a link to one")),
        }
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source::Copy(&self.path, self.bytes.as_deref())
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Whether the file did not change while it was read.
    pub(crate) fn is_steady(&self) -> bool {
        self.is_steady
    }
}

/// Hashes the content only.
impl Hash for FileCopy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl Identity {
    /// Returns the identity of the file that is now at a path.
    pub(crate) fn at(path: &Path) -> Option<Identity> {
        fs::metadata(path).ok().as_ref().map(Identity::new)
    }

    /// Whether the last change is old enough that a change now would get another time.
    pub(crate) fn is_old(&self) -> bool {
        self.modified.is_some_and(|at| at.elapsed().is_ok_and(|ago| ago > COARSEST))
    }

    /// Returns the device and the inode, which do not change with the content.
    #[cfg(unix)]
    pub(crate) fn file(&self) -> (u64, u64) {
        (self.of_unix.0, self.of_unix.1)
    }

    fn new(metadata: &Metadata) -> Identity {
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
