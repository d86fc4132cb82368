#!/usr/bin/env bash
# Runs the tests that put threads on the table under a sanitizer: tests/sanitize.sh asan|tsan
#
# Fails on any report, on a planted fault that is not reported (tests/planted.rs), and where the tools are
# missing: it never says that a run was clean which did not take place. Nothing is suppressed.
#
# asan needs rustup's Rust alone. tsan needs a standard library that is instrumented, too, or else every
# lock and thread of std is a false report, or hides a true one. It is built from source, which rustup's
# component rust-src has, or Debian's packages rustc-web, cargo-web and rust-web-src (bookworm-security,
# Rust 1.96) with the sanitizer's runtime of rustup's toolchain. Both LLVMs have to be of one major
# version. crossbeam-epoch has to be 0.9.21 at least: before, it used fences, which this sanitizer does not
# understand.
set -euo pipefail
cd "$(dirname "$0")/.."

missing() {
    echo "tests/sanitize.sh: CANNOT RUN, nothing was checked: $*" >&2
    exit 3
}

kind=${1:-}
host=$(rustc -vV | sed -n 's/^host: //p')
sysroot=$(rustc --print sysroot)
libraries=$sysroot/lib/rustlib/$host/lib
cargo=(cargo)
build=(--manifest-path tests/sanitized/Cargo.toml --target "$host")
tests=(--test limiter --test reload --test stress --test table --test witness)

llvm_major() { "$1" -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p'; }

# A compiler with the source of its own standard library.
with_std_source() {
    if [ -e "$sysroot/lib/rustlib/src/rust/library/std/Cargo.toml" ]; then
        cargo=(env "RUSTC=$(rustup which rustc)" "$(rustup which cargo)")
        return
    fi
    local debian
    debian=$(/usr/bin/rustc --print sysroot 2>/dev/null) || debian=
    [ -n "$debian" ] && [ -x /usr/bin/cargo ] &&
        [ -e "$debian/lib/rustlib/src/rust/library/std/Cargo.toml" ] ||
        missing "no source of std: rustup component add rust-src," \
            "or apt-get install rustc-web cargo-web rust-web-src"
    [ "$(llvm_major rustc)" = "$(llvm_major /usr/bin/rustc)" ] ||
        missing "the runtime is of LLVM $(llvm_major rustc), /usr/bin/rustc of $(llvm_major /usr/bin/rustc)"
    cargo=(env RUSTC=/usr/bin/rustc /usr/bin/cargo)
}

case $kind in
asan)
    ls "$libraries"/librustc-*_rt.asan.a >/dev/null 2>&1 || missing "no runtime in $libraries"
    flags="-Zsanitizer=address"
    report="ERROR: AddressSanitizer"
    # A test asks for more memory than there is, and is answered with an error, not with an abort.
    export ASAN_OPTIONS="detect_stack_use_after_return=1 allocator_may_return_null=1"
    ;;
tsan)
    runtime=$(ls "$libraries"/librustc-*_rt.tsan.a 2>/dev/null) || missing "no runtime in $libraries"
    with_std_source
    # The runtime is named here, before all else, for Debian's compiler comes without it.
    flags="-Zsanitizer=thread -Zexternal-clangrt -Zpre-link-arg=-Wl,--whole-archive"
    flags+=" -Zpre-link-arg=$runtime -Zpre-link-arg=-Wl,--no-whole-archive"
    for library in m pthread dl rt; do flags+=" -Clink-arg=-l$library"; done
    report="WARNING: ThreadSanitizer"
    build+=(-Zbuild-std)
    # By default it goes on after a report, and says so at the end of each process alone.
    export TSAN_OPTIONS="halt_on_error=1 history_size=4 allocator_may_return_null=1"
    epoch=$(sed -n '/^name = "crossbeam-epoch"/{n;s/.*"\(.*\)"/\1/p}' tests/sanitized/Cargo.lock)
    [ "$(printf '%s\n' 0.9.21 "$epoch" | sort -V | head -n 1)" = 0.9.21 ] ||
        missing "crossbeam-epoch $epoch has fences"
    ;;
*)
    echo "usage: tests/sanitize.sh asan|tsan" >&2
    exit 2
    ;;
esac

export RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags --cfg tollgate_planted"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/$kind}
# Reports tell lines; nothing else here reads debug information.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=line-tables-only

log=$CARGO_TARGET_DIR/sanitize.log
mkdir -p "$CARGO_TARGET_DIR"

# Runs tests; their words go to the log, too.
run() { "${cargo[@]}" test ${CARGO_JOBS:+"-j$CARGO_JOBS"} "${build[@]}" "$@" 2>&1 | tee "$log"; }

# Of the planted test `$1`, once more and by itself: a report ends the process.
planted() {
    if run --test planted "$1" >/dev/null; then
        echo "tests/sanitize.sh: FAILED, $1 passes: the sanitizer does not see it" >&2
        exit 1
    fi
    # It has to have failed for that reason, and no other.
    if ! grep -q "$report" "$log"; then
        cat "$log"
        echo "tests/sanitize.sh: FAILED, $1 failed without a report" >&2
        exit 1
    fi
    echo "$1: reported, as it must be: $(grep -m 1 -o "$report.*" "$log" | sed 's/ (pid.*//; s/ on address.*//')"
}

# These two count the process's page faults, to which the sanitizer's own memory adds.
pages=(--skip inserts_touch_no_fresh_page --skip sweeps_keep_reserved_memory)
run "${tests[@]}" --test planted -- --skip planted_ "${pages[@]}"
if grep -q "$report" "$log"; then
    echo "tests/sanitize.sh: FAILED, $(grep -c "$report" "$log") reports" >&2
    exit 1
fi
if grep -q '^test result: ok. 0 passed' "$log"; then
    echo "tests/sanitize.sh: FAILED, there was a file without a test" >&2
    exit 1
fi
passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{ sum += $1 } END { print sum + 0 }')

case $kind in
asan) planted planted_read_after_it_was_freed ;;
tsan)
    planted planted_write_after_it_was_published
    planted planted_read_after_it_was_freed
    ;;
esac
echo "$kind: $passed tests passed, no report, nothing suppressed; every planted fault was reported"
