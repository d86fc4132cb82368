#!/usr/bin/env bash
# Benches check their answers, and not their times.
. "$(dirname "$0")/common.sh"

# In the folder and the profile of the tests, whose dependencies are built already, and with one set of features.
export CARGO_TARGET_DIR=$PWD/target
rivals=(--quiet --manifest-path benches/rivals/Cargo.toml --features boulder)
rival() { cargo run "${rivals[@]}" "$@"; }
cargo test --all-features --bench spend
# docs/migration-from-governor.md: its claim that both limiters give the same answers. `ci/clippy.sh tests` compiles its programs, and
# `lengths` compares six programs of governor with ours.
cargo test "${rivals[@]}" --test same_as_governor --test lengths
rival -- --quick
rival --bin overrides -- --sets 1 --rounds 1
rival --bin counting -- --sets 1 --rounds 1
rival --bin bandwidth -- --rounds 1 --chunks 1000
# `memory`, `pauses`, `reload` and `snapshot` run at full size in ci/full.sh.
