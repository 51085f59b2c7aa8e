#!/usr/bin/env python3
"""The corpus of causes: programs of which it is known where their threads lose time, and what swtch says first.

    tests/causes/run.py [--quick] [--only NAME …] [--renamed] [--beside-hogs] [--whole-machine] [--keep DIR]

Each row is recorded and explained by the program that SWTCH names (default: target/debug/swtch). The truth of a row
comes from how its program is built, from its own counters, or from /proc, never from swtch: `causes.c` prints what the
kernel says of its threads (schedstat), and what swtch measured has to agree with that. What swtch puts first is
judged by the stable names of its findings:

    right    it is the cause, and what it advises helps this program
    half     it is true, but not the main thing
    wrong    anything else

`--quick` is the part that CI runs: rows that take a second and are the same on any machine. One is wrong, or differs
from the kernel's own numbers: the run has failed. `--renamed` runs every program under another name, and with threads
whose names say nothing: the first causes have to be the same.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
NOTHING = "nothing"
# What `causes.c` prints at its end of its own threads.
TRUTH = r"truth ran ([\d.]+) queued ([\d.]+)"
PASSED_OVER = 3
LIMIT_S = 90
TRIES = 3


@dataclasses.dataclass(frozen=True)
class Row:
    """One program, what is true of it, and the findings that say so."""

    name: str
    truth: str
    right: tuple[str, ...]
    half: tuple[str, ...] = ()
    # A command; `causes MODE` is the program of this directory.
    command: str = ""
    # A server, or another program that lives before the recording and during it: it is recorded, by `-p`.
    server: str = ""
    # What runs beside, and is not recorded.
    beside: tuple[str, ...] = ()
    quick: bool = True
    needs: tuple[str, ...] = ()
    # CPU time that the cgroup of the program may use, in percent of one CPU; with `inner`, one below it is used.
    quota_pct: int = 0
    inner: str = ""
    # What has to be made first.
    prepare: str = ""
    # How long the server takes until it is there.
    ready_s: float = 0.3
    # A pattern that what is said of the first cause has to match: whom it names, or which function.
    names: str = ""
    seconds: float = 1.0
    # Whether what the program prints at its end is of all that was recorded.
    is_counted: bool = True


CPU0 = "taskset -c 0 "

ROWS = (
    Row("compute", "one thread computes, and has a CPU", (NOTHING,), command="causes compute"),
    Row(
        "crowd",
        "8 busy threads on one CPU",
        ("oversubscribed",),
        command=CPU0 + "causes crowd",
    ),
    Row(
        "processes",
        "6 busy processes on one CPU",
        ("oversubscribed",),
        command=CPU0 + "sh -c 'for i in 1 2 3 4 5 6; do causes compute 1 & done; wait'",
    ),
    Row("ticks", "asleep nearly always", (NOTHING,), command="causes ticks"),
    Row("polls", "sleeps of 200 us in a loop", (NOTHING, "short_sleeps"), command="causes polls"),
    Row(
        "neighbour",
        "sleeps and works a little, beside three busy loops of others on its CPU",
        ("neighbour",),
        command=CPU0 + "causes ticks",
        beside=(CPU0 + "causes compute 9",) * 3,
    ),
    Row(
        "namesake",
        "a busy loop beside another process of the same program, on one CPU",
        ("neighbour",),
        command=CPU0 + "causes compute",
        beside=(CPU0 + "causes compute 9",),
    ),
    Row(
        "starved",
        "a real-time task has the CPU from the middle to the end",
        ("real_time",),
        server=CPU0 + "causes compute 4",
        beside=("sh -c 'sleep 1.2; exec " + CPU0 + "chrt -f 50 causes compute 2.5'",),
        seconds=2.0,
    ),
    Row(
        "quota",
        "the program's cgroup may use a fifth of a CPU",
        ("throttle",),
        command="causes compute",
        quota_pct=20,
    ),
    Row(
        "lock",
        "one lock, whose holder sleeps",
        ("futex_contention",),
        command="causes lock",
        names="in holds_lock_asleep",
    ),
    Row(
        "full-pipe",
        "writes to a pipe that another program reads slowly",
        ("no_room",),
        command="dd if=/dev/zero of=full bs=4096 count=800",
        beside=("python3 -c 'import time; f = open(\"full\", \"rb\", 0); [time.sleep(0.02) for _ in iter(lambda: f.read(65536), b\"\")]'",),
        prepare="rm -f full; mkfifo full",
        names="by python3",
    ),
    Row(
        "lock-fsync",
        "one lock, whose holder waits for the disk",
        ("futex_contention", "block_io"),
        command="causes lock-fsync",
        names="holds_lock_in_fsync",
        quick=False,
    ),
    Row("barrier", "three threads wait for a fourth at a barrier, each time another one", ("futex_barrier",), command="causes barrier", names="meets"),
    Row("pool", "a pool without work", (NOTHING,), command="causes pool"),
    Row("timed", "waits with a limit that nobody ends earlier", (NOTHING,), command="causes timed"),
    Row("tokens", "one token in a pipe, whose holder sleeps", ("token_contention",), command="causes tokens", names="takes_token"),
    Row(
        "pingpong",
        "two threads on one CPU hand a byte to and fro: they take turns, and switching is the cost",
        ("woken_early",),
        command=CPU0 + "causes pingpong",
    ),
    Row("yields", "two threads give one CPU to each other", ("yield",), command="causes yields"),
    Row("reads", "random reads from the disk", ("block_io",), command="causes reads", quick=False),
    Row("commits", "fsync after each write", ("block_io",), command="causes commits", quick=False),
    Row(
        "one-file",
        "large writes into one file in memory: its lock",
        ("file_lock",),
        ("oversubscribed",),
        command="causes one-file",
        quick=False,
    ),
    Row(
        "maps",
        "mmap, page faults and munmap in 6 threads: the lock of the address space, and too few CPUs",
        ("address_space_lock", "oversubscribed"),
        command="causes maps",
        quick=False,
    ),
    Row("idle", "a server to which nobody speaks", (NOTHING,), command="causes idle"),
    Row(
        "inversion",
        "a real-time thread waits for a lock whose holder has no CPU",
        ("priority_inversion",),
        ("oversubscribed",),
        command="causes inversion",
        quick=False,
    ),
    Row("forks", "waits for children that compute", (NOTHING,), command="causes forks", is_counted=False),
    Row("semaphore", "a semaphore of System V, whose holder sleeps", ("token_contention",), command="causes semaphore", names="holds_semaphore"),
    Row("flock", "the lock of a file, whose holder computes", ("token_contention",), command="causes flock", names="holds_flock"),
    Row(
        "turns",
        "two threads work in turns, each waits for the other at a word of its own",
        ("serialised",),
        command="causes turns",
        names="takes_turns",
    ),
    Row(
        "sleeps-at-work",
        "two workers sleep in the middle of each job, while more jobs come",
        (NOTHING,),
        command="causes sleeps-at-work",
        names="what comes while they sleep has to wait",
    ),
    Row(
        "own-fifo",
        "an ordinary thread beside a real-time one of its own program, on one CPU",
        ("real_time",),
        command="causes own-fifo",
        names="own-fifo-0|x-0",
    ),
    Row(
        "stopped",
        "stopped and let go on by another, half of the time",
        ("stopped",),
        command="sh -c 'causes compute 1.6 & for i in 1 2 3 4; do sleep 0.2; kill -STOP $!; sleep 0.2; kill -CONT $!; done; wait'",
        is_counted=False,
    ),
    Row(
        "nested-quota",
        "the cgroup above that of the program may use a fifth of a CPU",
        ("throttle",),
        command="causes compute",
        quota_pct=20,
        inner="inner",
        names=r"by the quota of \S*/swtch-causes-\d+,",
    ),
    Row(
        "deadline",
        "SCHED_DEADLINE: 4 ms of each 20 ms",
        ("deadline_budget",),
        command="chrt -d --sched-runtime 4000000 --sched-deadline 20000000 --sched-period 20000000 0 causes compute",
        needs=("chrt",),
        quick=False,
    ),
    Row(
        "pipeline",
        "gzip computes, and the two before it wait for it",
        (NOTHING,),
        command="sh -c 'yes swtch | head -c 150000000 | gzip >/dev/null'",
        needs=("gzip",),
        names="gzip/",
        quick=False,
    ),
    Row(
        "xz",
        "four threads on one CPU",
        ("oversubscribed",),
        prepare="head -c 8000000 /dev/urandom >random",
        command=CPU0 + "sh -c 'xz -T4 -1 --block-size=1000000 -c random >/dev/null'",
        needs=("xz",),
        quick=False,
    ),
    Row(
        "processes-of-python",
        "a pool of two processes on two CPUs, which compute",
        (NOTHING,),
        ("oversubscribed",),
        command="python3 -c 'import multiprocessing as m; m.Pool(2).map(sum, [range(8000000)] * 8, 1)'",
        needs=("python3",),
        quick=False,
    ),
    Row(
        "sqlite",
        "each insert is a transaction of its own, in a file on the disk",
        ("block_io",),
        prepare="rm -f corpus.db; sqlite3 corpus.db 'create table t(x)'",
        command="sh -c 'for i in $(seq 800); do echo \"insert into t values($i);\"; done | sqlite3 corpus.db'",
        needs=("sqlite3",),
        quick=False,
    ),
    Row(
        "java-monitor",
        "six threads of Java: one of them has the monitor, and computes",
        ("monitor", "serialised", "one_works"),
        prepare="javac -d . " + str(HERE / "Causes.java"),
        command="java Causes monitor 2",
        needs=("javac",),
        quick=False,
    ),
    Row(
        "java-queue",
        "eight threads of Java take from one queue, on two CPUs: its lock, and too few CPUs",
        ("serialised", "oversubscribed", "futex_contention"),
        prepare="javac -d . " + str(HERE / "Causes.java"),
        command="java Causes queue 2",
        needs=("javac",),
        quick=False,
    ),
    Row(
        "go-mutex",
        "six goroutines: one of them has the mutex, and computes",
        ("worker_lock",),
        prepare="go build -o mutex " + str(HERE / "mutex.go"),
        command="mutex",
        needs=("go",),
        quick=False,
    ),
    *(
        Row(
            name,
            "a server with eight clients that read from memory, all on two CPUs",
            ("oversubscribed",),
            ("placement", "neighbour"),
            prepare=f"{HERE}/servers.sh make {name}",
            server=f"{HERE}/servers.sh run {name}",
            beside=(f"{HERE}/servers.sh load {name}",),
            needs=needs,
            quick=False,
            seconds=3.0,
            ready_s=3.0,
        )
        for name, needs in (("postgres", ("pgbench", "setpriv")), ("mariadb", ("mariadbd", "sysbench", "setpriv")))
    ),
    Row(
        "python-gil",
        "4 threads of Python compute: one lock",
        ("futex_contention",),
        ("oversubscribed",),
        command="python3 " + str(HERE / "gil.py"),
        needs=("python3",),
        quick=False,
    ),
    Row(
        "python-lock",
        "one lock of a program in Python, whose holder sleeps",
        ("futex_contention",),
        command="python3 " + str(HERE / "gil.py") + " lock",
        needs=("python3",),
        names="puts_in_store",
    ),
    Row(
        "python-loop",
        "an event loop whose tasks sleep in the middle of their turns",
        ("blocked_turn",),
        command="python3 " + str(HERE / "gil.py") + " loop",
        needs=("python3",),
        names="charges_card",
    ),
    Row(
        "openmp",
        "8 threads of OpenMP on 2 CPUs",
        ("oversubscribed", "futex_barrier"),
        command="OMP_NUM_THREADS=8 OMP_WAIT_POLICY=passive omp 3000",
        quick=False,
    ),
    Row(
        "x264",
        "16 threads on 2 CPUs",
        ("oversubscribed",),
        command="ffmpeg -v error -f lavfi -i testsrc2=s=640x360:d=4 -c:v libx264 -threads 16 -f null -",
        needs=("ffmpeg",),
        quick=False,
    ),
    Row(
        "fio",
        "random reads of 2 jobs, past the cache",
        ("block_io",),
        command="fio --name=x --rw=randread --direct=1 --bs=4k --size=64m --numjobs=2 --time_based --runtime=2 "
        "--thread --output=/dev/null",
        needs=("fio",),
        quick=False,
    ),
    Row(
        "redis",
        "a server that has a CPU, and a client that has the other: both sleep and wake at each command",
        (NOTHING, "idle_wakeup"),
        ("neighbour",),
        server="redis-server --port 7391 --save '' --daemonize no",
        beside=("redis-benchmark -p 7391 -q -c 8 -n 10000000 -t get",),
        needs=("redis-server", "redis-benchmark"),
        quick=False,
        seconds=2.0,
    ),
    Row(
        "redis-idle",
        "a server without clients",
        (NOTHING,),
        server="redis-server --port 7391 --save '' --daemonize no",
        needs=("redis-server",),
        quick=False,
        seconds=2.0,
    ),
)


@dataclasses.dataclass
class Outcome:
    """What was said of a row."""

    row: Row
    first: str
    seen: str
    verdict: str
    took_s: float
    differs: str = ""


class Bench:
    """A directory with the programs, the recorder, and what was started."""

    def __init__(self, place: Path, swtch: Path, options: argparse.Namespace) -> None:
        self.place = place
        self.swtch = swtch
        self.options = options
        self.names = {name: f"w{number}" if options.renamed else name for number, name in enumerate(("causes", "omp"))}
        self.build("causes.c", "causes", ["-pthread"])
        self.has_omp = self.build("omp.c", "omp", ["-fopenmp"], must=False)
        self.environment = {
            **os.environ,
            "PATH": f"{place}:{os.environ['PATH']}",
            **({"RENAMED": "1"} if options.renamed else {}),
        }

    def build(self, source: str, name: str, words: list[str], *, must: bool = True) -> bool:
        built = self.place / self.names[name]
        command = ["cc", "-O2", "-o", str(built), str(HERE / source), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and must:
            sys.exit(f"run.py: {' '.join(command)}: {done.stderr}")
        return done.returncode == 0

    def words(self, command: str) -> list[str]:
        for name, given in self.names.items():
            command = re.sub(rf"(?<![\w./-]){name}(?![\w.-])", given, command)
        return ["sh", "-c", f"exec {command}" if "=" not in command.split()[0] else f"exec env {command}"]

    @contextlib.contextmanager
    def started(self, words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A program in a session of its own, which is ended with all that it has started."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(
            words, cwd=self.place, env=self.environment, start_new_session=True, **quiet
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def record(self, row: Row) -> tuple[Path, str]:
        """Records the row; its trace, and what its program printed."""
        trace = self.place / f"{row.name}.swtch"
        shutil.rmtree(trace, ignore_errors=True)
        if row.prepare:
            made = subprocess.run(["sh", "-c", row.prepare], cwd=self.place, env=self.environment, check=False)
            if made.returncode:
                raise RuntimeError(f"{row.prepare}: it ended with {made.returncode}")
        record = [str(self.swtch), "record", "-o", str(trace)]
        with contextlib.ExitStack() as stack:
            if self.options.beside_hogs:
                for _ in range(2):
                    stack.enter_context(self.started(self.words("causes compute 60")))
            if row.server:
                server = stack.enter_context(self.started(self.words(row.server)))
                time.sleep(row.ready_s)
                record += self.of_machine(row) or ["-p", str(server.pid), "-d", str(row.seconds)]
            for command in row.beside:
                stack.enter_context(self.started(self.words(command)))
            if row.beside or row.server:
                time.sleep(0.2)
            limited: list[str] = []
            if row.quota_pct:
                group = stack.enter_context(quota(row.quota_pct, row.inner))
                limited = ["sh", "-c", f'echo $$ > {group}; exec "$@"', "-"]
            if row.command and self.options.whole_machine:
                again = ["sh", "-c", 'while :; do "$@"; done', "-"]
                stack.enter_context(self.started([*limited, *again, *self.words(row.command)]))
                record += self.of_machine(row)
            elif row.command:
                record = [*limited, *record, "--", *self.words(row.command)]
            done = subprocess.run(
                record,
                cwd=self.place,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        if not (trace / "meta.json").exists():
            raise RuntimeError(f"nothing was recorded: {done.stderr.strip()}")
        return trace, done.stdout

    def of_machine(self, row: Row) -> list[str]:
        """How to record the whole machine, if that is wanted."""
        return ["-a", "-d", str(row.seconds)] if self.options.whole_machine else []

    def run(self, row: Row) -> Outcome:
        begun = time.monotonic()
        trace, printed = self.record(row)
        explain = [str(self.swtch), "explain", "--no-bill", "--format", "json", str(trace)]
        told = json.loads(subprocess.run(explain, capture_output=True, text=True, check=True).stdout)
        findings = told["findings"]
        numbered = [one for one in findings if one["number"] is not None]
        first = numbered[0]["name"] if numbered else NOTHING
        seen = numbered[0]["seen"] if numbered else told["without_findings"] or ""
        right = row.right
        if self.options.beside_hogs and NOTHING in right:
            # Beside busy loops on every CPU somebody else has the CPU, and that is true.
            right += ("neighbour",)
        if mostly_queued(printed):
            # So it is whenever the kernel says that the threads waited for a CPU for most of the time.
            right += ("neighbour", "oversubscribed")
        if self.options.whole_machine and {"oversubscribed", "neighbour"} & {*right}:
            # Who is the program and who its neighbour is a question of the programs of a machine.
            right += ("crowded_machine",)
        verdict = "right" if first in right else "half" if first in row.half else "wrong"
        if verdict == "right" and not re.search(row.names, told_of_first(told, numbered, seen)):
            verdict = "wrong"
        differs = difference(told, printed) if row.is_counted and not self.options.whole_machine else ""
        if not self.options.keep:
            shutil.rmtree(trace, ignore_errors=True)
        return Outcome(row, first, seen, verdict, time.monotonic() - begun, differs)


def told_of_first(told: dict[str, Any], numbered: list[dict[str, Any]], seen: str) -> str:
    """All that is said of the first cause; where there is none, of what else stands on the first screen."""
    of = numbered[:1] or told["findings"][:3]
    return "\n".join([seen, *(line for one in of for line in (one["seen"], *one["places"], one["advice"] or ""))])


# What the kernel charges a thread and what lies between two switches differ by the switches themselves, and by the
# recorder in them: seen, 13 us each for a thread that wakes an idle CPU of a virtual machine.
NEAR_PCT = 15
NEAR_S = 0.02
NEAR_S_PER_SWITCH = 30e-6


def mostly_queued(printed: str) -> bool:
    """Whether the program's threads waited longer for a CPU than they ran, by the kernel's own account."""
    return any(float(queued) > float(ran) for ran, queued in re.findall(TRUTH, printed))


def difference(told: dict[str, Any], printed: str) -> str:
    """How what was measured differs from what the kernel says of the program's threads; empty if it agrees."""
    truth = re.findall(TRUTH, printed)
    if len(truth) != 1:
        return ""
    lost, switches = told["lost"], told["reasons_total"]["switches"]
    ran, queued = map(float, truth[0])
    for what, theirs, ours in (("ran", ran, lost["ran_ns"] / 1e9), ("no CPU", queued, lost["no_cpu_ns"] / 1e9)):
        if abs(theirs - ours) > max(NEAR_S, theirs * NEAR_PCT / 100) + switches * NEAR_S_PER_SWITCH:
            return f"{what}: {ours:.3f} s, and {theirs:.3f} s by the kernel"
    return ""


