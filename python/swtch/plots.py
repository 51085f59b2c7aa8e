"""Pictures of answers: one for each question with a name, by matplotlib.

Each says in its title what is shown, and its axes have units. Parts are told apart by lightness and
by hatching or shape as well as by colour, so that pictures can be read in grey and by readers who
do not tell colours apart (the colours are of Okabe and Ito's set). Names that others chose are
shown without hostile characters and are never read as formulas.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import Error
from .text import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

DARK = "#0072B2"
LIGHT = "#F0E442"
MIDDLE = "#E69F00"
PALE = "#DDDDDD"
LINE = "#222222"

# Characters of a label: the rest of a long name is cut.
LONGEST_LABEL = 32

# Stretches of a timeline: a picture of more is black, and takes minutes to draw.
MOST_STRETCHES = 50_000

# Unit of an axis: the largest of these that the largest value reaches.
_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def draw(question: str, rows: Sequence[Row], most: int, span: tuple[int, int | None]) -> Figure:
    """The picture of an answer; of its rows the first `most`, of a timeline what lies in `span`.

    Raises `Error` where there is no such picture, or nothing to draw.
    """
    if question not in _PICTURES:
        raise Error(
            "only answers to questions with a name have a picture",
            "for this one: .df().plot() of pandas",
        )
    if most < 1:
        raise Error(f"{most} rows make no picture: draw one or more")
    if not rows:
        raise Error("there is nothing to draw: the answer has no rows")
    # Of several traces, each label says which one its row is of.
    has_several = len({row.get("trace") for row in rows}) > 1
    rows = [{**row, "of_trace": f" · {row['trace']}" if has_several else ""} for row in rows]
    if question == "timeline":
        return _timeline(rows, most, span)
    return _PICTURES[question](rows, most)


def _reasons(rows: Sequence[Row], most: int) -> Figure:
    total = sum(row["switches"] for row in rows)
    shown = _first(rows, most, "switches")
    figure, (count, time) = _panels(len(shown), 2)
    certain = [round(row["switches"] * (row["certain_pct"] or 0) / 100) for row in shown]
    inferred = [row["switches"] - known for row, known in zip(shown, certain, strict=True)]
    labels = _labels(shown, lambda row: row["reason"])
    _bars(
        count,
        labels,
        ("the kernel said so", DARK, "", certain),
        ("concluded by a rule", LIGHT, "////", inferred),
    )
    count.set_xlabel("context switches")
    beside = ("blocked, until woken", PALE, _sums(shown, "blocked_ns"))
    unit = _times_with_runq(time, labels, beside, _sums(shown, "runq_ns"))
    time.set_xlabel(f"time off the CPU afterwards, all threads together ({unit})")
    return _titled(
        figure,
        f"Why threads left the CPU: {total:,} context switches",
        _left_out(rows, shown, "reasons"),
    )


def _tasks(noun: str, key: str) -> Callable[[Sequence[Row], int], Figure]:
    def picture(rows: Sequence[Row], most: int) -> Figure:
        total = sum(row["switches"] for row in rows)
        shown = _first(rows, most, "switches")
        figure, (count, time) = _panels(len(shown), 2)
        labels = _labels(shown, lambda row: f"{row[key]} {_id(row)}")
        _bars(
            count,
            labels,
            ("voluntary: it blocked or slept", DARK, "", [row["voluntary"] for row in shown]),
            ("involuntary: it could run on", LIGHT, "////", [row["involuntary"] for row in shown]),
        )
        count.set_xlabel("context switches")
        beside = ("on a CPU", DARK, _sums(shown, "ran_ns"))
        unit = _times_with_runq(time, labels, beside, _sums(shown, "runq_ns"))
        time.set_xlabel(f"time ({unit})")
        return _titled(
            figure,
            f"Which {noun} switched most: {total:,} context switches",
            _left_out(rows, shown, noun),
        )

    return picture


def _runq(rows: Sequence[Row], most: int) -> Figure:
    shown = _first(rows, most, "runq_ns")
    figure, (length, total) = _panels(len(shown), 2)
    labels = _labels(shown, lambda row: f"{row['thread']} {_id(row)}")
    places = range(len(shown))
    marks = (("half of the waits", "o", "p50"), ("99 in 100", "s", "p99"), ("longest", "D", "max"))
    fills = (DARK, MIDDLE, "white")
    # A wait of 0 ns has no place on a logarithmic axis; it is drawn at 1 ns.
    ends = {part: [max(row[f"runq_{part}_ns"], 1) for row in shown] for _, _, part in marks}
    unit, scale = _unit(ends["p50"])
    for part in ends:
        ends[part] = [ns / scale for ns in ends[part]]
    length.hlines(places, ends["p50"], ends["max"], color=PALE, linewidth=3, zorder=1)
    for (words, mark, part), fill in zip(marks, fills, strict=True):
        length.scatter(
            ends[part], places, s=34, marker=mark, color=fill, edgecolor=LINE, label=words, zorder=2
        )
    _logarithmic(length)
    length.set_yticks(places, labels=labels)
    length.set_xlabel(f"length of a wait, logarithmic ({unit})")
    _legend(length)
    unit, scale = _unit(_sums(shown, "runq_ns"))
    _bars(total, labels, ("", MIDDLE, "", [row["runq_ns"] / scale for row in shown]))
    total.set_xlabel(f"all waits together ({unit})")
    return _titled(
        figure,
        "How long threads that could run waited for a CPU",
        _left_out(rows, shown, "threads"),
    )


def _preemptors(rows: Sequence[Row], most: int) -> Figure:
    shown = _first(rows, most, "switches")
    figure, (axes,) = _panels(len(shown), 1)
    own = [row["switches"] - row["from_others"] for row in shown]
    _bars(
        axes,
        _labels(shown, lambda row: f"{row['preemptor']} {_id(row)}"),
        ("from another process", DARK, "", [row["from_others"] for row in shown]),
        ("from its own process", LIGHT, "////", own),
    )
    axes.set_xlabel("times that it took the CPU from a thread that could have run on")
    return _titled(figure, "Who took the CPU", _left_out(rows, shown, "tasks"))


def _waits(rows: Sequence[Row], most: int) -> Figure:
    shown = _first(rows, most, "off_ns")
    figure, (axes,) = _panels(len(shown), 1)
    unit, scale = _unit(_sums(shown, "off_ns"))
    _bars(
        axes,
        _labels(shown, lambda row: f"{row['kind']} {row['wait_key']} in {row['process']}", 48),
        ("blocked, until woken", PALE, "", [row["blocked_ns"] / scale for row in shown]),
        (
            "then waiting for a CPU",
            MIDDLE,
            "\\\\\\\\",
            [row["runq_ns"] / scale for row in shown],
        ),
    )
    axes.set_xlabel(f"time waited, all threads together ({unit})")
    return _titled(
        figure, "What was waited for: locks, pipes, sockets", _left_out(rows, shown, "objects")
    )


def _compare(rows: Sequence[Row], most: int) -> Figure:
    busiest = sorted(rows, key=lambda row: -max(_rates(row)))
    shown = list(reversed(busiest[:most]))
    figure, (axes,) = _panels(len(shown), 1)
    places = range(len(shown))
    # A rate of 0 has no place on a logarithmic axis: it gets one below all others.
    least = min((rate for row in shown for rate in _rates(row) if rate > 0), default=1.0) / 3
    before, after = ([max(_rates(row)[side], least) for row in shown] for side in (0, 1))
    axes.hlines(places, before, after, color=LINE, linewidth=1.5, zorder=1)
    for rates, words, mark, fill in (
        (before, "before", "o", "white"),
        (after, "after", "D", DARK),
    ):
        axes.scatter(rates, places, s=40, marker=mark, color=fill, edgecolor=LINE, label=words)
    _logarithmic(axes)
    axes.set_yticks(places, labels=_labels(shown, lambda row: row["reason"]))
    has_none = any(0 in _rates(row) for row in shown)
    none = "; the leftmost place stands for none" if has_none else ""
    axes.set_xlabel(f"context switches a second, logarithmic{none}")
    _legend(axes)
    return _titled(
        figure,
        "Context switches a second by reason, before and after",
        f"{_left_out(rows, shown, 'reasons')}Whether a difference is more than chance: swtch diff",
    )


def _rates(row: Row) -> tuple[float, float]:
    return row["before_switches_per_s"] or 0.0, row["after_switches_per_s"] or 0.0


def _bill(rows: Sequence[Row], most: int) -> Figure:
    priced = [row for row in rows if row["direct_ns"] is not None]
    if not priced:
        raise Error("there is nothing to draw: the price list has no price for these switches")
    shown = _first(priced, most, "direct_ns")
    figure, (axes,) = _panels(len(shown), 1)
    unit, scale = _unit([row["direct_high_ns"] for row in shown])
    points = [row["direct_ns"] / scale for row in shown]
    measured = [
        point * (row["measured_pct"] or 0) / 100 for point, row in zip(points, shown, strict=True)
    ]
    estimated = [point - part for point, part in zip(points, measured, strict=True)]
    _bars(
        axes,
        _labels(shown, _billed),
        ("at measured prices", DARK, "", measured),
        ("at estimated prices", LIGHT, "////", estimated),
    )
    below = [point - row["direct_low_ns"] / scale for point, row in zip(points, shown, strict=True)]
    above = [
        row["direct_high_ns"] / scale - point for point, row in zip(points, shown, strict=True)
    ]
    axes.errorbar(
        points,
        range(len(shown)),
        xerr=(below, above),
        fmt="none",
        ecolor=LINE,
        capsize=3,
        label="interval",
    )
    axes.set_xlabel(f"direct cost of the switches ({unit})")
    _legend(axes)
    return _titled(
        figure,
        "What the switches themselves cost",
        f"{_left_out(priced, shown, 'rows')}Without what tasks lost afterwards in their caches",
    )


def _billed(row: Row) -> str:
    """What a row of a bill stands for."""
    if "next" in row:
        return f"{row['thread']} → {row['next']}"
    for key in ("folded", "thread", "process"):
        if key in row:
            return f"{row[key]} {_id(row)}".rstrip()
    return row["reason"]


def _tariffs(rows: Sequence[Row], most: int) -> Figure:
    priced = [row for row in rows if row["direct_ns"] is not None]
    if not priced:
        raise Error("there is nothing to draw: the price list has no price for these switches")
    shown = _first(priced, most, "switches")
    figure, (axes,) = _panels(len(shown), 1)
    for basis, words, mark, fill in (
        ("measured", "measured for this kind of switch", "o", DARK),
        ("estimated", "estimated from another kind", "D", "white"),
    ):
        chosen = [(place, row) for place, row in enumerate(shown) if row["basis"] == basis]
        if not chosen:
            continue
        points = [row["direct_ns"] for _, row in chosen]
        ends = (
            [row["direct_ns"] - row["direct_low_ns"] for _, row in chosen],
            [row["direct_high_ns"] - row["direct_ns"] for _, row in chosen],
        )
        axes.errorbar(
            points,
            [place for place, _ in chosen],
            xerr=ends,
            fmt=mark,
            markersize=6,
            markerfacecolor=fill,
            markeredgecolor=LINE,
            ecolor=LINE,
            capsize=3,
            label=words,
        )
    labels = _labels(shown, lambda row: f"{row['reason']}, then {row['successor']}")
    axes.set_yticks(range(len(shown)), labels=labels)
    axes.set_xlim(left=0)
    axes.set_xlabel("price of one switch, with its interval (ns)")
    _legend(axes)
    return _titled(
        figure, "What one switch of each kind is billed at", _left_out(priced, shown, "kinds")
    )


# How a stretch of a thread's life is drawn: words, colour, hatching, height.
_STATES = {
    "running": ("running", DARK, "", 0.8),
    "runnable": ("waiting for a CPU", MIDDLE, "\\\\\\\\", 0.5),
    "blocked": ("blocked", PALE, "", 0.2),
    "off_cpu": ("off the CPU, wakeup not recorded", "white", "....", 0.35),
}


def _timeline(rows: Sequence[Row], most: int, span: tuple[int, int | None]) -> Figure:
    if len(rows) > MOST_STRETCHES:
        raise Error(
            f"{len(rows):,} stretches make no picture that can be read",
            f"ask for a shorter span: timeline(since_ns, until_ns), at most {MOST_STRETCHES:,}",
        )
    since = span[0]
    end = max(row["end_ns"] for row in rows)
    until = end if span[1] is None else min(span[1], end)
    lanes: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        lanes.setdefault((row["trace"], row["tid"], row["pid"]), []).append(row)

    def busy(lane: list[Row]) -> int:
        """Time that was not spent blocked."""
        parts = (row for row in lane if row["state"] in ("running", "runnable"))
        return sum(min(row["end_ns"], until) - max(row["begin_ns"], since) for row in parts)

    chosen = sorted(lanes.values(), key=lambda lane: (-busy(lane), lane[0]["begin_ns"]))
    shown = list(reversed(chosen[:most]))
    figure, (axes,) = _panels(len(shown), 1, width=11)
    unit, scale = _unit([until - since])
    for state, (words, fill, hatch, height) in _STATES.items():
        is_told = False
        for place, lane in enumerate(shown):
            spans = [_clipped(row, since, until, scale) for row in lane if row["state"] == state]
            if spans:
                axes.broken_barh(
                    spans,
                    (place - height / 2, height),
                    facecolor=fill,
                    edgecolor=LINE,
                    linewidth=0.3,
                    hatch=hatch,
                    label=None if is_told else words,
                )
                is_told = True
    last = [lane[-1] for lane in shown]
    axes.set_yticks(
        range(len(shown)), labels=_labels(last, lambda row: f"{row['thread']} {_id(row)}")
    )
    axes.set_xlim(since / scale, until / scale)
    axes.set_xlabel(f"time since the start of the recording ({unit})")
    _legend(axes)
    words = f"The {len(shown)} busiest of {len(lanes)} threads." if len(lanes) > most else ""
    return _titled(figure, "What each thread did", words)


def _clipped(row: Row, since: int, until: int, scale: float) -> tuple[float, float]:
    """Begin and length of the part of a stretch that lies in the span."""
    begin, end = max(row["begin_ns"], since), min(row["end_ns"], until)
    return begin / scale, max(end - begin, 0) / scale


_PICTURES: dict[str, Callable[[Sequence[Row], int], Figure]] = {
    "reasons": _reasons,
    "threads": _tasks("threads", "thread"),
    "processes": _tasks("processes", "process"),
    "runq": _runq,
    "preemptors": _preemptors,
    "waits": _waits,
    "compare": _compare,
    "bill": _bill,
    "tariffs": _tariffs,
    # It is drawn by its own rule, since it knows a span.
    "timeline": lambda rows, most: _timeline(rows, most, (0, None)),
}


def _first(rows: Sequence[Row], most: int, key: str) -> list[Row]:
    """The rows with the largest values, the largest last: bars are drawn upwards."""
    return sorted(rows, key=lambda row: row[key] or 0)[-most:]


def _left_out(rows: Sequence[Row], shown: Sequence[Row], noun: str) -> str:
    if len(shown) == len(rows):
        return ""
    return f"The {len(shown)} largest of {len(rows):,} {noun}. "


def _times_with_runq(
    axes: Axes, labels: list[str], beside: tuple[str, str, list[int]], runq: list[int]
) -> str:
    """Bars of a time (words, colour, ns) and of run-queue time after it; returns their unit."""
    words, fill, lengths = beside
    unit, scale = _unit([a + b for a, b in zip(lengths, runq, strict=True)])
    _bars(
        axes,
        labels,
        (words, fill, "", [ns / scale for ns in lengths]),
        ("waiting for a CPU", MIDDLE, "\\\\\\\\", [ns / scale for ns in runq]),
    )
    return unit


def _sums(rows: Sequence[Row], key: str) -> list[int]:
    return [row[key] or 0 for row in rows]


def _unit(lengths_ns: Sequence[float]) -> tuple[str, float]:
    """The unit in which the largest of these lengths has few digits, and its length in ns."""
    largest = max(lengths_ns, default=0)
    return next((unit for unit in _TIMES if largest >= unit[1]), _TIMES[-1])


def _id(row: Row) -> str:
    """The number that tells tasks of one name apart."""
    number = row.get("tid") or row.get("pid")
    return "" if number is None else str(number)


def _labels(
    rows: Sequence[Row], name: Callable[[Row], str], longest: int = LONGEST_LABEL
) -> list[str]:
    """Names for the rows."""
    labels = []
    for row in rows:
        label = name(row)
        if len(label) > longest:
            label = label[: longest - 1] + "…"
        labels.append(_harmless(label + row["of_trace"]))
    return labels


def _harmless(label: str) -> str:
    """A text without hostile characters that is no formula: matplotlib reads `$…$` as one."""
    return escaped(label).replace("$", r"\$")


def _bars(axes: Axes, labels: list[str], *parts: tuple[str, str, str, list[float]]) -> None:
    """Bars made of parts: words, colour, hatching and lengths of each."""
    places = range(len(labels))
    starts = [0.0] * len(labels)
    for words, fill, hatch, lengths in parts:
        axes.barh(
            places,
            lengths,
            left=starts,
            height=0.7,
            color=fill,
            hatch=hatch,
            edgecolor=LINE,
            linewidth=0.5,
            label=words,
        )
        starts = [start + length for start, length in zip(starts, lengths, strict=True)]
    axes.set_yticks(places, labels=labels)
    axes.margins(y=0.02)
    if len(parts) > 1:
        _legend(axes)


def _logarithmic(axes: Axes) -> None:
    """A logarithmic axis with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _legend(axes: Axes) -> None:
    """Above the panel, where it covers nothing."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize="small", frameon=False)


def _panels(rows: int, count: int, width: float = 10) -> tuple[Figure, tuple[Axes, ...]]:
    """A figure with panels side by side that share their rows."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that a notebook shows by itself, without a backend and its global state."""

        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=80)
            return image.getvalue()

    figure = Picture(figsize=(width, 1.7 + 0.3 * rows), layout="constrained")
    panels = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color=PALE, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, tuple(panels)


def _titled(figure: Figure, title: str, below: str) -> Figure:
    figure.suptitle(f"{title}\n{below}".strip(), x=0.01, ha="left", fontsize="medium")
    return figure
