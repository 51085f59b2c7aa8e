"""The figures of this package are those of the command line, to the switch and the nanosecond."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import why_not_ebpf

import swtch

Run = Callable[..., str]
Report = Callable[..., dict[str, Any]]
Row = dict[str, Any]

# Columns that `swtch report` has under the same names.
COUNTS = ("switches", "voluntary", "involuntary", "ran_ns", "waits", "off_ns", "blocked_ns")
MEASURES = (*COUNTS, "runq_ns", "open_waits", "open_ns")

# What the command line rounds a share to.
SHARE_STEP_PCT = 1e-4


def picked(rows: list[Row], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """These columns of all rows, in an order that does not depend on how ties were broken."""
    chosen = [tuple(row[column] for column in columns) for row in rows]
    return sorted(chosen, key=repr)


def assert_shares(ours: list[Row], theirs: list[Row], key: tuple[str, ...]) -> None:
    """Shares agree as far as the command line tells them."""
    shares = {tuple(row[k] for k in key): row["share_pct"] for row in theirs}
    for row in ours:
        expected = shares[tuple(row[k] for k in key)]
        assert row["share_pct"] == pytest.approx(expected, abs=SHARE_STEP_PCT)


def test_reasons_are_those_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    theirs = report(any_path, "reason")["rows"]
    ours = any_trace.reasons().rows()
    columns = ("reason", "category", *MEASURES)
    assert picked(ours, columns) == picked(theirs, columns)
    assert [row["reason"] for row in ours] == [row["reason"] for row in theirs]
    assert_shares(ours, theirs, ("reason",))


def test_certain_switches_are_those_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    theirs = {row["reason"]: row for row in report(any_path, "reason")["rows"]}
    for row in any_trace.reasons().rows():
        expected = theirs[row["reason"]]["certain_pct"]
        if row["switches"] == 0:
            assert row["certain_pct"] is expected is None
        else:
            assert row["certain_pct"] == pytest.approx(expected, abs=SHARE_STEP_PCT)


def test_lengths_of_waits_are_within_a_bucket_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    """The report keeps lengths in buckets of 1 % and tells the upper edge; here all are exact."""
    theirs = {row["reason"]: row for row in report(any_path, "reason")["rows"]}
    for row in any_trace.reasons().rows():
        for length in ("runq", "off"):
            assert row[f"{length}_max_ns"] == theirs[row["reason"]][f"{length}_max_ns"]
            for percentile in ("p50", "p99"):
                column = f"{length}_{percentile}_ns"
                ours, edge = row[column], theirs[row["reason"]][column]
                if ours is None:
                    assert edge is None
                else:
                    assert ours <= edge <= ours * 1.01 + 1, (row["reason"], column)


def test_threads_are_those_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    theirs = report(any_path, "thread")["rows"]
    ours = any_trace.threads().rows()
    assert len(theirs) > 0
    columns = ("tid", "pid", "main_reason", *MEASURES)
    assert picked(ours, columns) == picked(theirs, columns)
    assert_names(ours, theirs, ("thread", "process"))


def test_processes_are_those_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    theirs = report(any_path, "process")["rows"]
    ours = any_trace.processes().rows()
    assert len(theirs) > 0
    columns = ("pid", "command", "main_reason", *MEASURES)
    assert picked(ours, columns) == picked(theirs, columns)
    assert_names(ours, theirs, ("process",))


# Its first thread waits for the other, and is not seen to do anything else.
WAITS = """
import threading, time
def work():
    while True:
        time.sleep(0.001)
