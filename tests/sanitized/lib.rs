//! Nothing but tests: see `Cargo.toml`.
