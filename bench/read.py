#!/usr/bin/env python3
"""How long the answers about a large trace take, and how much memory.

Traces are made up by the example `make_trace`, so that everybody has the same ones: 400 tasks whose CPUs are idle for
half of the time, and 400 tasks that crowd two CPUs, where each wait in a run queue spans the runs of fifty others, as
in `perf bench sched messaging`. Each round asks every question of every trace once with each program, in an order that
is rotated from round to round. All rounds find the traces in the page cache.

Time and memory are those of the process itself (getrusage(2)), and its answer goes to a file. No root.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any

import harness
from harness import Failed, Spread, Totals, Used, shown

ROUNDS = 5
# Making a trace of 100 million rows takes minutes.
LIMIT_S = 1800

# What is asked of each trace.
QUESTIONS = ("explain", "report --by preemptor", "report --by reason")

# The made-up loads: their names, and what `make_trace` is told.
LOADS = {
    "half idle": "--threads 400 --cpus 16",
    "crowded": "--threads 400 --cpus 2 --crowded 50",
}


@dataclasses.dataclass(frozen=True)
class Trace:
    """A trace that is read."""

    name: str
    path: Path
    totals: Totals

    def read(self) -> None:
        """Brings it into the page cache."""
        for file in self.path.rglob("*"):
            if file.is_file():
                file.read_bytes()


@dataclasses.dataclass(frozen=True)
class Question:
    """One program asked one thing about one trace, over all rounds."""

    trace: Trace
    words: str
    program: str
    runs: list[Used] = dataclasses.field(default_factory=list)

    def ask(self) -> None:
        """Asks once, as a person does."""
        words = [self.program, *self.words.split(), str(self.trace.path)]
        self.runs.append(harness.run(words, limit_s=LIMIT_S).used)

    def row(self) -> list[str]:
        """Its line of the table."""
        totals = self.trace.totals
        return [
            self.trace.name,
            str(totals.switches),
            f"{totals.bytes / totals.switches:.1f}" if totals.switches else harness.NOTHING,
            self.words,
            self.program,
            shown(Spread.of(run.wall_ns / 1e9 for run in self.runs), 2),
            shown(Spread.of(run.cpu_ns / 1e9 for run in self.runs), 2),
            shown(Spread.of(run.peak_bytes / 1e6 for run in self.runs), 0),
        ]

    def as_json(self) -> dict[str, Any]:
        """Every run of it."""
        return {
            "trace": self.trace.name,
            "switches": self.trace.totals.switches,
            "bytes": self.trace.totals.bytes,
            "question": self.words,
            "program": self.program,
            "runs": [run._asdict() for run in self.runs],
        }


def find_maker(swtch: str) -> str:
    """The example that makes traces up: what SWTCH_MAKE_TRACE names, or beside the program where cargo builds it."""
    path = Path(os.environ.get("SWTCH_MAKE_TRACE", Path(swtch).parent / "examples/make_trace"))
    if not path.is_file():
        raise Failed(f"no {path}: cargo build --release -p swtch --examples, or SWTCH_MAKE_TRACE=PATH")
    return str(path)


def make_trace(maker: str, load: str, switches: int, path: Path) -> Trace:
    """Makes one up. A million switches a second is a busy machine."""
    harness.say(f"making a trace: {load}, {switches} switches")
    words = f"--switches {switches} --seconds {max(1, switches // 1_000_000)} {LOADS[load]}"
    harness.run([maker, str(path), *words.split()], limit_s=LIMIT_S)
    return Trace(load, path, harness.trace_totals(path))


def parsed() -> argparse.Namespace:
    """The options."""
    parser = harness.options_of(__doc__, rounds=str(ROUNDS))
    add = parser.add_argument
    add("--switches", type=harness.positive, action="append", metavar="N",
        help="size of the made-up traces (default 10000000); again for more")  # fmt: skip
    add("--trace", type=Path, action="append", metavar="PATH", help="read this trace instead; again for more")
    add("--swtch", type=Path, action="append", metavar="PATH", help="the swtch to measure; again to compare")
    return parser.parse_args()


def benchmark() -> None:
    """Measures, and prints the table."""
    options = parsed()
    rounds = options.rounds or ROUNDS
    programs = [harness.find_swtch(path) for path in options.swtch or [None]]
    facts = harness.host_facts(programs)
    with harness.scratch() as folder:
        if options.trace:
            traces = [Trace(path.stem, path, harness.trace_totals(path)) for path in options.trace]
        else:
            maker = find_maker(programs[0])
            sizes = options.switches or [10_000_000]
            traces = [
                make_trace(maker, load, switches, folder / f"{load}-{switches}.swtch")
                for switches in sizes
                for load in LOADS
            ]
        for trace in traces:
            trace.read()
        questions = [Question(trace, words, program) for trace in traces for words in QUESTIONS for program in programs]
        for turn in range(rounds):
            harness.say(f"round {turn + 1}/{rounds}")
            for question in harness.rotated(questions, turn):
                question.ask()
    print(f"{harness.heading(facts, rounds)}.\n\n{table(questions, len(programs) > 1)}")
    answer = {"host": facts, "rounds": rounds, "arms": [question.as_json() for question in questions]}
    harness.write_json(options.json, answer)


def table(questions: list[Question], compares: bool) -> str:
    """The table, which names the program only where there are several."""
    head = ["trace", "switches", "bytes/switch", "swtch …", "program", "wall, s", "CPU, s", "peak MB"]
    rows = [head, *(question.row() for question in questions)]
    return harness.markdown(rows if compares else [[*row[:4], *row[5:]] for row in rows])


if __name__ == "__main__":
    harness.main(benchmark)
