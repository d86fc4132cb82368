#!/usr/bin/env bash
# The library on other targets: checks, and for wasm32 a program that runs. A target whose standard library rustup does not
# have is left out.
. "$(dirname "$0")/common.sh"

export CARGO_TARGET_DIR=target/targets RUSTFLAGS="-D warnings"
left_out=()
check() {
    local target=$1
    shift
    if ! rustup target list --installed | grep -qx "$target" && ! rustup target add "$target"; then
        left_out+=("$target, which has no standard library here")
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
if ! command -v node >/dev/null; then
    left_out+=("the program of tests/wasm: there is no node")
elif rustup target list --installed | grep -qx wasm32-unknown-unknown; then
    cargo build --manifest-path tests/wasm/Cargo.toml --release --target wasm32-unknown-unknown --quiet
    node tests/wasm/run.mjs "$CARGO_TARGET_DIR/wasm32-unknown-unknown/release/tollgate_wasm.wasm"
fi
[ "${#left_out[@]}" = 0 ] || printf "LEFT OUT: %s\n" "${left_out[@]}"
