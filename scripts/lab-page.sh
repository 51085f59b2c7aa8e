#!/usr/bin/env bash
# Makes all experiments of the lab on this machine, and puts their answers and figures into docs/lab/, to which docs/LAB.md
# points. Give names to make only those; "claims" is one. Takes about a quarter of an hour.
set -eu -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

answer=$(mktemp) || die "no room for a temporary file"
trap 'rm -f "$answer"' EXIT
find_cargo || die "no cargo: run \`make setup\`"
cargo build --release --locked -p swtch
swtch=target/release/swtch
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    # "claims" stands in the list, after the experiments.
    mapfile -t names < <("$swtch" lab | sed -n 's/^swtch lab \([a-z-]*\)  .*/\1/p')
fi
mkdir -p docs/lab
for name in "${names[@]}"; do
    echo "== $name"
    # Exit code 1: an answer is open, and the page says which.
    code=0
    if [ "$name" = claims ]; then
        "$swtch" lab claims --quick >"$answer" || code=$?
    else
        "$swtch" lab "$name" --plot "docs/lab/$name.svg" >"$answer" || code=$?
    fi
    [ "$code" -le 1 ] || die "swtch lab $name failed"
    cp "$answer" "docs/lab/$name.txt"
done
