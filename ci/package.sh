#!/usr/bin/env bash
# The packages as crates.io gets them: packs both, unpacks them, checks their manifests, and builds and tests them there.
# Fails if a file is not committed: ci/package.sh [TARGETS]
# TARGETS are options of cargo test, such as `--lib`; without any, all tests but those of the documentation.
. "$(dirname "$0")/common.sh"

targets=("$@")
[ "$#" -gt 0 ] || targets=(--lib --bins --tests)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
unpacked=target/unpacked
# Tests of files that the package leaves out.
left_out=()
leave_out() {
    echo "LEFT OUT: $1: $2"
    left_out+=(--skip "$1")
}

cargo package --workspace --no-verify --quiet
rm -rf "$unpacked"
mkdir -p "$unpacked"
for package in tollgate tollgate-cli; do
    tar -xzf "target/package/$package-$version.crate" -C "$unpacked"
done
ci/package.py "$unpacked"/tollgate*
# Until the library is on crates.io, the command takes the one beside it.
cat >"$unpacked/Cargo.toml" <<MANIFEST
[workspace]
members = ["tollgate-$version", "tollgate-cli-$version"]
resolver = "3"

[patch.crates-io]
tollgate = { path = "tollgate-$version" }

[profile.test]
opt-level = 1
MANIFEST
cp Cargo.lock "$unpacked"
leave_out governors_programs_are_compiled_with_the_rivals "reads benches/rivals, which is not packed"
leave_out both_readers_agree_on_all_seeds "reads fuzz/seeds, which is not packed"
leave_out framework_programs_are_those_of_the_package "reads examples/frameworks, which is not packed"
leave_out local_limits_of_nodes_admit_too_much "runs the command, which is a package of its own"
echo "LEFT OUT: tests/ of tollgate-cli: reads examples/ and docs/ of the project, is not packed"
echo "LEFT OUT: tests of the documentation: ci/test.sh runs the same text"

# Dependencies are those of ci/test.sh; the packages have names of their own there, because of their folders.
export CARGO_TARGET_DIR=$PWD/target
cd "$unpacked"
# Tests start these programs. `cargo test` with targets does not build them.
[ "$#" -gt 0 ] || cargo build --locked --all-features --examples
cargo test --locked --all-features "${targets[@]}" -- "${left_out[@]}"
