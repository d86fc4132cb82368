#!/usr/bin/env bash
# Clippy: both crates with all features, the library with none and with `tower`: ci/clippy.sh [tests]
# With `tests`, for ci/full.sh, the library with each feature alone, and the tests that are left with it.
. "$(dirname "$0")/common.sh"

cargo clippy --all-targets --all-features --quiet -- -D warnings
parts=(--lib) sets=("" tower)
if [ "${1:-}" = tests ]; then
    parts+=(--tests) sets=("" tsc yaml boulder exact http tower io snapshot metrics tracing uuid watch serde valkey)
fi
for features in "${sets[@]}"; do
    cargo clippy -p tollgate "${parts[@]}" --no-default-features --features "$features" --quiet -- -D warnings
done
if [ "${1:-}" = tests ]; then
    cargo clippy --manifest-path benches/rivals/Cargo.toml --all-targets --all-features --quiet -- -D warnings
fi
