#!/usr/bin/env bash
# shellcheck disable=SC2034 # needs_NAME and calls_NAME are read by their names
# Whether a bill is right, for three programs that are not ours: each does the same work with many
# switches and with few, and the difference of the bills is held against the difference of the times.
#
#   interpreter  CPython: two threads ask and answer through queues, one item or 64 at a time
#   server       redis-server and redis-benchmark, 50 clients: under the default policy who is woken
#                preempts, under SCHED_BATCH requests gather
#   build        make -j4, whose compilers warn a lot, into a pipe: its reader takes each line at
#                once (a short slice) or many together (SCHED_BATCH)
#
# All on one CPU, ahead of everything else there. Each variant is recorded once for its bill, which is
# scaled to the switches of the unrecorded runs; these are timed in turn, ROUNDS of both. "with calls"
# adds the system calls that only the many-switches variant makes, at what the price list has them for
# (prices are net of calls: those are the program's own). The measured time is CPU time, medians, with
# quartiles of the rounds' differences.
#
# Where perf can count the CPU's cycles, the part of the difference that was spent in user mode is shown:
# no price of a switch holds it (cold caches and predictors, a library's way around its locks). The rest
# was spent in the kernel.
#
# usage: scripts/bench-bill.sh   (environment: SWTCH, PRICES=FILE.json, ROUNDS=9, CPU, ONLY="server …")
# Root (it records); about three minutes, of which prices take one. The table is on stdout.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

rounds=${ROUNDS:-9}
only=${ONLY:-interpreter server build}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "ROUNDS is a number, not $rounds"
[ "$(id -u)" -eq 0 ] || die "recording needs root: run as root"

swtch=${SWTCH:-}
[ -n "$swtch" ] || swtch=$(target_dir)/release/swtch
[ -x "$swtch" ] || die "no swtch in $swtch: cargo build --release -p swtch, or SWTCH=FILE"
missing=
for tool in gcc taskset setsid timeout; do
    command -v $tool >/dev/null || missing+=" $tool"
done
[ -z "$missing" ] || die "not installed:$missing"

# The last CPU that may be used.
cpu=${CPU:-$(taskset -pc $$ | sed 's/.*[ ,-]//')}

