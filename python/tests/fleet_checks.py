"""What tests of the lake share: made-up traces of several hosts, and answers compared."""

from __future__ import annotations

import json
import math
import shutil
import time
import zlib
from pathlib import Path
from typing import Any

from swtch import fleet, lake
from swtch.fleet.generator import Fleet, known_answers
from swtch.lake import operations
from swtch.lake.segment import Labels
from swtch.lake.store import Store, store_at

Rows = list[dict[str, Any]]


def copy_of(trace: Path, path: Path, host: str, ago_s: float, booted_ago_s: float) -> Path:
    """A copy of a made-up trace that says another host, moment and boot."""
    shutil.copytree(trace, path)
    meta = json.loads((path / "meta.json").read_text())
    meta["host"]["hostname"] = host
    now = time.time_ns()
    begin = now - int(ago_s * 1e9)
    # Its clock is zero in the moment that the host booted.
    meta["clock"]["monotonic_ns"] = meta["start_ns"]
    meta["clock"]["realtime_ns"] = begin
    meta["clock"]["boottime_ns"] = begin - (now - int(booted_ago_s * 1e9))
    write_meta(path, json.dumps(meta))
    return path


def write_meta(path: Path, text: str | bytes) -> None:
    """Makes a trace say other facts of itself, as if it had been written so."""
    facts = text if isinstance(text, bytes) else text.encode()
    (path / "meta.json").write_bytes(facts)
    listed = (path / "checksums.csv").read_text().splitlines()
    own = f"meta.json,0,{len(facts)},{zlib.crc32(facts):08x}"
    lines = [own if line.startswith("meta.json,") else line for line in listed]
    (path / "checksums.csv").write_text("\n".join(lines) + "\n")


def add(root: Path | str, *paths: Path, **labels: Any) -> operations.Added:
    """Adds traces as the command line does, without its words."""
    return operations.add(
        store_at(root), map(operations.Given, paths), Labels(**labels), lambda _: None
    )


def verify(store: Store, repair: bool = False) -> operations.Verified:
    """Verifies without words."""
    return operations.verify(store, repair=repair, say=lambda _: None)


def counts(root: Path | str) -> dict[str, int]:
    """Switches of each segment, as a query finds them."""
    with lake.open(root) as opened:
        rows = opened.sql(
            "SELECT segment, count(*) AS n FROM switches GROUP BY segment ORDER BY segment"
        ).rows()
    return {row["segment"]: row["n"] for row in rows}


def ask_all(opened: lake.Lake) -> dict[str, Rows]:
    """The answers to all questions of the made-up fleet."""
    values = {"rollout": {"before": "v1", "after": "v2"}}
    return {
        question: fleet.ask(opened, question, **values.get(question, {})).rows()
        for question in fleet.QUESTIONS
    }


def assert_known(answers: dict[str, Rows], made: Fleet) -> None:
    """Compares each row with what is known; whole numbers must be equal."""
    for question, expected in known_answers(made).items():
        assert_same(answers[question], expected, question)


def assert_same(rows: Rows, expected: Rows, what: str) -> None:
    """Compares rows. Engines add floating-point numbers in another order."""
    assert len(rows) == len(expected), what
    for row, wanted in zip(rows, expected, strict=True):
        assert row.keys() == wanted.keys(), what
        for name, value in wanted.items():
            same = row[name] == value
            if isinstance(value, float) and row[name] is not None:
                same = math.isclose(row[name], value, rel_tol=1e-9, abs_tol=1e-9)
            assert same, f"{what}: {name} is {row[name]!r}, and {value!r} is known: {row}"
