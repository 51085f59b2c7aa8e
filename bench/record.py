#!/usr/bin/env python3
"""What recording costs on this machine now, compared with other recorders.

One benchmark is run bare and under each tool, in rounds. Every arm runs once a round, in an order that is rotated from
round to round, and is compared only with the bare run of its own round: machines change speed between minutes, so
numbers that were measured apart are not comparable.

    round 1   bare  swtch  without  perf  …     ratio of swtch = swtch / bare, within the round
    round 2   swtch  without  perf  …  bare     reported: median (min–max) over the rounds

The CPU time that counts is the benchmark's own (see used.py): a tool slows the switching tasks down from inside the
kernel. What the tool itself uses, to drain and to write, is in a column of its own. The numbers stand beside what is
aimed at; they do not decide the exit code. Needs root, perf and taskset; runqlat and offcputime are measured if they
are installed (libbpf-tools).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
from harness import NOTHING, Child, Failed, Spread, Totals, shown

WRAPPER = Path(__file__).resolve().with_name("used.py")
PERF_PACKAGE = "linux-perf (Debian) or linux-tools-generic (Ubuntu)"
# Fewer rounds than this do not show the spread.
ROUNDS = 5
QUICK_ROUNDS = 2
# Time for a tool that runs beside the benchmark to attach (libbpf-tools take 0.3 s).
TIME_TO_ATTACH_S = 1.0

# Programs that do little but switch, with their work and a tenth of it:
# pipe       two processes pass a token on one CPU, without idle time: every nanosecond added to a switch shows
# messaging  400 processes send messages through sockets on all CPUs
# storm      as many switches as two CPUs make, for 5 seconds; it tries the recorder, so only swtch records it
BENCHMARKS = {
    "pipe": ("taskset -c 1 perf bench sched pipe -l {}", 200_000, 20_000),
    "messaging": ("perf bench sched messaging -g 10 -l {}", 200, 20),
    "storm": ("swtch workload storm", 0, 0),
}
STORM_UNDER = "swtch record"


@dataclasses.dataclass(frozen=True)
class Tool:
    """An arm of the experiment. Words that end with `--` take the benchmark's; others run beside it, until SIGINT."""

    name: str
    words: str = ""
    # What its recording holds, by the path of that and by what the tool said.
    totals: Callable[[Path, str], Totals] | None = None

    @property
    def records_the_command_only(self) -> bool:
        """Then its count must equal the kernel's count of the command's switches."""
        return self.totals is swtch_totals


def swtch_totals(recording: Path, _: str) -> Totals:
    """What a trace holds."""
    return harness.trace_totals(recording)


def perf_totals(recording: Path, said: str) -> Totals:
    """What a file of perf's holds."""
    stats = harness.run([harness.needed("perf", PERF_PACKAGE), "report", "--stats", "-i", str(recording)]).stdout
    lost, unit = lost_by_perf(said)
    return Totals(switches_in(stats), recording.stat().st_size, lost, unit)


def switches_in(stats: str) -> int:
    """How many samples of `sched_switch` there are, by `perf report --stats`."""
    found = re.search(r"^sched:sched_switch stats:\n\s+SAMPLE events:\s+(\d+)", stats, re.MULTILINE)
    if found is None:
        raise Failed("perf report --stats names no number of sched:sched_switch: is this another perf?")
    return int(found[1])


def lost_by_perf(said: str) -> tuple[int, str]:
    """perf says `lost 3 chunks!` or `lost 12 samples`, and nothing when nothing was lost."""
    found = re.search(r"\blost (\d+) (chunk|sample)", said)
    return (int(found[1]), f"{found[2]}s") if found else (0, "chunks")


# `bare again` is bare once more: its ratio to bare is the noise of the machine.
TOOLS = (
    Tool("bare"),
    Tool("bare again"),
    Tool("swtch record", "swtch record -o RECORDING --", swtch_totals),
    Tool("swtch record --no-stacks", "swtch record --no-stacks -o RECORDING --", swtch_totals),
    Tool("swtch record --summary", "swtch record --summary --"),
    Tool("perf sched record", "perf sched record -o RECORDING --", perf_totals),
    Tool("runqlat", "runqlat"),
    Tool("offcputime", "offcputime"),
)


