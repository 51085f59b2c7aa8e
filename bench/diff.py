#!/usr/bin/env python3
"""How often `swtch diff` finds a change that is there, and how often it claims one that is not.

Real recordings of loads (diff_load.c) whose change is known by construction:

    preempt  a ticker of a higher class takes the CPU from a hog 1,000 times a second; then 1,050 times
    lock     one thread holds a lock for 500 us while another waits for it; then 550 us

Each round records runs of A, of B, of A again and of B again, in turns, and compares A with B, which differ, and A with
A and B with B, which do not; once by rates and once by whole runs (--per). A change counts as found when the figure
that it is about is surely worse; an alarm is any sure change of any figure between equals. Needs root and gcc; 20
rounds take half an hour.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import harness
from harness import NOTHING, Failed

LOAD = Path(__file__).resolve().with_name("diff_load.c")
ROUNDS = 20
RUNS = 5
NICE = -20
SURE = {"worse", "better", "more", "less"}
# A recording and a comparison take seconds.
LIMIT_S = 60
# Puts a session ahead of all others, where sessions are groups of the scheduler. The load is ahead by itself, too.
AHEAD = f'[ ! -w /proc/self/autogroup ] || echo {NICE} >/proc/self/autogroup && exec "$@"'


@dataclasses.dataclass(frozen=True)
class Load:
    """A load whose amount is changed, and the figure that must show it."""

    before: int
    after: int
    figure: str

    @property
    def changed_pct(self) -> float:
        """The true change."""
        return (self.after / self.before - 1) * 100


LOADS = {
    "preempt": Load(1000, 1050, "preemptions: ticker took from hog"),
    "lock": Load(500, 550, "waits for futex, p50"),
}
PER = ("run", "second")
# What is compared, by name: the two sets of runs. Between equals there is nothing to be found.
COMPARED = {"change": ("a", "b"), "equal_a": ("a", "again_a"), "equal_b": ("b", "again_b")}

Row = dict[str, Any]


class Player:
    """Records the loads, and compares what it recorded."""

    def __init__(self, swtch: str, folder: Path, seconds: int) -> None:
        self.swtch = swtch
        self.folder = folder
        self.seconds = seconds
        self.program = folder / "load"
        gcc = harness.needed("gcc", "gcc")
        harness.run([gcc, "-O2", "-pthread", "-o", str(self.program), str(LOAD)])

    def record(self, name: str, load: str, amount: int) -> str:
        """One run of a load. The command's words are the same for A and B: what differs is in the script."""
        script, trace = self.folder / "run", self.folder / f"{name}.swtch"
        script.write_text(f"#!/bin/sh\nexec nice -n {NICE} {self.program} {load} {amount} {self.seconds}\n")
        script.chmod(0o755)
        words = [self.swtch, "record", "-o", str(trace), "--", str(script)]
        harness.run(["sh", "-c", AHEAD, "ahead", *words], limit_s=LIMIT_S, in_session=True)
        return str(trace)

    def compare(self, one: list[str], other: list[str], per: str) -> list[Row]:
        """What swtch diff says of two sets of runs."""
        words = [self.swtch, "diff", "--per", per, "--format", "json", *one, "--", *other]
        return harness.run_json(words, limit_s=LIMIT_S)["rows"]

    def play(self, load: str, runs: int) -> list[Round]:
        """One round: the comparisons by whole runs, and those by rates."""
        amounts = {"a": LOADS[load].before, "b": LOADS[load].after}
        amounts.update({f"again_{side}": amount for side, amount in amounts.items()})
        traces: dict[str, list[str]] = {side: [] for side in amounts}
        for run in range(runs):
            for side, amount in amounts.items():
                traces[side].append(self.record(f"{side}-{run}", load, amount))
        rounds = []
        for per in PER:
            rows = {name: self.compare(traces[one], traces[other], per) for name, (one, other) in COMPARED.items()}
            rounds.append(Round(load, per, rows))
        for of_side in traces.values():
            for trace in of_side:
                shutil.rmtree(trace)
        return rounds


