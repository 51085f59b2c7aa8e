#!/usr/bin/env bash
# Every test. Those that need root are marked `#[ignore = "needs root"]` and run when this may:
# as root, or with a sudo that does not ask. Otherwise it names what it passed over.
#
# Then those of the viewer's page, where there is Node.js and, for those in a browser, Chromium; those of the
# Python package, where there is Python with pip; and with SWTCH_VM=1 recordings on other kernels, where there is an emulator and their packages can be had.
#
# The last line is "N passed, N failed", and ", N skipped" when tests were passed over. Before it stand
# the names of those, with the reason.
#
# A test that finds out while it runs that it cannot run here prints a line of the form
# "test NAME ... skipped: WHY": Rust tests by the crate swtch-test, the page's by scripts/web.sh, those
# of the Python package by python/tests/conftest.py.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

log=$(mktemp) || die "no room for a temporary file"
trap 'rm -f "$log"' EXIT

# Capabilities of root that the privileged tests use: CAP_SYS_ADMIN, CAP_SYS_NICE. A container's
# root often has not got them. Bit numbers: include/uapi/linux/capability.h.
root_is_whole() {
    local effective
    effective=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
    (((0x$effective >> 21) & (0x$effective >> 23) & 1))
}

# Why the privileged tests cannot run here; empty when they can.
why_not_privileged() {
    if [ ! -r /sys/kernel/btf/vmlinux ]; then
        echo "the kernel has no BTF (/sys/kernel/btf/vmlinux)"
    elif [ "$(id -u)" -eq 0 ]; then
        root_is_whole || echo "root lacks CAP_SYS_ADMIN or CAP_SYS_NICE here, as in a container"
    elif ! command -v sudo >/dev/null; then
        echo "not root, and there is no sudo: run \`make test\` as root"
    elif ! sudo -n true 2>/dev/null; then
        echo "not root, and sudo would ask: run \`sudo -v && make test\`"
    fi
}

# Runs cargo test and appends what it said to the log.
run_tests() {
    cargo test --workspace --locked --no-fail-fast "$@" 2>&1 | tee -a "$log"
    return "${PIPESTATUS[0]}"
}

# Runs the page's tests against the program that cargo test has just built, and appends what they said.
run_page_tests() {
    SWTCH_BUILT=1 scripts/web.sh test 2>&1 | tee -a "$log"
    local status="${PIPESTATUS[0]}"
    # 3: without Node.js they are passed over, and counted as such.
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ]
}

# Runs the tests of the Python package against the same program, and appends what they said.
run_python_tests() {
    SWTCH_BUILT=1 scripts/python.sh test 2>&1 | tee -a "$log"
    local status="${PIPESTATUS[0]}"
    # 3: without Python they are passed over, and counted as such.
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ]
}

# Kernels on which a recording is tried, emulated: the oldest that Debian still ships, the last that does not say
# who asked for a reschedule (its verifier is another than that of 6.1), the first that does, and the newest.
vm_kernels=(6.1 6.16 6.17 7.3)

# Where asked for by SWTCH_VM=1 (as .ci/run does), records on other kernels, with the program that cargo
# test has just built, and appends what came of it.
run_vm_tests() {
    [ "${SWTCH_VM:-}" = 1 ] || return 0
    scripts/vm-test --tests "${vm_kernels[@]}" 2>&1 | tee -a "$log"
    local status="${PIPESTATUS[0]}"
    # 3: without an emulator or packages they are passed over, and counted as such.
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ]
}

# Sum of a column ("passed", "failed", "ignored", "skipped") over all "test result:" lines.
sum_of() {
    sed 's/\x1b\[[0-9;]*m//g' "$log" | awk -v word="$1" '
        /^test result:/ {
            for (i = 2; i <= NF; i++) if ($i == word ";") sum += $(i - 1)
        }
        END { print sum + 0 }'
}

# What could not run here, "NAME: WHY" a line.
list_not_run_here() {
    sed -n 's/^test \(.*\) \.\.\. skipped/\1/p' "$log" | sort
}

# A test binary that does not build, or dies, prints no result line: at least one failed then.
count_failed() {
    local failed
    failed=$(sum_of failed)
    [ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
    echo "$failed"
}

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"

# Before cargo: the page is embedded when the program is built. Whether it could be is told by its tests.
scripts/web.sh build

reason=$(why_not_privileged)
status=0
skipped=0
if [ -n "$reason" ]; then
    run_tests || status=$?
    skipped=$(sum_of ignored)
elif [ "$(id -u)" -eq 0 ]; then
    run_tests -- --include-ignored || status=$?
else
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    run_tests || status=$?
    export "CARGO_TARGET_${host}_RUNNER=sudo -n -E"
    run_tests --lib --bins --tests -- --ignored || status=$?
fi

run_page_tests || status=1
run_python_tests || status=1
run_vm_tests || status=1

not_run_here=$(list_not_run_here | grep -c .)
# The standard harness counts a test that returned early as passed. Other harnesses count it as skipped.
passed=$(($(sum_of passed) - (not_run_here - $(sum_of skipped))))
failed=$(count_failed)
if [ "$passed" -eq 0 ] && [ "$failed" -eq 0 ]; then
    say "no test ran"
    status=1
fi
summary="$passed passed, $failed failed"
if [ "$not_run_here" -gt 0 ]; then
    echo
    echo "passed over, $not_run_here tests that could not run here:"
    list_not_run_here | sed 's/^/  /'
fi
if [ -n "$reason" ] && [ "$skipped" -gt 0 ]; then
    echo
    echo "passed over, $skipped tests that need root ($reason):"
    sed -n 's/^test \(.*\) \.\.\. ignored.*/  \1/p' "$log" | sort
fi
skipped=$((skipped + not_run_here))
[ "$skipped" -gt 0 ] && summary+=", $skipped skipped"
echo "$summary"
exit "$status"
