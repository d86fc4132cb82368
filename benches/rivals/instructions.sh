#!/usr/bin/env bash
# Counts instructions per call of one known key with callgrind: for each limiter and each kind of call, the
# difference of two runs over the difference of their calls. Takes the options of `instructions`, such as
# `--exact`.
set -euo pipefail
cd "$(dirname "$0")"

few=1000
many=11000

cargo build --release --quiet --bin instructions
target=${CARGO_TARGET_DIR:-target}
counts=$(mktemp -d)
trap 'rm -r "$counts"' EXIT

# Prints the instructions inside `measured`: the total that callgrind collected.
count() {
    local calls=$1
    shift
    valgrind --tool=callgrind --toggle-collect='*instructions::measured*' \
        --callgrind-out-file="$counts/out" "$target/release/instructions" --calls "$calls" "$@" \
        2>"$counts/log" || { cat "$counts/log" >&2; exit 1; }
    awk '/^(summary|totals):/ { total = $2 } END { print total + 0 }' "$counts/out"
}

printf '| %-16s | %-14s | %s |\n|---|---|---|\n' limiter work "instructions a call"
for who in tollgate governor-default governor-ahash; do
    for work in allowed-string denied-string allowed-u64 denied-u64; do
        in_few=$(count "$few" "$who" "$work" "$@")
        in_many=$(count "$many" "$who" "$work" "$@")
        if [ "$in_many" -le "$in_few" ]; then
            echo "nothing was counted inside of measured: $who $work" >&2
            exit 1
        fi
        printf '| %-16s | %-14s | %19.1f |\n' "$who" "$work" \
            "$(awk "BEGIN { print ($in_many - $in_few) / ($many - $few) }")"
    done
done
