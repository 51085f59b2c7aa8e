"""Several traces at once, and two side by side."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import OLDEST

import swtch

Report = Callable[..., dict[str, Any]]


@pytest.fixture
def two(trace_path: Callable[[str], Path]) -> tuple[Path, Path]:
    """Two traces with different loads, whose tasks have the same numbers."""
    return trace_path("sampler"), trace_path("made-up")


@pytest.mark.parametrize(
    "question", ["reasons", "runq", "preemptors", "waits", "processes", "threads", "timeline"]
)
def test_rows_of_several_traces_are_those_of_each(two: tuple[Path, Path], question: str) -> None:
    """Nothing is joined across traces: the same number is another task in each."""
    with swtch.open(*two) as both, swtch.open(two[0]) as one, swtch.open(two[1]) as other:
        found = getattr(both, question)().rows()
        expected = getattr(one, question)().rows() + getattr(other, question)().rows()
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_names_of_several_traces_are_those_of_each(two: tuple[Path, Path]) -> None:
    columns = "trace, ts_ns, comm, tid, next_comm, waker_comm, nominator_comm"
    ask = f"SELECT {columns} FROM switches ORDER BY ALL"
    with swtch.open(*two) as both, swtch.open(two[0]) as one, swtch.open(two[1]) as other:
        expected = one.sql(ask).rows() + other.sql(ask).rows()
        assert sorted(map(repr, both.sql(ask).rows())) == sorted(map(repr, expected))


def test_rates_are_counts_by_the_length_of_the_trace(
    two: tuple[Path, Path], report: Report
) -> None:
    with swtch.open(two[0]) as before, swtch.open(two[1]) as after:
        rows = before.compare(after).rows()
    assert len(rows) > 5
    for side, path in zip(("before", "after"), two, strict=True):
        answer = report(path, "reason")
        seconds = answer["trace"]["duration_ns"] / 1e9
        theirs = {row["reason"]: row for row in answer["rows"]}
        for row in rows:
            counted = theirs.get(row["reason"], {"switches": 0, "blocked_ns": 0, "runq_ns": 0})
            for measure, rate in (
                ("switches", "switches"),
                ("blocked_ns", "blocked_ns"),
                ("runq_ns", "runq_ns"),
            ):
                expected = (counted[measure] or 0) / seconds
                assert row[f"{side}_{rate}_per_s"] == pytest.approx(expected, rel=1e-12)


def test_lists_and_patterns_stand_for_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.swtch", "a.swtch", "[c].swtch"):
        shutil.copytree(OLDEST, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    every = {"*.swtch": ["[c].swtch", "a.swtch", "b.swtch"], "?.swtch": ["a.swtch", "b.swtch"]}
    for given, names in every.items():
        with swtch.open(given) as opened:
            assert opened.names == names
    # The name of a trace that is there is no pattern.
    with swtch.open("[c].swtch", ["b.swtch", tmp_path / "a.swtch"]) as opened:
        assert opened.names == ["[c].swtch", "b.swtch", str(tmp_path / "a.swtch")]
        assert {row["trace"] for row in opened.reasons()} == set(opened.names)
    with pytest.raises(swtch.Error, match=r"no path matches runs/\*\.swtch"):
        swtch.open("runs/*.swtch")
    with pytest.raises(swtch.Error, match="no trace is named"):
        swtch.open([])
    with pytest.raises(swtch.Error, match=r"a\.swtch is given twice"):
        swtch.open("a.swtch", "?.swtch")


def test_a_comparison_says_who_judges(two: tuple[Path, Path]) -> None:
    with swtch.open(two[0]) as before, swtch.open(two[1]) as after:
        answer = before.compare(after)
    assert "no judgement" in repr(answer)
    assert "swtch diff BEFORE.swtch -- AFTER.swtch" in answer._repr_html_()


def test_a_comparison_takes_one_trace_on_each_side(two: tuple[Path, Path]) -> None:
    with swtch.open(*two) as both, swtch.open(two[0]) as one:
        with pytest.raises(swtch.Error, match="compare takes one trace on each side, not 2"):
            one.compare(both)
        with pytest.raises(swtch.Error, match="cannot be compared with itself"):
            one.compare(one)
