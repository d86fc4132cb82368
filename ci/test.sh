#!/usr/bin/env bash
# README's tests, the pages in headless Chromium, and the core alone.
. "$(dirname "$0")/common.sh"

TOLLGATE_STORES=$(ci/stores.sh)
export TOLLGATE_STORES
echo "Valkey and Redis: $TOLLGATE_STORES"
# Without flags, so that later checks find what was built here; clippy denies warnings.
cargo test --all-features
cargo test --all-features --test page -- --ignored
cargo test -p tollgate --no-default-features --lib --quiet
