#!/usr/bin/env bash
# The table's unsafe code under miri, as far as miri runs it: docs/internals/unsafe.md says which part that is.
. "$(dirname "$0")/common.sh"

if ! cargo +nightly miri --version >/dev/null 2>&1 && ! rustup toolchain install nightly --profile minimal --component miri,rust-src; then
    echo "ci/miri.sh: CANNOT RUN, nothing was checked: no miri" >&2
    exit 3
fi
# crossbeam-epoch is written for tree borrows, and keeps its records of threads until the process ends.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-ignore-leaks"
export CARGO_TARGET_DIR=target/miri
tests=()
for module in arena migration region second_look_tests stack; do
    tests+=("store::table::$module")
done
cargo +nightly miri test -p tollgate --lib --no-default-features -- "${tests[@]}"
