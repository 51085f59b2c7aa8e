"""`swtch lake query` answers on stdout, complains on stderr, and shows nothing hostile."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LIMIT_S, OLDEST, REPOSITORY

import swtch
from swtch import text
from swtch.fleet import generator
from swtch.lake.store import Directory
from swtch.program import path_of_program
from swtch.query import main

Query = Callable[..., subprocess.CompletedProcess[str]]
Answer = Callable[..., str]


@pytest.fixture
def answer_of(capsys: pytest.CaptureFixture[str]) -> Answer:
    """What the command line writes to stdout, asked within this process."""

    def call(*words: str | Path) -> str:
        code = main(["query", *map(str, words)])
        said = capsys.readouterr()
        assert (code, said.err) == (0, "")
        return said.out

    return call


@pytest.fixture
def query() -> Query:
    """Runs the command line as a process of its own."""

    def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "swtch", "query", *words],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return call


def test_all_formats_have_the_same_values(
    answer_of: Answer, trace_path: Callable[[str], Path]
) -> None:
    path = trace_path("sampler")
    sql = "SELECT reason, count(*) AS switches FROM switches GROUP BY reason ORDER BY reason"
    with swtch.open(path) as trace:
        expected = trace.sql(sql).rows()
    answer = json.loads(answer_of(sql, path, "--format", "json"))
    assert answer["schema"] == "swtch.query/1"
    assert answer["columns"] == ["reason", "switches"]
    assert answer["rows"] == expected
    table = list(csv.DictReader(io.StringIO(answer_of(sql, path, "--format", "csv"))))
    assert [{**row, "switches": int(row["switches"])} for row in table] == expected
    lines = answer_of(sql, path).splitlines()
    assert [line.split() for line in lines[2:]] == [
        [row["reason"], str(row["switches"])] for row in expected
    ]


def test_several_paths_are_told_apart(answer_of: Answer, trace_path: Callable[[str], Path]) -> None:
    paths = [OLDEST, trace_path("made-up")]
    sql = "SELECT trace, count(*) AS n FROM switches GROUP BY trace ORDER BY trace"
    rows = json.loads(answer_of(sql, *paths, "--format", "json"))["rows"]
    assert [row["trace"] for row in rows] == sorted(map(str, paths))
    assert all(row["n"] > 0 for row in rows)


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_hostile_names_are_shown_by_number(
    query: Query, trace_path: Callable[[str], Path], form: str
) -> None:
    """The threads of this load take names with escape sequences, markup and odd bytes."""
    path = trace_path("renamer")
    answer = query("SELECT DISTINCT comm FROM identities", path, "--format", form)
    assert answer.returncode == 0
    assert "\\x1b" in answer.stdout or "\\u001b" in answer.stdout
    assert not [c for c in answer.stdout if text.is_hostile(c) and c not in "\r\n"]
    if form == "json":
        with swtch.open(path) as trace:
            names = {row["comm"] for row in trace.sql("SELECT comm FROM identities").rows()}
        assert {row["comm"] for row in json.loads(answer.stdout)["rows"]} == names


def test_a_spreadsheet_computes_no_name(answer_of: Answer) -> None:
    sql = "SELECT '=1+1' AS a, '''x' AS b, 'a,\"b' AS c, -1 AS d, NULL AS e, true AS f"
    said = answer_of(sql, OLDEST, "--format", "csv")
    assert said == 'a,b,c,d,e,f\r\n\'=1+1,\'\'x,"a,""b",-1,,true\r\n'


def test_values_of_all_kinds_have_a_place_in_json(answer_of: Answer) -> None:
    sql = (
        "SELECT 'nan'::DOUBLE AS nan, 1.5::DECIMAL(3,1) AS decimal, [1, 2] AS list,"
        " {'a': 1} AS struct, DATE '2026-01-02' AS day, '\\x1B'::BLOB AS bytes, 2::HUGEINT AS huge"
    )
    (row,) = json.loads(answer_of(sql, OLDEST, "--format", "json"))["rows"]
    assert row == {
        "nan": None,
        "decimal": 1.5,
        "list": [1, 2],
        "struct": {"a": 1},
        "day": "2026-01-02",
        "bytes": "\\x1b",
        "huge": 2,
    }


def test_a_mistake_ends_with_2_and_its_place(query: Query) -> None:
    answer = query("SELECT comm FROM switchs", OLDEST)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("error: the question cannot be answered: ")
    assert "LINE 1: SELECT comm FROM switchs\n" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_path_without_a_trace_ends_with_2(query: Query, tmp_path: Path) -> None:
    answer = query("SELECT 1", tmp_path / "none.swtch")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"error: there is no trace at {tmp_path}/none.swtch\n"


def test_a_long_question_draws_no_bar_into_its_answer(
    query: Query, trace_path: Callable[[str], Path], tmp_path: Path
) -> None:
    # DuckDB draws one after two seconds, and only in a process that it takes for a person's.
    generator.fill(Directory(str(tmp_path)), generator.Fleet(hosts=1, days=1, switches=1000))
    for path in (trace_path("sampler"), tmp_path):
        answer = query("SELECT current_setting('enable_progress_bar') AS drawn", path)
        assert answer.stdout.split()[-1] == "False", answer


def test_a_reader_that_goes_away_is_no_error(trace_path: Callable[[str], Path]) -> None:
    words = [sys.executable, "-m", "swtch", "query", "SELECT * FROM switches"]
    process = subprocess.Popen(
        [*words, trace_path("sampler")],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(LIMIT_S), said) == (0, b"")


def test_the_program_hands_its_questions_over(trace_path: Callable[[str], Path]) -> None:
    python = Path(sys.executable).parent
    words = ["lake", "query", "SELECT count(*) AS n FROM switches", trace_path("sampler")]
    done = subprocess.run(
        [path_of_program(), *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ
        | {"PATH": f"{python}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY / "python")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1].split()[-1]) > 100
