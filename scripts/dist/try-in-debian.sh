#!/usr/bin/env bash
# Installs packages in fresh roots of Debian and takes the first verdict there: how long that takes, and
# what it says. As root; needs debootstrap, which it installs.
#
#   scripts/dist/try-in-debian.sh DIR [RELEASE…]    DIR holds a .deb and a .tar.gz (scripts/dist.sh)
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"

[ $# -ge 1 ] || die "name the directory of the packages"
packages=$(realpath "$1")
shift
releases=("$@")
[ ${#releases[@]} -gt 0 ] || releases=(bullseye bookworm trixie)
[ "$(id -u)" -eq 0 ] || die "fresh roots need root: sudo $0 $packages"

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

# Names the first line of a verdict, or fails.
try() {
    local release=$1 kind=$2 line=$3
    local root=$place/root-$release-$kind begun answer took
    cp -a "$place/$release" "$root" || die "no room for a root"
    cp "$packages"/* "$root/tmp/"
    begun=$(date +%s.%N)
    answer=$(inside "$root" "$line" 2>&1) || {
        say "$answer"
        failed=$((failed + 1))
        say "$release, $kind: FAILED"
        return
    }
    took=$(echo "$(date +%s.%N) - $begun" | bc)
    printf '%-9s %-7s %5.1f s from the file to the verdict: %s\n' "$release" "$kind" "$took" \
        "$(grep -m 1 'context switches' <<<"$answer")"
    grep -q 'context switches' <<<"$answer" || failed=$((failed + 1))
}

{ command -v debootstrap && command -v bc; } >/dev/null ||
    apt-get install -y --no-install-recommends debootstrap bc >&2 || die "debootstrap could not be installed"
place=$(mktemp -d) || die "no room for a temporary directory"
trap 'rm -rf --one-file-system "$place"' EXIT
failed=0
load='swtch explain --no-bill -- sh -c "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.01; done"'
for release in "${releases[@]}"; do
    # shellcheck disable=SC2046 # no mirror is no word
    debootstrap --variant=minbase "$release" "$place/$release" $(mirror) >"$place/log" 2>&1 || {
        tail -n 5 "$place/log" >&2
        die "debootstrap of $release failed"
    }
    ! inside "$place/$release" 'command -v cc clang cargo' || die "$release has a compiler"
    try "$release" deb "cd /tmp && dpkg -i ./*.deb >/dev/null && $load"
    try "$release" archive "cd /tmp && tar -xzf ./*.tar.gz && PATH=\$(echo /tmp/swtch-*/bin):\$PATH && $load"
done
ls -l "$packages" | awk 'NR > 1 { printf "%8.1f MB  %s\n", $5 / 1e6, $NF }'
[ "$failed" -eq 0 ]
