#!/usr/bin/env bash
# How often `swtch diff` finds a change that is there, and how often it claims one that is not, with real
# recordings of loads whose change is known by construction:
#
#   preempt  a ticker of a higher class takes the CPU from a hog 1,000 times a second; then 1,050 times
#   lock     one thread holds a lock for 500 us while another waits for it; then 550 us
#
# Each round records five runs of A, of A again, of B and of B again, in turns, and compares A with B, which
# differ, and A with A and B with B, which do not; once by rates and once by whole runs (--per). A change counts as found when the figure that it is about
# is surely worse; an alarm is any sure change of any figure between equals.
#
# usage: scripts/bench-diff.sh   (environment: SWTCH, ROUNDS=20, RUNS=5, SECONDS_EACH=1, ONLY="preempt lock",
#                                 NICE=-20 of the loads, LIMIT=3600 seconds in all, KEEP=DIR for the answers)
# Root (it records); 20 rounds take half an hour. The table is on stdout, one line a round on stderr.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

rounds=${ROUNDS:-20}
runs=${RUNS:-5}
seconds=${SECONDS_EACH:-1}
nice=${NICE:--20}
limit=${LIMIT:-3600}
only=${ONLY:-preempt lock}
for number in "$rounds" "$runs" "$seconds" "$limit"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || die "ROUNDS, RUNS, SECONDS_EACH and LIMIT are whole numbers, not $number"
done
[[ $nice =~ ^-?[0-9]+$ ]] || die "NICE is a number, not $nice"
[ "$(id -u)" -eq 0 ] || die "recording needs root: run as root"

swtch=${SWTCH:-}
[ -n "$swtch" ] || swtch=$(target_dir)/release/swtch
[ -x "$swtch" ] || die "no swtch in $swtch: cargo build --release -p swtch, or SWTCH=FILE"
for tool in gcc python3 timeout setsid; do
    command -v $tool >/dev/null || die "not installed: $tool"
done

scratch=$(mktemp -d) || die "no directory for scratch files"
answers=${KEEP:-$scratch/answers}
mkdir -p "$answers" || die "no directory $answers"
child=
clean_up() {
    trap - EXIT INT TERM HUP
    [ -n "$child" ] && kill -TERM -- "-$child" 2>/dev/null
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'clean_up; exit 130' INT
trap 'clean_up; exit 143' TERM HUP

cat >"$scratch/load.c" <<'EOF_C'
/* load preempt RATE SECONDS | load lock HOLD_US SECONDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile int done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int begin[2];

static long now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void *spin(void *none)
{
	pthread_setname_np(pthread_self(), "hog");
	while (!done)
		;
	return none;
}

/* Both on the last CPU, so that each tick takes it from the hog. */
static int preempt(double rate, long seconds)
{
	struct sched_param highest = { .sched_priority = 1 };
	long last = sysconf(_SC_NPROCESSORS_ONLN) - 1, ticks = rate * seconds, next;
	cpu_set_t cpu;
	pthread_t hog;

	CPU_ZERO(&cpu);
	CPU_SET(last, &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu))
		return perror("sched_setaffinity"), 1;
	if (pthread_create(&hog, 0, spin, 0))
		return fputs("no thread\n", stderr), 1;
	pthread_setname_np(pthread_self(), "ticker");
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &highest))
		return fputs("no real-time class\n", stderr), 1;
	next = now_ns();
	for (long tick = 0; tick < ticks; tick++) {
		next += 1e9 / rate;
		struct timespec until = { next / 1000000000L, next % 1000000000L };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0);
	}
	done = 1;
	return pthread_join(hog, 0);
}

static void *wait_for_lock(void *none)
{
	char turn;
	pthread_setname_np(pthread_self(), "waiter");
	while (read(begin[0], &turn, 1) == 1) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
	return none;
}

static int hold(long hold_ns, long seconds)
{
	struct timespec pause = { 0, 500000 };
	pthread_t waiter;

	if (pipe(begin) || pthread_create(&waiter, 0, wait_for_lock, 0))
		return perror("lock"), 1;
	pthread_setname_np(pthread_self(), "holder");
	for (long turn = 0; turn < 900 * seconds; turn++) {
		pthread_mutex_lock(&lock);
		if (write(begin[1], "x", 1) != 1)
			return perror("write"), 1;
		for (long until = now_ns() + hold_ns; now_ns() < until;)
			;
		pthread_mutex_unlock(&lock);
		nanosleep(&pause, 0);
	}
	close(begin[1]);
	return pthread_join(waiter, 0);
}

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	if (!strcmp(words[1], "preempt"))
		return preempt(atof(words[2]), atol(words[3]));
	return hold(atol(words[2]) * 1000, atol(words[3]));
}
EOF_C
gcc -O2 -pthread -o "$scratch/load" "$scratch/load.c" || die "the load does not compile"

# Without autogroups the niceness counts by itself.
cat >"$scratch/ahead" <<'EOF_SH'
#!/bin/sh
echo "$1" 2>/dev/null >/proc/self/autogroup
shift
exec "$@"
EOF_SH
chmod +x "$scratch/ahead"

# record NAME MODE AMOUNT: one run of a load. The words of the command are the same for A and for B.
record() {
    local name=$1 mode=$2 amount=$3
    printf '#!/bin/sh\nexec nice -n %s %s/load %s %s %s\n' "$nice" "$scratch" "$mode" "$amount" "$seconds" >"$scratch/run"
    chmod +x "$scratch/run"
    rm -rf "$scratch/$name.swtch"
    setsid "$scratch/ahead" "$nice" timeout 60 "$swtch" record -o "$scratch/$name.swtch" -- "$scratch/run" \
        >"$scratch/said" 2>&1 &
    child=$!
    wait "$child" || die "recording failed: $(cat "$scratch/said")"
    child=
}

# compare NAME ONE OTHER: the answers of swtch diff to two sets of runs, by rates and by whole runs.
compare() {
    local name=$1 one=$2 other=$3 per
    for per in second run; do
        timeout 60 "$swtch" diff --per $per --format json "$scratch/$one"-*.swtch -- "$scratch/$other"-*.swtch \
            >"$answers/$name-$per.json" 2>"$scratch/said" || die "comparing failed: $(cat "$scratch/said")"
    done
}

amounts_of() {
    case $1 in
    preempt) echo 1000 1050 ;;
    lock) echo 500 550 ;;
    *) die "ONLY names preempt and lock, not $1" ;;
    esac
}
for mode in $only; do
    amounts_of "$mode" >/dev/null || exit
done

for ((round = 1; round <= rounds; round++)); do
    for mode in $only; do
        if ((SECONDS > limit)); then
            say "stopped in round $round, after LIMIT=$limit s"
            break 2
        fi
        read -r before after < <(amounts_of "$mode")
        for ((run = 1; run <= runs; run++)); do
            record "a-$run" "$mode" "$before"
            record "b-$run" "$mode" "$after"
            record "again_a-$run" "$mode" "$before"
            record "again_b-$run" "$mode" "$after"
        done
        compare "$mode-$round-change" a b
        compare "$mode-$round-equal_a" a again_a
        compare "$mode-$round-equal_b" b again_b
        python3 scripts/bench-diff.py "$answers" "$mode" "$round" >&2
    done
done
python3 scripts/bench-diff.py "$answers"