@contextlib.contextmanager
def quota(percent: int, inner: str) -> Iterator[Path]:
    """A cgroup with a quota of CPU time: the file that takes the processes that are to be in it, or in `inner`."""
    root = Path("/sys/fs/cgroup")
    older = root / "cpu"
    of_2 = (root / "cgroup.controllers").exists() and "cpu" in (root / "cgroup.controllers").read_text().split()
    group = (root if of_2 or not older.is_dir() else older) / f"swtch-causes-{os.getpid()}"
    group.mkdir()
    try:
        if group.parent == older:
            (group / "cpu.cfs_quota_us").write_text(str(percent * 1000))
        else:
            with contextlib.suppress(OSError):
                (root / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{percent * 1000} 100000")
        (group / inner).mkdir(exist_ok=True)
        yield group / inner / "cgroup.procs"
    finally:
        for _ in range(50):
            try:
                if inner:
                    (group / inner).rmdir()
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def why_not(row: Row, bench: Bench) -> str:
    """Why a row cannot be tried here; empty if it can."""
    missing = [name for name in row.needs if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}"
    if "omp " in row.command and not bench.has_omp:
        return "no OpenMP"
    return ""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the rows that CI tries")
    parser.add_argument("--only", nargs="+", default=[], help="these rows")
    parser.add_argument("--renamed", action="store_true", help="programs and threads under other names")
    parser.add_argument("--beside-hogs", action="store_true", help="beside two busy loops")
    parser.add_argument("--whole-machine", action="store_true", help="record the machine (-a), and not the program")
    parser.add_argument("--keep", type=Path, help="where the traces go, and stay")
    return parser.parse_args()


def main() -> int:
    chosen = options()
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    swtch = Path(os.environ.get("SWTCH", target / "debug/swtch"))
    if not swtch.exists():
        print(f"run.py: there is no {swtch}: build it, or name another with SWTCH")
        return 2
    if os.geteuid() != 0 or shutil.which("cc") is None:
        print("run.py: passed over: it needs root, and a compiler for C")
        return PASSED_OVER
    rows = [row for row in ROWS if (not chosen.quick or row.quick) and (not chosen.only or row.name in chosen.only)]
    counts = {"right": 0, "half": 0, "wrong": 0, "skipped": 0, "differs": 0}
    with tempfile.TemporaryDirectory() as scratch:
        place = chosen.keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        # Servers run without rights, and have their files here.
        place.chmod(0o755)
        bench = Bench(place, swtch, chosen)
        for row in rows:
            why = why_not(row, bench)
            if why:
                counts["skipped"] += 1
                print(f"{row.name:12} skipped  {why}", flush=True)
                continue
            # Other programs may have taken the CPUs for a moment, and then that is the truth: what is wrong
            # three times in a row is wrong.
            for _ in range(TRIES):
                outcome = bench.run(row)
                if outcome.verdict != "wrong" and not outcome.differs:
                    break
                print(f"{row.name:12} again    {outcome.first} {outcome.differs}", flush=True)
            counts[outcome.verdict] += 1
            counts["differs"] += bool(outcome.differs)
            print(f"{row.name:12} {outcome.verdict:7}  {outcome.took_s:4.1f} s  {outcome.first}", flush=True)
            print(f"    truth: {row.truth}\n    said:  {outcome.seen}", flush=True)
            if outcome.differs:
                print(f"    DIFFERS from the kernel: {outcome.differs}", flush=True)
    print(f"{counts['right']} right, {counts['half']} half, {counts['wrong']} wrong; {counts['differs']} differ from the kernel")
    failed = counts["wrong"] + counts["differs"]
    passed = counts["right"] + counts["half"]
    print(
        f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; {counts['skipped']} skipped; "
        "the corpus of causes"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
