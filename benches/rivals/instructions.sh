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

# All rows, or those of the limiters in LIMITERS and the works in WORKS.
limiters=(${LIMITERS:-tollgate governor-default governor-ahash})
works=(${WORKS:-text uuid u64 ipv4 ipv6 pair batch})

printf '| %-6s | %-7s |' work outcome
printf ' %-16s |' "${limiters[@]}"
printf '\n|---|---|'
printf -- '---|%.0s' "${limiters[@]}"
printf '\n'
for work in "${works[@]}"; do
    for outcome in allowed denied; do
        printf '| %-6s | %-7s |' "$work" "$outcome"
        for who in "${limiters[@]}"; do
            in_few=$(count "$few" "$who" "$outcome" "$work" "$@")
            in_many=$(count "$many" "$who" "$outcome" "$work" "$@")
            if [ "$in_many" -le "$in_few" ]; then
                echo "nothing was counted inside of measured: $who $outcome $work" >&2
                exit 1
            fi
            printf ' %16.1f |' "$(awk "BEGIN { print ($in_many - $in_few) / ($many - $few) }")"
        done
        printf '\n'
    done
done
