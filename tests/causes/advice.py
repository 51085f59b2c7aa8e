#!/usr/bin/env python3
"""What advice brings: programs before and after what swtch advises is done, in turns, and their own counters.

    tests/causes/advice.py [--only NAME …] [--rounds N]

Each row is one of `crates/swtch-report/src/report/verdict/advice.rs`. The figure is the program's own: pieces of work
that it did, time that it took, waits that lasted too long. Printed is the median of after to before over the rounds,
and the least and the largest; a row holds if the least of them is on the good side of 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CPU0 = "taskset -c 0 "
JAVA = "javac -d . " + str(HERE / "Causes.java")


@dataclasses.dataclass(frozen=True)
class Trial:
    """A row of the table of advice, and a program before and after."""

    name: str
    what: str
    before: str
    after: str
    # What of its output counts; empty for the time that it takes.
    figure: str = r"rounds (\d+)"
    is_more_better: bool = True
    needs: tuple[str, ...] = ()
    prepare: str = "true"
    # What runs beside, before and after.
    beside: str = ""


def mode(name: str) -> tuple[str, str]:
    return f"./causes {name} 1", f"./causes {name} 1 advised"


TRIALS = (
    Trial("OVERSUBSCRIBED", "OpenMP: 2 threads on 2 CPUs, not 8", "OMP_NUM_THREADS=8 OMP_WAIT_POLICY=passive ./omp 3000", "OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive ./omp 3000", "", False),
    Trial("NEIGHBOUR", "a CPU of its own", CPU0 + "./causes compute 1", "taskset -c 1 ./causes compute 1", r"ran ([\d.]+)", beside=CPU0 + "./causes compute 9"),
    Trial("REAL_TIME", "another CPU than the real-time task's", CPU0 + "./causes compute 1", "taskset -c 1 ./causes compute 1", r"ran ([\d.]+)", beside="chrt -f 50 " + CPU0 + "./causes compute 9", needs=("chrt",)),
    Trial("INVERSION", "a mutex that lends priority: waits over 2 ms", *mode("inversion"), r"timeouts (\d+)", False),
    Trial("YIELD", "block instead of sched_yield: CPU time", *mode("waits-by-yield"), r"ran ([\d.]+)", False),
    Trial("LOCK_ASLEEP", "let go of the lock before sleeping", *mode("lock")),
    Trial("BARRIER", "the same work for all", *mode("barrier"), "", False),
    Trial("TOKEN", "three tokens, not one", *mode("tokens")),
    Trial("COMMIT", "ten writes before each fsync", *mode("commits")),
    Trial("FILE_LOCK", "a file for each", *mode("one-file")),
    Trial("ADDRESS_SPACE", "memory is kept", *mode("maps")),
    Trial("GIL", "processes instead of threads", "python3 gil.py", "python3 gil.py processes", r"rounds (\d+)", needs=("python3",)),
    Trial("SERIAL", "a monitor that is held a tenth as long", "java Causes monitor 2", "java Causes monitor 2 50", r"rounds (\d+)", prepare=JAVA, needs=("javac",)),
    Trial("COLLECTOR", "a heap of 1 GB, not of 24 MB", "java -Xmx24m -XX:+UseSerialGC Causes garbage 2", "java -Xmx1g -XX:+UseSerialGC Causes garbage 2", r"rounds (\d+)", prepare=JAVA, needs=("javac",)),
    Trial("READ", "four threads read at once, not one", "fio --name=x --rw=randread --direct=1 --bs=4k --size=64m --numjobs=1 --time_based --runtime=1 --thread --output-format=terse", "fio --name=x --rw=randread --direct=1 --bs=4k --size=64m --numjobs=4 --time_based --runtime=1 --thread --group_reporting --output-format=terse", r"^(?:[^;]*;){7}(\d+)", needs=("fio",)),
    Trial("IDLE", "client and server on one CPU", "taskset -c 1 redis-benchmark -p 7391 -q -c 1 -n 20000 -t get", CPU0 + "redis-benchmark -p 7391 -q -c 1 -n 20000 -t get", r"([\d.]+) requests per second", beside=CPU0 + "redis-server --port 7391 --save '' --daemonize no", needs=("redis-server", "redis-benchmark")),
)


def run(command: str, place: Path, figure: str) -> float:
    """Its figure, or how long it took in seconds."""
    begun = time.monotonic()
    done = subprocess.run(["sh", "-c", command], cwd=place, capture_output=True, text=True, check=True)
    if not figure:
        return time.monotonic() - begun
    told = re.findall(figure, done.stdout.replace("\r", "\n"), re.MULTILINE)
    if not told:
        raise RuntimeError(f"{command}: no {figure} in {done.stdout[-300:]}")
    return float(told[-1])


def tried(trial: Trial, place: Path, rounds: int) -> tuple[list[float], float, float]:
    """After to before, and the median of either."""
    subprocess.run(["sh", "-c", trial.prepare], cwd=place, check=True)
    befores, afters = [], []
    beside = subprocess.Popen(["sh", "-c", f"while :; do {trial.beside}; done"], cwd=place, start_new_session=True, stdout=subprocess.DEVNULL) if trial.beside else None
    try:
        time.sleep(0.5 if beside else 0)
        for _ in range(rounds):
            befores.append(run(trial.before, place, trial.figure))
            afters.append(run(trial.after, place, trial.figure))
    finally:
        if beside:
            os.killpg(beside.pid, 9)
            beside.wait()
    # Where nothing is left after it, half of one stands for that.
    ratios = [(after or 0.5) / (before or 0.5) for before, after in zip(befores, afters, strict=True)]
    return ratios, statistics.median(befores), statistics.median(afters)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="these rows")
    parser.add_argument("--rounds", type=int, default=5, help="how often before and after are run, in turns")
    chosen = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for source, words in (("causes", ["-pthread"]), ("omp", ["-fopenmp"])):
            subprocess.run(["cc", "-O2", "-o", str(place / source), str(HERE / f"{source}.c"), *words], check=True)
        shutil.copy(HERE / "gil.py", place)
        for trial in TRIALS:
            if chosen.only and trial.name not in chosen.only:
                continue
            missing = [name for name in trial.needs if shutil.which(name) is None]
            if missing:
                print(f"{trial.name:15} skipped: no {', '.join(missing)}")
                continue
            ratios, before, after = tried(trial, place, chosen.rounds)
            holds = min(ratios) > 1 if trial.is_more_better else max(ratios) < 1
            failed += not holds
            print(
                f"{trial.name:15} {'holds' if holds else 'FAILS'}  {statistics.median(ratios):7.2f} times "
                f"({min(ratios):.2f} to {max(ratios):.2f}): {before:g} before, {after:g} after; {trial.what}",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
