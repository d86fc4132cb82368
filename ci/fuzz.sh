#!/usr/bin/env bash
# Fuzzes each target for the given number of seconds, 5 by default: ci/fuzz.sh [SECONDS]
. "$(dirname "$0")/common.sh"

seconds=${1:-5}
# A build that runs faster pays for itself after some minutes.
[ "$seconds" -ge 60 ] || built_quickly
fuzz/run.sh "$seconds"
