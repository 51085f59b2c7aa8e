#!/usr/bin/env bash
# Whether the prices of switches are right, beside peers': builds, then measures; no root. Options go to
# bench/cost.py, e.g. `make bench-cost ARGS="--part peers --rounds 9 --json cost.json"`.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
cargo build --release --locked -p swtch || die "the build failed (see above)"
SWTCH=$(target_dir)/release/swtch exec python3 -B bench/cost.py "$@"
