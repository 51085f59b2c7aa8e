#!/usr/bin/env bash
# What recording costs, beside its peers: builds, then measures as root. Options go to bench/record.py, e.g.
# `make bench-record ARGS="--rounds 7 --json cost.json"`.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
cargo build --release --locked -p swtch || die "the build failed (see above)"
as_root env SWTCH="$(target_dir)/release/swtch" python3 -B bench/record.py "$@"