scratch=$(mktemp -d) || die "no directory for scratch files"
child=
# Everything runs in the session, and the process group, of one child.
clean_up() {
    trap - EXIT INT TERM HUP
    [ -n "$child" ] && kill -TERM -- "-$child" 2>/dev/null && sleep 0.2 && kill -KILL -- "-$child" 2>/dev/null
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'clean_up; exit 130' INT
trap 'clean_up; exit 143' TERM HUP

# Runs a command on the CPU, ahead of other sessions, for two minutes at most.
cat >"$scratch/alone" <<'EOF'
#!/bin/sh
echo -20 2>/dev/null >/proc/self/autogroup # without autogroups nobody is ahead
cpu=$1
shift
exec timeout --foreground -k 2 120 taskset -c "$cpu" "$@"
EOF
chmod +x "$scratch/alone"

# Runs a command in a session of its own, which ends with this script.
in_session() {
    setsid "$@" 2>>"$scratch/errors" &
    child=$!
    wait "$child"
    local status=$?
    child=
    return $status
}

# meter FILE POLICY SLICE_US CMD…: runs CMD under the policy (0 default, 3 batch) with a slice of its
# own (0: the usual one) and appends to FILE what it and its descendants used: wall and CPU time in µs,
# voluntary and involuntary switches.
cat >"$scratch/meter.c" <<'EOF'
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static long us(struct timeval t) { return t.tv_sec * 1000000L + t.tv_usec; }

int main(int argc, char **argv)
{
    struct timespec start, end;
    struct rusage used;
    int status;

    if (argc < 5)
        return 125;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t child = fork();
    if (child == 0) {
        struct attr attr = {
            .size = sizeof(attr),
            .policy = (uint32_t)atoi(argv[2]),
            .nice = getpriority(PRIO_PROCESS, 0),
            .runtime = (uint64_t)atol(argv[3]) * 1000,
        };
        if (syscall(SYS_sched_setattr, 0, &attr, 0) != 0) {
            perror("sched_setattr");
            _exit(125);
        }
        execvp(argv[4], argv + 4);
        perror(argv[4]);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) < 0)
        return 125;
    clock_gettime(CLOCK_MONOTONIC, &end);
    FILE *out = fopen(argv[1], "a");
    if (!out)
        return 125;
    fprintf(out, "%ld %ld %ld %ld\n",
            (end.tv_sec - start.tv_sec) * 1000000L + (end.tv_nsec - start.tv_nsec) / 1000,
            us(used.ru_utime) + us(used.ru_stime), used.ru_nvcsw, used.ru_nivcsw);
    fclose(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
EOF
gcc -O1 -o "$scratch/meter" "$scratch/meter.c" || die "the meter does not compile"

# --- The programs. ---
#
# needs_NAME: what must be installed. calls_NAME: the price whose calls stand for its system calls, and
# how many make a hop. command_NAME VARIANT: sets `policy` and `command`.

needs_interpreter="python3"
calls_interpreter="futex-shared 2"
cat >"$scratch/queues.py" <<'EOF'
import sys
import threading
from functools import partial
from queue import SimpleQueue

window, total = int(sys.argv[1]), 99840
asked, answered = SimpleQueue(), SimpleQueue()


def answer():
    for _ in range(total):
        answered.put(sum(range(asked.get())))


ask, take = partial(asked.put, 20), answered.get
steps = ([ask] * window + [take] * window) * (total // window)
threading.Thread(target=answer).start()
for step in steps:
    step()
EOF
command_interpreter() {
    local window=64
    [ "$1" = many ] && window=1
    policy=0
    command=("$(python3 -c 'import sys; print(sys.executable)')" "$scratch/queues.py" "$window")
}

needs_server="redis-server redis-benchmark redis-cli"
calls_server="epoll 3"
cat >"$scratch/server.sh" <<'EOF'
dir=$1 socket=$1/socket
redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --dir "$dir" >/dev/null &
for _ in $(seq 400); do
    [ -S "$socket" ] && break
    sleep 0.005
done
redis-benchmark -s "$socket" -t set,get -n 100000 -c 50 -q >/dev/null
redis-cli -s "$socket" shutdown nosave
wait
EOF
command_server() {
    policy=3
    [ "$1" = many ] && policy=0
    command=(bash "$scratch/server.sh" "$scratch")
}

needs_build="make nice"
calls_build="pipe 2"
mkdir "$scratch/src"
for file in $(seq 24); do
    for line in $(seq 600); do
        printf 'static int f%d_%d(int a);\n' "$file" "$line"
    done >"$scratch/src/f$file.c"
done
cat >"$scratch/src/Makefile" <<'EOF'
objects := $(patsubst %.c,%.o,$(wildcard *.c))
all: $(objects)
%.o: %.c
	@gcc -pipe -Wall -O1 -fno-diagnostics-show-caret -c $< -o $@
EOF
# The reader counts for more than a compiler in both variants: else it must queue for each line.
cat >"$scratch/build.sh" <<'EOF'
rm -f "$1"/src/*.o
make -s -C "$1/src" -j4 2>&1 | nice -n -15 "$1/meter" /dev/null "$2" "$3" cat >"$1/warnings"
EOF
command_build() {
    local reader=(3 0)
    [ "$1" = many ] && reader=(0 100)
    policy=0
    command=(bash "$scratch/build.sh" "$scratch" "${reader[@]}")
}

# --- Measuring. ---

# One run of PROGRAM VARIANT: "wall CPU voluntary involuntary" is appended to PROGRAM.VARIANT.
timed() {
    "command_$1" "$2"
    in_session "$scratch/alone" "$cpu" "$scratch/meter" "$scratch/$1.$2" "$policy" 0 "${command[@]}" \
        >/dev/null
}

# The bill of PROGRAM VARIANT: switches, direct point, low, high, bound of indirect cost (ns), and the
# waits for a futex.
bill() {
    local trace=$scratch/trace.swtch
    rm -rf "$trace"
    "command_$1" "$2"
    in_session "$swtch" record -o "$trace" -- \
        "$scratch/alone" "$cpu" "$scratch/meter" /dev/null "$policy" 0 "${command[@]}" >/dev/null || return
    "$swtch" report "$trace" --bill --prices "$prices" --format csv 2>>"$scratch/errors" |
        awk -F, 'NR > 1 && $1 != "total" { n += $3; p += $4; l += $5; h += $6; i += $7 }
            $1 == "futex" { f = $3 }
            END { if (!n) exit 1; printf "%d %.0f %.0f %.0f %.0f %d\n", n, p, l, h, i, f }'
}

# What PROGRAM VARIANT did: system calls, instructions and cycles in user mode, and cycles in a ms; zeros
# where perf cannot count them. The CPU is counted and not the tasks, since counters that change with
# the task make switches dearer. What others did meanwhile only adds: the least of five runs is taken.
counts() {
    command -v perf >/dev/null || { echo 0 0 0 0; return; }
    "command_$1" "$2"
    rm -f "$scratch/perf"
    for _ in 1 2 3 4 5; do
        in_session perf stat -a -C "$cpu" -x, --append -o "$scratch/perf" \
            -e raw_syscalls:sys_enter,instructions:u,cycles:u,cycles,cpu-clock \
            "$scratch/alone" "$cpu" "$scratch/meter" /dev/null "$policy" 0 "${command[@]}" >/dev/null
    done
    awk -F, '
        function least(known, value) { return known && known < value ? known : value }
        $1 !~ /^[0-9.]+$/ { next }
        $3 ~ /sys_enter/ { calls = least(calls, $1 + 0) }
        $3 ~ /^instructions/ { instructions = least(instructions, $1 + 0) }
        $3 == "cycles:u" { cycles = least(cycles, $1 + 0) }
        $3 == "cycles" { all = $1 }
        $3 == "cpu-clock" && $1 > 0 && all / $1 > pace { pace = all / $1 }
        END { printf "%.0f %.0f %.0f %.0f\n", calls, instructions, cycles, pace }' "$scratch/perf"
}

# What one call takes, ns, by the hot baseline of a price and the calls in its hop.
call_ns() {
    tr -d ' \n' <"$prices" | sed 's/{"kind":/\n&/g' | awk -v kind="{\"kind\":\"$1\"," -v calls="$2" '
        index($0, kind) == 1 && /"members":"threads"/ && /"policy":"batch"/ && !found {
            if (match($0, /"baseline_ns":[{]"point":[0-9.]+/)) {
                number = substr($0, RSTART, RLENGTH); sub(/.*:/, "", number)
                print number / calls; found = 1
            }
        }
        END { if (!found) print 0 }'
}

# Measures a program and prints its row.
row() {
    local program=$1 needs tool round variant few many
    needs=needs_$program
    for tool in ${!needs}; do
        command -v "$tool" >/dev/null || { say "$program: left out, $tool is not installed"; return; }
    done
    say "$program"
    for variant in many few; do
        timed "$program" $variant || { say "$program: it does not run:"; cat "$scratch/errors" >&2; return 1; }
        rm "$scratch/$program.$variant"
        { bill "$program" $variant && counts "$program" $variant; } >"$scratch/$program.$variant.bill" ||
            { say "$program: no bill:"; cat "$scratch/errors" >&2; return 1; }
    done
    for round in $(seq "$rounds"); do
        if [ $((round % 2)) -eq 0 ]; then set -- few many; else set -- many few; fi
        timed "$program" "$1" && timed "$program" "$2" || return
    done
    few=$scratch/$program.few many=$scratch/$program.many
    local price=calls_$program
    # shellcheck disable=SC2086 # a kind and a number
    paste -d' ' "$many" "$few" | awk -v program="$program" -v call="$(call_ns ${!price})" \
        -v many_bill="$(tr '\n' ' ' <"$many.bill")" -v few_bill="$(tr '\n' ' ' <"$few.bill")" '
        function quantile(values, n, q,    i, j, t, at, low) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && values[j - 1] > values[j]; j--) {
                    t = values[j]; values[j] = values[j - 1]; values[j - 1] = t
                }
            at = 1 + (n - 1) * q; low = int(at)
            return values[low] + (at - low) * (low < n ? values[low + 1] - values[low] : 0)
        }
        { wall[NR] = ($1 - $5) / 1e3; cpu[NR] = ($2 - $6) / 1e3; base[NR] = $6 / 1e3
          many_n[NR] = $3 + $4; few_n[NR] = $7 + $8 }
        END {
            split(many_bill, m, " "); split(few_bill, f, " ")
            mn = quantile(many_n, NR, .5); fn = quantile(few_n, NR, .5)
            a = mn / m[1]; b = fn / f[1]
            for (k = 2; k <= 5; k++) ms[k] = (m[k] * a - f[k] * b) / 1e6
            # An end of the difference takes both bills at the same end: an error of a price is one.
            # The bill of a wait for a futex has its two calls.
            calls = m[7] && f[7] ? m[7] - f[7] - 2 * (m[6] * a - f[6] * b) : 0
            with = ms[2] + (calls > 0 ? calls * call / 1e6 : 0)
            measured = quantile(cpu, NR, .5)
            user = m[9] && f[10] ? (m[9] - f[9]) / f[10] : 0
            printf "| %s | %d / %d | %.1f (%.1f–%.1f) | %.1f | %.0f | %.1f (%.1f–%.1f) of %.0f | %.1f (%.1f–%.1f) | %.2f | %.2f | %s | %s | %s |\n",
                program, mn, fn, ms[2], ms[3], ms[4], with, m[5] * a / 1e6,
                measured, quantile(cpu, NR, .25), quantile(cpu, NR, .75), quantile(base, NR, .5),
                quantile(wall, NR, .5), quantile(wall, NR, .25), quantile(wall, NR, .75),
                ms[2] / measured, with / measured,
                m[7] && f[7] ? sprintf("%+d", m[7] - f[7]) : "-",
                m[8] && f[8] ? sprintf("%+.1f M, %+.1f ms", (m[8] - f[8]) / 1e6, user) : "-",
                user ? sprintf("%.2f", with / (measured - user)) : "-"
        }'
}

prices=${PRICES:-$scratch/prices.json}
if [ -z "${PRICES:-}" ]; then
    say "measuring prices (about a minute)"
    in_session "$swtch" cost --cpu "$cpu" -o "$prices" >/dev/null || say "the prices are not resolved: other work was going on"
fi
[ -r "$prices" ] || { cat "$scratch/errors" >&2; die "no price list in $prices"; }

echo "| program | switches many / few | predicted ms (low–high) | with calls | indirect ≤ | measured CPU ms (quartiles) of few | wall ms (quartiles) | predicted ÷ measured | with calls ÷ measured | more system calls | more in user mode | with calls ÷ measured in the kernel |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
status=0
for program in $only; do
    case $program in
        interpreter | server | build) row "$program" || status=1 ;;
        *) die "no program $program: interpreter, server, build" ;;
    esac
done
exit $status
