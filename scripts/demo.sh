#!/usr/bin/env bash
# The main job on a sample program that makes every kind of switch: from a clean clone to the
# bill. Installs what is missing, builds, and asks for root only to record. The build is light: compiled
# in half the time and itself slower. scripts/install.sh builds the optimised one.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
build_page
# zstd of the system, where it can be had without a question, need not be compiled.
pkg-config --exists libzstd || install_quietly libzstd-dev
if pkg-config --exists libzstd; then export ZSTD_SYS_USE_PKG_CONFIG=1; fi
cargo build --profile light --locked -p swtch || die "the build failed (see above)"
swtch=$(target_dir)/light/swtch

say "recording needs root: swtch explain -- swtch workload sampler --quiet"
as_root "$swtch" explain -- "$swtch" workload sampler --quiet || exit
command -v swtch >/dev/null || say "swtch is not in PATH yet: it is $swtch, and \`make install\` builds and installs the optimised one"
