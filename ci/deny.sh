#!/usr/bin/env bash
# Licences, sources and duplicates of the dependencies by deny.toml, and their advisories; installs cargo-deny if it is missing.
# Advisories are RustSec's of today, or where they cannot be fetched those of ci/advisories. What cannot be checked is said and
# fails, unless DENY_MISSING_OK=1.
. "$(dirname "$0")/common.sh"

missing() {
    printf '\nNOT CHECKED: %s\n\n' "$*" >&2
    [ "${DENY_MISSING_OK:-}" = 1 ]
}
export PATH=$PATH:$PWD/target/tools/bin
if ! command -v cargo-deny >/dev/null && ! cargo install cargo-deny --version 0.20.2 --locked --root target/tools; then
    missing "licences, sources, duplicates and advisories: cargo-deny cannot be installed"
    exit
fi
manifests=(Cargo.toml benches/rivals/Cargo.toml fuzz/Cargo.toml)
deny() {
    local manifest=$1
    shift
    echo "$manifest: $*"
    cargo-deny --config "$config" --manifest-path "$manifest" --all-features "${network[@]}" check "$@"
}

config=$PWD/deny.toml
network=(--locked)
# The other two workspaces are for us alone: their licences and duplicates bind no user.
deny Cargo.toml --hide-inclusion-graph licenses bans sources
for manifest in "${manifests[@]:1}"; do
    deny "$manifest" --hide-inclusion-graph sources
done

# A database that cannot be fetched is no answer; one that has an advisory is.
work=$PWD/target/deny
mkdir -p "$work"
config=$work/deny.toml
sed "/^\[advisories\]/a db-path = \"$work/db\"" deny.toml >"$config"
rm -rf "$work/db"
if ! cargo-deny --config "$config" fetch db 2>"$work/fetch.log"; then
    unknown=$(sed -n 's/^name = "\(.*\)"$/\1/p' "${manifests[@]/%toml/lock}" | sort -u | comm -23 - ci/advisories/names)
    if [ -n "$unknown" ]; then
        tail -n 1 "$work/fetch.log" >&2
        missing "advisories: RustSec's cannot be fetched, and those in ci/advisories are not for" $unknown "(ci/advisories.sh)"
        exit
    fi
    printf '\nADVISORIES OF %s: RustSec'\''s cannot be fetched\n\n' "$(cat ci/advisories/date)"
    rm -rf "$work/db" "$work/copy"
    cp -r ci/advisories "$work/copy"
    git -C "$work/copy" init --quiet --initial-branch main
    git -C "$work/copy" add .
    git -C "$work/copy" -c user.name=ci -c user.email=ci@localhost commit --quiet --message "a copy" --date "$(cat ci/advisories/date)"
    # cargo-deny clones the copy in the place of RustSec's.
    GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$work/copy.insteadOf" \
        GIT_CONFIG_VALUE_0=https://github.com/RustSec/advisory-db cargo-deny --config "$config" fetch db
fi
# The database is not fetched again.
network=(--frozen)
for manifest in "${manifests[@]}"; do
    deny "$manifest" --hide-inclusion-graph advisories
done
