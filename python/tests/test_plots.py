"""Each question has a picture with a title and units, of real data, and names cannot spoil it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PRICES, middle_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import swtch
from swtch import plots

QUESTIONS = ("reasons", "threads", "processes", "runq", "preemptors", "waits", "bill", "tariffs")


def drawn(figure: Figure) -> bytes:
    """The picture as a notebook gets it; a warning is a failure, but for letters of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        return figure._repr_png_()  # type: ignore[attr-defined]


def labels(axes: Axes) -> list[str]:
    return [one.get_text() for one in axes.get_yticklabels()]


def answer_of(trace: swtch.Trace, question: str) -> swtch.Result:
    options = {"prices": PRICES} if question in ("bill", "tariffs") else {}
    return getattr(trace, question)(**options)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", ["sampler", "perf"])
def test_every_question_has_a_picture(
    name: str,
    question: str,
    trace_path: Callable[[str], Path],
    opened: Callable[[Path], swtch.Trace],
) -> None:
    answer = answer_of(opened(trace_path(name)), question)
    if not answer.rows():
        with pytest.raises(swtch.Error, match="nothing to draw"):
            answer.plot()
        return
    figure = answer.plot(most=7)
    assert drawn(figure).startswith(b"\x89PNG")
    assert figure.get_suptitle()
    for axes in figure.axes:
        assert axes.get_xlabel()
    assert len(labels(figure.axes[0])) == min(7, len(answer.rows()))


def test_lengths_of_bars_are_the_figures(sampler: swtch.Trace) -> None:
    rows = sampler.reasons().rows()
    figure = sampler.reasons().plot(most=100)
    count, time = figure.axes
    by_reason: dict[str, float] = dict.fromkeys(labels(count), 0)
    for container in count.containers:
        for reason, bar in zip(labels(count), container, strict=True):
            by_reason[reason] += bar.get_width()
    assert by_reason == {row["reason"]: row["switches"] for row in rows}
    assert f"{sum(row['switches'] for row in rows):,} context switches" in figure.get_suptitle()
    drawn_ns = sum(bar.get_width() for container in time.containers for bar in container) * 1e9
    off_ns = sum((row["blocked_ns"] or 0) + (row["runq_ns"] or 0) for row in rows)
    assert drawn_ns == pytest.approx(off_ns, rel=1e-6)
    assert time.get_xlabel().endswith("(s)")


def test_a_bill_is_drawn_with_its_interval_and_its_measured_part(sampler: swtch.Trace) -> None:
    bill = sampler.bill(prices=PRICES)
    (axes,) = bill.plot(most=100).axes
    told = {one.get_text() for one in axes.get_legend().get_texts()}
    assert told == {"interval", "at measured prices", "at estimated prices"}
    measured, estimated = (c for c in axes.containers if hasattr(c, "patches"))
    direct = {row["reason"]: row["direct_ns"] for row in bill.rows()}
    for reason, one, other in zip(labels(axes), measured, estimated, strict=True):
        ms = one.get_width() + other.get_width()
        assert ms * 1e6 == pytest.approx(direct[reason], rel=1e-3)


def test_a_timeline_shows_its_span_and_no_more(sampler: swtch.Trace) -> None:
    since, until = middle_of(sampler, 0.02)
    answer = sampler.timeline(since, until)
    figure = answer.plot()
    (axes,) = figure.axes
    assert axes.get_xlim() == (since / 1e6, until / 1e6)
    assert axes.get_xlabel() == "time since the start of the recording (ms)"
    assert drawn(figure)
    whole = sampler.timeline()
    plots.MOST_STRETCHES, kept = 100, plots.MOST_STRETCHES
    try:
        with pytest.raises(swtch.Error, match="ask for a shorter span"):
            whole.plot()
    finally:
        plots.MOST_STRETCHES = kept


def test_two_traces_side_by_side(
    sampler: swtch.Trace, trace_path: Callable[[str], Path], opened: Callable[[Path], swtch.Trace]
) -> None:
    figure = sampler.compare(opened(trace_path("machine"))).plot()
    assert drawn(figure)
    assert "swtch diff" in figure.get_suptitle()
    with swtch.open(trace_path("sampler"), trace_path("machine"), verify=False) as both:
        (first, *_) = labels(both.reasons().plot().axes[0])
        assert " · " in first


def test_names_are_neither_formulas_nor_control_characters() -> None:
    names = ["$\\frac{1}{0}$", "a$b", "\x1b[2J\u202e", "<b>&", "x" * 100, "\\", "日本"]
    rows: list[dict[str, Any]] = [
        {
            "thread": name,
            "tid": n,
            "pid": n,
            "switches": 10 - n,
            "voluntary": 1,
            "involuntary": 9 - n,
            "ran_ns": 5,
            "runq_ns": None,
            "trace": "t",
        }
        for n, name in enumerate(names)
    ]
    figure = plots.draw("threads", rows, 15, (0, None))
    assert drawn(figure)
    shown = list(reversed(labels(figure.axes[0])))
    assert shown[2] == "\\x1b[2J\\u{202e} 2"
    assert shown[4].startswith("xxx")
    assert len(shown[4]) == plots.LONGEST_LABEL


def test_what_has_no_picture_says_so(sampler: swtch.Trace) -> None:
    with pytest.raises(swtch.Error, match=r"only answers to questions with a name.*\n.*\.df\(\)"):
        sampler.sql("SELECT 1 AS n").plot()
    with pytest.raises(swtch.Error, match="0 rows make no picture"):
        sampler.reasons().plot(most=0)


def test_a_missing_library_is_named(sampler: swtch.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(swtch.Error, match="pip install matplotlib"):
        sampler.reasons().plot()
