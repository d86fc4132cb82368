#!/usr/bin/env bash
# Renews ci/advisories, the copy of RustSec's advisories for the crates of our lock files: ci/advisories.sh [DATABASE]
# DATABASE is a git repository, a folder or an address; without one, RustSec's own.
. "$(dirname "$0")/common.sh"

database=${1:-https://github.com/RustSec/advisory-db}
to=ci/advisories
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet "$database" "$work/db"
rm -rf "$to"
mkdir -p "$to/crates"
sort -u <(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.lock benches/rivals/Cargo.lock fuzz/Cargo.lock) >"$to/names"
while read -r name; do
    [ ! -d "$work/db/crates/$name" ] || cp -r "$work/db/crates/$name" "$to/crates"
done <"$to/names"
git -C "$work/db" log -1 --date=short --format=%cd >"$to/date"
cat >"$to/README.md" <<README
Advisories of [RustSec](https://github.com/RustSec/advisory-db), commit $(git -C "$work/db" rev-parse --short=12 HEAD): those for the crates in
\`names\`, which are in our lock files. The database is in the public domain (CC0 1.0); advisories that name another
\`license\` are from GitHub's, under CC BY 4.0. \`ci/advisories.sh\` writes this folder, \`ci/deny.sh\` reads it where there is no network.
README
echo "$(find "$to/crates" -name '*.md' | wc -l) advisories of $(cat "$to/date") for $(wc -l <"$to/names") crates"
