#!/usr/bin/env bash
# Weakens each ordering of the source, one at a time, and asks the loom models: tests/weaken.sh [PATTERN]
#
# Every `Ordering::` stronger than Relaxed, outside of models and tests, becomes Relaxed, and an AcqRel
# each of its halves, too. A mutant is caught when some model fails while it explores. Of each mutant the
# models that reach the place are run, the short ones first, until one fails; with PATTERN, only mutants
# whose line in the list matches it. Which models reach a place is measured for 20 s a model: one that goes
# on counts as long, with the places that it has reached by then.
#
# Fails on a mutant that no model catches and that tests/weaken.txt does not list with the reason, and on
# one that is listed and caught; a listed one is shown to the models of up to 10 s alone. A mutant that no
# model catches takes as long as all of them: not for the gate.
set -euo pipefail
cd "$(dirname "$0")/.."

pattern=${1:-}
# A model that takes so many seconds more than thrice its time unchanged is given up; a long one after an hour.
patience=${WEAKEN_PATIENCE:-60}
root=$PWD
target=${CARGO_TARGET_DIR:-target/weaken}
mkdir -p "$target"
target=$(cd "$target" && pwd)
tree=$target/tree
mutants=$target/mutants.tsv
baseline=$target/baseline.tsv
results=$target/results.tsv
log=$target/model.log

# A copy of the source, as it is now, in which an ordering is weakened by a variable.
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 cp --parents -t "$tree"
python3 tests/weaken/places.py "$tree" "$mutants"

# Builds the unit tests with the flags `$1`; prints where they are.
build() {
    (cd "$tree" && CARGO_TARGET_DIR=$target RUSTFLAGS=$1 \
        cargo test -p tollgate --release --lib --features exact,snapshot --no-run ${CARGO_JOBS:+"-j$CARGO_JOBS"} 2>&1) |
        tee "$log" | sed -n 's/^ *Executable unittests src\/lib.rs (\(.*\))$/\1/p'
}
table=$(build "--cfg tollgate_loom")
[ -x "$table" ] || { cat "$log"; exit 1; }
reclaim=$(build "--cfg tollgate_loom --cfg crossbeam_loom")
[ -x "$reclaim" ] || { cat "$log"; exit 1; }

# Runs the model `$1` of the tests `$2` with the mutant `$3`, for `$4` seconds at most. What it says of
# what it did not reach, after it has explored all, is not what it excludes.
model() {
    local status=0
    WEAKEN=$3 RUST_BACKTRACE=0 timeout "$4" "$2" --exact "$1" --nocapture >"$log" 2>&1 </dev/null || status=$?
    case $status in
    0) echo passed ;;
    124) echo "no end in $4 s" ;;
    *)
        if grep -q -e ' interleavings of ' -e 'was read 0 times' -e 'freed 0 times' "$log"; then
            echo passed
        else
            echo caught
        fi
        ;;
    esac
}

# The models, unchanged and without their twins: seconds, tests, name, places that it reaches. A long one
# stands there with `long` in place of the seconds, at the end. Kept for as long as the source is the same.
long=99999
list() { "$2" --list 2>/dev/null | sed -n "s/^\(.*$1.*\): test$/\1/p"; }
measure() {
    local tests name started outcome seconds places
    {
        list '\bmodels::' "$table" | sed "s|^|$table\t|"
        list 'reclaim_model::read_vs_retire' "$reclaim" | sed "s|^|$reclaim\t|"
    } | while IFS=$'\t' read -r tests name; do
        started=$EPOCHREALTIME
        outcome=$(model "$name" "$tests" 199:Relaxed 20)
        case $outcome in
        passed) seconds=$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }') ;;
        "no end"*) seconds=$long ;;
        *)
            cat "$log" >&2
            echo "$name: $outcome, with nothing weakened" >&2
            exit 1
            ;;
        esac
        places=$(sed -n 's/^place \([0-9]*\) reached$/\1/p' "$log" | sort -nu | paste -sd, )
        printf '%s\t%s\t%s\t,%s,\n' "$seconds" "$tests" "$name" "$places"
    done | sort -n >"$baseline"
}
sources=$(cd "$tree" && find src -type f | sort | xargs sha256sum | sha256sum)
if [ ! -e "$baseline" ] || [ "$sources" != "$(cat "$target/baseline.of" 2>/dev/null)" ]; then
    rm -f "$target/baseline.of"
    measure
    echo "$sources" >"$target/baseline.of"
fi
awk -F '\t' -v long="$long" '
    $1 == long { printf "   long    %s\n", $3; next }
    { printf "%7s s  %s\n", $1, $3; sum += $1 }
    END { printf "%7s s\n", sum }' "$baseline"

# Why a model failed, in a line.
why() { { grep -m 1 -A 1 "panicked at" "$log" || true; } | tail -n 1 | cut -c 1-80; }

caught=0 known=0 faults=0
: >"$results"
while IFS=$'\t' read -r place file line function which weaker; do
    name="$file $function $which $weaker"
    [[ "$name" =~ $pattern ]] || continue
    listed=$(sed -n "s|^$name: ||p" "$root/tests/weaken.txt")
    # The short models, and the long ones for a minute; then those of the long ones that did not end, for longer.
    for patience_of_long in 60 600 3600; do
        by= gave_up=
        while IFS=$'\t' read -r seconds tests model _; do
            [ -z "$listed" ] || [ "${seconds%.*}" -lt 10 ] || break
            if [ "$seconds" = "$long" ]; then
                limit=$patience_of_long
            elif [ "$patience_of_long" = 60 ]; then
                limit=$(awk -v s="$seconds" -v p="$patience" 'BEGIN { printf "%d", 3 * s + p }')
            else
                continue
            fi
            outcome=$(model "$model" "$tests" "$place:$weaker" "$limit")
            case $outcome in
            caught) by=$model && break ;;
            passed) ;;
            *) gave_up+=" $model ($outcome)" ;;
            esac
        done < <(grep -F ",$place," "$baseline")
        [ -z "$by" ] && [ -n "$gave_up" ] || break
    done
    if [ -n "$by" ]; then
        said="caught by $by: $(why)"
        caught=$((caught + 1))
        [ -z "$listed" ] || { said+=" (LISTED as not caught)"; faults=$((faults + 1)); }
    elif [ -n "$listed" ]; then
        said="not caught, known: $listed"
        known=$((known + 1))
    else
        said="NOT CAUGHT"
        faults=$((faults + 1))
    fi
    [ -z "$gave_up" ] || said+="; given up:$gave_up"
    printf '%s:%s\t%s\t%s\t%s\t%s\n' "$file" "$line" "$function" "$which" "$weaker" "$said" |
        tee -a "$results"
done <"$mutants"

echo "$caught caught, $known not caught and known, $faults faults; the table is in $results"
[ "$faults" = 0 ]
