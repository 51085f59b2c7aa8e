#!/usr/bin/env bash
# How long the answers about a large trace take, and how much memory: builds, makes traces up and reads
# them; no root. Options go to bench/read.py, e.g. `make bench-read ARGS="--switches 1000000 --rounds 3"`.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
cargo build --release --locked -p swtch --bins --examples || die "the build failed (see above)"
built=$(target_dir)/release
export SWTCH="$built/swtch" SWTCH_MAKE_TRACE="$built/examples/make_trace"
exec python3 -B bench/read.py "$@"
