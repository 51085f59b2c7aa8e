#!/usr/bin/env bash
# Packages of swtch, in target/packages: for x86-64 and arm64 one static program each, compiled once, as
# .tar.gz, .deb, .rpm and Python wheel, with one bill of materials. One program for every distribution: nothing of
# the machine it was built on is needed to run it, and the viewer's page and the eBPF programs are inside.
#
#   scripts/dist.sh              build; arm64 is cross-built on x86-64
#   scripts/dist.sh --native     build for this machine's architecture alone
#   scripts/dist.sh --test       build, then install each in fresh roots of Debian 11, 12 and 13, and take
#                                the first verdict there (as root)
#   scripts/dist.sh --crates     pack the crates, and install swtch from them without clang
#   scripts/dist.sh --image      an image for containers of the program (Containerfile), as root
#   scripts/dist.sh --compare    build, then build in a clone at another place: are the bytes the same?
#
# Options go together (--native --test). The same source gives the same bytes on the same release of Debian: paths of
# the build are taken out, and times are those of the commit (SOURCE_DATE_EPOCH, reproducible-builds.org).
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=scripts/vm/debian.sh
source "$root_dir/scripts/vm/debian.sh"
# shellcheck source=scripts/vm/cross.sh
source "$root_dir/scripts/vm/cross.sh"
# shellcheck source=scripts/dist/files.sh
source "$root_dir/scripts/dist/files.sh"
# shellcheck source=scripts/dist/wheel.sh
source "$root_dir/scripts/dist/wheel.sh"

# Cross-building calls this when something cannot be had.
skip() { die "$* (scripts/dist.sh --native builds for this machine alone)"; }

# The program of a machine (x86_64, aarch64).
program_of() { echo "$target/$1-unknown-linux-gnu/dist/swtch"; }
# Its symbols and line tables, kept apart when it is linked.
symbols_of() { echo "$(program_of "$1").debug"; }

# Runs a command that builds with cargo for a machine: statically, and without this machine's paths in the
# result. Statically linked glibc looks users up by libraries of the machine it runs on only when
# /etc/nsswitch.conf names more than files; they are optional to swtch.
statically() {
    local machine=$1 cargo_home=${CARGO_HOME:-$HOME/.cargo} flags libraries linker
    shift
    flags="-C target-feature=+crt-static"
    flags+=" --remap-path-prefix=$root_dir=swtch --remap-path-prefix=$cargo_home=cargo"
    (
        # Where libelf.a and libz.a are. The program that reads eBPF objects while building has them inside, too.
        libraries=$(dirname "$(realpath "$(cc -print-file-name=libelf.a)")")
        if [ "$machine" = "$(uname -m)" ]; then
            export LIBBPF_SYS_LIBRARY_PATH=$libraries
        else
            prepare_cross_build
            export "LIBBPF_SYS_LIBRARY_PATH_$(uname -m)_unknown_linux_gnu=$libraries"
        fi
        linker=CARGO_TARGET_${machine^^}_UNKNOWN_LINUX_GNU_LINKER
        SWTCH_LINKER=${!linker:-cc} SWTCH_SYMBOLS=$(symbols_of "$machine")
        export SWTCH_LINKER SWTCH_SYMBOLS "$linker=$root_dir/scripts/dist/keep-symbols.sh"
        RUSTFLAGS=$flags CARGO_INCREMENTAL=0 "$@"
    )
}

build_program() {
    local machine=$1
    statically "$machine" cargo build --profile dist --locked --target "$machine-unknown-linux-gnu" -p swtch --features static ||
        die "the build for $machine failed (see above)"
}

# Packages of one machine. Manual pages and completions come from the program that runs here: they are
# the same for all.
make_packages() {
    local machine=$1 architecture
    case $machine in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    esac
    local usr=$made/usr
    fill_usr "$(program_of "$machine")" "$(program_of "$(uname -m)")" "$usr"
    make_deb "$version" "$architecture" "$usr" "$made/swtch_${version}_$architecture.deb"
    make_rpm "$version" "$machine" "$usr" "$made/swtch-$version-1.$machine.rpm"
    make_archive "swtch-$version-$machine" "$usr" "$made/swtch-$version-$machine.tar.gz"
    make_wheel "$machine" "$usr" "$made"
    install -m 644 "$(symbols_of "$machine")" "$made/swtch-$version-$machine.debug" ||
        die "no symbols were kept: cargo clean -p swtch --profile dist --target $machine-unknown-linux-gnu, and once more"
    rm -rf "$usr"
}

# Sets what every part needs, and installs what it lacks.
prepare() {
    case $(uname -m) in
    x86_64) machines=(x86_64 aarch64) ;;
    aarch64) machines=(aarch64) ;;
    *) die "swtch is for x86_64 and aarch64, not for $(uname -m)" ;;
    esac
    [ "$native" = no ] || machines=("$(uname -m)")
    scripts/setup.sh || exit
    find_cargo || die "no cargo after setup"
    command -v rpmbuild >/dev/null || install_quietly rpm || die "rpmbuild could not be installed"
    target=$(target_dir)
    [ -n "$target" ] || die "cargo names no target directory"
    made=$target/packages
    # shellcheck disable=SC2034 # the cross build keeps what it unpacks there
    work=$target/cross
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    scripts/web.sh build || die "a package needs the viewer's page (see above)"
}

build() {
    local machine
    install_wheel_tools || die "the tools that make wheels could not be installed (see above)"
    rm -rf "$made"
    mkdir -p "$made" || die "no room for $made"
    # The time of files in packages. cargo must not see it: it would compile C anew after each commit.
    local SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export -n SOURCE_DATE_EPOCH
    for machine in "${machines[@]}"; do
        build_program "$machine"
        make_packages "$machine"
    done
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH scripts/dist/sbom.py "${machines[@]}" >"$made/swtch-$version.cdx.json" ||
        die "no bill of materials (see above)"
    (cd "$made" && sha256sum ./*.deb ./*.rpm ./*.tar.gz ./*.whl ./*.json | tee SHA256SUMS)
}

native=no
same_machines=()
parts=()
for word in "$@"; do
    case $word in
    --native) native=yes same_machines=(--native) ;;
    --test | --crates | --image | --compare) parts+=("${word#--}") ;;
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
    *) die "unknown option: $word; see --help" ;;
    esac
done
prepare
# The crates are packed from the sources.
[ "${parts[*]}" = crates ] || build
for part in "${parts[@]}"; do
    case $part in
    test) scripts/dist/try-in-debian.sh "$made" || exit ;;
    crates) scripts/dist/crates.sh "$target" || exit ;;
    image) scripts/dist/image.sh "$made" || exit ;;
    compare) scripts/dist/compare.sh "$made" "${same_machines[@]}" || exit ;;
    esac
done
