"""The stretches of a time line sum to the times of the reports, and a span takes those in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import middle_of

import swtch


def test_stretches_sum_to_the_times_of_the_report(
    any_path: Path, any_trace: swtch.Trace, report: Callable[..., dict[str, Any]]
) -> None:
    total = report(any_path, "thread")["total"]
    sums: Counter[str] = Counter()
    for row in any_trace.timeline(-(2**62)).rows():
        assert row["dur_ns"] == row["end_ns"] - row["begin_ns"] >= 0
        # A run that was still open is no row of the report.
        if not row["is_open"]:
            sums[row["state"]] += row["dur_ns"]
    assert sums["running"] == total["ran_ns"]
    # Waits before runs whose begin is not known have no place in time.
    (placeless,) = any_trace.sql(
        "SELECT coalesce(sum(blocked_ns), 0)::BIGINT AS blocked,"
        " coalesce(sum(runq_ns), 0)::BIGINT AS runq, coalesce(sum(wait_ns), 0)::BIGINT AS off"
        " FROM waits WHERE resumed_ns IS NULL"
    ).rows()
    assert sums["blocked"] + placeless["blocked"] == (total["blocked_ns"] or 0)
    assert sums["runnable"] + placeless["runq"] == (total["runq_ns"] or 0)
    off = sums["blocked"] + sums["runnable"] + sums["off_cpu"] + placeless["off"]
    assert off == total["off_ns"]


def test_open_waits_are_in_it(
    any_path: Path, any_trace: swtch.Trace, report: Callable[..., dict[str, Any]]
) -> None:
    total = report(any_path, "thread")["total"]
    rows = [row for row in any_trace.timeline().rows() if row["is_open"]]
    waits = [row["dur_ns"] for row in rows if row["state"] == "off_cpu"]
    assert (len(waits), sum(waits)) == (total["open_waits"], total["open_ns"])


def test_a_thread_does_one_thing_at_a_time(sampler: swtch.Trace) -> None:
    last_end: dict[tuple[str, int], int] = {}
    for row in sampler.timeline().rows():
        key = (row["tid"], row["pid"])
        assert last_end.get(key, row["begin_ns"]) <= row["begin_ns"], row
        last_end[key] = row["end_ns"]


def test_a_span_takes_what_overlaps_it(sampler: swtch.Trace) -> None:
    since, until = middle_of(sampler, 0.1)
    whole = sampler.timeline().rows()
    expected = [r for r in whole if r["begin_ns"] < until and r["end_ns"] > since]
    found = sampler.timeline(since, until).rows()
    assert len(found) > 10
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_runs_that_end_in_a_span_are_the_switches_of_the_report(
    sampler: swtch.Trace, report: Callable[..., dict[str, Any]]
) -> None:
    since, until = middle_of(sampler, 0.5)
    path = Path(sampler.names[0])
    words = ("--since", f"{since // 1_000_000}ms", "--until", f"{until // 1_000_000}ms")
    total = report(path, "reason", *words)["total"]
    rows = sampler.timeline(since - 1, until).rows()
    ended = [r for r in rows if r["state"] == "running" and since <= r["end_ns"] < until]
    # A run whose begin the kernel did not report has no place in time.
    (placeless,) = sampler.sql(
        "SELECT count(*) AS n FROM switch_rows JOIN meta USING (trace) WHERE ran_ns IS NULL"
        " AND ts_ns - start_ns >= $since AND ts_ns - start_ns < $until",
        {"since": since, "until": until},
    ).rows()
    assert len(ended) + placeless["n"] == total["switches"] > 100
    assert sum(row["dur_ns"] for row in ended) == total["ran_ns"]


def test_an_empty_span_is_refused(sampler: swtch.Trace) -> None:
    with pytest.raises(swtch.Error, match="nothing lies in the span: 5 is not after 5"):
        sampler.timeline(5, 5)
