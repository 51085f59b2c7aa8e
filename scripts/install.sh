#!/usr/bin/env bash
# Builds the optimised program and installs it: PREFIX/bin/swtch (PREFIX is /usr/local unless set).
# What `make demo` builds is light: built in half the time, and itself slower.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

prefix=${PREFIX:-/usr/local}
scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
build_page
cargo build --release --locked -p swtch || die "the build failed (see above)"
built=$(target_dir)/release/swtch
install=(install -D --mode 755 "$built" "$prefix/bin/swtch")
# A prefix of one's own needs no other rights.
if ! mkdir -p "$prefix/bin" 2>/dev/null || [ ! -w "$prefix/bin" ]; then install=(as_root "${install[@]}"); fi
"${install[@]}" || die "could not install into $prefix/bin (PREFIX=DIRECTORY is another place)"
say "installed: $prefix/bin/swtch"
