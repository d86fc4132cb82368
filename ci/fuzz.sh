#!/usr/bin/env bash
# Fuzzes each target for the given number of seconds, 3 by default: ci/fuzz.sh [SECONDS]
. "$(dirname "$0")/common.sh"

seconds=${1:-3}
# A build that runs faster pays for itself after some minutes.
if [ "$seconds" -lt 60 ]; then
    built_quickly
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 FUZZ_UNITS=16
fi
fuzz/run.sh "$seconds"
