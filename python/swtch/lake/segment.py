"""From a finished trace to a segment: a Parquet file of switches, and a row of facts about it.

A trace that is damaged, unfinished or of a newer format is refused by `Trace`. What a trace says
may be nonsense all the same, so figures are checked before they count in sums of a fleet.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import time
import urllib.parse
import uuid
import zlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import Error
from ..result import engine_errors
from ..tables import literal
from ..text import escaped
from ..trace import Trace
from .columns import SWITCH_COLUMNS
from .store import without_wildcards

NS_PER_S = 1_000_000_000
# A wall clock before this was never set; swtch did not exist.
_EARLIEST_NS = int(datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc).timestamp()) * (
    NS_PER_S
)
# A clock this far ahead of ours is wrong for sure; beyond a day the date says nothing.
AHEAD_NS = 300 * NS_PER_S
_DAY_NS = 86_400 * NS_PER_S
# Longer runs and waits than this have not happened.
_LONGEST_NS = 10 * 366 * _DAY_NS


class Nonsense(Error):
    """A trace can be read, and what it says cannot be true."""


@dataclass(frozen=True)
class Labels:
    """What a trace does not know of its host."""

    release: str | None = None
    instance_type: str | None = None
    # A list of prices that `swtch cost -o FILE.json` measured on that host.
    prices: str | os.PathLike[str] | None = None


def id_of(path: Path) -> str:
    """The same for every copy of a trace: a digest of its facts and of its files' checksums."""
    digest = hashlib.sha256()
    for name in ("meta.json", "checksums.csv"):
        try:
            digest.update((path / name).read_bytes())
        except OSError as why:
            raise Error(f"{escaped(str(path))} is not a trace: {name}: {why.strerror}") from why
    return digest.hexdigest()[:20]


def convert(path: Path, target: Path, labels: Labels) -> dict[str, Any]:
    """Writes the switches of a trace to the file `target` and returns the row of the segment.

    Raises `Error` when the trace cannot be read and `Nonsense` when it cannot be true.
    """
    with Trace([path]) as trace:
        row = _facts(trace, path)
        row.update(_prices(labels))
        row.update(release=labels.release, instance_type=labels.instance_type)
        _write(trace, row, target)
    row.update(facts_of_file(target))
    row["file"] = name_for(row["date"], row["host"], row["segment"])
    return row


def name_for(date: str, host: str, stem: str) -> str:
    """A new name for a data file. The token makes it unique: no file is ever written twice."""
    place = urllib.parse.quote(host, safe="")
    return f"data/date={date}/host={place}/{stem}-{uuid.uuid4().hex[:8]}.parquet"


def facts_of_file(file: Path) -> dict[str, Any]:
    """Size and checksum of a data file."""
    crc = 0
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return {
        "file_bytes": file.stat().st_size,
        "file_crc32": crc,
        "file_columns": ",".join(SWITCH_COLUMNS),
    }


def _facts(trace: Trace, path: Path) -> dict[str, Any]:
    meta = trace.sql("SELECT * FROM meta").rows()[0]
    full = trace.meta[0]
    clock = full.get("clock") or {}
    offset = int(clock.get("realtime_ns") or 0) - int(clock.get("monotonic_ns") or 0)
    start = int(meta["start_ns"] or 0) + offset
    duration = int(meta["duration_ns"] or 0)
    host = meta["hostname"]
    if not host:
        raise Nonsense("it does not say its host")
    if start < _EARLIEST_NS:
        raise Nonsense(f"its clock says {_date_of(start)}: the clock of the host was not set")
    now = time.time_ns()
    if start + duration > now + _DAY_NS:
        raise Nonsense(f"it ends on {_date_of(start + duration)}, which is still to come")
    return {
        "segment": id_of(path),
        "host": host,
        "date": _date_of(start),
        "start_ns": start,
        "end_ns": start + duration,
        "duration_ns": duration,
        "offset_ns": offset,
        "lost": int(meta["lost"] or 0),
        "cpus": meta["cpus"],
        "kernel": meta["kernel_release"],
        "machine": meta["machine"],
        "preemption": (full.get("host") or {}).get("preemption"),
        "backend": meta["backend"],
        # Suspended time counts, so that this stays the same until the host boots again.
        "booted_ns": int(clock.get("realtime_ns") or 0) - int(clock.get("boottime_ns") or 0),
        "clock": "ahead" if start + duration > now + AHEAD_NS else None,
        "source": str(path),
        "swtch_version": meta["swtch_version"],
        "added_ns": now,
    }


