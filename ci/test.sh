#!/usr/bin/env bash
# README's tests, and the pages in headless Chromium.
. "$(dirname "$0")/common.sh"

TOLLGATE_STORES=$(ci/stores.sh)
export TOLLGATE_STORES
echo "Valkey and Redis: $TOLLGATE_STORES"
# Without flags, so that later checks find what was built here; clippy denies warnings.
cargo test --all-features
cargo test --all-features --test page -- --ignored
