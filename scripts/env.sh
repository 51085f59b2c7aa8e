# shellcheck shell=bash
# Sourced by the other scripts: where the tree is, how to speak and to ask for root, and a cargo
# that is new enough when the machine has one anywhere. Changes nothing on the machine.

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root_dir" || exit 2

# The talk goes to stderr: stdout is the answer.
say() { printf '%s\n' "$*" >&2; }
die() {
    say "error: $*"
    exit 2
}

# The oldest Rust that builds the workspace, and the oldest clang that builds the eBPF program
# (12 is the first whose CO-RE relocations cover enum values and type sizes).
min_rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
# shellcheck disable=SC2034 # setup.sh reads it
min_clang=12
[ -n "$min_rust" ] || die "Cargo.toml names no rust-version"

# Whether version $1 is at least $2.
version_at_least() { printf '%s\n%s\n' "$2" "$1" | sort -V -C; }

# Runs a command as root: as it is, or by sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "this needs root and there is no sudo: run as root: $*"
    fi
}

# Installs packages where that needs no question: with apt, as root or by a sudo that does not ask.
install_quietly() {
    command -v apt-get >/dev/null || return
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null || return
    say "installing: $*"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends)
    as_root "${apt[@]}" "$@" >&2 || { as_root apt-get update >&2 && as_root "${apt[@]}" "$@" >&2; }
}

# "1.88.0" of the cargo that would run now; empty when there is none.
cargo_version() { RUSTUP_AUTO_INSTALL=0 cargo --version 2>/dev/null | cut -d' ' -f2; }

cargo_is_new_enough() {
    local version
    version=$(cargo_version)
    [ -n "$version" ] && version_at_least "$version" "$min_rust"
}

# Looks for a cargo that is new enough: the one in PATH, rustup's own directory, rustup's stable
# toolchain. The user's default toolchain stays what it is.
find_cargo() {
    cargo_is_new_enough && return
    local home_bin="${CARGO_HOME:-$HOME/.cargo}/bin"
    if [ -x "$home_bin/cargo" ]; then
        PATH="$home_bin:$PATH"
        hash -r
        cargo_is_new_enough && return
    fi
    if command -v rustup >/dev/null && RUSTUP_TOOLCHAIN=stable cargo_is_new_enough; then
        export RUSTUP_TOOLCHAIN=stable
        return
    fi
    return 1
}

# Builds the page of `swtch view`: before cargo, which embeds it. A machine without npm does without.
build_page() {
    if command -v npm >/dev/null; then scripts/web.sh build || say "swtch view will have no page (see above)"; fi
}

# Where cargo builds (CARGO_TARGET_DIR and cargo's configuration may move it).
target_dir() {
    cargo metadata --no-deps --format-version 1 --locked |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

find_cargo || true # setup.sh installs one; whoever runs without it hears it from cargo
export PATH
