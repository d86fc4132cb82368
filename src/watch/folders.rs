//! The folders in which the system is asked to tell of changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{self, Path, PathBuf};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::limits::Identity;
use crate::util::background::Stop;
use crate::util::escape::Escaped;

pub(super) struct Folders {
    events: RecommendedWatcher,
    /// With what each was when it began to be watched: a folder may go, and another one take its name.
    watched: BTreeMap<PathBuf, FolderIdentity>,
}

#[cfg(unix)]
type FolderIdentity = Option<(u64, u64)>;
#[cfg(not(unix))]
type FolderIdentity = bool;

impl Folders {
    /// Nothing is watched yet; what happens hastens the next tick.
    pub(super) fn new(bell: Stop) -> notify::Result<Folders> {
        let tell = move |event: notify::Result<Event>| {
            // An error may stand for events that are lost.
            if event.is_ok_and(|event| !is_change(event.kind)) {
                return;
            }
            bell.hasten();
        };
        Ok(Folders { events: notify::recommended_watcher(tell)?, watched: BTreeMap::new() })
    }

    /// Watches the folders that lead to the files now, and no others. What fails is tried again the next
    /// time.
    pub(super) fn follow(&mut self, files: &[PathBuf]) -> Result<(), String> {
        let mut wanted = BTreeMap::new();
        for folder in files.iter().flat_map(|file| folders_of(file)) {
            let identity = identity(&folder);
            wanted.insert(folder, identity);
        }
        let events = &mut self.events;
        self.watched.retain(|folder, identity| {
            let stays = wanted.get(folder) == Some(identity);
            if !stays {
                // It is gone, or about to be: there is nothing to do about an error.
                let _ = events.unwatch(folder);
            }
            stays
        });
        let mut failed = Ok(());
        for (folder, identity) in wanted {
            if self.watched.contains_key(&folder) {
                continue;
            }
            match self.events.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(folder, identity);
                }
                Err(error) => {
                    let folder = folder.display().to_string();
                    failed = Err(format!("{}: {error}", Escaped(&folder)));
                }
            }
        }
        failed
    }
}

/// Opening and reading change nothing, and are what a look does; closing may end a change by way of a
/// mapping, which nobody else tells of.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// The folders, by their own names, in which something happens when another file comes to be behind a
/// path: that of the path, that of the file, and that of each link on the way of the path.
fn folders_of(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = path::absolute(path) else { return Vec::new() };
    let mut folders = Vec::new();
    for (up, part) in path.ancestors().enumerate() {
        let is_link = fs::symlink_metadata(part).is_ok_and(|metadata| metadata.is_symlink());
        if up == 0 || is_link {
            folders.extend(part.parent().and_then(|parent| fs::canonicalize(parent).ok()));
        }
    }
    if let Ok(file) = fs::canonicalize(&path) {
        folders.extend(file.parent().map(Path::to_owned));
    }
    folders
}

fn identity(folder: &Path) -> FolderIdentity {
    let found = Identity::at(folder);
    #[cfg(unix)]
    return found.as_ref().map(Identity::file);
    #[cfg(not(unix))]
    found.is_some()
}
