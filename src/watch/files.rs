//! The files that are one unit: the limits, and the overrides if there are any.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::limits::{FileCopy, Identity, Limits, YamlLoader};

pub(super) struct Files {
    /// One path or two, the limits' first.
    paths: Vec<PathBuf>,
    /// Of this process alone: nobody else can make two texts that it takes for one.
    hasher: ahash::RandomState,
}

/// Both files as they were read, one after the other.
pub(super) struct Copies {
    copies: Vec<FileCopy>,
    pub(super) print: Print,
}

/// By what two looks at the files are compared.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Print {
    pub(super) identities: Vec<Option<Identity>>,
    /// Of what was read, or of why nothing was.
    pub(super) content: u64,
    /// Whether no file changed while it was read.
    pub(super) is_steady: bool,
}

impl Files {
    pub(super) fn new(limits: &Path, overrides: Option<&Path>) -> Files {
        let paths = [Some(limits), overrides].into_iter().flatten().map(Path::to_owned).collect();
        Files { paths, hasher: ahash::RandomState::new() }
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub(super) fn identities(&self) -> Vec<Option<Identity>> {
        self.paths.iter().map(|path| Identity::at(path)).collect()
    }

    pub(super) fn read(&self) -> Copies {
        let copies: Vec<FileCopy> = self.paths.iter().map(|path| FileCopy::read(path)).collect();
        let print = Print {
            identities: copies.iter().map(|copy| copy.identity().cloned()).collect(),
            content: self.hasher.hash_one(&copies),
            is_steady: copies.iter().all(FileCopy::is_steady),
        };
        Copies { copies, print }
    }

    /// The paths, for a message.
    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        names.join(" and ")
    }
}

impl Copies {
    pub(super) fn limits(&self, loader: YamlLoader) -> Result<Limits, Error> {
        loader.copies(&self.copies[0], self.copies.get(1))
    }
}