worker = threading.Thread(target=work)
worker.start()
print("ready", flush=True)
worker.join()
"""


def test_a_process_of_which_the_first_thread_only_waits_has_the_name_of_its_program(
    run: Run, report: Report, place: Path
) -> None:
    if why := why_not_ebpf():
        pytest.skip(f"cannot record: {why}")
    path = place / "waits.swtch"
    words = [sys.executable, "-c", WAITS]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            run("record", "-o", path, "-p", str(process.pid), "-d", "0.4")
        finally:
            process.kill()
    theirs = report(path, "process")["rows"]
    with swtch.open(path) as trace:
        ours = trace.processes().rows()
        threads = trace.threads().rows()
    program = Path(sys.executable).name[:15]
    assert [row["process"] for row in theirs] == [program]
    assert_names(ours, theirs, ("process",))
    assert [row["process"] for row in threads] == [program]


def assert_names(ours: list[Row], theirs: list[Row], names: tuple[str, ...]) -> None:
    """Names agree, but for bytes that are no UTF-8: a table of a trace has U+FFFD for each, and
    the command line shows their numbers."""

    def named(rows: list[Row]) -> list[tuple[Any, ...]]:
        return picked(rows, (*names, "pid", *MEASURES))

    odd = {row["pid"] for row in ours if any("\ufffd" in row[name] for name in names)}
    assert named([r for r in ours if r["pid"] not in odd]) == named(
        [r for r in theirs if r["pid"] not in odd]
    )


def test_preemptors_are_those_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    rows = report(any_path, "preemptor")["rows"]
    # The report has more rows: tasks that had the CPU meanwhile and took it from nobody.
    theirs = [row for row in rows if (row["switches"] or 0) + (row["by_its_wakeup"] or 0) > 0]
    columns = ("tid", "pid", "kind", "switches", "by_its_wakeup")
    assert picked(any_trace.preemptors().rows(), columns) == picked(theirs, columns)


def test_preemptions_of_other_processes_are_counted_from_the_switches(sampler: swtch.Trace) -> None:
    """The column has no counterpart in the report: it is counted again, by other means."""
    found = sampler.sql(
        "SELECT count(*) AS n FROM switches"
        " WHERE category = 'preemption' AND next_task <> 0 AND next_pid <> pid"
    ).rows()[0]["n"]
    assert found > 0
    assert sum(row["from_others"] for row in sampler.preemptors().rows()) == found


def test_waits_are_those_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    theirs = report(any_path, "wait")["rows"]
    columns = ("wait_key", "kind", "pid", "switches", "waits", "off_ns", "blocked_ns", "runq_ns")
    columns = (*columns, "waiters")
    assert picked(any_trace.waits().rows(), columns) == picked(theirs, columns)


def test_run_queue_time_is_that_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    theirs = [row for row in report(any_path, "thread")["rows"] if row["runq_ns"]]
    ours = [row for row in any_trace.runq().rows() if row["runq_ns"]]
    columns = ("tid", "pid", "runq_ns")
    assert picked(ours, columns) == picked(theirs, columns)
    longest = [row["runq_max_ns"] for row in report(any_path, "reason")["rows"]]
    known = [length for length in longest if length is not None]
    if known:
        assert max(row["runq_max_ns"] for row in any_trace.runq().rows()) == max(known)


def test_percentiles_of_run_queue_time_are_lengths_of_the_given_rank(sampler: swtch.Trace) -> None:
    for row in sampler.runq().rows()[:10]:
        lengths = sampler.sql(
            "SELECT runq_ns FROM switch_rows JOIN tasks USING (trace, task)"
            " WHERE tid = $tid AND pid = $pid AND runq_ns IS NOT NULL ORDER BY runq_ns",
            {"tid": row["tid"], "pid": row["pid"]},
        ).rows()
        lengths = [one["runq_ns"] for one in lengths]
        assert row["waits"] == len(lengths)
        for percent, column in ((50, "runq_p50_ns"), (90, "runq_p90_ns"), (99, "runq_p99_ns")):
            rank = -(-percent * len(lengths) // 100)
            assert row[column] == lengths[rank - 1], (row["thread"], column)


def test_meta_has_the_facts_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Report
) -> None:
    answer = report(any_path, "reason")
    (ours,) = any_trace.sql("SELECT * FROM meta").rows()
    assert ours["duration_ns"] == answer["trace"]["duration_ns"]
    assert ours["lost"] == answer["trace"]["lost"]
    assert ours["untraced"] == answer["trace"]["untraced"]
    assert ours["rules_version"] == answer["trace"]["rules_version"]
    assert ours["hostname"] == answer["host"]["hostname"]
    assert ours["cpus"] == answer["host"]["cpus"]
    counted = any_trace.sql("SELECT count(*) AS n FROM switch_rows").rows()[0]["n"]
    assert counted == answer["trace"]["switches"]
