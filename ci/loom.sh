#!/usr/bin/env bash
# The loom models, and the reclaimer's on the real crossbeam-epoch: ci/loom.sh [FILTER | --without-long]
. "$(dirname "$0")/common.sh"

built_quickly
# The models that take longest, most of the time in all. The gate leaves them to ci/full.sh.
long=(return_vs_migration batch_vs_migration batch_vs_spend numbers_vs_migration snapshot_vs_migration
    room_vs_inserts renumber_vs_migration inserts_vs_migration spend_vs_two_migrations late_seed_vs_evict
    late_renumber_vs_sweep spend_vs_migration batch_reserve_vs_batch_cancel denied_batch_vs_reload
    release_vs_moving_reload cancel_vs_cancel cancel_vs_cancel_vs_cancel shrink_vs_returning_keys
    insert_vs_insert_same_low_half cap_vs_three_inserts)

# Each model's twins fail, with panics that say why: they are shown when something else does. `loom NAME
# FLAGS ARGUMENTS` runs what matches and leaves a log.
loom() {
    local log=target/loom/$1.log flags=$2 status=0
    shift 2
    RUSTFLAGS="--cfg tollgate_loom $flags" CARGO_TARGET_DIR=target/loom RUST_BACKTRACE=0 \
        cargo test -p tollgate --release --lib --features exact,snapshot "$@" --show-output >"$log" 2>&1 || status=$?
    if [ "$status" = 0 ]; then
        grep -E '^test ' "$log"
    else
        cat "$log"
    fi
    return "$status"
}
mkdir -p target/loom
skipped=()
if [ "${1:-}" = --without-long ]; then
    for model in "${long[@]}"; do skipped+=(--skip "::$model"); done
    echo "left to ci/full.sh: ${long[*]}"
elif [ "$#" -gt 0 ]; then
    loom one "" "$1" -- --test-threads=1
    exit
fi
RUSTFLAGS="--cfg tollgate_loom" CARGO_TARGET_DIR=target/loom \
    cargo test -p tollgate --release --lib --features exact,snapshot --no-run
# Two processes of one thread each: two threads of one process wait for each other's memory mappings.
loom store "" store:: -- --test-threads=1 "${skipped[@]}" >target/loom/store.out 2>&1 &
of_the_store=$!
status=0
loom models "" models:: -- --test-threads=1 --skip store:: "${skipped[@]}" || status=$?
wait "$of_the_store" || status=$?
cat target/loom/store.out
[ "$status" = 0 ]
# A build of its own, which ci/full.sh makes.
[ "${1:-}" = --without-long ] || loom reclaim "--cfg crossbeam_loom" reclaim_model --