# --- One run. ---


class Watched(Child):
    """A tool whose own peak memory is read while it runs: ru_maxrss would be the maximum over its children too."""

    peak_bytes = 0

    def look(self) -> None:
        """One that has just ended has no memory any more: the reading before counts."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        if found:
            self.peak_bytes = max(self.peak_bytes, int(found[1]) * 1024)


@dataclasses.dataclass
class Run:
    """The measurements of one run, with its place in the experiment. What does not apply is None."""

    round: int
    benchmark: str
    tool: Tool
    # The benchmark's own, by the kernel's account, and what the wrapper around it took.
    cpu_ns: int
    wall_ns: int
    switches: int
    wrapper_cpu_ns: int
    tool_cpu_ns: int | None = None
    tool_peak_bytes: int | None = None
    recorded: Totals | None = None

    @property
    def switches_per_s(self) -> float:
        """By the kernel's count."""
        return self.switches / self.wall_ns * 1e9

    @property
    def tool_cores_per_100k_switches_per_s(self) -> float | None:
        """CPUs are CPU seconds a second, so the rate cancels out: CPU seconds for 100,000 switches."""
        return None if self.tool_cpu_ns is None else self.tool_cpu_ns / 1e9 / self.switches * 1e5

    @property
    def tool_cpu_ms(self) -> float | None:
        """What the tool itself used."""
        return None if self.tool_cpu_ns is None else self.tool_cpu_ns / 1e6

    @property
    def tool_peak_mb(self) -> float | None:
        """The most memory that the tool itself had."""
        return None if self.tool_peak_bytes is None else self.tool_peak_bytes / 1e6

    @property
    def bytes_per_switch(self) -> float | None:
        """Of the finished recording."""
        return self.recorded.bytes / self.recorded.switches if self.recorded and self.recorded.switches else None

    @property
    def recorded_pct(self) -> float | None:
        """Recorded switches in percent of those that the kernel counted, for a tool that records no other task."""
        if self.recorded is None or not self.tool.records_the_command_only:
            return None
        return 100 * self.recorded.switches / self.switches

    def as_json(self) -> dict[str, Any]:
        """Its entry in the file."""
        recorded = self.recorded._asdict() if self.recorded else None
        return {**vars(self), "tool": self.tool.name, "recorded": recorded}


class Measurer:
    """Runs benchmarks under tools."""

    def __init__(self, swtch: str, quick: bool) -> None:
        self.quick = quick
        self.programs = {
            "swtch": swtch,
            "perf": harness.needed("perf", PERF_PACKAGE),
            "taskset": harness.needed("taskset", "util-linux"),
            "runqlat": harness.installed("runqlat"),
            "offcputime": harness.installed("offcputime"),
        }
        for name, path in self.programs.items():
            if path is None:
                harness.say(f"not installed, left out: {name} (package libbpf-tools)")

    def tools_for(self, benchmark: str) -> list[Tool]:
        """The arms of a benchmark, bare first, of what is installed."""
        if benchmark == "storm":
            return [tool for tool in TOOLS if tool.name == STORM_UNDER]
        return [tool for tool in TOOLS if not tool.words or self.programs[tool.words.split()[0]]]

    def words(self, line: str) -> list[str]:
        """A command, with the programs' paths in place of their names. `perf` may stand behind `taskset`."""
        return [self.programs.get(word) or word for word in line.split()]

    def measure(self, turn: int, benchmark: str, tool: Tool) -> Run:
        """Runs a benchmark once under a tool. The recording goes with its folder."""
        line, whole, tenth = BENCHMARKS[benchmark]
        with harness.scratch() as folder:
            used, recording = folder / "used.json", folder / "recording.swtch"
            # Without the modules of the site, Python starts in 10 ms.
            wrapper = [sys.executable, "-I", "-S", str(WRAPPER), str(used)]
            command = [*wrapper, *self.words(line.format(tenth if self.quick else whole))]
            words = [str(recording) if word == "RECORDING" else word for word in self.words(tool.words)]
            if not words:
                harness.run(command)
                return Run(turn, benchmark, tool, **read_used(used))
            is_around = words[-1] == "--"
            with Watched([*words, *command] if is_around else words) as child:
                if not is_around:
                    run_beside(child, command)
                tool_cpu_ns = child.finish().cpu_ns
                said = harness.text_of(child.stderr)
            of_benchmark = read_used(used)
            if is_around:
                tool_cpu_ns -= of_benchmark["cpu_ns"] + of_benchmark["wrapper_cpu_ns"]
            recorded = tool.totals(recording, said) if tool.totals else None
            return Run(turn, benchmark, tool, **of_benchmark, tool_cpu_ns=max(0, tool_cpu_ns),
                       tool_peak_bytes=child.peak_bytes, recorded=recorded)  # fmt: skip


