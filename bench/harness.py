"""What the benchmarks share: commands and what they used, medians with their spread, the machine, tables.

A command that fails ends the benchmark, with the last lines of what it said. No number is judged here, and none
decides the exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

if sys.version_info < (3, 9):  # noqa: UP036, who has an older one is to be told
    sys.exit(f"error: the benchmarks need Python 3.9 or later, and this is {platform.python_version()}")

REPOSITORY = Path(__file__).resolve().parent.parent
# Pause between two looks at a running command.
LOOK_EVERY_MS = 20
# A command that is interrupted gets this long before it is killed.
TIME_TO_END_MS = 2000
# The longest that a command may take, unless its benchmark knows better.
LIMIT_S = 600
# Stands where a column does not apply or was not measured.
NOTHING = "–"

Arm = TypeVar("Arm")


class Failed(Exception):
    """Ends the benchmark: says what failed, on what, why, and what to do."""


def say(text: str) -> None:
    """Tells how far it is, on stderr: stdout is the answer."""
    print(text, file=sys.stderr, flush=True)


# --- Commands. ---


class Used(NamedTuple):
    """What a command and its descendants used, by the kernel's account (getrusage(2))."""

    cpu_ns: int
    wall_ns: int
    # Voluntary and involuntary ones together.
    switches: int
    # The most memory that one of them had at a time. This counts what the process had before it became the
    # command, so it is at least what Python has, some 15 MB.
    peak_bytes: int


class Child:
    """A command in a process group of its own, or a session, which ends with the `with` block at the latest.

    A session is a group of the scheduler too (autogroup), and gets a share of a busy CPU of its own.
    """

    def __init__(self, words: Sequence[str], in_session: bool = False) -> None:
        self.words = words
        self.stdout, self.stderr = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115, __exit__ closes them
        self.start_ns = time.monotonic_ns()
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self.stdout,
                stderr=self.stderr,
                # So that its own children end with it.
                preexec_fn=os.setsid if in_session else os.setpgrp,
            )
        except OSError as error:
            raise Failed(f"starting {words[0]}: {error.strerror}") from error
        self.pidfd = os.pidfd_open(self.process.pid)

    def __enter__(self: Arm) -> Arm:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            # After an error or Ctrl-C: SIGINT first, on which a recorder ends its command and detaches.
            self.interrupt()
            if not self.ends_within(TIME_TO_END_MS):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.pidfd)
        self.stdout.close()
        self.stderr.close()

    def interrupt(self) -> None:
        """Tells it to end. It may have ended meanwhile, which is as well."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def ends_within(self, milliseconds: int) -> bool:
        """Whether it ends in this time; it is not reaped."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(milliseconds))

    def look(self) -> None:
        """Is called again and again while it runs; there is nothing to look at by default."""

    def finish(self, good: Sequence[int] = (0,), limit_s: float = LIMIT_S) -> Used:
        """Waits for its end, and says what it used. Another exit code than a good one ends the benchmark."""
        while not self.ends_within(LOOK_EVERY_MS):
            self.look()
            if time.monotonic_ns() - self.start_ns > limit_s * 1e9:
                raise Failed(f"{' '.join(self.words)}: not done after {limit_s:g} s")
        _, status, usage = os.wait4(self.process.pid, 0)
        wall_ns = time.monotonic_ns() - self.start_ns
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode not in good:
            self.fail(f"ended with {self.process.returncode}")
        return Used(
            cpu_ns=round((usage.ru_utime + usage.ru_stime) * 1e9),
            wall_ns=wall_ns,
            switches=usage.ru_nvcsw + usage.ru_nivcsw,
            peak_bytes=usage.ru_maxrss * 1024,
        )

    def fail(self, how: str) -> NoReturn:
        """Ends the benchmark with the last lines of what the command said."""
        said = text_of(self.stderr).splitlines()[-10:]
        raise Failed("\n".join([f"{' '.join(self.words)}: {how}", *said]))


class Answer(NamedTuple):
    """A command that has ended as it should."""

    stdout: str
    stderr: str
    used: Used


def text_of(file: Any) -> str:
    """All that was written into a stream's file."""
    file.seek(0)
    return file.read().decode(errors="replace")


def run(words: Sequence[str], good: Sequence[int] = (0,), limit_s: float = LIMIT_S, in_session: bool = False) -> Answer:
    """Runs a command to its end, which must come with a good exit code."""
    with Child(words, in_session) as child:
        used = child.finish(good, limit_s)
        return Answer(text_of(child.stdout), text_of(child.stderr), used)


def run_json(words: Sequence[str], good: Sequence[int] = (0,), limit_s: float = LIMIT_S) -> Any:
    """Runs a command whose answer is JSON."""
    try:
        return json.loads(run(words, good, limit_s).stdout)
    except ValueError as error:
        raise Failed(f"the answer of {' '.join(words)} is no JSON: {error}") from error


