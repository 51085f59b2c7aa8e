"""Questions to a fleet are answered as is known of it, from SQL that several engines understand."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet_checks import ask_all, assert_known, assert_same

import swtch
from swtch import fleet, lake
from swtch.fleet import generator
from swtch.lake import operations
from swtch.lake.store import Directory

# Degrees of freedom -> quantile of Student's t, from printed tables.
T_95 = {3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}
T_99 = {5: 4.032, 10: 3.169, 30: 2.750, 120: 2.617}


LARGE = generator.Fleet(hosts=20, days=10, switches=1000)
FleetOf = Callable[[generator.Fleet], Path]


@pytest.mark.parametrize(
    "made",
    [
        LARGE,
        # Without the hosts that stand out; too few for intervals and bands.
        generator.Fleet(hosts=2, days=4, switches=2000),
        generator.Fleet(hosts=1, days=1, switches=1000),
    ],
    ids=["large", "small", "one"],
)
def test_answers_are_those_that_are_known(
    made: generator.Fleet, fleet_of: FleetOf, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(fleet_of(made), tmp_path / "lake"))
    store = Directory(str(root))
    with lake.open(root) as opened:
        answers = ask_all(opened)
    assert_known(answers, made)
    operations.compact(store, lambda _: None, grace_s=0)
    if made != LARGE:
        # A second run of the generator adds nothing.
        generator.fill(store, made)
    with lake.open(root) as opened:
        for question, rows in ask_all(opened).items():
            assert_same(rows, answers[question], question)


def test_what_the_made_up_fleet_has_is_found(fleet_of: FleetOf) -> None:
    with lake.open(fleet_of(LARGE)) as opened:
        answers = ask_all(opened)
    assert answers["hosts"][0]["host"] == answers["cgroups"][0]["host"] == "h0003"
    assert [row["host"] for row in answers["neighbours"]] == ["h0005"]
    assert (answers["kinds"][0]["kernel"], answers["kinds"][-1]["kernel"]) == ("7.3", "6.18")
    verdicts = {row["figure"]: row for row in answers["rollout"]}
    assert {name for name, row in verdicts.items() if row["verdict"] == "worse"} == {
        "run-queue ns per second",
        "mean run-queue wait, ns",
    }
    assert verdicts["mean run-queue wait, ns"]["low_pct"] < 20
    assert verdicts["mean run-queue wait, ns"]["high_pct"] > 20
    assert [(row["host"], row["date"]) for row in answers["band"]] == [("h0007", LARGE.date(1))]


def test_segments_with_a_wrong_clock_are_in_no_band(tmp_path: Path) -> None:
    store = Directory(str(tmp_path))
    generator.fill(store, generator.Fleet(hosts=8, days=5, switches=1000))

    def mark(now: operations.Segments) -> operations.Change:
        rows = operations._segment_rows(now, "host = 'h0007' AND date = '2026-01-06'", [])
        changed = [{**row, "clock": "moved"} for row in rows]
        return operations.Change(changed, {row["segment"] for row in rows}, set(), set())

    operations.commit(store, mark)
    with lake.open(tmp_path) as opened:
        assert fleet.ask(opened, "band").rows() == []


@pytest.mark.parametrize("table", [T_95, T_99], ids=["95", "99"])
def test_quantiles_are_those_of_tables(table: dict[int, float]) -> None:
    series = generator._t95 if table is T_95 else generator._t99
    for df, quantile in table.items():
        assert series(df) == pytest.approx(quantile, rel=0.01)


@pytest.mark.parametrize("question", fleet.QUESTIONS)
def test_questions_keep_to_what_engines_share(question: str) -> None:
    text = fleet.text_of(question)
    assert text.startswith("-- ")
    assert "-- A row: " in text
    code = re.sub(r"--.*", "", text)
    # What only some engines have, or mean differently.
    dialect = (
        r"(::|\bFILTER\b|\bQUALIFY\b|\bEXCLUDE\b|\bUSING\b|GROUP BY ALL|\bquantile|\bmedian\b|%)"
    )
    assert re.search(dialect, code, re.IGNORECASE) is None


def test_values_of_a_question_are_asked_for(tmp_path: Path) -> None:
    generator.fill(Directory(str(tmp_path)), generator.Fleet(1, 1, 1000))
    with lake.open(tmp_path) as opened:
        with pytest.raises(swtch.Error, match=r"the question rollout takes before, after"):
            fleet.ask(opened, "rollout", before="v1")
        with pytest.raises(swtch.Error, match=r"the question hosts takes no values"):
            fleet.ask(opened, "hosts", before="v1")
        with pytest.raises(swtch.Error, match=r"no question is called 'who'"):
            fleet.ask(opened, "who")
