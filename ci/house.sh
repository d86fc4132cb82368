#!/usr/bin/env bash
# House rules: atomics from one place, files under 500 lines, names of at most eight words, imports that go down, few crates by default.
. "$(dirname "$0")/common.sh"

# (A pipeline behind `!` never ends a script: these are asked outright.)
if grep -rn 'sync::atomic' src crates --include='*.rs' | grep -v -e '^src/util/sync.rs' -e '^src/models/'; then
    exit 1
fi
if git ls-files '*.rs' | xargs wc -l | awk '$2 != "total" && $1 > 500' | grep .; then
    exit 1
fi
if git grep -nE 'fn ([a-z0-9]+_){8}' -- '*.rs'; then
    echo "names of tests and functions have at most eight words"
    exit 1
fi
ci/imports.py
# Shared limits are an optional room: of the others only those that choose between a part of it and its stand-in name the feature.
outside=$(git grep -l 'feature = "valkey"' -- src ':!src/shared' | wc -l)
if [ "$outside" -gt 10 ]; then
    git grep -l 'feature = "valkey"' -- src ':!src/shared'
    echo "at most ten files outside src/shared name the feature valkey, and $outside do"
    exit 1
fi
echo "$outside of at most 10 files outside src/shared name the feature valkey"
# The crates that a program gets with the default features, on Linux; build tools of theirs count, too.
crates=$(cargo tree -p tollgate -e normal --prefix none --no-dedupe --locked | grep -v '^tollgate ' | sort -u | wc -l)
if [ "$crates" -gt 25 ]; then
    echo "at most 25 crates by default, and there are $crates"
    exit 1
fi
echo "$crates of at most 25 crates by default"
