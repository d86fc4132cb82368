//! Tests limits and options in configurations: TOML, JSON, YAML and figment by serde, and serde_yaml as a second reader of
//! every limits file of the tests.
#![cfg(all(feature = "serde", feature = "yaml", feature = "boulder"))]

mod faults;
mod formats;
#[path = "../support/named.rs"]
mod named;
mod options;
mod round_trip;
#[path = "../support/second_reader.rs"]
mod second_reader;
mod seeds;
