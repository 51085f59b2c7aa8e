#!/usr/bin/env bash
# Installs what building swtch needs and this machine lacks: a C compiler, clang (for eBPF),
# libelf, zlib, and a cargo that is new enough. What is there stays as it is; a machine that has
# everything is not touched and nothing is said.
#
# Debian 12 and later, Ubuntu 22.04 and later. Elsewhere: one line that names the packages.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

has_c_compiler() { printf '#include <stdio.h>\n' | cc -E -x c - >/dev/null 2>&1; }

has_library() { command -v pkg-config >/dev/null && pkg-config --exists "$1"; }

# Debian's names of the packages that are missing, one a line.
missing_packages() {
    has_c_compiler || printf '%s\n' gcc libc6-dev
    command -v make >/dev/null || echo make
    command -v pkg-config >/dev/null || echo pkg-config
    command -v clang >/dev/null || echo clang
    has_library libelf || echo libelf-dev
    has_library zlib || echo zlib1g-dev
}

# One line for a distribution whose package manager we do not drive.
packages_elsewhere() {
    local manager
    for manager in dnf pacman zypper apk; do
        command -v "$manager" >/dev/null || continue
        case $manager in
        dnf) echo "sudo dnf install clang gcc make pkgconf-pkg-config elfutils-libelf-devel zlib-devel cargo" ;;
        pacman) echo "sudo pacman -S --needed clang gcc make pkgconf libelf zlib rust" ;;
        zypper) echo "sudo zypper install clang gcc make pkg-config libelf-devel zlib-devel cargo" ;;
        apk) echo "sudo apk add clang gcc musl-dev linux-headers make pkgconf elfutils-dev zlib-dev cargo" ;;
        esac
        return
    done
    echo "your package manager: clang (>= $min_clang), a C compiler, make, pkg-config, libelf and zlib with headers"
}

# Installs packages; reads the package lists anew only when the lists at hand do not suffice.
apt_install() {
    say "installing: $*"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
    as_root "${apt[@]}" "$@" >&2 && return
    say "the package lists do not suffice; reading them anew"
    as_root apt-get update >&2 && as_root "${apt[@]}" "$@" >&2
}

# The version apt would install of a package, upstream part only; empty when it has none.
apt_version() {
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9][0-9.]*\).*/\1/p'
}

install_build_packages() {
    local packages
    mapfile -t packages < <(missing_packages)
    [ ${#packages[@]} -eq 0 ] && return
    command -v apt-get >/dev/null ||
        die "missing here: ${packages[*]} (Debian's names). Install them with: $(packages_elsewhere)"
    apt_install "${packages[@]}" || die "could not install ${packages[*]} (see above)"
    mapfile -t packages < <(missing_packages)
    [ ${#packages[@]} -eq 0 ] || die "installed, and still not usable: ${packages[*]}"
}

check_clang() {
    local version
    version=$(clang -dumpversion) || die "clang does not run"
    version_at_least "$version" "$min_clang" ||
        die "clang $version is too old for the eBPF program (needs $min_clang): install a newer one and put it first in PATH"
}

install_toolchain() {
    rustup toolchain install stable --profile minimal --component clippy --component rustfmt >&2
}

# rustup's own installer, into the home directory, without editing shell profiles.
install_rustup_from_its_site() {
    local missing=() script
    command -v curl >/dev/null || missing+=(curl)
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
    if [ ${#missing[@]} -gt 0 ]; then
        command -v apt-get >/dev/null || die "rustup's installer needs ${missing[*]}"
        apt_install "${missing[@]}" || return
    fi
    script=$(mktemp) || return
    curl --proto '=https' --tlsv1.2 -sSf https://static.rust-lang.org/rustup/rustup-init.sh -o "$script" &&
        sh "$script" -y --no-modify-path --profile minimal --default-toolchain stable \
            --component clippy --component rustfmt >&2
    local status=$?
    rm -f "$script"
    return $status
}

# Debian 12 and Ubuntu 22.04 carry a Rust that is too old, later ones carry rustup: so the
# distribution's cargo if it is new enough, else its rustup, else rustup's own installer.
install_cargo() {
    local found distro
    found=$(cargo_version)
    say "cargo >= $min_rust is needed; found: ${found:-none}"
    if command -v rustup >/dev/null; then
        say "installing the stable toolchain by rustup (your default toolchain stays)"
        install_toolchain
        return
    fi
    if command -v apt-get >/dev/null; then
        distro=$(apt_version cargo)
        if [ -n "$distro" ] && version_at_least "$distro" "$min_rust"; then
            apt_install cargo rustfmt rust-clippy
            return
        fi
        if [ -n "$(apt_version rustup)" ]; then
            apt_install rustup && install_toolchain
            return
        fi
    fi
    say "installing rustup and the stable toolchain from https://rustup.rs into ${CARGO_HOME:-$HOME/.cargo}"
    install_rustup_from_its_site
}

install_build_packages
check_clang
if ! find_cargo; then
    install_cargo || die "could not install cargo >= $min_rust: see https://rustup.rs, then run this again"
    hash -r
    find_cargo || die "cargo >= $min_rust is installed and not found: put it first in PATH"
fi
