#!/usr/bin/env bash
# The half that reads needs neither clang nor libelf nor libbpf, and its core no Linux: both are type-checked
# for targets for which nothing of that is here. Exit 3 without rustup, which brings their standard libraries.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

find_cargo || die "no cargo: scripts/setup.sh installs it"
command -v rustup >/dev/null || { say "there is no rustup, which brings other targets"; exit 3; }

# check TARGET CRATES…: zstd's C is compiled too, by this machine's compiler, and not optimised.
check() {
    local target=$1 crate crates=()
    shift
    for crate in "$@"; do crates+=(-p "swtch-$crate"); done
    env "CC_${target//-/_}=cc" CLANG=/nonexistent cargo check --locked --target "$target" \
        --config profile.dev.package.zstd-sys.opt-level=0 "${crates[@]}"
}

for target in x86_64-unknown-linux-musl x86_64-unknown-freebsd; do
    rustup target list --installed | grep -qx "$target" || rustup target add "$target" >&2 ||
        { say "rustup cannot get the standard library of $target here"; exit 3; }
done
check x86_64-unknown-linux-musl report plot view || die "the half that reads needs more than it should (see above)"
check x86_64-unknown-freebsd core wire store unwind || die "core, wire, store or unwind need Linux (see above)"