def _date_of(moment_ns: int) -> str:
    """The day in UTC."""
    seconds = moment_ns // NS_PER_S
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return f"second {seconds}"


def _write(trace: Trace, row: dict[str, Any], target: Path) -> None:
    """Writes the switches and puts their number into the row."""
    sql = files(__package__).joinpath("segment.sql").read_text(encoding="utf-8")
    connection = trace.connection
    connection.execute(
        "CREATE TEMP TABLE labels AS "
        "SELECT ?::VARCHAR AS segment, ?::VARCHAR AS host, ?::BIGINT AS offset_ns",
        [row["segment"], row["host"], row.pop("offset_ns")],
    )
    cells = ", ".join(
        f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in SWITCH_COLUMNS.items()
    )
    with engine_errors(f"cannot convert {escaped(row['source'])}"):
        connection.execute(
            f"COPY (SELECT {cells} FROM ({sql})) TO {literal(str(target))} "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
        _check(connection, target, row)


def _check(connection: Any, target: Path, row: dict[str, Any]) -> None:
    """Refuses figures that cannot be true."""
    source = f"read_parquet({literal(without_wildcards(str(target)))})"
    second = NS_PER_S
    bounds = (row["start_ns"] - second, row["end_ns"] + second)
    switches, *odd = connection.execute(
        f"""SELECT count(*),
            count(*) FILTER (time_ns IS NULL),
            count(*) FILTER (reason IS NULL OR category IS NULL),
            count(*) FILTER (time_ns NOT BETWEEN {bounds[0]} AND {bounds[1]}),
            count(*) FILTER (
                least(ran_ns, off_ns, runq_ns, after_runq_ns, irq_ns, stolen_ns) < 0),
            count(*) FILTER (greatest(ran_ns, off_ns, runq_ns) > {_LONGEST_NS})
        FROM {source}"""
    ).fetchone()
    said = (
        "no time",
        "no reason",
        "a time outside the recording",
        "a negative length of time",
        "a run or wait of more than ten years",
    )
    for count, what in zip(odd, said, strict=True):
        if count:
            raise Nonsense(f"{count} of {switches} switches have {what}")
    row["switches"] = switches


def _prices(labels: Labels) -> dict[str, Any]:
    """What a switch costs on the host: from one thread to another on the same CPU, by a pipe."""
    nothing = {"price_ns": None, "price_low_ns": None, "price_high_ns": None}
    if labels.prices is None:
        return nothing
    try:
        listed = json.loads(Path(labels.prices).read_text(encoding="utf-8"))["prices"]
        price = next(
            one["net_ns"]
            for one in listed
            if (one["kind"], one["members"], one["place"]) == ("pipe", "threads", "same-cpu")
        )
        return {
            "price_ns": float(price["point"]),
            "price_low_ns": float(price["low"]),
            "price_high_ns": float(price["high"]),
        }
    except OSError as why:
        raise Error(f"cannot read the prices {escaped(str(labels.prices))}: {why}") from why
    except (ValueError, KeyError, TypeError, StopIteration) as why:
        raise Error(
            f"{escaped(str(labels.prices))} is no list of prices with the kind `pipe`",
            "measure one on the host: swtch cost --quick -o FILE.json",
        ) from why
