#!/usr/bin/env bash
# All checks: the gate, then the long ones; for a release, and before an issue is resolved. The long ones run in three lanes
# beside each other, and the benches alone at the end: on two processors two to three hours in all.
# Prints each check's own closing lines. A lane ends with its first check that fails. `ci/full.sh long` leaves out the gate;
# `ci/full.sh tests`, `models`, `instrumented` or `benches` runs that lane alone.
. "$(dirname "$0")/common.sh"
step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

# What is built in the folder of the gate.
tests() {
    step "the tests with each feature alone"
    ci/clippy.sh tests
    step "the core's unit tests without features"
    cargo test -p tollgate --no-default-features --lib --quiet
    step "the oldest Rust, with more sets of features"
    ci/msrv.sh
    step "what a file may say of shared limits in a program that has none"
    cargo test -p tollgate --no-default-features --features boulder,yaml --test limits_yaml --quiet sharing_without
    step "the tests at full size"
    TOLLGATE_FULL_SIZE=1 TOLLGATE_STORES=$(ci/stores.sh) cargo test --all-features --lib --tests
    step "the scripts of shared limits beside the rules, 100,000 batches on each server"
    TOLLGATE_STORES=$(ci/stores.sh) TOLLGATE_STORE_BATCHES=100000 cargo test --all-features --lib valkey -- --nocapture
    step "nodes with leases and lost messages, 1,000,000 units"
    TOLLGATE_LEASE_UNITS=1000000 cargo test --release --all-features --lib simulation -- --nocapture
    step "actix-web, poem and Rocket"
    ci/frameworks.sh
    step "other targets"
    ci/targets.sh
    step "licences and advisories of the dependencies"
    ci/deny.sh
    step "the oldest dependencies"
    ci/minimal.sh
    step "the packages"
    ci/package.sh
    step "both engines beside the oracle, 3,000,000 operations each"
    PARITY_OPS=3000000 cargo test --release --all-features --test parity
    step "nodes that share limits beside the oracle, 1,000,000 operations on each engine"
    PARITY_OPS=1000000 cargo test --release --all-features --test shared_parity
    step "batches with receipts beside the model, 10,000,000 on each engine"
    RECEIPT_BATCHES=10000000 cargo test --release --all-features --test receipts
    step "permits of eight threads, 10,000,000 turns each, on each engine"
    PERMIT_TURNS=10000000 cargo test --release --all-features --test limiter threads_never_hold -- --nocapture
    step "threads with all features, 10 minutes"
    ENDURANCE_S=600 cargo test --release --all-features --test endurance -- --nocapture
    step "a history of 100,000,000 calls, checked"
    WITNESS_CALLS=100000000 cargo test --release --all-features --test witness lock_free -- --nocapture
}

# The models, which have build folders of their own.
models() {
    step "all models"
    ci/loom.sh
    step "every ordering weakened"
    tests/weaken.sh
}

# What the compiler instruments, each in a build folder of its own.
instrumented() {
    step "fuzz, 5 minutes a target"
    ci/fuzz.sh 300
    step "miri"
    ci/miri.sh
    step "the address sanitizer"
    ci/sanitize.sh asan
    step "the thread sanitizer"
    ci/sanitize.sh tsan
}

# What measures, with nothing beside it.
benches() {
    step "benches at full size"
    local bin rivals=(cargo run --release --quiet --manifest-path benches/rivals/Cargo.toml)
    "${rivals[@]}" --
    for bin in memory pauses snapshot; do
        "${rivals[@]}" --bin "$bin"
    done
    "${rivals[@]}" --features boulder --bin reload -- --keys 1000000
}

case ${1:-} in
tests | models | instrumented | benches)
    "$1"
    step "done"
    exit
    ;;
long) ;;
"") .ci/run ;;
*)
    echo "ci/full.sh [long | tests | models | instrumented | benches]" >&2
    exit 2
    ;;
esac

# The first lane prints as it goes, the others when all have ended.
logs=$(mktemp -d)
tests &
lanes=("$!")
for lane in models instrumented; do
    "$lane" >"$logs/$lane" 2>&1 &
    lanes+=("$!")
done
status=0
wait "${lanes[0]}" || { status=1 && echo "FAILED: the check above"; }
wait "${lanes[1]}" || { status=1 && echo "FAILED: the last check of the models" >>"$logs/models"; }
wait "${lanes[2]}" || { status=1 && echo "FAILED: the last check of the sanitizers and fuzz" >>"$logs/instrumented"; }
cat "$logs"/*
[ "$status" = 0 ] || exit 1

benches
step "done"
