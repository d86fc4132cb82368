#!/usr/bin/env bash
# The lower bounds of the library's Cargo.toml hold: it compiles, with each feature's dependencies, with the oldest release that
# each direct dependency allows. In a copy without the tests' dependencies, whose bounds are no user's.
. "$(dirname "$0")/common.sh"

copy=target/minimal/copy
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z Cargo.toml Cargo.lock README.md docs src examples benches/spend.rs | xargs -0 cp --parents -t "$copy"
cd "$copy"
sed -i -e '/^members = /s/= .*/= ["."]/' -e '/^default-members = /d' Cargo.toml
# From a heading that ends in `dev-dependencies]` to the next that does not.
awk '/^\[/ { of_tests = /dev-dependencies\]$/ } !of_tests' Cargo.toml >without
mv without Cargo.toml
# The switch is unstable; it holds for the resolution alone. What the direct dependencies need is of the newest releases.
RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
export CARGO_TARGET_DIR=..
cargo tree --edges normal,build --all-features --depth 1 --prefix none | sed 's/ (.*//'
cargo check -p tollgate --lib --locked --all-features --quiet
echo "the library compiles with the oldest releases of its dependencies"
