"""What the switches of traces cost: the program's bill (`swtch report --bill`) as an answer.

A bill joins switches with a price list of the machine. Which price stands for which switch, and the
bound on what caches lose, are rules of the program (`crates/swtch-core/src/cost/bill/`), so the
program makes the bill and this file gives it the shape of all other answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Literal

from .errors import Error
from .program import answer_of_program
from .trace_files import TraceFiles

# What a row of a bill can stand for.
By = Literal["reason", "process", "thread", "stack", "pair"]

# The same, with the columns that name it.
LABELS: dict[By, dict[str, str]] = {
    "reason": {"reason": "VARCHAR", "category": "VARCHAR"},
    "process": {
        "process": "VARCHAR",
        "pid": "UINTEGER",
        "command": "VARCHAR",
        "earlier_names": "VARCHAR[]",
    },
    "thread": {
        "thread": "VARCHAR",
        "tid": "UINTEGER",
        "pid": "UINTEGER",
        "process": "VARCHAR",
        "earlier_names": "VARCHAR[]",
    },
    "stack": {"user_frames": "VARCHAR[]", "kernel_frames": "VARCHAR[]", "folded": "VARCHAR"},
    "pair": {
        "thread": "VARCHAR",
        "tid": "UINTEGER",
        "pid": "UINTEGER",
        "next": "VARCHAR",
        "next_tid": "UINTEGER",
        "next_pid": "UINTEGER",
    },
}

MEASURES = {
    "switches": "BIGINT",
    "direct_ns": "BIGINT",
    "direct_low_ns": "BIGINT",
    "direct_high_ns": "BIGINT",
    "indirect_high_ns": "BIGINT",
    "share_of_wall_pct": "DOUBLE",
    "share_of_cpu_pct": "DOUBLE",
    "measured_pct": "DOUBLE",
    "ran_ns": "BIGINT",
    "unpriced": "BIGINT",
}

TARIFF = {
    "reason": "VARCHAR",
    "successor": "VARCHAR",
    "switches": "BIGINT",
    "direct_ns": "DOUBLE",
    "direct_low_ns": "DOUBLE",
    "direct_high_ns": "DOUBLE",
    "source": "VARCHAR",
    "basis": "VARCHAR",
    "because": "VARCHAR[]",
}


def bill_query(
    traces: Sequence[TraceFiles],
    by: By,
    prices: str | os.PathLike[str] | None,
    program: str | os.PathLike[str] | None,
) -> tuple[str, dict[str, Any], str]:
    """A question whose rows are those of the bills, its values, and what the bills note."""
    if by not in LABELS:
        raise Error(f"a bill is not by {by!r}: it is by {', '.join(LABELS)}")
    answers = _answers(traces, by, prices, program)
    rows = [{**row, "trace": name} for name, answer in answers for row in answer["rows"]]
    return _query({**LABELS[by], **MEASURES}, rows, _notes(answers))


def tariffs_query(
    traces: Sequence[TraceFiles],
    prices: str | os.PathLike[str] | None,
    program: str | os.PathLike[str] | None,
) -> tuple[str, dict[str, Any], str]:
    """As `bill_query`, with a row for each price that a bill uses."""
    answers = _answers(traces, "reason", prices, program)
    rows = [
        {**_tariff(one), "trace": name}
        for name, answer in answers
        for one in answer["prices"]["tariffs"]
    ]
    return _query(TARIFF, rows, _notes(answers))


def _answers(
    traces: Sequence[TraceFiles],
    by: str,
    prices: str | os.PathLike[str] | None,
    program: str | os.PathLike[str] | None,
) -> list[tuple[str, dict[str, Any]]]:
    words: list[str | os.PathLike[str]] = ["report", "--bill", "--by", by]
    if prices is not None:
        words.append(f"--prices={os.fspath(prices)}")
    # The directory is an absolute path, which is not taken for an option.
    return [(t.name, answer_of_program([*words, t.directory], program)) for t in traces]


def _tariff(told: dict[str, Any]) -> dict[str, Any]:
    """A price with one word for what it stands on, and the reasons for that."""
    row = {column: told.get(column) for column in TARIFF}
    if "unpriced_because" in told:
        row.update(basis="none", because=[told["unpriced_because"]])
    elif told["estimated_because"] is None:
        row.update(basis="measured", because=[])
    else:
        row.update(basis="estimated", because=told["estimated_because"])
    return row


def _notes(answers: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """What the bills say below their tables, each sentence once."""
    notes = [note for _, answer in answers for note in answer["notes"]]
    return "\n".join(dict.fromkeys(notes))


def _query(
    columns: dict[str, str], rows: list[dict[str, Any]], notes: str
) -> tuple[str, dict[str, Any], str]:
    kinds = {**columns, "trace": "VARCHAR"}
    picked = ", ".join(f'one."{name}"' for name in kinds)
    sql = f"SELECT {picked} FROM (SELECT unnest(from_json($rows, $kinds)) AS one)"
    return sql, {"rows": json.dumps(rows), "kinds": json.dumps([kinds])}, notes
