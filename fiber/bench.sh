#!/usr/bin/env bash
# What a switch of swtch-fiber costs, beside other schedulers: builds the peers that can be built
# here, names those that cannot, and measures all in one run; no root. Options go to the benchmark,
# e.g. `make bench-fiber ARGS="--only yield,hand-off --json yield.json"`, `ARGS=--help` lists them.
# `ARGS=--recorded` measures instead what a switch costs more while it is recorded; that needs root.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/env.sh"

scripts/setup.sh || exit
find_cargo || die "no cargo after setup"
if [ "${1-}" = --recorded ]; then
    shift
    cargo build --release --locked -p swtch || die "the build failed (see above)"
    exec cargo bench --manifest-path fiber/Cargo.toml --locked --bench recorded -- --swtch "$(target_dir)/release/swtch" "$@"
fi
exec cargo bench --manifest-path fiber/Cargo.toml --locked --bench switches -- "$@"
