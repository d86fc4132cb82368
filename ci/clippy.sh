#!/usr/bin/env bash
# Clippy: both crates with all features, the library with none and with each alone: ci/clippy.sh [tests]
# With `tests` also the tests that are left with each feature alone.
. "$(dirname "$0")/common.sh"

cargo clippy --all-targets --all-features --quiet -- -D warnings
parts=(--lib)
[ "${1:-}" != tests ] || parts+=(--tests)
for features in "" yaml boulder exact http tower snapshot metrics tracing uuid watch serde valkey; do
    cargo clippy -p tollgate "${parts[@]}" --no-default-features --features "$features" --quiet -- -D warnings
done
cargo clippy --manifest-path benches/rivals/Cargo.toml --all-targets --all-features --quiet -- -D warnings
