//! Putting a file in the place of another in one step.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::util::open;

/// A file that is being written beside the one that it is to replace. Dropped, it is removed.
pub(super) struct Replacement {
    file: File,
    at: Option<PathBuf>,
    target: PathBuf,
}

/// What the names of such files end with.
const SUFFIX: &str = ".tollgate-new";

impl Replacement {
    /// A new file in the folder of `target`, which only its owner may read. What writers for the same target
    /// have left there is removed, if they are gone.
    pub(super) fn beside(target: &Path) -> io::Result<Replacement> {
        /// Names that are tried. Another writer for the same target takes a name away only by a race.
        const TRIES: u32 = 32;
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no file name"));
        };
        let folder = folder_of(target);
        remove_left_behind(folder, name);
        let mut last = io::ErrorKind::AlreadyExists.into();
        for _ in 0..TRIES {
            let at = folder.join(beside(name));
            match create(&at) {
                Ok(file) => {
                    return Ok(Replacement { file, at: Some(at), target: target.to_owned() });
                }
                Err(error) => last = error,
            }
            let may_be_there =
                matches!(last.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::WouldBlock);
            if !may_be_there {
                break;
            }
        }
        Err(last)
    }

    /// Hands the file to the disk and puts it in the target's place.
    pub(super) fn put_in_place(mut self) -> io::Result<()> {
        // Once: after an error nobody knows what of it is on the disk, and what a second try says.
        self.file.sync_all()?;
        if let Some(at) = &self.at {
            fs::rename(at, &self.target)?;
        }
        self.at = None;
        // The name, too. Elsewhere than on Unix a folder is no file.
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
            // Nothing is lost if this fails: the next writer removes it.
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

/// The name of a file beside `name`: hidden, with 16 random digits.
fn beside(name: &OsStr) -> OsString {
    let random = RandomState::new().hash_one(std::process::id());
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{random:016x}{SUFFIX}"));
    beside
}

/// Whether a name is one that `beside` gives.
fn is_beside(other: &OsStr, name: &OsStr) -> bool {
    let (other, name) = (other.as_encoded_bytes(), name.as_encoded_bytes());
    let digits = other
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(name))
        .and_then(|rest| rest.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Makes a file that was not there, whatever links there are, and locks it: the lock goes with its writer.
fn create(at: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(at)?;
    lock(&file, at)?;
    Ok(file)
}

/// Locks a file that was made at a path. Until then another writer takes it for one that was left behind,
/// and removes it: [`io::ErrorKind::WouldBlock`] if one is about to, or has.
fn lock(file: &File, at: &Path) -> io::Result<()> {
    let removed = Err(io::ErrorKind::WouldBlock.into());
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => removed,
        Ok(()) if !leads_to(at, file) => removed,
        // Where there are no locks, nothing is found to be left behind.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Whether a path still leads to the file that was made there.
#[cfg(unix)]
fn leads_to(at: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |of: io::Result<fs::Metadata>| of.map(|of| (of.dev(), of.ino())).ok();
    let found = inode(fs::symlink_metadata(at));
    found.is_some() && found == inode(file.metadata())
}

/// Names are random: what is there is the file.
#[cfg(not(unix))]
fn leads_to(at: &Path, _: &File) -> bool {
    fs::symlink_metadata(at).is_ok()
}

/// Removes what was left by writers that are gone. Whatever fails here is left for the next one.
fn remove_left_behind(folder: &Path, name: &OsStr) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_beside(&entry.file_name(), name) {
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
    fn old_file_stays_until_new_one_is_complete() {
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
    fn only_owner_may_read_and_links_not_followed() {
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
        // A link with a name of ours does not make a file elsewhere.
        let link = folder.path().join(beside(OsStr::new("buckets")));
        symlink(folder.path().join("made"), &link).unwrap();
        assert_eq!(create(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!folder.path().join("made").exists());
    }

    #[test]
    fn stale_temporary_files_are_removed_live_ones_stay() {
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
    fn file_removed_before_lock_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join(beside(OsStr::new("buckets")));
        let made = || File::create_new(&at).unwrap();
        let file = made();
        lock(&file, &at).unwrap();
        fs::remove_file(&at).unwrap();
        // Another writer's: locked, unlinked and let go of, before the writer that made it comes to lock it.
        let file = made();
        remove_left_behind(folder.path(), OsStr::new("buckets"));
        assert!(!at.exists());
        assert_eq!(lock(&file, &at).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // Nor is one that has the name since.
        let _another = made();
        assert_eq!(lock(&file, &at).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn concurrent_writers_do_not_take_each_others_files() {
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
    fn missing_folder_and_nameless_path_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("gone").join("buckets");
        let kind = |path: &Path| Replacement::beside(path).err().map(|error| error.kind());
        assert_eq!(kind(&nowhere), Some(io::ErrorKind::NotFound));
        assert_eq!(kind(Path::new("/")), Some(io::ErrorKind::InvalidInput));
        assert_eq!(kind(Path::new("a/..")), Some(io::ErrorKind::InvalidInput));
    }
}
