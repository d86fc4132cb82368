#!/usr/bin/env bash
# Counts the cache lines that a call of one known key writes, and the stores to them, without the thread's own stack:
# those that valgrind's lackey sees at least once for each of 20,000 calls. Takes the options of `instructions`.
#
# One line of each of Tollgate's rows is the calling thread's record of a reader, which no other thread writes.
set -euo pipefail
cd "$(dirname "$0")"

calls=20000

cargo build --release --quiet --bin instructions
target=${CARGO_TARGET_DIR:-target}
trace=$(mktemp)
trap 'rm "$trace"' EXIT

# Prints the lines and the stores of a call.
of_a_call() {
    # Valgrind puts the stack of the main thread below 0x1fff001000.
    valgrind --tool=lackey --trace-mem=yes --log-fd=9 "$target/release/instructions" --calls "$calls" "$@" \
        9>"$trace" >/dev/null
    # A line has 64 bytes: the last two hexadecimal digits, less two bits.
    awk -v calls="$calls" '
        $1 == "S" || $1 == "M" {
            split($2, at, ",")
            digits = length(at[1])
            if (at[1] ~ /^1ff[ef]/ && digits == 10) next
            quarter = int(index("0123456789abcdef", substr(at[1], digits - 1, 1)) / 4.01)
            stores[substr(at[1], 1, digits - 2) "/" quarter]++
        }
        END {
            for (line in stores) if (stores[line] >= calls) { lines++; all += stores[line] }
            printf "%d (%.1f)", lines, all / calls
        }' "$trace"
}

limiters=(${LIMITERS:-tollgate governor-default})
works=(${WORKS:-text u64 counting})
printf '| lines (stores) | outcome |'
printf ' %-16s |' "${limiters[@]}"
printf '\n|---|---|'
printf -- '---|%.0s' "${limiters[@]}"
printf '\n'
for work in "${works[@]}"; do
    for outcome in allowed denied check; do
        printf '| %-14s | %-7s |' "$work" "$outcome"
        for who in "${limiters[@]}"; do
            figure=-
            [ "$who/$outcome" = governor-default/check ] || figure=$(of_a_call "$who" "$outcome" "$work" "$@")
            printf ' %-16s |' "$figure"
        done
        printf '\n'
    done
done
