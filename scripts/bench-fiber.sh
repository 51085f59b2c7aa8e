#!/usr/bin/env bash
# What a switch of swtch-fiber costs, beside other schedulers: builds the peers that can be built
# here, names those that cannot, and measures all in one run; no root. Options go to the benchmark,
# e.g. `make bench-fiber ARGS="--only yield,hand-off --json yield.json"`, `ARGS=--help` lists them.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
exec cargo bench --locked -p swtch-fiber --bench switches -- "$@"
