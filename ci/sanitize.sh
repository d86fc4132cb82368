#!/usr/bin/env bash
# The table under the address sanitizer, or with tsan the thread sanitizer: ci/sanitize.sh [asan|tsan]
. "$(dirname "$0")/common.sh"

tests/sanitize.sh "${1:-asan}"
