#!/usr/bin/env bash
# The library's public items are those of ci/api.txt: ci/api.sh [--update]
# Without an argument it prints the difference and fails if there is one; with --update it writes the file.
. "$(dirname "$0")/common.sh"

takes_update "$@"
# rustdoc's JSON is unstable. The switch is set for rustdoc alone: in cargo's environment it would build the dependencies again.
# `docsrs` is what docs.rs sets: the documentation's marks of features must compile.
mkdir -p target/api
printf '#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc "$@"\n' >target/api/rustdoc
chmod +x target/api/rustdoc
RUSTDOC=$PWD/target/api/rustdoc cargo rustdoc -p tollgate --lib --all-features --quiet -- \
    --cfg docsrs -Z unstable-options --output-format json
ci/api.py "${CARGO_TARGET_DIR:-target}/doc/tollgate.json" >target/api/api.txt
if [ "${1:-}" = --update ]; then
    cp target/api/api.txt ci/api.txt
elif ! diff -U 0 ci/api.txt target/api/api.txt; then
    echo "the public API is not that of ci/api.txt, by $(rustdoc --version); if this is meant, run ci/api.sh --update and commit the file"
    exit 1
fi
echo "$(wc -l <ci/api.txt) public items"
