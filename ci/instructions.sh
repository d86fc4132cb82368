#!/usr/bin/env bash
# The instructions of each call are at most those of ci/instructions.txt: ci/instructions.sh [--update]
# Without an argument it prints each row outside its tolerance and fails if a call takes more; with --update it writes the file.
#
# callgrind counts to the unit, so with the compiler and the C library of the file a call may take no instruction more, and a
# layer, whose allocations vary, 2 %. With others each may take 10 % more: the output says which rule applied.
. "$(dirname "$0")/common.sh"

takes_update "$@"
export CARGO_TARGET_DIR=$PWD/target LIMITERS=tollgate
counts=$CARGO_TARGET_DIR/instructions
mkdir -p "$counts"
cargo build --release --quiet --manifest-path benches/rivals/Cargo.toml --bin instructions
# Two halves of about the same time, for two processors.
WORKS="layer layer-fields layer-x text uuid" benches/rivals/instructions.sh >"$counts/layers" &
layers=$!
WORKS="u64 ipv4 ipv6 pair counting batch2 receipt batch4 overrides bucket" benches/rivals/instructions.sh >"$counts/others"
wait "$layers"

tools="$(rustc --version), $(ldd --version | sed -n 1p)"
{
    echo "# Instructions of a call of one known key, by $tools: written by ci/instructions.sh --update"
    cat "$counts/layers" "$counts/others" | awk -F ' *[|] *' '$4 + 0 { print $2, $3, $4 }' | sort
} >"$counts/instructions.txt"
if [ "${1:-}" = --update ]; then
    cp "$counts/instructions.txt" ci/instructions.txt
fi
rise=0
grep -qF "by $tools:" ci/instructions.txt || rise=10
[ "$rise" = 0 ] || echo "ci/instructions.txt is of another compiler or C library: a call may take 10 % more"
awk -v rise="$rise" '
    /^#/ { next }
    FNR == NR { recorded[$1 " " $2] = $3; next }
    { counted[$1 " " $2] = $3 }
    END {
        for (call in recorded) {
            if (!(call in counted)) { printf "%s: not counted\n", call; failed = 1; continue }
            percent = call ~ /^layer/ && rise < 2 ? 2 : rise
            is_more = counted[call] > recorded[call] * (1 + percent / 100) + 0.5
            failed = failed || is_more
            if (is_more || counted[call] < recorded[call] * (1 - percent / 100) - 0.5)
                printf "%s: %s instructions, recorded %s\n", call, counted[call], recorded[call]
        }
        for (call in counted) if (!(call in recorded)) { printf "%s: not recorded\n", call; failed = 1 }
        exit failed
    }' ci/instructions.txt "$counts/instructions.txt" || {
    echo "a call takes more instructions than ci/instructions.txt says; if this is meant, run ci/instructions.sh --update and commit the file"
    exit 1
}
echo "$(grep -vc '^#' ci/instructions.txt) calls counted, none takes more instructions than allowed"
