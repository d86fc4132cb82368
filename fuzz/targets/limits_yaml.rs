//! A file of limits, or one of limits and one of overrides: read in time linear in its length, and
//! refused with faults that say where, never with a panic.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use tollgate::Limits;

/// What separates the limits from the overrides; a text without it is one file.
const SEPARATOR: &str = "\n%%%\n";

/// Far above what any input of a few KiB takes, and far below what a quadratic walk would.
const TIME_MAX: Duration = Duration::from_secs(1);

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let start = Instant::now();
    let read = match text.split_once(SEPARATOR) {
        Some((limits, overrides)) => Limits::from_yaml_with_overrides(limits, overrides),
        None => Limits::from_yaml(text),
    };
    let took = start.elapsed();
    assert!(took < TIME_MAX, "{} bytes took {took:?}", data.len());
    match read {
        Ok(limits) => {
            // What was read can be used, and says what it is.
            assert!(limits.names().next().is_some(), "a file that declares nothing was read");
            for name in limits.names() {
                let _ = limits.numbers(name, "1");
            }
        }
        Err(error) => {
            assert!(error.is_config(), "{error:?}");
            // YAML ends a line at a carriage return, too.
            let lines = text.split(['\n', '\r']).count() as u64;
            for fault in error.faults() {
                assert!(!fault.message.is_empty(), "{fault:?}");
                assert!(fault.line.is_none_or(|line| (1..=lines + 1).contains(&line)), "{fault:?}");
            }
        }
    }
});
