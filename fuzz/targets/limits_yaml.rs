//! Reads a file of limits, or one of limits and one of overrides. Reading takes time linear in the length, a bad file
//! gives faults with their lines, and nothing panics. The reports on the limits agree with the limits that apply. A second
//! reader of YAML gives the same limits.
#![no_main]

#[path = "../../tests/support/named.rs"]
mod named;
mod second_reader;

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use tollgate::limits::{Applies, Loader};
use tollgate::{IdFormat, Limit, Limits};

use named::Named;

/// Separates the limits from the overrides; a text without it is one file.
const SEPARATOR: &str = "\n%%%\n";

/// Far above the time that a few KiB take, and far below that of a quadratic algorithm.
const TIME_MAX: Duration = Duration::from_secs(1);

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = || match text.split_once(SEPARATOR) {
        Some((limits, overrides)) => Limits::from_yaml_with_overrides(limits, overrides),
        None => Limits::from_yaml(text),
    };
    // The machine may keep the thread from running for seconds, but hardly three times.
    let mut last = None;
    let is_quick = (0..3).any(|_| {
        let start = Instant::now();
        last = Some(read());
        start.elapsed() < TIME_MAX
    });
    assert!(is_quick, "{} bytes took {TIME_MAX:?} and more, three times", data.len());
    let read = last.expect("it was read");
    let (limits, overrides) = match text.split_once(SEPARATOR) {
        Some((limits, overrides)) => (limits, Some(overrides)),
        None => (text, None),
    };
    second_reader::compare(limits, overrides, &read);
    // A reader that knows one algorithm more reads at least as many files.
    let more = match overrides {
        Some(overrides) => loader().texts(limits, overrides),
        None => loader().text(limits),
    };
    if let Ok(read) = &read {
        assert_eq!(more.expect("it was read").overrides(), read.overrides());
    }
    match read {
        Ok(limits) => {
            // A file that was read can be used, and declares at least one limit.
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

/// Returns a reader of files that may name a custom algorithm: gcra with two fields.
fn loader() -> Loader {
    let made = Loader::new().algorithm("named", |fields| {
        let (size, gap) = (fields.whole_number("size")?, fields.duration("gap")?);
        Ok(Arc::new(Named(Limit::new(size, 1, gap)?, "named")))
    });
    made.expect("the name is valid")
}

/// 2026-11-01T00:00:00Z.
const NOW_S: u64 = 1_793_491_200;

/// The most overrides of a limit that are explained: each explanation looks at all of them.
const EXPLAINED_MAX: usize = 16;

/// Checks that an id of a file is on one line and has no invisible blanks at its ends.
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
    let applied = limits.clone().valid_at(now);
    for limit in limits.entries() {
        for given in limit.overrides().take(EXPLAINED_MAX) {
            assert!(given.location().is_some(), "{given:?}");
            let id = given.id();
            if limit.format() == IdFormat::String {
                assert_can_be_meant(&id);
            }
            // The hash of a set is not an id that a request can have.
            let Ok(explanation) = limits.explain(limit.name(), &*id, now) else { continue };
            assert_eq!(explanation.id, id);
            let is_own = explanation.applies == Applies::Override;
            assert_eq!(is_own, !given.is_expired(now), "{explanation:?}");
            let numbers = applied.limit_for(limit.name(), &*id).expect("the id was good");
            assert_eq!(explanation.limit, numbers, "{explanation:?}");
            assert!(explanation.near.len() <= 8, "{explanation:?}");
        }
    }
}
