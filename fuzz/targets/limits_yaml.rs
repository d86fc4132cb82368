//! A file of limits, or one of limits and one of overrides: read in time linear in its length, and
//! refused with faults that say where, never with a panic. What reports on the limits agrees with what
//! applies.
#![no_main]

use std::time::{Duration, Instant, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use tollgate::limits::Applies;
use tollgate::{IdFormat, Limits};

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
                let _ = limits.limit_for(name, "1");
            }
            report(&limits);
        }
        Err(error) => {
            assert!(error.is_invalid_config(), "{error:?}");
            let lines = text.split('\n').count() as u64;
            for fault in error.faults() {
                assert!(!fault.message.is_empty(), "{fault:?}");
                assert!(fault.line.is_none_or(|line| (1..=lines + 1).contains(&line)), "{fault:?}");
            }
        }
    }
});

/// 2026-11-01T00:00:00Z.
const NOW_S: u64 = 1_793_491_200;

/// The overrides of a limit that are explained: each is a look at all of them.
const EXPLAINED_MAX: usize = 16;

/// An id of a file is on one line, and has no blanks that nobody sees.
fn assert_can_be_meant(id: &str) {
    let ends_line = |c| "\n\r\u{b}\u{c}\u{85}\u{2028}\u{2029}".contains(c);
    assert!(!id.contains(ends_line) && id.trim_matches([' ', '\t']) == id, "{id:?}");
}

fn report(limits: &Limits) {
    let now = UNIX_EPOCH + Duration::from_secs(NOW_S);
    let warnings = limits.warnings(now);
    assert!(warnings.len() <= 1_000 && (warnings.more == 0 || warnings.len() == 1_000));
    for warning in warnings.listed {
        assert!(!warning.message.is_empty() && warning.location.is_some(), "{warning:?}");
    }
    let applied = limits.clone().as_of(now);
    for limit in limits.entries() {
        for given in limit.overrides().take(EXPLAINED_MAX) {
            assert!(given.location().is_some(), "{given:?}");
            let id = given.id();
            if limit.format() == IdFormat::String {
                assert_can_be_meant(&id);
            }
            // The hash of a set is no id to ask for.
            let Ok(explanation) = limits.explain(limit.name(), &*id, now) else { continue };
            assert_eq!(explanation.id, id);
            let is_own = explanation.applies == Applies::Override;
            assert_eq!(is_own, !given.is_expired(now), "{explanation:?}");
            let numbers = applied.limit_for(limit.name(), &*id).expect("the id was good");
            assert_eq!(explanation.numbers, numbers, "{explanation:?}");
            assert!(explanation.near.len() <= 8, "{explanation:?}");
        }
    }
}
