#!/usr/bin/env bash
# The library with the oldest Rust that Cargo.toml names, without features and with all that it has; `snapshot`, and with it
# all features, need the release after it. Checks, and no tests.
. "$(dirname "$0")/common.sh"

# The workspace's rust-version is the library's.
oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
of_snapshot=1.89
export CARGO_TARGET_DIR=target/msrv RUSTFLAGS="-D warnings"
check() {
    local version=$1
    shift
    rustup run "$version" rustc --version >/dev/null 2>&1 ||
        rustup toolchain install "$version" --profile minimal
    echo "rust $version: $*"
    cargo "+$version" check -p tollgate --lib --locked --quiet "$@"
}
check "$oldest" --no-default-features
check "$oldest" --features boulder,exact,http,metrics,serde,tower,tracing,uuid,watch
check "$of_snapshot" --all-features
