//! Opens paths that may lead to something other than a regular file.

use std::fs::OpenOptions;

/// Returns options with which `open` never waits, neither for the other end of a pipe nor for a device.
///
/// The caller checks the type of the opened file, not of the path: another file can take the name at any moment.
/// Reads and writes of a regular file are unaffected.
pub(crate) fn without_waiting() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    options
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::FileTypeExt as _;
    use std::process::Command;

    use super::*;

    /// An `open` that waits would never return: the pipe has no other end.
    #[test]
    fn a_pipe_is_opened_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let opened = without_waiting().read(true).open(&pipe).unwrap();
        assert!(opened.metadata().unwrap().file_type().is_fifo());
        assert!(without_waiting().write(true).open(folder.path().join("pipe")).is_ok());
        drop(opened);
        // Without a reader, opening the pipe for writing fails at once.
        assert!(without_waiting().write(true).open(&pipe).is_err());
    }
}
