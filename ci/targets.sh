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
# TLS for the feature `valkey` compiles C. Debian has compilers for two of the targets.
cross=(aarch64-linux-gnu-gcc x86_64-w64-mingw32-gcc)
if [ "$(command -v "${cross[@]}" | wc -l)" -lt 2 ]; then
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-mingw-w64-x86-64) >&2 || true
fi
without_c=$(sed -n '/^\[features\]/,/^\[/s/^\([a-z]*\) = .*/\1/p' Cargo.toml | grep -vx -e default -e valkey | paste -sd,)
for target in aarch64-unknown-linux-gnu x86_64-pc-windows-gnu aarch64-apple-darwin i686-unknown-linux-gnu; do
    case $target in
    aarch64-unknown-linux-gnu) compiler=aarch64-linux-gnu-gcc ;;
    x86_64-pc-windows-gnu) compiler=x86_64-w64-mingw32-gcc ;;
    *) compiler= ;;
    esac
    if [ -n "$compiler" ] && command -v "$compiler" >/dev/null; then
        check "$target" --all-features
    else
        check "$target" --no-default-features --features "$without_c"
        left_out+=("the feature valkey on $target, which has no C compiler here")
    fi
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
