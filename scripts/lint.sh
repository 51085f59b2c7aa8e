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
        lint "cargo deny" cargo deny --locked check
    else
        say "lint: cargo-deny is not installed; xtask check reads licences and sources, advisories are passed over"
    fi
}

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
require_lint_tools

# Before clippy: what is embedded decides what has to be compiled.
scripts/web.sh build || say "lint: the page is not built"
lint "rustfmt" cargo fmt --all --check
if [ "${1:-}" != --without-compiler ]; then
    lint "clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
    lint_part "the half that reads" scripts/check-reading.sh
    lint "rustdoc" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
fi
lint "xtask check" cargo run --locked --quiet -p xtask -- check
check_dependencies
lint_part "page" scripts/web.sh
lint_part "Python package" scripts/python.sh
mapfile -t c_files < <(find crates -path '*/src/bpf/*' \( -name '*.c' -o -name '*.h' \))
if [ ${#c_files[@]} -gt 0 ]; then
    lint_if_installed clang-format --dry-run -Werror "${c_files[@]}"
fi
lint_if_installed shellcheck --external-sources --source-path=SCRIPTDIR --severity=warning scripts/*.sh scripts/dist/*.sh .ci/run scripts/vm-test

if [ ${#failed[@]} -gt 0 ]; then
    say "lints failed: ${failed[*]}"
    exit 1
fi
say "lints: all good"
