#!/usr/bin/env bash
# Makes an image for containers (Containerfile) of each .tar.gz, as an archive that `podman load` and `docker load` take.
# Needs buildah, which it installs.
#
#   scripts/dist/image.sh DIR    DIR holds the packages (scripts/dist.sh); the images go there, too
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../env.sh"

[ $# -eq 1 ] || die "name the directory of the packages"
packages=$(realpath "$1")
[ "$(id -u)" -eq 0 ] || die "buildah needs root here: sudo $0 $packages"
command -v buildah >/dev/null || install_quietly buildah || die "buildah could not be installed"
# Layers are kept apart from those of the machine's own images, and as plain directories, which needs no mount.
place=$(mktemp -d) || die "no room for a temporary directory"
trap 'rm -rf "$place"' EXIT
buildah=(buildah --root "$place/images" --runroot "$place/run" --storage-driver vfs)

for archive in "$packages"/swtch-*.tar.gz; do
    name=$(basename "$archive" .tar.gz) # swtch-0.1.0-x86_64
    machine=${name##*-}
    version=${name#swtch-}
    version=${version%-*}
    case $machine in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) die "$archive is for an unknown machine" ;;
    esac
    tag=localhost/swtch:$version-$architecture
    image=$packages/swtch-$version-$architecture.image.tar
    "${buildah[@]}" build --quiet --arch "$architecture" --timestamp "$(stat -c %Y "$archive")" --build-arg "ARCHIVE=$name" \
        --tag "$tag" --file Containerfile "$packages" >&2 || die "buildah could not build $tag (see above)"
    rm -f "$image"
    "${buildah[@]}" push --quiet "$tag" "docker-archive:$image:${tag#localhost/}" >&2 || die "buildah could not write $image"
    ls -l "$image" | awk '{ printf "%8.1f MB  %s\n", $5 / 1e6, $NF }'
done
