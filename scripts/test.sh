#!/usr/bin/env bash
# Every test. Those that need root are marked `#[ignore = "needs root"]` and run when this may:
# as root, or with a sudo that does not ask. Otherwise it names what it passed over.
#
# Then those of the viewer's page, where there is Node.js and, for those in a browser, Chromium; those of the
# Python package, where there is Python with pip; and with SWTCH_VM=1 recordings on other kernels, where there is an emulator and their packages can be had.
#
# The last line is "N passed, N failed", and ", N skipped" when tests were passed over. Before it stand
# the names of those, with the reason. What is run how, and what is counted: xtask/src/test.rs.
#
# A test that finds out while it runs that it cannot run here prints a line of the form
# "test NAME ... skipped: WHY": Rust tests by the crate swtch-test, the page's by scripts/web.sh, those
# of the Python package by python/tests/conftest.py.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

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

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"

# Before cargo: the page is embedded when the program is built. Whether it could be is told by its tests.
scripts/web.sh build

reason=$(why_not_privileged)
if [ -n "$reason" ]; then
    set -- --no-root "$reason" "$@"
elif [ "$(id -u)" -ne 0 ]; then
    set -- --sudo "$@"
fi
exec cargo run --locked --quiet -p xtask -- test "$@"