def read_used(file: Path) -> dict[str, Any]:
    """What the wrapper wrote."""
    if not file.is_file():
        raise Failed(f"no {file}: the tool did not run its command")
    return json.loads(file.read_text())


def run_beside(tool: Watched, command: list[str]) -> None:
    """Runs the benchmark while the tool runs, and interrupts that."""
    time.sleep(TIME_TO_ATTACH_S)
    if tool.ends_within(0):
        tool.fail("ended before the benchmark began")
    harness.run(command)
    tool.look()
    tool.interrupt()


# --- All runs. ---

OF_EACH_RUN = (
    "switches_per_s",
    "tool_cpu_ms",
    "tool_cores_per_100k_switches_per_s",
    "tool_peak_mb",
    "bytes_per_switch",
    "recorded_pct",
)


class Summary:
    """One line of the table: a benchmark under a tool, over all rounds."""

    def __init__(self, benchmark: str, tool: Tool, all_runs: list[Run]) -> None:
        self.benchmark = benchmark
        self.tool = tool
        runs = [run for run in all_runs if run.benchmark == benchmark and run.tool == tool]
        bare = {run.round: run for run in all_runs if run.benchmark == benchmark and run.tool.name == "bare"}
        pairs = [(run, bare[run.round]) for run in runs if run.round in bare]
        self.numbers = {
            "cpu_ratio": Spread.of(run.cpu_ns / bare.cpu_ns for run, bare in pairs),
            "extra_ns_per_switch": Spread.of((run.cpu_ns - bare.cpu_ns) / run.switches for run, bare in pairs),
            **{name: Spread.of(getattr(run, name) for run in runs) for name in OF_EACH_RUN},
        }
        # The losses of all rounds together, in the tool's own unit.
        recorded = [run.recorded for run in runs if run.recorded]
        self.lost = sum(each.lost for each in recorded) if recorded else None
        self.lost_unit = max(recorded, key=lambda each: each.lost).lost_unit if recorded else None

    def cell(self, name: str, digits: int, part: str = "") -> str:
        """A number with its spread, or one part of it alone."""
        spread = self.numbers[name]
        if spread is None or not part:
            return shown(spread, digits)
        return f"{getattr(spread, part):.{digits}f}"

    def row(self) -> list[str]:
        """Its line of the table."""
        return [
            self.benchmark,
            self.tool.name,
            self.cell("cpu_ratio", 2),
            self.cell("extra_ns_per_switch", 0),
            self.cell("switches_per_s", 0, "median"),
            self.cell("tool_cpu_ms", 0),
            self.cell("tool_cores_per_100k_switches_per_s", 3, "median"),
            self.cell("tool_peak_mb", 0, "max"),
            self.cell("bytes_per_switch", 1, "median"),
            self.cell("recorded_pct", 2, "median"),
            NOTHING if self.lost is None else f"{self.lost} {self.lost_unit}",
        ]

    def as_json(self) -> dict[str, Any]:
        """Its entry in the file."""
        spreads = {name: spread and spread._asdict() for name, spread in self.numbers.items()}
        place = {"benchmark": self.benchmark, "tool": self.tool.name}
        return {**place, **spreads, "lost": self.lost, "lost_unit": self.lost_unit}


HEAD = (
    "benchmark",
    "under",
    "CPU, ratio to bare",
    "extra ns/switch",
    "switches/s",
    "own CPU, ms",
    "own cores at 100k/s",
    "peak MB",
    "bytes/switch",
    "recorded, %",
    "lost",
)

