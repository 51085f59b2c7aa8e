"""The views say of each switch what the tables of the trace say, with names as of the moment."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import REPOSITORY

import swtch
from swtch import schema, tables

IDLE = ("(idle)", None, None)
NOBODY = (None, None, None)


class NamesByHand:
    """Names of tasks over time, without SQL joins: the tests' own way to the same answer."""

    def __init__(self, path: Path) -> None:
        table = duckdb.read_parquet(_pattern(path / "task.parquet")).fetchall()
        columns = list(schema.TABLES["task"])
        self._lives: dict[int, list[tuple[int, tuple[Any, ...]]]] = defaultdict(list)
        for row in table:
            one = dict(zip(columns, row, strict=True))
            names = (one["comm"], one["tid"], one["pid"])
            self._lives[one["task"]].append((one["ts_ns"], names))
        for life in self._lives.values():
            life.sort(key=lambda row: row[0])

    def at(self, task: int | None, ts_ns: int) -> tuple[Any, ...]:
        """Name, thread id and process id that a task had at a moment."""
        if task == 0:
            return IDLE
        life = self._lives.get(-1 if task is None else task)
        if not life:
            return NOBODY
        place = bisect_right([row[0] for row in life], ts_ns)
        return life[max(place, 1) - 1][1]


def _pattern(path: Path) -> str:
    return re.sub(r"([*?\[])", r"[\1]", str(path))


def test_names_are_those_of_the_moment(any_path: Path, any_trace: swtch.Trace) -> None:
    names = NamesByHand(any_path)
    rows = any_trace.sql("SELECT * FROM switches").rows()
    assert rows
    for row in rows:
        woken = row["ts_ns"] if row["woken_ns"] is None else row["woken_ns"]
        roles = [("task", "", row["ts_ns"]), ("next_task", "next_", row["ts_ns"])]
        roles += [("nominator", "nominator_", row["ts_ns"]), ("waker", "waker_", woken)]
        for task, prefix, moment in roles:
            found = tuple(row[f"{prefix}{part}"] for part in ("comm", "tid", "pid"))
            assert found == names.at(row[task], moment), (task, row["ts_ns"])


def test_a_renamed_thread_has_its_earlier_name_before(sampler: swtch.Trace) -> None:
    """The threads of this load name themselves once they run."""
    rows = sampler.sql(
        "SELECT switches.comm FROM switches JOIN tasks USING (trace, task)"
        " WHERE tasks.comm = 'hog-1' ORDER BY ts_ns"
    ).rows()
    assert rows[-1]["comm"] == "hog-1"
    earlier = sampler.sql("SELECT DISTINCT comm FROM identities").rows()
    assert len(earlier) > 1


