//! Reads the limits file and the overrides file as one unit.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::limits::{FileCopy, Identity, Limits, Loader};

pub(super) struct Files {
    /// The limits file and, if there is one, the overrides file.
    paths: Vec<PathBuf>,
    /// Seeded for this process, so that no writer of the files can construct a collision.
    hasher: RandomState,
}

/// The content of the files, read one after the other.
pub(super) struct FilesCopy {
    copies: Vec<FileCopy>,
    pub(super) version: Version,
}

/// The data by which two reads of the files are compared.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) identities: Vec<Option<Identity>>,
    /// The hash of the content, or of the errors if the files cannot be read.
    pub(super) content: u64,
    /// Whether no file changed while it was read.
    pub(super) is_steady: bool,
}

impl Files {
    pub(super) fn new(limits: &Path, overrides: Option<&Path>) -> Files {
        let paths = [Some(limits), overrides].into_iter().flatten().map(Path::to_owned).collect();
        Files { paths, hasher: RandomState::new() }
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub(super) fn identities(&self) -> Vec<Option<Identity>> {
        self.paths.iter().map(|path| Identity::at(path)).collect()
    }

    pub(super) fn read(&self) -> FilesCopy {
        let copies: Vec<FileCopy> = self.paths.iter().map(|path| FileCopy::read(path)).collect();
        let version = Version {
            identities: copies.iter().map(|copy| copy.identity().cloned()).collect(),
            content: self.hasher.hash_one(&copies),
            is_steady: copies.iter().all(FileCopy::is_steady),
        };
        FilesCopy { copies, version }
    }

    /// Returns the paths as text for a message.
    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        names.join(" and ")
    }
}

impl FilesCopy {
    pub(super) fn parse(&self, loader: &Loader) -> Result<Limits, Error> {
        loader.copies(&self.copies[0], self.copies.get(1))
    }
}
