#!/usr/bin/env bash
# Installs what the gate needs and does not find: rustfmt, clippy, curl, valgrind, Chromium with its driver.
. "$(dirname "$0")/common.sh"

for component in rustfmt clippy; do
    cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
done

packages=()
command -v curl >/dev/null || packages+=(curl)
command -v valgrind >/dev/null || packages+=(valgrind)
command -v chromium >/dev/null || command -v google-chrome >/dev/null || packages+=(chromium)
command -v chromedriver >/dev/null || packages+=(chromium-driver)
if [ "${#packages[@]}" -gt 0 ]; then
    echo "installs ${packages[*]}"
    as_root=(env DEBIAN_FRONTEND=noninteractive)
    [ "$(id -u)" = 0 ] || as_root=(sudo "${as_root[@]}")
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi
