//! Replaces a file by another one atomically.
#![allow(
    clippy::incompatible_msrv,
    reason = "locks of files need Rust 1.89, as the feature snapshot does"
)]

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::util::open;

/// A new file beside the one that it will replace. It is removed if it is dropped before it is in place.
pub(super) struct Replacement {
    file: File,
    at: Option<PathBuf>,
    target: PathBuf,
}

/// The end of the names of new files.
const SUFFIX: &str = ".tollgate-new";

impl Replacement {
    /// Creates a new file in the folder of `target`, which only its owner may read. Files that killed writers for the
    /// same target left there are removed.
    pub(super) fn beside(target: &Path) -> io::Result<Replacement> {
        /// The number of names to try. A name fails only by a race with another writer for the same target.
        const TRIES: u32 = 32;
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no file name"));
        };
        let folder = folder_of(target);
        remove_abandoned(folder, name);
        let mut last = io::ErrorKind::AlreadyExists.into();
        for _ in 0..TRIES {
            let at = folder.join(new_name(name));
            match create(&at) {
                Ok(file) => {
                    return Ok(Replacement { file, at: Some(at), target: target.to_owned() });
                }
                Err(error) => last = error,
            }
            let is_taken =
                matches!(last.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::WouldBlock);
            if !is_taken {
                break;
            }
        }
        Err(last)
    }

    /// Syncs the file to disk and renames it to the target.
    pub(super) fn put_in_place(mut self) -> io::Result<()> {
        // Do not retry: after an error the system may have dropped pages, and a second sync would not report them.
        self.file.sync_all()?;
        if let Some(at) = &self.at {
            fs::rename(at, &self.target)?;
        }
        self.at = None;
        // Sync the folder as well, which has the name. Only on Unix a folder can be opened as a file.
        #[cfg(unix)]
        File::open(folder_of(&self.target))?.sync_all()?;
        Ok(())
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(at) = &self.at {
            // If this fails, the next writer removes the file.
            let _ = fs::remove_file(at);
        }
    }
}

