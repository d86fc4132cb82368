#!/usr/bin/env bash
# Benches check their answers, and not their times.
. "$(dirname "$0")/common.sh"

built_quickly
# In the folder of the report's build, and with one set of features, so that little is built twice.
export CARGO_TARGET_DIR=$PWD/target
rivals=(--release --quiet --manifest-path benches/rivals/Cargo.toml --features boulder)
rival() { cargo run "${rivals[@]}" "$@"; }
# In the profile of the tests, whose dependencies are built already.
cargo test --all-features --bench spend
# docs/migration-from-governor.md: its claim that both limiters give the same answers. Clippy compiles its programs, and
# `lengths` compares six programs of governor with ours.
cargo test "${rivals[@]}" --test same_as_governor --test lengths
rival -- --quick
rival --bin memory -- --keys 300000
rival --bin pauses -- --keys 100000 --runs 1
rival --bin overrides -- --sets 1 --rounds 1
rival --bin counting -- --sets 1 --rounds 1
rival --bin bandwidth -- --rounds 1 --chunks 1000
rival --bin reload -- --keys 100000 --reloads 3
rival --bin snapshot -- --keys 100000 --files 3
