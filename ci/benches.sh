#!/usr/bin/env bash
# Benches check their answers, and not their times.
. "$(dirname "$0")/common.sh"

# Without the optimisations that take minutes to link.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
rival() { cargo run --release --quiet --manifest-path benches/rivals/Cargo.toml "$@"; }
# In the profile of the tests, whose dependencies are built already.
cargo test --all-features --bench spend
# docs/migration-from-governor.md: its claim that both limiters give the same answers. Clippy compiles its programs, and
# `lengths` compares six programs of governor with ours.
cargo test --release --quiet --manifest-path benches/rivals/Cargo.toml --test same_as_governor --test lengths
rival -- --quick
rival --bin memory -- --keys 300000
rival --bin pauses -- --keys 100000 --runs 1
rival --bin overrides -- --sets 1 --rounds 1
rival --bin counting -- --sets 1 --rounds 1
rival --bin bandwidth -- --rounds 1 --chunks 1000
rival --features boulder --bin reload -- --keys 100000 --reloads 3
rival --bin snapshot -- --keys 100000 --files 3
