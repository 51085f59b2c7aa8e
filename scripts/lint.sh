#!/usr/bin/env bash
# Every lint, none of them a test: all are run, then those that failed are named.
#
#   scripts/lint.sh                     all
#   scripts/lint.sh --without-compiler  without clippy, rustdoc and the half that reads, which `xtask test --lints` runs while it builds the tests
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

failed=()

# lint NAME COMMAND…
lint() {
    local name=$1
    shift
    say "lint: $name"
    "$@" || failed+=("$name")
}

# Passed over and said so when the program is not there.
lint_if_installed() {
    if command -v "$1" >/dev/null; then
        lint "$1" "$@"
    else
        say "lint: $1 is not installed, passed over"
    fi
}

# Distributions package clippy and rustfmt apart from cargo; rustup has them as components.
require_lint_tools() {
    cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1 && return
    say "installing: clippy and rustfmt"
    rustup component add clippy rustfmt >&2 ||
        die "no clippy or rustfmt: install them by rustup, or the packages rust-clippy and rustfmt"
}

# lint_part NAME SCRIPT: a check that needs what nothing else does (Node.js, Python, rustup): a machine without it is told.
lint_part() {
    local status=0
    say "lint: $1"
    "$2" check || status=$?
    case $status in
    0) ;;
    3) say "lint: $1 passed over" ;;
    *) failed+=("$1") ;;
    esac
}

check_dependencies() {
    if command -v cargo-deny >/dev/null; then
        local manifest
        for manifest in Cargo.toml fiber/Cargo.toml; do
            lint "cargo deny $manifest" cargo deny --locked --manifest-path "$manifest" check --config deny.toml
        done
    else
        say "lint: cargo-deny is not installed: licences, sources and advisories of dependencies are passed over"
    fi
}

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
require_lint_tools

# Before clippy: what is embedded decides what has to be compiled.
scripts/web.sh build || say "lint: the page is not built"
lint "rustfmt" cargo fmt --all --check
if [ "${1:-}" != --without-compiler ]; then
    for folder in . fiber; do
        lint "clippy $folder" cargo clippy --manifest-path "$folder/Cargo.toml" --workspace --all-targets --locked -- -D warnings
    done
    lint_part "the half that reads" scripts/check-reading.sh
    for folder in . fiber; do
        lint "rustdoc $folder" env RUSTDOCFLAGS="-D warnings" cargo doc --manifest-path "$folder/Cargo.toml" --workspace --no-deps --locked
    done
fi
lint "xtask check" cargo run --locked --quiet -p xtask -- check
check_dependencies
lint_part "page" scripts/web.sh
lint_part "Python package" scripts/python.sh
mapfile -t c_files < <(find crates include \( -path '*/src/bpf/*' -o -path 'include/*' \) \( -name '*.c' -o -name '*.h' \))
if [ ${#c_files[@]} -gt 0 ]; then
    lint_if_installed clang-format --dry-run -Werror "${c_files[@]}"
fi
lint_if_installed shellcheck --external-sources --source-path=SCRIPTDIR --severity=warning scripts/*.sh scripts/dist/*.sh scripts/dist/debian/p* fiber/*.sh .ci/run scripts/vm-test

if [ ${#failed[@]} -gt 0 ]; then
    say "lints failed: ${failed[*]}"
    exit 1
fi
say "lints: all good"
