"""A bill is that of the command line, and the sum of switches times prices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PRICES

import swtch
from swtch.bill import LABELS, MEASURES

# Who came next decides the price, beside the reason: `Successor` of the program.
JOINED = """
SELECT s.reason, count(*) AS switches,
    sum(t.direct_ns) AS direct_ns,
    sum(t.direct_low_ns) AS low_ns,
    sum(t.direct_high_ns) AS high_ns,
    sum(t.direct_ns) FILTER (t.basis = 'measured') AS measured_ns
FROM switch_rows AS s
LEFT JOIN tasks AS own ON s.task = own.task
LEFT JOIN tasks AS came ON s.next_task = came.task
JOIN tariffs AS t ON s.reason = t.reason AND t.successor = CASE
    WHEN s.next_task = 0 THEN 'idle'
    WHEN s.next_task IS NULL OR came.task IS NULL THEN 'unknown'
    WHEN came.process = own.process THEN 'same-process'
    ELSE 'other-process'
END
GROUP BY s.reason
"""


@pytest.mark.parametrize("by", LABELS)
@pytest.mark.parametrize("name", ["sampler", "machine", "format-1"])
def test_a_bill_is_that_of_the_command_line(
    name: str,
    by: str,
    trace_path: Callable[[str], Path],
    opened: Callable[[Path], swtch.Trace],
    run: Callable[..., str],
) -> None:
    path = trace_path(name)
    words = ("--bill", "--by", by, "--prices", PRICES, "--format", "json")
    theirs = json.loads(run("report", *words, path))
    bill = opened(path).bill(by, prices=PRICES)
    assert bill.columns == [*LABELS[by], *MEASURES, "trace"]
    assert bill.rows() == [{**row, "trace": str(path)} for row in theirs["rows"]]
    assert theirs["rows"]
    # What is measured, what is estimated and why stands below the table, as on the command line.
    assert bill.note == "\n".join(theirs["notes"])
    assert "note: low and high assume" in repr(bill)


def test_a_bill_is_the_sum_of_switches_times_prices(sampler: swtch.Trace) -> None:
    tariffs = sampler.tariffs(prices=PRICES)
    # A table of Arrow, which the engine finds under this name.
    sampler.connection.register("tariffs", tariffs.arrow())
    joined = {row["reason"]: row for row in sampler.sql(JOINED).rows()}
    sampler.connection.unregister("tariffs")
    billed = sampler.bill(prices=PRICES).rows()
    assert {row["reason"] for row in billed} == set(joined)
    for row in billed:
        ours = joined[row["reason"]]
        assert ours["switches"] == row["switches"] - row["unpriced"]
        assert ours["direct_ns"] == pytest.approx(row["direct_ns"], abs=1)
        assert ours["low_ns"] == pytest.approx(row["direct_low_ns"], abs=1)
        assert ours["high_ns"] == pytest.approx(row["direct_high_ns"], abs=1)
        measured = 100 * (ours["measured_ns"] or 0) / ours["direct_ns"]
        assert measured == pytest.approx(row["measured_pct"], abs=1e-4)


def test_a_price_says_what_it_stands_on(sampler: swtch.Trace, tmp_path: Path) -> None:
    """A list of which most prices were taken away has switches without a price."""
    rows = sampler.tariffs(prices=PRICES).rows()
    by_reason: dict[str, set[str]] = {}
    for row in rows:
        by_reason.setdefault(row["reason"], set()).add(row["basis"])
        assert row["direct_low_ns"] <= row["direct_ns"] <= row["direct_high_ns"]
        assert bool(row["because"]) == (row["basis"] != "measured")
    assert by_reason["sleep"] == by_reason["slice"] == {"estimated"}
    assert "measured" in by_reason["pipe"]
    poor = json.loads(PRICES.read_text(encoding="utf-8"))
    poor["prices"] = [price for price in poor["prices"] if price["kind"] != "yield"]
    file = tmp_path / "poor.json"
    file.write_text(json.dumps(poor), encoding="utf-8")
    bases = {row["reason"]: row["basis"] for row in sampler.tariffs(prices=file).rows()}
    assert bases["slice"] == "none"
    slices = {row["reason"]: row for row in sampler.bill(prices=file).rows()}["slice"]
    assert slices["unpriced"] == slices["switches"] > 0
    assert slices["direct_ns"] is None


def test_bills_of_several_traces_stand_together(trace_path: Callable[[str], Path]) -> None:
    paths = [trace_path("sampler"), trace_path("machine")]
    with swtch.open(*paths, verify=False) as trace:
        bill = trace.bill(prices=PRICES)
        assert {row["trace"] for row in bill.rows()} == {str(path) for path in paths}
        assert sum(row["switches"] for row in bill.rows()) == len(
            trace.sql("SELECT 1 AS one FROM switch_rows").rows()
        )


def test_what_stands_in_the_way_of_a_bill_is_said(
    sampler: swtch.Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(swtch.Error, match="a bill is not by 'cpu': it is by reason, process,"):
        sampler.bill("cpu")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(swtch.Error, match=r"swtch report: a bill needs prices.*swtch cost --save"):
        sampler.bill()
    with pytest.raises(swtch.Error, match="No such file"):
        sampler.bill(program=tmp_path / "none")
    empty = tmp_path / "-odd.json"
    empty.write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(swtch.Error, match=r"reading -odd\.json: this is no price list"):
        sampler.bill(prices="-odd.json")


def hostile_list(file: Path) -> None:
    told: dict[str, Any] = json.loads(PRICES.read_text(encoding="utf-8"))
    told["origin"]["hostname"] = "<b>\x1b[2J\nnote: all is well"
    file.write_text(json.dumps(told), encoding="utf-8")


def test_a_price_list_cannot_write_to_the_terminal(sampler: swtch.Trace, tmp_path: Path) -> None:
    """A list comes from a file that somebody else may have written."""
    file = tmp_path / "hostile.json"
    hostile_list(file)
    bill = sampler.bill(prices=file)
    assert "\x1b" not in repr(bill)
    assert "<b>" not in bill._repr_html_()
