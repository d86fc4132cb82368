#!/usr/bin/env bash
# The documentation, with all features and with none.
. "$(dirname "$0")/common.sh"

RUSTDOCFLAGS="-D warnings" cargo doc -p tollgate --no-deps --all-features --quiet
RUSTDOCFLAGS="-D warnings" cargo doc -p tollgate --no-deps --no-default-features --quiet