fn folder_of(target: &Path) -> &Path {
    match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns a hidden name for a new file beside `name`, with 16 random digits.
fn new_name(name: &OsStr) -> OsString {
    let random = RandomState::new().hash_one(std::process::id());
    let mut new = OsString::from(".");
    new.push(name);
    new.push(format!(".{random:016x}{SUFFIX}"));
    new
}

/// Returns whether [`new_name`] can have returned `other` for `name`.
fn is_new_name(other: &OsStr, name: &OsStr) -> bool {
    let (other, name) = (other.as_encoded_bytes(), name.as_encoded_bytes());
    let digits = other
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(name))
        .and_then(|rest| rest.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Creates a file without following links, and locks it. The lock ends with its writer's process.
fn create(at: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(at)?;
    lock(&file, at)?;
    Ok(file)
}

/// Locks a file that was just created at a path. Before that, another writer may take the file for one that a killed writer
/// left, and remove it: [`io::ErrorKind::WouldBlock`] if a writer does so, or has done so.
fn lock(file: &File, at: &Path) -> io::Result<()> {
    let removed = Err(io::ErrorKind::WouldBlock.into());
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => removed,
        Ok(()) if !leads_to(at, file) => removed,
        // On a file system without locks, no writer removes files.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Returns whether a path still leads to the file that was created there.
#[cfg(unix)]
fn leads_to(at: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |metadata: io::Result<fs::Metadata>| {
        metadata.map(|metadata| (metadata.dev(), metadata.ino())).ok()
    };
    let there = inode(fs::symlink_metadata(at));
    there.is_some() && there == inode(file.metadata())
}

/// Returns whether there is a file at the path. Names are random, so it is the one that was created there.
#[cfg(not(unix))]
fn leads_to(at: &Path, _: &File) -> bool {
    fs::symlink_metadata(at).is_ok()
}

/// Removes the files that killed writers left. A file that cannot be removed stays for the next writer.
fn remove_abandoned(folder: &Path, name: &OsStr) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_new_name(&entry.file_name(), name) {
            continue;
        }
        let Ok(file) = open::without_waiting().write(true).open(entry.path()) else { continue };
        if file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn the_old_file_stays_until_the_rename() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("buckets");
        fs::write(&target, "old").unwrap();
        let mut new = Replacement::beside(&target).unwrap();
        new.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        new.put_in_place().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(names(folder.path()), ["buckets"]);
        drop(Replacement::beside(&target).unwrap());
        assert_eq!(names(folder.path()), ["buckets"], "one that is given up is removed");
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_private_and_links_are_replaced() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (target, other) = (folder.path().join("buckets"), folder.path().join("other"));
        fs::write(&other, "other").unwrap();
        symlink(&other, &target).unwrap();
        let mut new = Replacement::beside(&target).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(new.at.as_ref().unwrap()) & 0o777, 0o600);
        new.write_all(b"new").unwrap();
        new.put_in_place().unwrap();
        assert_eq!(mode(&target), 0o100_600, "a file, and no link");
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        // A link with a new file's name does not cause a file elsewhere.
        let link = folder.path().join(new_name(OsStr::new("buckets")));
        symlink(folder.path().join("made"), &link).unwrap();
        assert_eq!(create(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!folder.path().join("made").exists());
    }

    #[test]
    fn abandoned_files_are_removed_and_locked_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("buckets");
        let left = folder.path().join(".buckets.0123456789abcdef.tollgate-new");
        let others = [
            ".buckets.0123456789abcdeg.tollgate-new",
            ".buckets.0123.tollgate-new",
            ".other.0123456789abcdef.tollgate-new",
            "buckets.0123456789abcdef.tollgate-new",
        ];
        for name in others {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(&left, "part of").unwrap();
        let writing = Replacement::beside(&target).unwrap();
        assert!(!left.exists());
        let second = Replacement::beside(&target).unwrap();
        assert!(writing.at.as_ref().unwrap().exists(), "its writer is there");
        assert_eq!(names(folder.path()).len(), others.len() + 2);
        drop((writing, second));
        assert_eq!(names(folder.path()).len(), others.len());
    }

    #[test]
    fn a_file_removed_before_locking_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join(new_name(OsStr::new("buckets")));
        let made = || File::create_new(&at).unwrap();
        let file = made();
        lock(&file, &at).unwrap();
        fs::remove_file(&at).unwrap();
        // Another writer locks and removes it before the writer that made it locks it.
        let file = made();
        remove_abandoned(folder.path(), OsStr::new("buckets"));
        assert!(!at.exists());
        assert_eq!(lock(&file, &at).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // A later file of the same name is not taken for it.
        let _another = made();
        assert_eq!(lock(&file, &at).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn concurrent_writers_to_one_path_all_succeed() {
        const WRITERS: u64 = 4;
        const FILES: u64 = 400;
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("buckets");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let target = &target;
                scope.spawn(move || {
                    for file in 0..FILES {
                        let mut new = Replacement::beside(target).unwrap();
                        write!(new, "{writer} {file}").unwrap();
                        new.put_in_place().unwrap();
                    }
                });
            }
        });
        let last = fs::read_to_string(&target).unwrap();
        assert!(last.ends_with(&format!(" {}", FILES - 1)), "{last}");
        assert_eq!(names(folder.path()), ["buckets"]);
    }

    #[test]
    fn missing_folders_and_nameless_paths_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("gone").join("buckets");
        let kind = |path: &Path| Replacement::beside(path).err().map(|error| error.kind());
        assert_eq!(kind(&nowhere), Some(io::ErrorKind::NotFound));
        assert_eq!(kind(Path::new("/")), Some(io::ErrorKind::InvalidInput));
        assert_eq!(kind(Path::new("a/..")), Some(io::ErrorKind::InvalidInput));
    }
}
