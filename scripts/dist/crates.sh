#!/usr/bin/env bash
# Packs the crates, and installs swtch from them as a user does who has no clang.
#
#   scripts/dist/crates.sh TARGET    TARGET is cargo's target directory; they go to TARGET/packages/crates
#
# A packed crate has what a clone makes: the eBPF objects of both architectures, compiled here
# (crates/swtch-capture/ebpf), and the viewer's page (crates/swtch-view/page). They are packed from a copy of the
# commit, so that the tree stays as it is, and so that they hold nothing that is not committed.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"

[ $# -eq 1 ] || die "name cargo's target directory"
target=$(realpath "$1")
packed=$target/packages/crates
place=$(mktemp -d) || die "no room for a temporary directory"
trap 'rm -rf "$place"' EXIT
tree=$place/tree

copy_commit() {
    mkdir "$tree"
    git archive HEAD | tar -x -C "$tree" || die "git could not copy the commit"
    cp -r web/dist "$tree/crates/swtch-view/page" || die "there is no page in web/dist"
    # Packed as one workspace: cargo looks for packages that are not published yet in its own alone.
    rm "$tree/fiber/Cargo.toml" "$tree/fiber/Cargo.lock"
    sed -i 's|^members = \[|&"fiber/swtch-fiber", |' "$tree/Cargo.toml"
    local crate
    for crate in "$tree"/{crates,prices,lab}/*/ "$tree"/fiber/swtch-fiber; do
        cp LICENSE-* "$crate/" || die "there are no licences"
    done
}

# The build script of swtch-capture, compiled: it makes the objects of any architecture, in any copy.
object_builder() {
    cargo build --quiet --locked -p swtch-capture --message-format json |
        grep '"custom-build"' | grep swtch-capture | sed -n 's/.*"filenames":\["\([^"]*\)"\].*/\1/p'
}

# make_objects DIRECTORY: compiles from the sources of the crate in the directory, into its ebpf/.
make_objects() {
    local crate=$1 machine out name
    for machine in x86_64:x86 aarch64:arm64; do
        out=$crate/ebpf/${machine#*:}
        mkdir -p "$out"
        (cd "$crate" && OUT_DIR=$place/out CLANG=$clang CARGO_CFG_TARGET_ARCH=${machine%:*} "$builder" >"$place/said") ||
            die "the eBPF programs could not be compiled for $machine"
        for name in swtch share; do
            cp "$place/out/$name.bpf.o" "$out/" || die "no room for $out"
        done
    done
    sed -n 's/.*SWTCH_EBPF_ORIGIN=compiled by //p' "$place/said" >"$crate/ebpf/compiler"
}

# The objects in a packed crate are those of its sources.
compare_objects() {
    local crate=$1
    mkdir "$place/again"
    cp -r "$crate/src" "$place/again/src"
    make_objects "$place/again"
    diff -r "$crate/ebpf" "$place/again/ebpf" >&2 || die "the packed eBPF objects are not those of the packed sources"
    say "crates: the packed eBPF objects are those of the packed sources ($(cat "$crate/ebpf/compiler"))"
}

pack() {
    # Nothing is compiled here: installing them does.
    (cd "$tree" && cargo package --quiet --workspace --exclude xtask --exclude swtch-test --exclude swtch-fixtures \
        --no-verify --allow-dirty --target-dir "$place/packing") || die "cargo could not pack the crates (see above)"
    rm -rf "$packed"
    mkdir -p "$packed" "$place/crates"
    cp "$place/packing/package"/*.crate "$packed/" || die "cargo packed no crates"
    local file
    for file in "$packed"/*.crate; do
        tar -xzf "$file" -C "$place/crates" || die "cannot unpack $file"
    done
}

# Installs swtch from the packed crates, which are not published yet: cargo is told where they lie.
# PATH has the programs of this machine without those of LLVM.
install_without_clang() {
    local bin=$place/bin patches=() directory name program
    for directory in "$place"/crates/*; do
        name=$(basename "${directory%-*}")
        [ "$name" = swtch ] || patches+=(--config "patch.crates-io.$name.path='$directory'")
    done
    mkdir "$bin"
    while read -r directory; do
        for program in "$directory"/*; do
            [ -e "$program" ] || continue # an empty directory, or none
            case $(basename "$program") in
            clang* | llvm* | llc* | ld.lld* | rustfmt) ;;
            *) [ -e "$bin/$(basename "$program")" ] || ln -s "$program" "$bin/" ;;
            esac
        done
    done < <(tr : '\n' <<<"$PATH")
    ! PATH=$bin command -v clang >/dev/null || die "clang is still in PATH"
    # Not optimised: what is tried is whether it builds, not how fast it is.
    env -u CLANG PATH="$bin" CARGO_PROFILE_DEV_DEBUG=0 cargo install --debug --path "$place/crates/swtch-$version" "${patches[@]}" \
        --root "$place/root" --target-dir "$target/packed-crates" --no-track >&2 ||
        die "swtch could not be installed from the packed crates (see above)"
    "$place/root/bin/swtch" --version
    "$place/root/bin/swtch" --version | grep -q 'packed: compiled by' || die "it has not got the packed eBPF objects"
    "$place/root/bin/swtch" --version | grep -q 'page: is inside' || die "it has not got the page"
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
clang=${CLANG:-$(command -v clang)}
mkdir "$place/out"
builder=$(object_builder)
[ -x "$builder" ] || die "cargo built no build script of swtch-capture"
copy_commit
make_objects "$tree/crates/swtch-capture"
pack
compare_objects "$place/crates/swtch-capture-$version"
install_without_clang
ls -l "$packed" | awk 'NR > 1 { printf "%8.2f MB  %s\n", $5 / 1e6, $NF }'
