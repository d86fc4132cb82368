#!/usr/bin/env bash
# The format of all Rust files.
. "$(dirname "$0")/common.sh"

cargo fmt --all --check
cargo fmt --manifest-path benches/rivals/Cargo.toml --check
cargo fmt --manifest-path fuzz/Cargo.toml --check
cargo fmt --manifest-path examples/frameworks/Cargo.toml --check
cargo fmt --manifest-path tests/wasm/Cargo.toml --check
