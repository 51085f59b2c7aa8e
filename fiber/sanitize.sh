#!/usr/bin/env bash
# Runs the tests of swtch-fiber under three judges of memory: AddressSanitizer, valgrind's memcheck, and
# Miri for what needs no assembly and no kernel. Ten minutes and more; no root. Needs nightly Rust with
# the component miri (`rustup toolchain install nightly --component miri`) and valgrind. Name one to
# run only that: asan, valgrind, miri.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/env.sh"
cd fiber || exit 2
find_cargo || die "no cargo: run \`make setup\`"

target=$(rustc -vV | sed -n 's/^host: //p')
failed=()

has_nightly() { cargo +nightly --version >/dev/null 2>&1; }

# corosensei tells the sanitizer of each switch. Faults are the tests' own, control blocks are
# never freed on purpose (scheduler/worker.rs), and stalls are judged by time, which a sanitizer stretches.
asan() (
    has_nightly || die "AddressSanitizer needs nightly Rust"
    export RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan
    export ASAN_OPTIONS=handle_segv=0:handle_sigbus=0:detect_leaks=0
    cargo +nightly test --locked --features corosensei/sanitizer \
        --target "$target" --lib --tests --no-fail-fast -- --skip stall --skip starve --skip interrupt &&
        cargo +nightly test --manifest-path ../Cargo.toml --locked -p swtch-observe --target "$target" --lib
)

# Test programs one by one, as the build names them. What is skipped is about time, about memory
# that valgrind keeps itself, about what the kernel says of blocked threads (valgrind's wait for its one
# lock), or about processes that end by a signal on purpose.
valgrind_tests() {
    command -v valgrind >/dev/null || die "valgrind is not installed"
    local programs program code=0
    mapfile -t programs < <(cargo test --locked --lib --tests --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
    [ ${#programs[@]} -gt 0 ] || die "no test programs were built"
    for program in "${programs[@]}"; do
        case ${program##*/} in
        stalls-* | stack_overflow-* | stack_many-* | stack_workers-*) continue ;;
        # Valgrind 3.19 holds its one lock over io_uring_enter, which blocks.
        io_*) continue ;;
        # They look at their own page, by pidfd_open, which it does not know.
        helpers-*) continue ;;
        esac
        say "valgrind: ${program##*/}"
        timeout 600 valgrind --quiet --error-exitcode=9 --fair-sched=yes "$program" --test-threads=1 \
            --skip stall --skip interrupt --skip probes --skip stack:: --skip a_thousand_idle \
            --skip all_waiting --skip without_a_worker \
            --skip without_descriptors || code=1
    done
    return "$code"
}

# Threads outside of schedulers wait by the same protocol as workers do. Miri knows no io_uring and
# little of epoll, so the tests of the drivers are left out.
miri() {
    has_nightly || die "Miri needs nightly Rust"
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --locked --test sync_outside &&
        MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" cargo +nightly miri test --locked --lib -- \
            scheduler:: stack:: pair:: --skip scheduler::driver:: &&
        cargo +nightly miri test --manifest-path ../Cargo.toml --locked -p swtch-observe --lib -- names::
}

for judge in "${@:-asan valgrind miri}"; do
    for one in $judge; do
        say "== $one"
        case $one in
        asan) asan || failed+=(asan) ;;
        valgrind) valgrind_tests || failed+=(valgrind) ;;
        miri) miri || failed+=(miri) ;;
        *) die "no judge $one: asan, valgrind or miri" ;;
        esac
    done
done
[ ${#failed[@]} -eq 0 ] || die "not clean: ${failed[*]}"
echo "clean"
