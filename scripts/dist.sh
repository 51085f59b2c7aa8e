#!/usr/bin/env bash
# Packages of swtch, in target/dist: a static program with its manual pages and completions as .tar.gz,
# and a .deb of the same. One program for every distribution: nothing of the machine it was built on is
# needed to run it, and the viewer's page and the eBPF programs are inside.
#
#   scripts/dist.sh           build
#   scripts/dist.sh --test    build, then install the .deb and unpack the .tar.gz in fresh roots of
#                             Debian 11, 12 and 13, and take the first verdict there (as root)
#
# The same source gives the same bytes on the same release of Debian: paths of the build are taken out,
# and times are those of the commit (SOURCE_DATE_EPOCH, reproducible-builds.org).
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

# Runs a command that builds with cargo: statically, and without this machine's paths in the result.
# Statically linked glibc looks users up by libraries of the machine it runs on only when
# /etc/nsswitch.conf names more than files; they are optional to swtch.
statically() {
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} flags libraries
    flags="-C target-feature=+crt-static -C strip=debuginfo"
    flags+=" --remap-path-prefix=$root_dir=swtch --remap-path-prefix=$cargo_home=cargo"
    # Where libelf.a and libz.a are.
    libraries=$(dirname "$(realpath "$(cc -print-file-name=libelf.a)")")
    LIBBPF_SYS_LIBRARY_PATH=$libraries RUSTFLAGS=$flags CARGO_INCREMENTAL=0 "$@"
}

# The files of a package below a directory, as /usr has them.
fill_usr() {
    local program=$1 usr=$2
    install -D -m 755 "$program" "$usr/bin/swtch"
    mkdir -p "$usr/share/man/man1" || die "no room for the manual pages"
    "$program" man-pages "$usr/share/man/man1" || die "no manual pages"
    gzip -9 -n "$usr"/share/man/man1/*.1
    local completions=$usr/share/bash-completion/completions
    mkdir -p "$completions" "$usr/share/zsh/vendor-completions" "$usr/share/fish/vendor_completions.d"
    "$program" completions bash >"$completions/swtch" &&
        "$program" completions zsh >"$usr/share/zsh/vendor-completions/_swtch" &&
        "$program" completions fish >"$usr/share/fish/vendor_completions.d/swtch.fish" ||
        die "no completions"
    local documents=$usr/share/doc/swtch
    mkdir -p "$documents"
    cp README.md CHANGELOG.md LICENSE-* docs/*.md crates/swtch-plot/assets/LICENSE-DejaVu "$documents/" ||
        die "no room for the documents"
    copyright >"$documents/copyright"
    chmod -R u=rwX,go=rX "$usr"
}

copyright() {
    cat <<'TEXT'
swtch, https://github.com/swtch-dev/swtch
Copyright: the authors of swtch

License: MIT or Apache-2.0 (LICENSE-MIT, LICENSE-APACHE, beside this file). The eBPF programs inside of
usr/bin/swtch are GPL-2.0-only or BSD-2-Clause (LICENSE-BSD).

What is linked into usr/bin/swtch, by its own authors: the Rust crates of Cargo.lock, under the permissive
licences that deny.toml lists; libbpf, under BSD-2-Clause; zlib, under Zlib; the font of figures, DejaVu Sans
(LICENSE-DejaVu). libelf (elfutils) is LGPL-3.0-or-later or GPL-2.0-or-later, the GNU C library
LGPL-2.1-or-later: scripts/dist.sh in the source links the program anew with other versions of them.
TEXT
}

control() {
    local version=$1 architecture=$2 usr=$3
    cat <<TEXT
Package: swtch
Version: $version
Architecture: $architecture
Maintainer: the authors of swtch <https://github.com/swtch-dev/swtch>
Installed-Size: $(du -sk "$usr" | cut -f1)
Section: devel
Priority: optional
Homepage: https://github.com/swtch-dev/swtch
Description: where context switches come from, and what they cost
 swtch records every context switch with its cause, says what the switches cost on this machine, and
 shows each of them on a time line in the browser. Linux 5.15 or later with BTF records everything as
 root; without rights, own processes are recorded as far as the kernel allows.
TEXT
}

make_deb() {
    local version=$1 architecture=$2 usr=$3 file=$4
    local root
    root=$(mktemp -d) || die "no room for a temporary directory"
    cp -a "$usr" "$root/usr"
    install -D -m 644 scripts/dist/swtch-flight.service "$root/usr/lib/systemd/system/swtch-flight.service"
    mkdir -p "$root/DEBIAN"
    control "$version" "$architecture" "$usr" >"$root/DEBIAN/control"
    chmod 755 "$root"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$file" >/dev/null || die "dpkg-deb could not build $file"
    rm -rf "$root"
}

make_archive() {
    local name=$1 usr=$2 file=$3
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --transform="s,^\.,$name," -C "$usr" -c . | gzip -9 -n >"$file" || die "tar could not write $file"
}

build() {
    local machine target architecture version usr
    machine=$(uname -m)
    target=$machine-unknown-linux-gnu
    case $machine in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) die "swtch is for x86_64 and aarch64, not for $machine" ;;
    esac
    scripts/setup.sh || exit
    find_cargo || die "no cargo after setup"
    scripts/web.sh build || die "a package needs the viewer's page (see above)"
    statically cargo build --release --locked --target "$target" -p swtch --features static ||
        die "the build failed (see above)"
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export SOURCE_DATE_EPOCH

    local dist
    dist=$(target_dir)/dist
    rm -rf "$dist"
    usr=$dist/usr
    fill_usr "$(target_dir)/$target/release/swtch" "$usr"
    make_deb "$version" "$architecture" "$usr" "$dist/swtch_${version}_$architecture.deb"
    make_archive "swtch-$version-$machine" "$usr" "$dist/swtch-$version-$machine.tar.gz"
    rm -rf "$usr"
    (cd "$dist" && sha256sum ./*.deb ./*.tar.gz | tee SHA256SUMS)
}

case ${1:-} in
'') build ;;
--test) build && exec scripts/dist/try-in-debian.sh "$(target_dir)/dist" ;;
*) die "unknown option: $1" ;;
esac
