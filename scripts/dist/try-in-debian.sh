#!/usr/bin/env bash
# Installs packages in fresh roots of Debian and takes the first verdict there: how long that takes, and
# what it says; then lets lintian look at the .deb, and tries its services. As root; needs debootstrap and lintian,
# which it installs.
#
#   scripts/dist/try-in-debian.sh DIR [RELEASE…]    DIR holds packages (scripts/dist.sh)
#
# Packages for arm64 are tried on x86-64, too, in a root of the newest release: QEMU runs its programs one by one
# (qemu-user-static). Such an emulator passes no eBPF to the kernel, so the verdict there comes from /proc.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"

[ $# -ge 1 ] || die "name the directory of the packages"
packages=$(realpath "$1")
shift
releases=("$@")
[ ${#releases[@]} -gt 0 ] || releases=(bullseye bookworm trixie)
[ "$(id -u)" -eq 0 ] || die "fresh roots need root: sudo $0 $packages"
# The oldest release whose Python is new enough for the wheel (3.10) is bookworm.
too_old_for_the_wheel=bullseye

# The mirror of this machine, so that a closed network has one; without one, debootstrap has its own.
mirror() {
    grep -rhoE '^(deb|URIs:) .*' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
        grep -oE 'https?://[^ ]*/debian/?( |$)' | head -n 1
}

# Runs a line of shell in a root, with the kernel's file systems; both are gone afterwards.
inside() {
    local root=$1 line=$2
    # shellcheck disable=SC2016 # the inner shell expands them
    unshare --mount sh -c '
        for place in proc sys dev; do mount --rbind "/$place" "$1/$place" || exit 2; done
        exec chroot "$1" /bin/sh -c "$2"' sh "$root" "$line"
}

# make_root NAME RELEASE OPTION…: a fresh root, without compilers.
make_root() {
    local name=$1 release=$2
    shift 2
    # shellcheck disable=SC2046 # no mirror is no word
    debootstrap --variant=minbase "$@" "$release" "$place/$name" $(mirror) >"$place/log" 2>&1 || {
        tail -n 5 "$place/log" >&2
        die "debootstrap of $release failed"
    }
    ! inside "$place/$name" 'command -v cc clang cargo' || die "$release has a compiler"
}

# Puts Python with pip into a root, as a user of a wheel has it, and downloads the wheels that the wheel of
# swtch depends on, for that Python.
add_python() {
    local root=$place/$1 version
    cp /etc/resolv.conf "$root/etc/"
    inside "$root" 'apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv' \
        >"$place/log" 2>&1 || {
        tail -n 5 "$place/log" >&2
        die "Python could not be installed in the root $1"
    }
    mkdir "$root/wheels"
    [ "$1" != "$too_old_for_the_wheel" ] || return 0
    version=$(inside "$root" "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'")
    python3 -m pip download --quiet --disable-pip-version-check --dest "$root/wheels" --no-deps --only-binary :all: \
        --python-version "$version" --platform "manylinux_2_28_$(uname -m)" \
        "$(sed -n 's/^dependencies = \["\(.*\)"\]/\1/p' python/pyproject.toml)" >&2 ||
        die "what the wheel depends on could not be downloaded (see above)"
}

# run_in_copy ROOT KIND LINE: runs a line in a copy of a root that has the packages; sets answer and took.
run_in_copy() {
    local root=$place/$1-$2 begun status=0
    cp -a "$place/$1" "$root" || die "no room for a root"
    cp "$packages"/*.* "$root/tmp/"
    begun=$(date +%s.%N)
    answer=$(inside "$root" "$3" 2>&1) || status=$?
    took=$(echo "$(date +%s.%N) - $begun" | bc)
    rm -rf --one-file-system "$root"
    return "$status"
}

# How a verdict begins: of a recording, and of the kernel's counters.
verdict="context switches|First answer from the kernel's counters"

# try NAME KIND LINE: prints the first line of a verdict, or fails.
try() {
    if ! run_in_copy "$@" || ! grep -qE "$verdict" <<<"$answer"; then
        say "$answer"
        failed=$((failed + 1))
        say "$1, $2: FAILED"
        return
    fi
    printf '%-9s %-7s %5.1f s from the file to the verdict: %s\n' "$1" "$2" "$took" \
        "$(grep -m 1 -E "$verdict" <<<"$answer")"
}

# The wheel: program and package, found by each other. Where Python is too old, pip must say so.
try_wheel() {
    local name=$1
    local install='python3 -m venv /tmp/venv && /tmp/venv/bin/pip install --quiet --no-index --find-links /wheels'
    install+=" /tmp/swtch-*_$machine.whl && PATH=/tmp/venv/bin:\$PATH && cd /tmp"
    if [ "$name" = "$too_old_for_the_wheel" ]; then
        # Without --no-deps, pip 20.3 complains first that there is no DuckDB for this Python.
        if run_in_copy "$name" wheel "${install/--no-index/--no-index --no-deps}"; then
            failed=$((failed + 1))
            say "$name, wheel: was installed with a Python that is too old"
        elif grep 'requires a different Python' <<<"$answer"; then
            return
        else
            say "$answer"
            failed=$((failed + 1))
            say "$name, wheel: pip does not say that Python is too old"
        fi
        return
    fi
    try "$name" wheel "$install && $load && $asks"
}

# Every package of this machine's architecture.
try_release() {
    local release=$1
    make_root "$release" "$release"
    try "$release" deb "cd /tmp && dpkg -i ./*_$debian_machine.deb >/dev/null && $load"
    try "$release" archive "cd /tmp && tar -xzf ./*-$machine.tar.gz && PATH=\$(echo /tmp/swtch-*/bin):\$PATH && $load"
    add_python "$release"
    try_wheel "$release"
}

# What lintian finds, which must be no error, and what a system does with the services (try-services.sh).
try_services() {
    local name=$1-systemd
    lintian --allow-root --fail-on error "$packages"/*.deb || failed=$((failed + 1))
    make_root "$name" "$1" --include=systemd,init-system-helpers
    cp scripts/dist/try-services.sh "$place/$name/tmp/"
    run_in_copy "$name" services "bash /tmp/try-services.sh" || {
        failed=$((failed + 1))
        say "$1, services: FAILED"
    }
    say "$answer"
}

# Lets the kernel start programs of arm64 by QEMU, until the end of this script.
emulate_arm64() {
    local binfmt=/proc/sys/fs/binfmt_misc
    command -v qemu-aarch64-static >/dev/null ||
        apt-get install -y --no-install-recommends qemu-user-static >&2 || return
    [ -e "$binfmt/register" ] || mount -t binfmt_misc binfmt_misc "$binfmt" || return
    [ ! -e "$binfmt/qemu-aarch64" ] || return 0
    # ELF, 64 bits, little-endian, for EM_AARCH64 (183); F: opened now, so that it is found in a root.
    printf '%s' ':swtch-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64-static)"':F' \
        >"$binfmt/register"
}

try_arm64() {
    local release=${releases[-1]} name=${releases[-1]}-arm64
    if ! emulate_arm64; then
        say "passed over: packages for arm64 in a root of Debian: this kernel or machine emulates no programs (see above)"
        return
    fi
    make_root "$name" "$release" --arch=arm64
    local by_proc=${load/explain/explain --backend proc}
    try "$name" deb "cd /tmp && dpkg -i ./*_arm64.deb >/dev/null && swtch --version >&2 && $by_proc"
    try "$name" archive "cd /tmp && tar -xzf ./*-aarch64.tar.gz && PATH=\$(echo /tmp/swtch-*/bin):\$PATH && $by_proc"
}

finish() {
    [ ! -e /proc/sys/fs/binfmt_misc/swtch-aarch64 ] || echo -1 >/proc/sys/fs/binfmt_misc/swtch-aarch64
    rm -rf --one-file-system "$place"
}

{ command -v debootstrap && command -v bc && command -v lintian; } >/dev/null ||
    apt-get install -y --no-install-recommends debootstrap bc lintian >&2 || die "debootstrap and lintian could not be installed"
place=$(mktemp -d) || die "no room for a temporary directory"
trap finish EXIT
failed=0
machine=$(uname -m)
debian_machine=$(dpkg --print-architecture)
load='swtch explain --no-bill -- sh -c "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.01; done"'
# What a wheel's program asks Python, and README's lines of Python.
asks="swtch lake query 'SELECT count(*) AS switches FROM switches' ./*.swtch >&2"
asks+=" && python3 -c 'import glob, swtch; trace = swtch.open(*glob.glob(\"*.swtch\")); print(trace.reasons()); trace.runq()' >&2"
for release in "${releases[@]}"; do
    try_release "$release"
done
try_services "${releases[-1]}"
if [ "$machine" = x86_64 ] && compgen -G "$packages/*_arm64.deb" >/dev/null; then
    try_arm64
fi
(cd "$packages" && ls -l ./*.deb ./*.rpm ./*.tar.gz ./*.whl) | awk '{ printf "%8.1f MB  %s\n", $5 / 1e6, substr($NF, 3) }'
[ "$failed" -eq 0 ]
