"""What scripts/bench-diff.sh found: bench-diff.py ANSWERS [MODE ROUND], a line for a round, or the table of all."""

import json
import statistics
import sys
from pathlib import Path

# By mode: the figure that the change is about, and by how many percent it was changed.
EXPECTED = {
    "preempt": ("preemptions: ticker took from hog", 5.0),
    "lock": ("waits for futex, p50", 10.0),
}
SURE = {"worse", "better", "more", "less"}


PER = ("second", "run")


def rows_of(answers: Path, mode: str, number: str, kind: str, per: str) -> list[dict]:
    return json.loads((answers / f"{mode}-{number}-{kind}-{per}.json").read_text())["rows"]


def sure(rows: list[dict]) -> list[str]:
    return [f"{row['figure']} {change_of(row)}" for row in rows if row["verdict"] in SURE]


def change_of(row: dict) -> str:
    ends = [row["change_pct"], row["low_pct"], row["high_pct"]]
    if None in ends:
        return "(no percentage)"
    return "{:+.1f} % ({:+.1f} to {:+.1f})".format(*ends)


class Round:
    """The three comparisons of one round, by rates or by whole runs."""

    def __init__(self, answers: Path, mode: str, number: str, per: str) -> None:
        self.number = number
        change = rows_of(answers, mode, number, "change", per)
        named = [row for row in change if row["figure"] == EXPECTED[mode][0]]
        self.figure = named[0] if named else None
        self.found = bool(named) and named[0]["verdict"] == "worse"
        equal = [rows_of(answers, mode, number, kind, per) for kind in ("equal_a", "equal_b")]
        self.alarms = [sure(rows) for rows in equal]

    def line(self) -> str:
        figure = f"{self.figure['verdict']} {change_of(self.figure)}" if self.figure else "not compared"
        alarms = [alarm for each in self.alarms for alarm in each]
        return f"{figure}; equals: {'; '.join(alarms) or 'no alarm'}"


def half_width(row: dict) -> float | None:
    ends = [row["low_pct"], row["high_pct"]]
    return None if None in ends else (ends[1] - ends[0]) / 2


def table(answers: Path, mode: str, per: str) -> str:
    names = answers.glob(f"{mode}-*-change-{per}.json")
    numbers = sorted((name.name.split("-")[1] for name in names), key=int)
    rounds = [Round(answers, mode, number, per) for number in numbers]
    if not rounds:
        return f"{mode}: no round"
    figure, by = EXPECTED[mode]
    compared = [one.figure for one in rounds if one.figure]
    widths = [width for row in compared if (width := half_width(row)) is not None]
    covered = [row for row in compared if row["low_pct"] is not None
               and row["low_pct"] <= by <= row["high_pct"]]
    equals = [alarms for one in rounds for alarms in one.alarms]
    quiet = sum(not alarms for alarms in equals)
    lines = [
        f"{mode}, per {per}: {figure}, changed by {by:g} %",
        f"  found          {sum(one.found for one in rounds)} of {len(rounds)}",
        f"  interval       half width, median {statistics.median(widths):.1f} %, worst {max(widths):.1f} %;"
        f" holds the true change in {len(covered)} of {len(compared)}" if widths else "  interval       none",
        f"  equal sides    no alarm in {quiet} of {len(equals)} comparisons",
    ]
    lines += [f"  missed         round {one.number}: {one.line()}" for one in rounds if not one.found]
    lines += [f"  alarm          {alarm}" for alarms in equals for alarm in alarms]
    return "\n".join(lines)


def main() -> None:
    answers = Path(sys.argv[1])
    if len(sys.argv) == 4:
        mode, number = sys.argv[2:]
        for per in PER:
            print(f"{mode} {number}, per {per}: {Round(answers, mode, number, per).line()}")
        return
    modes = [mode for mode in EXPECTED if any(answers.glob(f"{mode}-*-change-run.json"))]
    print("\n".join(table(answers, mode, per) for mode in modes for per in PER))


main()
