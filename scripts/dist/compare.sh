#!/usr/bin/env bash
# Builds the packages of the commit once more, in a clone at another place, and compares the bytes.
#
#   scripts/dist/compare.sh DIR [OPTION…]    DIR holds the packages; options for scripts/dist.sh, as --native
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"

[ $# -ge 1 ] || die "name the directory of the packages"
packages=$(realpath "$1")
shift
[ -z "$(git status --porcelain)" ] || die "the tree has changes that are not committed, which a clone has not: commit them first"
place=$(mktemp -d) || die "no room for a temporary directory"
trap 'rm -rf "$place"' EXIT
# The length differs, too: what a path leaves in a file would move what is behind it.
clone=$place/a-clone/somewhere/else
git clone --quiet "$root_dir" "$clone" || die "git could not clone the project"
env -u CARGO_TARGET_DIR "$clone/scripts/dist.sh" "$@" >&2 || die "the build in $clone failed (see above)"
if (cd "$clone/target/packages" && sha256sum --check "$packages/SHA256SUMS"); then
    say "two trees at different places, the same bytes"
else
    rm -rf "$packages-elsewhere"
    mv "$clone/target/packages" "$packages-elsewhere" || die "no room for the packages"
    die "the packages differ: compare $packages with $packages-elsewhere, by diffoscope for example"
fi