@dataclasses.dataclass(frozen=True)
class Round:
    """The three comparisons of one round, by rates or by whole runs."""

    load: str
    per: str
    rows: dict[str, list[Row]]

    @property
    def figure(self) -> Row | None:
        """The figure that the change is about, if it was compared."""
        named = (row for row in self.rows["change"] if row["figure"] == LOADS[self.load].figure)
        return next(named, None)

    @property
    def is_found(self) -> bool:
        """Whether the change was."""
        return self.figure is not None and self.figure["verdict"] == "worse"

    @property
    def alarms(self) -> list[list[str]]:
        """What was claimed between equals, in each of the two comparisons."""
        equal = [self.rows["equal_a"], self.rows["equal_b"]]
        return [[f"{row['figure']} {change_of(row)}" for row in rows if row["verdict"] in SURE] for rows in equal]

    def line(self) -> str:
        """All of it in one line."""
        figure = f"{self.figure['verdict']} {change_of(self.figure)}" if self.figure else "not compared"
        alarms = "; ".join(alarm for each in self.alarms for alarm in each)
        return f"{self.load}, per {self.per}: {figure}; equals: {alarms or 'no alarm'}"


def ends_of(row: Row) -> tuple[float | None, float | None, float | None]:
    """A change in percent, and the ends of its interval."""
    return row["change_pct"], row["low_pct"], row["high_pct"]


def change_of(row: Row) -> str:
    """By how much a figure changed, with its interval."""
    ends = ends_of(row)
    return "(no percentage)" if None in ends else "{:+.1f} % ({:+.1f} to {:+.1f})".format(*ends)


def table_row(load: str, per: str, rounds: list[Round]) -> list[str]:
    """How often, over all rounds of a load."""
    figures = [each.figure for each in rounds if each.figure and None not in ends_of(each.figure)]
    widths = [(figure["high_pct"] - figure["low_pct"]) / 2 for figure in figures]
    covered = sum(figure["low_pct"] <= LOADS[load].changed_pct <= figure["high_pct"] for figure in figures)
    equals = [alarms for each in rounds for alarms in each.alarms]
    return [
        f"{load}: {LOADS[load].figure}, by {LOADS[load].changed_pct:.0f} %",
        f"--per {per}",
        f"{sum(each.is_found for each in rounds)} of {len(rounds)}",
        f"{statistics.median(widths):.1f} % ({max(widths):.1f} %)" if widths else NOTHING,
        f"{covered} of {len(figures)}",
        f"{sum(not alarms for alarms in equals)} of {len(equals)}",
    ]


HEAD = (
    "change",
    "compared",
    "found",
    "half width of its interval, median (worst)",
    "interval holds the true change",
    "no alarm between equals",
)


def parsed() -> argparse.Namespace:
    """The options."""
    parser = harness.options_of(__doc__, rounds=str(ROUNDS))
    add = parser.add_argument
    add("--runs", type=harness.positive, default=RUNS, metavar="N", help=f"runs of each side (default: {RUNS})")
    add("--seconds", type=harness.positive, default=1, metavar="N", help="length of a run (default: 1)")
    add("--only", choices=LOADS, help="this load alone")
    add("--swtch", type=Path, metavar="PATH", help="the swtch to measure")
    return parser.parse_args()


def benchmark() -> None:
    """Measures, and prints the table."""
    options = parsed()
    if os.geteuid() != 0:
        raise Failed("recording needs root: sudo, or `make bench-diff`")
    swtch = harness.find_swtch(options.swtch)
    facts = harness.host_facts([swtch])
    count = options.rounds or ROUNDS
    rounds: list[Round] = []
    with harness.scratch() as folder:
        player = Player(swtch, folder, options.seconds)
        for turn in range(count):
            for load in [options.only] if options.only else LOADS:
                played = player.play(load, options.runs)
                for each in played:
                    harness.say(f"round {turn + 1}/{count}: {each.line()}")
                rounds += played
    arms = dict.fromkeys((each.load, each.per) for each in rounds)
    rows = [table_row(*arm, [each for each in rounds if (each.load, each.per) == arm]) for arm in arms]
    rounds_are = f"Rounds: {count}, each {options.runs} times {options.seconds} s of each side"
    print(f"{harness.host_line(facts)}. {rounds_are}.\n\n{harness.markdown([HEAD, *rows])}")
    answer = {"host": facts, "rounds": [dataclasses.asdict(each) for each in rounds]}
    harness.write_json(options.json, answer)


if __name__ == "__main__":
    harness.main(benchmark)
