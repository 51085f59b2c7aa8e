#!/usr/bin/env bash
# Whether the prices of switches are right, beside peers': builds, then measures; no root. Options go
# to the measuring program, e.g. `make bench-cost ARGS="--part peers --runs 9 --json cost.json"`.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
cargo build --release --locked -p swtch -p xtask || die "the build failed (see above)"
exec "$(target_dir)/release/xtask" bench-cost "$@"
