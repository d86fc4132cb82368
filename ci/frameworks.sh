#!/usr/bin/env bash
# The programs of docs/frameworks.md: actix-web, poem and Rocket with limits. They are a package of their own.
. "$(dirname "$0")/common.sh"

cargo clippy --manifest-path examples/frameworks/Cargo.toml --all-targets --quiet -- -D warnings
cargo test --manifest-path examples/frameworks/Cargo.toml
