"""Answers in every shape have the same values, and show no hostile character."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow
import pytest
from conftest import OLDEST, REPOSITORY

import swtch
from swtch import result, text
from swtch.result import cell_text

QUESTIONS = ("reasons", "runq", "preemptors", "waits", "processes", "threads", "timeline")


def small(value: str) -> swtch.Result:
    """A result with one text in it."""
    trace = swtch.open(OLDEST)
    return trace.sql("SELECT $value AS name, 1 AS n", {"value": value})


@pytest.mark.parametrize("question", QUESTIONS)
def test_all_shapes_have_the_same_values(sampler: swtch.Trace, question: str) -> None:
    answer = getattr(sampler, question)()
    rows = answer.rows()
    assert rows
    assert answer.arrow().to_pylist() == rows
    assert answer.pl().to_dicts() == rows
    frame = answer.df()
    assert list(frame.columns) == answer.columns == list(rows[0])
    assert len(frame) == len(rows)
    for column in (name for name in answer.columns if name.endswith("_ns")):
        values = [row[column] for row in rows]
        # A data frame has NaN or NA for null, by the type of the column.
        assert [None if pandas.isna(v) else v for v in frame[column]] == values, column


@pytest.mark.parametrize("question", QUESTIONS)
def test_other_libraries_take_an_answer_as_it_is(sampler: swtch.Trace, question: str) -> None:
    answer = getattr(sampler, question)()
    rows = answer.rows()
    assert list(answer) == rows
    assert len(answer) == len(rows)
    assert pyarrow.table(answer).to_pylist() == rows
    assert polars.DataFrame(answer).to_dicts() == rows
    assert list(pandas.DataFrame(answer).columns) == answer.columns
    # Of any connection: with DuckDB 1.5 a stream of the asking connection would never come.
    for connection in (sampler.connection, duckdb):
        answer = getattr(sampler, question)()
        assert connection.sql("FROM answer").fetchall() == [tuple(row.values()) for row in rows]


def test_a_long_answer_is_a_stream_too(
    sampler: swtch.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result, "MOST_ROWS_KEPT", 10)
    answer = sampler.sql("SELECT range AS n FROM range(5000)")
    summed = sampler.connection.sql("SELECT sum(n) FROM answer")
    assert summed.fetchall() == [(sum(range(5000)),)]
    answer = sampler.sql("SELECT range AS n FROM range($most)", {"most": 5000})
    assert len(answer) == 5000
    assert pyarrow.table(answer).column("n").to_pylist() == list(range(5000))
    summed = sampler.connection.sql("SELECT sum(a.n) FROM answer AS a JOIN answer USING (n)")
    assert summed.fetchall() == [(sum(range(5000)),)]


@pytest.mark.parametrize(("kept", "asked"), [(1, 1), (0, 4)])
def test_a_short_answer_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, kept: int, asked: int
) -> None:
    monkeypatch.setattr(result, "MOST_ROWS_KEPT", kept)
    with swtch.open(OLDEST) as trace:
        answer = trace.sql("SELECT random() AS n, 1 AS one -- another one each time")
        told = [*answer.rows(), *answer, *pyarrow.table(answer).to_pylist(), *answer.rows()]
        assert len({row["n"] for row in told}) == asked


def test_an_answer_of_temporary_tables_is_no_stream() -> None:
    with swtch.open(OLDEST) as trace:
        trace.connection.execute("CREATE TEMP TABLE mine AS SELECT 7 AS n")
        trace.connection.execute("CREATE TEMP TABLE tasks AS SELECT 8 AS n")
        assert trace.sql("SELECT count(*) AS n FROM tasks").rows() == [{"n": 1}]
        answer = trace.sql("FROM mine")
        assert (answer.rows(), len(answer)) == ([{"n": 7}], 1)
        with pytest.raises(swtch.Error, match=r"take the rows first: df\(\)"):
            answer.__arrow_c_stream__()
        assert polars.DataFrame(answer.arrow()).to_dicts() == [{"n": 7}]


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_column_of_a_question_is_described(sampler: swtch.Trace, question: str) -> None:
    from swtch.tables import text_of

    head = text_of("sql", question).split("\nWITH ")[0].split("\nSELECT")[0]
    described = re.findall(r"^-- ([a-z_0-9]+) +[A-Z]", head, re.MULTILINE)
    answer = getattr(sampler, question)()
    assert [c for c in described if c not in ("since_ns", "until_ns")] == answer.columns


def test_a_terminal_is_shown_twenty_rows_and_told_of_more(sampler: swtch.Trace) -> None:
    shown = repr(sampler.threads())
    assert len(sampler.threads().rows()) > 20
    assert len(shown.splitlines()) == 2 + 20 + 1
    assert "(the first 20 rows;" in shown
    # The same path in every row would tell nothing.
    assert "trace" not in shown.splitlines()[0].split()


def test_names_cannot_reach_the_terminal() -> None:
    shown = repr(small("\x1b[2J\u202e\u200b'\x9b"))
    assert "\\x1b[2J\\u{202e}\\u{200b}'\\x9b" in shown
    assert not any(text.is_hostile(c) for c in shown if c != "\n")


def test_names_are_no_markup_in_a_notebook() -> None:
    shown = small("<script>alert('&')</script>\x1b")._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;\\x1b" in shown
    # Names of columns come from the question, which may come from somebody else, too.
    trace = swtch.open(OLDEST)
    assert "<b>" not in trace.sql('SELECT 1 AS "<b>"')._repr_html_()


def test_hostile_characters_are_those_of_the_program() -> None:
    """The list is the program's: `is_hostile` of `text.rs`, which also has Rust's `is_control`."""
    source = (REPOSITORY / "crates/swtch-output/src/text.rs").read_text(encoding="utf-8")
    body = source.split("pub fn is_hostile")[1].split("\n}\n")[0]
    assert "c.is_control()" in body
    found = re.findall(r"'\\u\{([0-9a-f]+)\}'(?:\.\.='\\u\{([0-9a-f]+)\}')?", body)
    theirs = {n for first, last in found for n in range(int(first, 16), int(last or first, 16) + 1)}
    theirs |= {*range(0x20), *range(0x7F, 0xA0)}
    # A string of Rust holds no half of a surrogate pair.
    halves = set(range(0xD800, 0xE000))
    assert {n for n in range(sys.maxunicode + 1) if text.is_hostile(chr(n))} - halves == theirs


def test_wide_characters_take_two_columns() -> None:
    lines = repr(small("日本")).splitlines()
    assert lines[0] == "name  n"
    assert lines[2] == "日本  1"


def test_a_mistake_is_shown_with_its_place(sampler: swtch.Trace) -> None:
    with pytest.raises(swtch.Error, match=r'syntax error at or near "SELEC"') as mistake:
        sampler.sql("SELEC comm\nFROM switches")
    assert "LINE 1: SELEC comm\n        ^" in str(mistake.value)
    with pytest.raises(swtch.Error, match='"commm" not found') as mistake:
        sampler.sql("SELECT commm FROM switches")
    assert "LINE 1" in str(mistake.value)


def test_a_mistake_that_only_shows_while_it_runs_is_an_error_of_ours(sampler: swtch.Trace) -> None:
    answer = sampler.sql("SELECT CAST(comm AS INTEGER) AS n FROM switches")
    for shape in (answer.rows, answer.df, answer.arrow, answer.pl, answer._repr_html_):
        with pytest.raises(swtch.Error, match="Could not convert string"):
            shape()


def test_sql_without_an_answer_is_refused() -> None:
    with swtch.open(OLDEST) as trace:
        for query in ("CREATE TABLE mine (n INTEGER)", "SET threads = 1", "DROP TABLE mine"):
            with pytest.raises(swtch.Error, match="ask a SELECT"):
                trace.sql(query)
        assert trace.sql('SELECT 1 AS "Count"').rows() == [{"Count": 1}]


def test_a_closed_trace_says_so(trace_path: Callable[[str], Path]) -> None:
    trace = swtch.open(trace_path("format-1"))
    trace.close()
    with pytest.raises(swtch.Error, match=r"(?i)connection"):
        trace.reasons()


@pytest.fixture
def without_libraries(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment in which pandas, pyarrow and polars cannot be imported."""
    for module in ("pandas", "pyarrow", "polars"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('not here')\n", encoding="utf-8")
    yield {"PYTHONPATH": f"{tmp_path}:{REPOSITORY / 'python'}", "PATH": "/usr/bin:/bin"}


def test_only_duckdb_is_needed_and_packages_are_named(without_libraries: dict[str, str]) -> None:
    code = """
import sys, swtch
import duckdb
trace = swtch.open(sys.argv[1])
answer = trace.reasons()
assert duckdb.sql("FROM answer").fetchall() and len(answer) == len(list(answer))
assert trace.reasons().rows() and repr(trace.reasons()) and trace.reasons()._repr_html_()
for shape, package in (("df", "pandas"), ("arrow", "pyarrow"), ("pl", "polars")):
    try:
        getattr(trace.reasons(), shape)()
    except swtch.Error as why:
        assert f"pip install {package}" in str(why), why
    else:
        sys.exit(f"{shape} worked")
"""
    oldest = OLDEST
    words = [sys.executable, "-c", code, str(oldest)]
    answer = subprocess.run(
        words, env=without_libraries, capture_output=True, text=True, timeout=60, check=False
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0000"),
        (37.62464, "37.6246"),
        (0.00001234, "1.23e-05"),
        (1234567890.6, "1234567891"),
        (-2.5, "-2.5000"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (None, "-"),
        (True, "True"),
        ([1, None], "[1, -]"),
    ],
)
def test_values_are_shown_with_the_digits_that_tell_something(value: object, shown: str) -> None:
    assert cell_text(value) == shown