# What recording is aimed at: pipe may lose 16 % of its time at 400,000 switches less than under any
# peer that keeps every switch. The others keep the recorder small compared with what it records.
AIMS = (
    ("CPU time, ratio to bare", "pipe", "swtch record", "cpu_ratio", "≤", 1.16),
    ("bytes per switch", "pipe", "swtch record", "bytes_per_switch", "≤", 12),
    ("bytes per switch", "messaging", "swtch record", "bytes_per_switch", "≤", 12),
    ("switches per second", "storm", STORM_UNDER, "switches_per_s", "≥", 1_000_000),
    ("recorder's cores at 100,000 switches/s", "storm", STORM_UNDER, "tool_cores_per_100k_switches_per_s", "≤", 0.1),
    ("recorder's peak memory, MB", "storm", STORM_UNDER, "tool_peak_mb", "≤", 200),
)


def aim(what: str, side: str, bound: float, measured: float | None) -> dict[str, Any]:
    """An aim beside what was measured. What was not measured does not hold."""
    holds = measured is not None and (measured <= bound if side == "≤" else measured >= bound)
    return {"aim": what, "is": f"{side} {bound}", "measured": measured and round(measured, 3), "holds": holds}


def aims(summaries: list[Summary]) -> list[dict[str, Any]]:
    """All aims: they are about medians, and about the losses of all runs."""
    by_arm = {(each.benchmark, each.tool.name): each for each in summaries}
    rows = []
    for what, benchmark, tool, number, side, bound in AIMS:
        spread = by_arm[benchmark, tool].numbers[number]
        rows.append(aim(f"{benchmark}: {what}", side, bound, spread.median if spread else None))
    lost = sum(each.lost or 0 for each in summaries if each.tool.records_the_command_only)
    return [*rows, aim("switches lost, all runs of swtch", "≤", 0, lost)]


def measure_all(swtch: str, rounds: int, quick: bool) -> list[Run]:
    """Every arm of every benchmark, once a round."""
    measurer = Measurer(swtch, quick)
    runs = []
    for turn in range(rounds):
        for benchmark in BENCHMARKS:
            for tool in harness.rotated(measurer.tools_for(benchmark), turn):
                harness.say(f"round {turn + 1}/{rounds}: {benchmark} under {tool.name}")
                runs.append(measurer.measure(turn, benchmark, tool))
    return runs


def parsed() -> argparse.Namespace:
    """The options."""
    parser = harness.options_of(__doc__, rounds="5; 2 if quick")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: does everything run?")
    parser.add_argument("--swtch", type=Path, metavar="PATH", help="the swtch to measure")
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    return options


def benchmark() -> None:
    """Measures, and prints both tables."""
    options = parsed()
    if os.geteuid() != 0:
        raise Failed("recording needs root: sudo, or `make bench-record`")
    swtch = harness.find_swtch(options.swtch)
    facts = harness.host_facts([harness.needed("perf", PERF_PACKAGE), swtch])
    runs = measure_all(swtch, options.rounds, options.quick)
    arms = dict.fromkeys((run.benchmark, run.tool) for run in runs if run.round == 0)
    summaries = [Summary(benchmark, tool, runs) for benchmark, tool in arms]
    rows = aims(summaries)
    cells = [[row["aim"], row["is"], str(row["measured"]), "yes" if row["holds"] else "no"] for row in rows]
    no_measurement = ": too little for a measurement" if options.quick or options.rounds < ROUNDS else ""
    print(f"{harness.heading(facts, options.rounds)}{no_measurement}.\n")
    print(harness.markdown([HEAD, *(summary.row() for summary in summaries)]), end="\n\n")
    print(harness.markdown([("aim", "is", "measured", "holds"), *cells]))
    answer = {
        "schema": "swtch.bench-record/1",
        "host": facts,
        "rounds": options.rounds,
        "quick": options.quick,
        "summary": [summary.as_json() for summary in summaries],
        "aims": rows,
        "runs": [run.as_json() for run in runs],
    }
    harness.write_json(options.json, answer)


if __name__ == "__main__":
    harness.main(benchmark)
