#!/usr/bin/env bash
# Fuzzes every target for so many seconds each, 8 if not said: ci/fuzz.sh [SECONDS]
. "$(dirname "$0")/common.sh"

fuzz/run.sh "${1:-8}"
