#!/usr/bin/env bash
# The library on other targets: checks, and no tests. A target whose standard library rustup does not have is left out.
. "$(dirname "$0")/common.sh"

export CARGO_TARGET_DIR=target/targets RUSTFLAGS="-D warnings"
left_out=()
check() {
    local target=$1
    shift
    if ! rustup target list --installed | grep -qx "$target" && ! rustup target add "$target"; then
        left_out+=("$target")
        return
    fi
    echo "$target: $*"
    cargo check -p tollgate --lib --target "$target" --quiet "$@"
}
for target in aarch64-unknown-linux-gnu x86_64-pc-windows-gnu aarch64-apple-darwin i686-unknown-linux-gnu; do
    check "$target" --all-features
done
# No files, no network, no threads.
check wasm32-unknown-unknown --no-default-features --features yaml,boulder,exact
[ "${#left_out[@]}" = 0 ] || echo "LEFT OUT, without a standard library: ${left_out[*]}"
