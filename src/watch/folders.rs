//! Subscribes to the system's events in the folders that lead to the files.

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
    /// The watched folders, each with its identity when the subscription began: another folder may take its name.
    watched: BTreeMap<PathBuf, FolderIdentity>,
}

#[cfg(unix)]
type FolderIdentity = Option<(u64, u64)>;
#[cfg(not(unix))]
type FolderIdentity = bool;

impl Folders {
    /// Makes a subscription without folders. Each event hastens the next tick.
    pub(super) fn new(stop: Stop) -> notify::Result<Folders> {
        let on_event = move |event: notify::Result<Event>| {
            // An error may mean that events were lost, so it counts as a change.
            if event.map_or(true, |event| is_change(event.kind)) {
                stop.hasten();
            }
        };
        Ok(Folders { events: notify::recommended_watcher(on_event)?, watched: BTreeMap::new() })
    }

    /// Watches the folders that lead to the files now, and no others. Returns whether a subscription has begun, and the fault of
    /// a folder that failed. Such a folder is tried again at the next call.
    pub(super) fn follow(&mut self, files: &[PathBuf]) -> (bool, Option<String>) {
        let mut has_begun = false;
        let mut wanted = BTreeMap::new();
        for folder in files.iter().flat_map(|file| folders_of(file)) {
            let identity = identity(&folder);
            wanted.insert(folder, identity);
        }
        let events = &mut self.events;
        self.watched.retain(|folder, identity| {
            let stays = wanted.get(folder) == Some(identity);
            if !stays {
                // The folder may be gone, and then this fails.
                let _ = events.unwatch(folder);
            }
            stays
        });
        let mut failed = None;
        for (folder, identity) in wanted {
            if self.watched.contains_key(&folder) {
                continue;
            }
            match self.events.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(folder, identity);
                    has_begun = true;
                }
                Err(error) => {
                    let folder = folder.display().to_string();
                    failed = Some(format!("{}: {error}", Escaped(&folder)));
                }
            }
        }
        (has_begun, failed)
    }
}

/// Returns whether an event can mean a change. Opening and reading do not, and each check causes such events. Closing a
/// file that was open for writing does: a change through a memory mapping causes no other event.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Returns the canonical names of the folders in which an event occurs if `path` begins to lead to another file: the
/// folder of the path, that of the file, and that of each symbolic link on the way.
fn folders_of(path: &Path) -> Vec<PathBuf> {
    let Ok(path) = path::absolute(path) else { return Vec::new() };
    let mut folders = Vec::new();
    // The path, and what its links lead to.
    let (mut paths, mut links) = (vec![path], 0);
    while let Some(path) = paths.pop() {
        for (up, part) in path.ancestors().enumerate() {
            let to = fs::read_link(part).ok();
            let Some(parent) = part.parent().filter(|_| up == 0 || to.is_some()) else { continue };
            folders.extend(fs::canonicalize(parent));
            if let Some(to) = to.filter(|_| links < MAX_LINKS) {
                links += 1;
                paths.push(parent.join(to));
            }
        }
    }
    folders
}

/// The most links of one path that are followed: as many as Linux follows.
const MAX_LINKS: usize = 40;

fn identity(folder: &Path) -> FolderIdentity {
    let found = Identity::at(folder);
    #[cfg(unix)]
    return found.as_ref().map(Identity::file);
    #[cfg(not(unix))]
    found.is_some()
}
