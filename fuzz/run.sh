#!/bin/sh
# Builds every fuzz target and runs each for a while: fuzz/run.sh SECONDS [TARGET ...]
#
# Any rustup toolchain works: it has the sanitizer's runtime, and cargo-fuzz is not needed. Inputs that
# fail go to fuzz/artifacts, inputs that reach new code to fuzz/corpus; fuzz/seeds is only read.
# To run an input again: fuzz/target/.../release/TARGET FILE.
set -eu

LEN_MAX=4096            # bytes of one input
SECONDS_PER_INPUT=5     # an input that takes longer is a failure
MEGABYTES=2048

cd "$(dirname "$0")"
[ $# -ge 1 ] || { echo "usage: fuzz/run.sh SECONDS [TARGET ...]" >&2; exit 2; }
seconds=$1
shift
case $seconds in '' | *[!0-9]* | 0) echo "fuzz/run.sh: $seconds is no number of seconds from 1" >&2; exit 2 ;; esac
[ $# -gt 0 ] || set -- limits_yaml duration ids ops trace access_log client_address http_fields snapshot store_text

# The sanitizer's flags are unstable; this makes a stable toolchain accept them.
export RUSTC_BOOTSTRAP=1
host=$(rustc -vV | sed -n 's/^host: //p')

# The flags of cargo-fuzz. FUZZ_UNITS is the number of codegen units, which ci/fuzz.sh raises for a short run. Naming the target keeps
# the sanitizer out of build scripts.
export RUSTFLAGS="-Zsanitizer=address -Cpasses=sancov-module -Ccodegen-units=${FUZZ_UNITS:-1} \
-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
target_dir=${CARGO_TARGET_DIR:-target}
cargo build --quiet --release --target "$host" --target-dir "$target_dir"

failed=0
for target in "$@"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    log="artifacts/$target.log"
    # The dictionary of the format, if there is one: a fuzzer finds no date by itself.
    words=
    [ ! -f "words/$target" ] || words="-dict=words/$target"
    if "$target_dir/$host/release/$target" "corpus/$target" "seeds/$target" $words \
        -max_total_time="$seconds" -max_len=$LEN_MAX -timeout=$SECONDS_PER_INPUT \
        -rss_limit_mb=$MEGABYTES -artifact_prefix="artifacts/$target/" -print_final_stats=1 \
        >"$log" 2>&1
    then
        sed -n "s/^Done \([0-9]*\) runs in \([0-9]*\) second.*/fuzz $target: \1 runs in \2 s/p" "$log"
    else
        failed=1
        tail -n 40 "$log"
        echo "fuzz $target: FAILED, see fuzz/$log and fuzz/artifacts/$target/"
    fi
done
exit $failed