def test_rows_are_those_of_the_exported_table(
    any_path: Path, any_trace: swtch.Trace, run: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "rows.parquet"
    run("export", any_path, "--to", "parquet", "-o", file)
    same = "ts_ns, cpu, ran_ns, reason, certainty, rule, off_reason, off_ns, runq_ns, waker_kind"
    in_file = duckdb.sql(f"SELECT {same} FROM '{file}' WHERE level = 'os' ORDER BY ALL").fetchall()
    ours = any_trace.sql(f"SELECT {same} FROM switches ORDER BY ALL").rows()
    assert [tuple(row.values()) for row in ours] == in_file


def test_blocked_time_and_run_queue_time_sum_to_the_wait(any_trace: swtch.Trace) -> None:
    (sums,) = any_trace.sql(
        "SELECT count(*) AS n, count(*) FILTER (blocked_ns + runq_ns = wait_ns) AS same,"
        " count(*) FILTER (resumed_ns - began_ns = wait_ns) AS placed,"
        " count(*) FILTER (resumed_ns IS NOT NULL) AS with_place"
        " FROM waits WHERE runq_ns IS NOT NULL"
    ).rows()
    assert sums["same"] == sums["n"]
    assert sums["placed"] == sums["with_place"]


def test_a_wait_begins_where_the_task_left(sampler: swtch.Trace) -> None:
    """The moments that are computed from lengths are those of the rows before."""
    (found,) = sampler.sql(
        "SELECT count(*) AS n, count(*) FILTER (before = began_ns) AS same FROM ("
        " SELECT began_ns, off_ns, off_reason,"
        " lag(ts_ns) OVER (PARTITION BY task ORDER BY file_row) AS before FROM switch_rows)"
        " WHERE off_ns IS NOT NULL AND off_reason IS NOT NULL AND began_ns IS NOT NULL"
        " AND before IS NOT NULL"
    ).rows()
    assert found["n"] > 0
    assert found["same"] == found["n"]


def test_stacks_name_functions_innermost_first(sampler: swtch.Trace) -> None:
    """Of the sleeps: a few are ended by a stop, and go on in another function.

    The kernel leaves out functions of its scheduler (`__sched`) in the stack of a task that waits.
    """
    rows = sampler.sql(
        "SELECT s.functions, s.modules, s.depth, count(*) AS waits FROM waits AS w"
        " JOIN stacks AS s ON w.trace = s.trace AND w.kernel_stack = s.stack AND s.kind = 'kernel'"
        " WHERE w.reason = 'sleep' GROUP BY ALL ORDER BY waits DESC"
    ).rows()
    for row in rows:
        assert row["depth"] == len(row["functions"]) == len(row["modules"])
    functions = rows[0]["functions"]
    # The entry of the system call is the outermost.
    assert 0 <= functions.index("hrtimer_nanosleep") < len(functions) - 1
    assert set(rows[0]["modules"]) == {"[kernel]"}


def test_every_view_is_described_and_answers(any_trace: swtch.Trace) -> None:
    for view, text in any_trace.views.items():
        assert text.startswith("A row: "), view
        columns = any_trace.sql(f"SELECT * FROM {view}").columns
        described = set(re.findall(r"[a-z0-9_]+", text))
        inherited = {"switches": "switch_rows", "waits": "wait_rows"}.get(view)
        if view == "switch_rows":
            described |= set(schema.TABLES["switch"])
        if inherited is not None:
            described |= set(any_trace.sql(f"SELECT * FROM {inherited}").columns)
        assert set(columns) <= described, view


def test_what_an_older_trace_lacks_is_null(trace_path: Callable[[str], Path]) -> None:
    with swtch.open(trace_path("format-1")) as trace:
        (row,) = trace.sql(
            "SELECT count(*) AS n, count(wait_type) AS types, count(waker_user_stack) AS stacks,"
            " min(level) AS level FROM switches"
        ).rows()
        assert row["n"] > 0
        assert (row["types"], row["stacks"], row["level"]) == (0, 0, "os")
        assert trace.sql("SELECT count(command) AS n FROM processes").rows() == [{"n": 0}]
        assert trace.sql("SELECT * FROM stored.command").rows() == []


def schema_page() -> str:
    return (REPOSITORY / "docs/SCHEMA.md").read_text(encoding="utf-8")


def test_columns_are_those_of_the_schema_page() -> None:
    """A new column of the format is not forgotten here."""
    kinds = {
        "Int64": "BIGINT",
        "Int16": "SMALLINT",
        "UInt16": "USMALLINT",
        "UInt32": "UINTEGER",
        "UInt64": "UBIGINT",
        "Utf8": "VARCHAR",
        "word": "VARCHAR",
        "Binary": "BLOB",
        "Boolean": "BOOLEAN",
        "List of UInt32": "UINTEGER[]",
    }
    page = schema_page().split("## Tables")[1].split("## Words")[0]
    found: dict[str, dict[str, str]] = {}
    for section in page.split("### ")[1:]:
        name = section.split("`")[1]
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| \d+ \|", section, re.MULTILINE)
        found[name] = {column: kinds[kind.split(",")[0].strip()] for column, kind in rows}
    assert found == schema.TABLES


def test_version_and_reasons_are_those_of_the_schema_page() -> None:
    page = schema_page()
    (version,) = re.findall(r"^Format version (\d+)\.$", page, re.MULTILINE)
    assert int(version) == schema.FORMAT_VERSION
    section = page.split("### `reason`")[1].split("### ")[0]
    rows = re.findall(r"^\| (\w+) \| (\w+) \|", section, re.MULTILINE)
    assert tuple(row for row in rows if row[0] != "reason") == schema.REASONS


# What only some engines have. It may stand in views, and nowhere in the files of questions.
NOT_PORTABLE = (
    r"::",
    r"\bASOF\b",
    r"\bQUALIFY\b",
    r"\bEXCLUDE\b",
    r"\bREPLACE\b",
    r"\bFILTER\b",
    r"\bUSING\b",
    r"\bGROUP BY ALL\b",
    r"\bORDER BY ALL\b",
    r"\barg_(max|min)\b",
    r"\bany_value\b",
    r"\blist\b",
    r"\bread_parquet\b",
    r"\bstored\.",
    r"\bSELECT \*",
)


@pytest.mark.parametrize(
    "question",
    sorted(p.stem for p in (REPOSITORY / "python/swtch/sql").glob("*.sql")),
)
def test_questions_keep_to_standard_sql(question: str) -> None:
    text = tables.text_of("sql", question)
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    for words in NOT_PORTABLE:
        assert not re.search(words, code), words
    head = text.split("\n-- A row: ")[0]
    assert head.startswith("-- ")
    assert "-- A row: " in text