def rotated(arms: Sequence[Arm], turn: int) -> list[Arm]:
    """The arms in the order of a round: each has each place once in as many rounds as there are arms."""
    places = turn % len(arms)
    return [*arms[places:], *arms[:places]]


# --- Programs and recordings. ---


def installed(program: str) -> str | None:
    """Where a program is: in PATH, or among those of the system, which sudo may leave out of it."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def needed(program: str, package: str) -> str:
    """Where a program is without which there is nothing to measure."""
    path = installed(program)
    if path is None:
        raise Failed(f"no {program} in PATH: install {package}")
    return path


def find_swtch(given: Path | None) -> str:
    """The swtch to measure: what was given, or what SWTCH names, or the release build of this tree."""
    path = given or Path(os.environ.get("SWTCH", REPOSITORY / "target/release/swtch"))
    if not path.is_file():
        raise Failed(f"no swtch at {path}: cargo build --release -p swtch, or --swtch PATH, or SWTCH=PATH")
    return str(path)


class Totals(NamedTuple):
    """What a finished recording holds; losses are in the unit of the recorder."""

    switches: int
    bytes: int
    lost: int
    lost_unit: str = "switches"


def trace_totals(trace: Path) -> Totals:
    """What a trace of swtch says that it holds, and its size."""
    path = trace / "meta.json"
    try:
        counts = json.loads(path.read_text())["counts"]
        size = sum(file.stat().st_size for file in trace.rglob("*") if file.is_file())
        return Totals(counts["stored"], size, counts["lost"])
    except OSError as error:
        raise Failed(f"reading {path}: {error.strerror}: is {trace} a trace of swtch?") from error
    except (KeyError, ValueError) as error:
        raise Failed(f"{path} does not say how many switches it holds ({error!r}): is it of another swtch?") from error


# --- Numbers. ---


class Spread(NamedTuple):
    """Median and extremes of one quantity over the rounds."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Of the values that there are; without any there is none."""
        known = [value for value in values if value is not None]
        return cls(statistics.median(known), min(known), max(known)) if known else None


def shown(spread: Spread | None, digits: int) -> str:
    """The median, followed by the extremes."""
    if spread is None:
        return NOTHING
    median, least, most = (f"{value:.{digits}f}".replace("-", "−") for value in spread)
    return f"{median} ({least}–{most})"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, its head first. The columns are aligned, so that it reads well in a terminal too."""
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


# --- The machine. ---


def host_facts(programs: Iterable[str]) -> dict[str, Any]:
    """The facts without which the numbers mean nothing."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    # x86 has a name; arm64 has only numbers.
    model = re.search(r"^(?:model name|CPU part)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return {
        "cpu": model[1] if model else "unnamed CPU",
        "cpus": len(os.sched_getaffinity(0)),
        # CPUID leaf 1, ecx bit 31, of x86.
        "virtual_machine": bool(re.search(r"^flags.*\bhypervisor\b", cpuinfo, re.MULTILINE)),
        "kernel": platform.release(),
        "load_average_before": round(os.getloadavg()[0], 2),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "versions": [run([program, "--version"]).stdout.splitlines()[0].strip() for program in programs],
    }


def host_line(facts: dict[str, Any]) -> str:
    """The facts in one line, for above a table."""
    machine = "virtual machine, " if facts["virtual_machine"] else ""
    return (
        f"{facts['cpu']}, {facts['cpus']} CPUs, {machine}Linux {facts['kernel']}, load {facts['load_average_before']}"
        f" before, {facts['date']}, {', '.join(facts['versions'])}"
    )


def heading(facts: dict[str, Any], rounds: int) -> str:
    """What stands above a table."""
    return f"{host_line(facts)}. Interleaved rounds: {rounds}; median (min–max)"


# --- Options, and the end. ---


def options_of(description: str, rounds: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have; `rounds` says what is done if no number of them is given."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, metavar="N", help=f"interleaved rounds (default: {rounds})")
    parser.add_argument("--json", type=to_be_written, metavar="FILE", help="write every run to this file")
    return parser


def positive(word: str) -> int:
    """A whole number above 0, for an option."""
    number = int(word)
    if number < 1:
        raise ValueError
    return number


def to_be_written(word: str) -> Path:
    """A file for the answer: that it cannot be is told before hours of measuring, not after."""
    if not Path(word).parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder for {word}")
    return Path(word)


def write_json(path: Path | None, answer: dict[str, Any]) -> None:
    """Writes the file that was asked for, if one was."""
    if path is None:
        return
    try:
        path.write_text(json.dumps(answer, indent=1) + "\n")
    except OSError as error:
        raise Failed(f"writing {path}: {error.strerror}") from error


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for what a measurement leaves, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="swtch-bench-") as folder:
        yield Path(folder)


def main(benchmark: Callable[[], None]) -> None:
    """Runs a benchmark. What ends it early, an error or a signal, ends its commands and removes its files too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        benchmark()
    except Failed as error:
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
