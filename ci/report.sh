#!/usr/bin/env bash
# README's main command: the report of the example log.
. "$(dirname "$0")/common.sh"

cargo run -- replay --limits examples/limits.yml \
    --against examples/candidate.yml --log examples/access.log --rule RequestsPerClient=client \
    --report "$(mktemp -d)/report.html"
