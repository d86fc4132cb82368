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

# Prints the instructions of one call.
of_a_call() {
    local in_few in_many
    in_few=$(count "$few" "$@")
    in_many=$(count "$many" "$@")
    if [ "$in_many" -le "$in_few" ]; then
        echo "nothing was counted inside of measured: $*" >&2
        exit 1
    fi
    awk "BEGIN { printf \"%.1f\", ($in_many - $in_few) / ($many - $few) }"
}

# All rows, or those of the limiters in LIMITERS and the works in WORKS. A layer's row has the instructions that it adds
# to a request.
limiters=(${LIMITERS:-tollgate governor-default governor-ahash})
works=(${WORKS:-text uuid u64 ipv4 ipv6 pair counting batch2 receipt batch4 overrides bucket layer layer-fields layer-x})

printf '| %-12s | %-7s |' work outcome
printf ' %-16s |' "${limiters[@]}"
printf '\n|---|---|'
printf -- '--:|%.0s' "${limiters[@]}"
printf '\n'
for work in "${works[@]}"; do
    for outcome in allowed denied; do
        printf '| %-12s | %-7s |' "$work" "$outcome"
        for who in "${limiters[@]}"; do
            case $work/$who in
            layer*/governor-ahash | bucket/governor-ahash) figure=- ;;
            layer*)
                bare=$(of_a_call floor "$outcome" "$work" "$@")
                behind=$(of_a_call "$who" "$outcome" "$work" "$@")
                figure=$(awk "BEGIN { printf \"%.1f\", $behind - $bare }")
                ;;
            *) figure=$(of_a_call "$who" "$outcome" "$work" "$@") ;;
            esac
            printf ' %16s |' "$figure"
        done
        printf '\n'
    done
done
