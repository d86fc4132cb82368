# What all checks share; each sources this. They run from the project's root, whatever the caller's folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TERM_COLOR=never CARGO_TERM_PROGRESS_WHEN=never
# Several kinds of build share the disk; debug information is most of it and is not read here.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_RELEASE_DEBUG=0
# A gate builds once: what the compiler would keep for the next build of the same folder costs time.
export CARGO_INCREMENTAL=0

# Release builds without the optimisations that take minutes, for checks that read no clock.
built_quickly() {
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
}

# Ends a script that takes `--update` or nothing, if it got another argument.
takes_update() {
    case ${1:-} in
    "" | --update) ;;
    *)
        echo "$0 takes --update or nothing, and got $1" >&2
        exit 2
        ;;
    esac
}
