#!/usr/bin/env bash
# README's main command: the report of the example log.
. "$(dirname "$0")/common.sh"

# Without the optimisations that take minutes to link.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
cargo run --release -- replay --limits examples/limits.yml \
    --against examples/candidate.yml --log examples/access.log --rule RequestsPerClient=client \
    --report "$(mktemp -d)/report.html"
