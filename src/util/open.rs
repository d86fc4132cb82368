//! Opening a path that may lead to something other than a file.

use std::fs::OpenOptions;

/// Options with which no call to open waits: neither for the other end of a pipe nor for a device. What was
/// opened is looked at afterwards, because another file can take the name at any moment. A file is read
/// and written as ever.
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

    /// An open that waits would never return: the pipe has no other end.
    #[test]
    fn a_pipe_is_opened_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let opened = without_waiting().read(true).open(&pipe).unwrap();
        assert!(opened.metadata().unwrap().file_type().is_fifo());
        assert!(without_waiting().write(true).open(folder.path().join("pipe")).is_ok());
        drop(opened);
        // Without a reader there is nothing to write to.
        assert!(without_waiting().write(true).open(&pipe).is_err());
    }
}
