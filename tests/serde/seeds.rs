//! Reads the seeds of the fuzzer, those of Boulder's READMEs and the examples by both readers. (The texts of `tests/limits_yaml` are compared
//! there.)

use std::fs;
use std::path::Path;

use tollgate::Limits;

use super::second_reader::compare;

/// Separates the limits from the overrides in the seeds of the fuzzer.
const SEPARATOR: &str = "\n%%%\n";

#[test]
fn both_readers_agree_on_all_seeds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut good = 0;
    let mut count = 0;
    for folder in ["fuzz/seeds/limits_yaml", "tests/seeds", "examples", "examples/axum"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension();
            if path.is_dir() || extension.is_some_and(|extension| extension != "yml") {
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            let read = match text.split_once(SEPARATOR) {
                Some((limits, overrides)) => {
                    let read = Limits::from_yaml_with_overrides(limits, overrides);
                    compare(limits, Some(overrides), read.as_ref().ok());
                    read
                }
                None => {
                    let read = Limits::from_yaml(&text);
                    compare(&text, None, read.as_ref().ok());
                    read
                }
            };
            count += 1;
            good += usize::from(read.is_ok());
        }
    }
    assert!(count >= 19 && good >= 10, "{count} seeds, {good} good");
}
