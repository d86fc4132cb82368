//! Tests limits from YAML through the public API: files that load, and refused files with the texts of their faults.

#![cfg(all(feature = "yaml", feature = "boulder"))]

#[path = "limits_yaml/algorithms.rs"]
mod algorithms;
#[path = "limits_yaml/entry_options.rs"]
mod entry_options;
#[path = "limits_yaml/files.rs"]
mod files;
#[path = "limits_yaml/floors.rs"]
mod floors;
#[path = "limits_yaml/good.rs"]
mod good;
#[path = "limits_yaml/hostile.rs"]
mod hostile;
#[path = "limits_yaml/loader.rs"]
mod loader;
#[path = "support/named.rs"]
mod named;
#[path = "limits_yaml/networks.rs"]
mod networks;
#[path = "limits_yaml/refused_files.rs"]
mod refused_files;
#[path = "limits_yaml/refused_values.rs"]
mod refused_values;
#[path = "limits_yaml/seeds.rs"]
mod seeds;
#[cfg(feature = "valkey")]
#[path = "limits_yaml/sharing.rs"]
mod sharing;
#[cfg(not(feature = "valkey"))]
#[path = "limits_yaml/sharing_without.rs"]
mod sharing_without;
#[path = "limits_yaml/string_ids.rs"]
mod string_ids;
#[path = "limits_yaml/unlimited.rs"]
mod unlimited;
#[path = "limits_yaml/warnings.rs"]
mod warnings;

#[cfg(feature = "serde")]
#[path = "support/second_reader.rs"]
mod second_reader;

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use tollgate::{Error, Limits};

/// Reads a text, with the feature `serde` also by a second reader, which must agree.
fn read(text: &str) -> Result<Limits, Error> {
    let read = Limits::from_yaml(text);
    #[cfg(feature = "serde")]
    second_reader::compare(text, None, read.as_ref().ok());
    read
}

/// Reads a text of limits and one of overrides like [`read`].
fn read_both(limits: &str, overrides: &str) -> Result<Limits, Error> {
    let read = Limits::from_yaml_with_overrides(limits, overrides);
    #[cfg(feature = "serde")]
    second_reader::compare(limits, Some(overrides), read.as_ref().ok());
    read
}

/// Returns the faults of a text as lines, without the file's name.
fn faults(text: &str) -> Vec<String> {
    strip(&read(text).expect_err(text), "<text>")
}

/// Returns the faults of a file of overrides beside a valid file of limits.
fn override_faults(text: &str) -> Vec<String> {
    let limits = "Own: {burst: 1, count: 1, period: 1s, id: string}";
    strip(&read_both(limits, text).expect_err(text), "<overrides>")
}

fn strip(error: &Error, file: &str) -> Vec<String> {
    assert!(error.is_invalid_config(), "{error}");
    let lines = error.to_string();
    let faults: Vec<String> = error.faults().iter().map(|fault| fault.to_string()).collect();
    assert_eq!(lines, faults.join("\n"));
    let strip = |fault: &String| {
        let rest = fault.strip_prefix(file).unwrap_or_else(|| panic!("{fault}"));
        rest.strip_prefix(':').unwrap_or(rest).trim_start().to_string()
    };
    faults.iter().map(strip).collect()
}

/// Returns burst, count and period of the limit that applies to an id.
fn numbers<'a>(
    limits: &Limits,
    name: &str,
    id: impl Into<tollgate::Id<'a>>,
) -> Option<(u64, u64, Duration)> {
    let limit = limits.limit_for(name, id).expect("a good id")?;
    Some((limit.burst(), limit.count(), limit.period()))
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The defaults of Boulder's README, all three versions.
const DEFAULTS: &str = "\
NewRegistrationsPerIPAddress:
  burst: 20
  count: 20
  period: 1s
NewOrdersPerAccount:
  burst: 300
  count: 300
  period: 180m
";

/// The overrides of seed 000: the list form.
const LIST: &str = "\
- NewRegistrationsPerIPAddress:
    burst: 20
    count: 40
    period: 1s
    ids:
      - 10.0.0.2
      - 10.0.0.5
- NewOrdersPerAccount:
    burst: 300
    count: 600
    period: 180m
    ids:
      - 12345678
      - 87654321
";

/// The overrides of seed 001: the map form.
const MAP: &str = "\
NewRegistrationsPerIPAddress:10.0.0.2:
  burst: 20
  count: 40
  period: 1s
NewOrdersPerAccount:12345678:
  burst: 300
  count: 600
  period: 180m
";

/// The last example of seed 000, and as 001 has it.
const FOO_LIST: &str = "\
- NewFoosPerIPAddress:
    burst: 20
    count: 20
    period: 1s
    ids:
      - 172.23.45.22
";
const FOO_MAP: &str = "\
NewFoosPerIPAddress:172.23.45.22:
  burst: 20
  count: 20
  period: 1s
";
const FOO_DECLARED: &str = "NewFoosPerIPAddress: {burst: 1, count: 1, period: 1s, id: ipAddress}";

fn without_indentation(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_start())).collect()
}
