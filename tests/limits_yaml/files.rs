//! Tests missing files, folders, and the bound on a file's size.

use super::*;

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn faults_of_both_files_are_reported() {
    let limits = file(DEFAULTS.as_bytes());
    let overrides = file(MAP.replace("10.0.0.2", "64.112.117.1").as_bytes());
    let loaded = Limits::from_yaml_files(limits.path(), Some(overrides.path())).unwrap();
    assert_eq!(loaded.overrides(), 2);

    let (limits, overrides) = (file(b"Own: 1"), file(b"NewOrdersPerAccount:1:\nOwn:1: 2"));
    let error = Limits::from_yaml_files(limits.path(), Some(overrides.path())).unwrap_err();
    let files: Vec<&str> = error.faults().iter().map(|fault| &*fault.file).collect();
    let (limits, overrides) = (limits.path().to_str().unwrap(), overrides.path().to_str().unwrap());
    assert_eq!(files, [limits, limits, overrides, overrides], "{error}");
}

#[test]
fn unreadable_is_io_error_unless_other_faults() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.yml");
    let error = Limits::from_yaml_files(&missing, None).unwrap_err();
    assert!(error.is_io() && !error.is_invalid_config());
    assert_eq!(error.faults().len(), 1);
    assert!(
        error
            .to_string()
            .starts_with(&format!("{}: cannot be read: no such file", missing.display()))
    );

    let error = Limits::from_yaml_files(dir.path(), Some(&missing)).unwrap_err();
    assert!(error.is_io());
    let text = error.to_string();
    assert!(text.contains("cannot be read: it is a directory\n"), "{text}");
    assert!(text.contains("missing.yml: cannot be read"), "{text}");

    // Names that the missing file may declare are not reported as unknown. Other faults are.
    let overrides = file(b"- Own: {burst: 0, count: 1, period: 1s, ids: [a]}");
    let error = Limits::from_yaml_files(&missing, Some(overrides.path())).unwrap_err();
    assert!(error.is_invalid_config() && error.is_io(), "a file is wrong and another unread");
    let messages: Vec<&str> = error.faults().iter().map(|fault| &*fault.message).collect();
    assert_eq!(messages.len(), 2, "{error}");
    assert_eq!(messages[1], "invalid burst 0: at least 1 is allowed");
}

#[test]
fn that_are_no_text_name_the_line() {
    for (bytes, wanted) in [
        (
            &b"a: b\n\xff\xfe"[..],
            ":2: not a text: byte 0xff; utf-8 without control characters is allowed",
        ),
        (
            b"\x7fELF\x02\x01",
            ":1: not a text: byte 0x7f; utf-8 without control characters is allowed",
        ),
    ] {
        let file = file(bytes);
        let error = Limits::from_yaml_files(file.path(), None).unwrap_err();
        assert!(error.is_invalid_config());
        assert_eq!(error.to_string(), format!("{}{wanted}", file.path().display()));
    }
}

#[test]
fn above_128_mib_are_not_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len((128 << 20) + 1).unwrap();
    let error = Limits::from_yaml_files(file.path(), None).unwrap_err();
    assert!(error.is_invalid_config());
    assert_eq!(
        error.faults()[0].message,
        "too long: at most 134217728 bytes (128 MiB) are allowed"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn without_length_reading_stops_at_128_mib() {
    let error = Limits::from_yaml_files("/dev/zero", None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/dev/zero: too long: at most 134217728 bytes (128 MiB) are allowed"
    );
}
