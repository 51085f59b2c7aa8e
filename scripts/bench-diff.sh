#!/usr/bin/env bash
# Whether `swtch diff` finds a known change, and none between equals: builds, then records as root; half an hour. Options
# go to bench/diff.py, e.g. `make bench-diff ARGS="--rounds 2 --only lock"`.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
cargo build --release --locked -p swtch || die "the build failed (see above)"
as_root env SWTCH="$(target_dir)/release/swtch" python3 -B bench/diff.py "$@"
