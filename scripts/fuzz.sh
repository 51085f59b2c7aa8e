#!/usr/bin/env bash
# Fuzzes the code that reads input: `make fuzz ARGS="stream http --seconds 3600"`. Without a target, all of
# them, side by side. Prints for each: executions, panics, hangs, exhausted memory, peak RSS.
#
#   --seconds N   how long (60)
#   --seed N      inputs follow from it (1)
#   --input FILE  run this input alone, of the one target that is named
#
# Inputs that fail are kept in target/fuzz/TARGET/. Exit code: 0 nothing found, 1 something found, 2 error.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

all=(stream records parquet perf_data load_file price_list http stacks memories)
targets=()
seconds=60
seed=1
input=

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit "${1:-2}"
}

while [ $# -gt 0 ]; do
    case $1 in
    --seconds | --seed | --input)
        [ $# -ge 2 ] || usage
        declare "${1#--}=$2"
        shift
        ;;
    -h | --help) usage 0 ;;
    -*) usage ;;
    *)
        [[ " ${all[*]} " == *" $1 "* ]] || die "there is no target $1; there are: ${all[*]}"
        targets+=("$1")
        ;;
    esac
    shift
done
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
[[ $seconds =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || usage
if [ -n "$input" ]; then
    [ ${#targets[@]} -eq 1 ] || die "--input needs the one target that reads it"
    input=$(realpath "$input") || exit 2
    export SWTCH_FUZZ_INPUT=$input
fi

find_cargo || die "no cargo: run make setup"
# The program's own tests, of which the targets are some. The last line names the binary.
built=$(cargo test --locked -p swtch --bin swtch --no-run 2>&1) || {
    printf '%s\n' "$built" >&2
    exit 2
}
program=$(printf '%s\n' "$built" | sed -n 's/.*Executable.*(\(.*\))$/\1/p' | tail -1)
[ -x "$program" ] || die "cargo did not say where the test program is"
program=$(realpath "$program")

export SWTCH_FUZZ_SECONDS=$seconds SWTCH_FUZZ_SEED=$seed
children=()
for target in "${targets[@]}"; do
    "$program" --exact "fuzz::$target" --nocapture --test-threads=1 &
    children+=($!)
done
found=0
for child in "${children[@]}"; do
    wait "$child" || found=1
done
exit $found
