#!/usr/bin/env bash
# The viewer's page (web/): built into web/dist, from where cargo embeds it; checked and tested.
#
#   scripts/web.sh build    web/dist, when a source is newer
#   scripts/web.sh check    types and formatting
#   scripts/web.sh test     its tests, without a browser and in one; prints "test result:" lines as cargo does
#   scripts/web.sh bench    how fast a large trace is drawn (arguments go on to web/e2e/bench-view.ts)
#
# Installs what is missing where it may: Node.js and npm, and for tests in a browser Chromium. The program
# builds without any of them, so on a machine where they cannot be had this says so and ends with 3.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

min_node=18.18
passed_over=3

node_is_new_enough() {
    command -v node >/dev/null && command -v npm >/dev/null &&
        version_at_least "$(node --version | tr -d v)" "$min_node"
}

browser_is_there() {
    [ -n "${SWTCH_CHROMIUM:-}" ] || command -v chromium chromium-browser google-chrome >/dev/null
}

need_node() {
    node_is_new_enough || install_quietly nodejs npm
    node_is_new_enough && return
    say "passed over: the page needs Node.js >= $min_node with npm (found: $(node --version 2>/dev/null || echo none))"
    return "$passed_over"
}

# Modules as the lock file says; again only when it is newer.
install_modules() {
    local installed=web/node_modules/.package-lock.json
    [ "$installed" -nt web/package-lock.json ] && [ "$installed" -nt web/package.json ] && return
    say "web: npm ci"
    # What another clone has fetched is in npm's cache.
    (cd web && npm ci --prefer-offline --no-audit --no-fund --loglevel=error >&2) && touch "$installed"
}

prepare() { need_node && install_modules; }

# A folder is newer when a file in it has come or gone.
is_built() {
    [ -e web/dist/index.html ] &&
        [ -z "$(find web/src web/public web/index.html web/*.json web/vite.config.ts \
            -newer web/dist/index.html -print -quit)" ]
}

build() {
    is_built && return
    prepare || return
    say "web: building the page"
    (cd web && npm run --silent build >&2)
}

check() {
    prepare && (cd web && npm run --silent check >&2)
}

# A line as cargo prints it: what test.sh sums.
result() { echo "test result: $1. $2 passed; $3 failed; $4 skipped; $5"; }

# A whole suite that cannot run here, and why: as a single test.
skip_suite() {
    echo "test $1 ... skipped: $2"
    result ok 0 0 1 "$1"
}

# run_suite NAME NPM_SCRIPT: a suite that does not come to a result has failed.
run_suite() {
    local answers status=0
    answers=$(mktemp) || return
    say "web: $1"
    (cd web && npm run --silent "$2" -- --reporter=default --reporter=json \
        --outputFile.json="$answers") || status=$?
    node web/e2e/support/sum-up.mjs "$answers" "$status" "$1" || status=1
    rm -f "$answers"
    return "$status"
}

# The program under test holds the page as it was when cargo built it.
build_program() {
    [ -n "${SWTCH_BUILT:-}" ] && return
    cargo build --workspace --bins --examples --locked
}

run_browser_suite() {
    local name="the page in a browser"
    browser_is_there || install_quietly chromium
    if ! browser_is_there; then
        skip_suite "$name" "there is no Chromium"
        return
    fi
    if ! build_program; then
        result FAILED 0 1 0 "$name (the program does not build)"
        return 1
    fi
    SWTCH_TARGET_DIR=$(target_dir) run_suite "$name" test:e2e
}

run_tests() {
    local status=0
    build || status=$?
    if [ "$status" -eq "$passed_over" ]; then
        skip_suite "the page" "there is no Node.js"
        return "$passed_over"
    elif [ "$status" -ne 0 ] || ! install_modules; then
        result FAILED 0 1 0 "the page (does not build)"
        return 1
    fi
    run_suite "the page without a browser" test || status=1
    run_browser_suite || status=1
    return "$status"
}

bench() {
    build && install_modules || return
    browser_is_there || install_quietly chromium || die "there is no Chromium"
    cargo build --release --locked -p swtch --bins --examples || return
    (cd web && SWTCH_TARGET_DIR=$(target_dir) SWTCH_PROFILE=release npm run --silent bench -- "$@")
}

command=${1:-build}
[ $# -gt 0 ] && shift
case $command in
build) build ;;
check) check ;;
test) run_tests ;;
bench) bench "$@" ;;
*) die "scripts/web.sh build, check, test or bench" ;;
esac
