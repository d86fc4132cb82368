#!/usr/bin/env bash
# The table under the address sanitizer, or with tsan the thread sanitizer: ci/sanitize.sh [asan|tsan]
. "$(dirname "$0")/common.sh"

# What tsan builds its standard library of. Without it the check says that it cannot run, and fails.
[ "${1:-}" != tsan ] || rustup component add rust-src || true
tests/sanitize.sh "${1:-asan}"
