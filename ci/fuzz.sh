#!/usr/bin/env bash
# Fuzzes each target for the given number of seconds, 8 by default: ci/fuzz.sh [SECONDS]
. "$(dirname "$0")/common.sh"

fuzz/run.sh "${1:-8}"
