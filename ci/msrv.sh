#!/usr/bin/env bash
# The library compiles with the oldest Rust that Cargo.toml names, with the features that have it and without features; and with
# all features, of which `snapshot` needs the release after it.
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
check "$oldest" --features boulder,exact,http,io,metrics,serde,tower,tracing,uuid,watch
check "$oldest" --no-default-features
check "$of_snapshot" --all-features
