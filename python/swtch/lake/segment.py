"""From a finished trace to a segment: its switches and contention as Parquet, and a row of facts.

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
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Error
from ..program import answer_of_program
from ..result import engine_errors
from ..tables import JUDGED_AS_TODAY, literal
from ..text import escaped
from ..trace import Trace
from ..trace_files import read_small
from .columns import CONTENTION_COLUMNS, SEGMENT_COLUMNS, SWITCH_COLUMNS
from .store import LakeError, Store, without_wildcards

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

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
# Names of folders have up to 255 bytes (NAME_MAX of Linux), names of hosts up to 64, of DNS 253.
_LONGEST_HOST = 255


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
        digest.update(read_small(str(path), path / name))
    return digest.hexdigest()[:20]


@dataclass(frozen=True)
class Origin:
    """Where a finished trace comes from, in a lake's words."""

    # The same for every copy of it.
    segment: str
    # Where a person finds it.
    source: str


@dataclass(frozen=True)
class Converted:
    """A trace as a lake keeps it, not yet in its place."""

    row: dict[str, Any]
    switches: Path
    contention: Path

    def put_into(self, store: Store) -> None:
        """Moves its files into the lake. No version names them yet."""
        store.put(self.contention, contention_of(self.row["file"]))
        store.put(self.switches, self.row["file"])


def convert(path: Path, origin: Origin, place: Path, labels: Labels) -> Converted:
    """Writes the tables of a trace into a folder, with the row of the segment.

    Raises `Error` when the trace cannot be read and `Nonsense` when it cannot be true.
    """
    switches, contention = place / "switches.parquet", place / "contention.parquet"
    with Trace([path]) as trace:
        row = {**_facts(trace), "segment": origin.segment, "source": origin.source}
        row.update(release=labels.release, instance_type=labels.instance_type)
        _write(trace, row, switches)
        _write_contention(trace, path, row, contention)
        row.update(facts_of_files(switches, contention))
        row["file"] = name_for(row["date"], row["host"], row["segment"])
        _check_row(trace.connection, row)
    return Converted(row, switches, contention)


def _check_row(connection: Any, row: dict[str, Any]) -> None:
    """Refuses facts that the list of segments has no room for, before others wait with them."""
    casts = ", ".join(f"CAST(? AS {SEGMENT_COLUMNS[name]})" for name in row)
    with engine_errors(f"cannot keep what {escaped(row['source'])} says of itself"):
        connection.execute(f"SELECT {casts}", list(row.values()))


def name_for(date: str, host: str, stem: str) -> str:
    """A new name for a data file. The token makes it unique: no file is ever written twice."""
    return f"data/date={date}/{_folder_of(host)}/{stem}-{uuid.uuid4().hex[:8]}.parquet"


def _folder_of(host: str) -> str:
    return f"host={urllib.parse.quote(host, safe='', errors='surrogatepass')}"


def contention_of(file: str) -> str:
    """The name of the file with the contention of a data file."""
    return f"contention/{file.removeprefix('data/')}"


def facts_of_files(switches: Path, contention: Path | None) -> dict[str, Any]:
    """Sizes and checksums of a data file and of the one with its contention."""
    size, crc32 = _size_and_crc32(switches)
    facts = {"file_bytes": size, "file_crc32": crc32, "file_columns": ",".join(SWITCH_COLUMNS)}
    rest = (None, None) if contention is None else _size_and_crc32(contention)
    columns = None if contention is None else ",".join(CONTENTION_COLUMNS)
    return {
        **facts,
        "contention_bytes": rest[0],
        "contention_crc32": rest[1],
        "contention_columns": columns,
    }


def _size_and_crc32(file: Path) -> tuple[int, int]:
    crc = 0
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return file.stat().st_size, crc


def _facts(trace: Trace) -> dict[str, Any]:
    meta = trace.sql("SELECT * FROM meta").rows()[0]
    full = trace.meta[0]
    realtime, monotonic, boottime = (
        _moment(full, name) for name in ("realtime_ns", "monotonic_ns", "boottime_ns")
    )
    start = (meta["start_ns"] or 0) + realtime - monotonic
    duration = meta["duration_ns"] or 0
    if start < _EARLIEST_NS:
        raise Nonsense(f"its clock says {_date_of(start)}: the clock of the host was not set")
    now = time.time_ns()
    if start + duration > now + _DAY_NS:
        raise Nonsense(f"it ends on {_date_of(start + duration)}, which is still to come")
    return {
        "host": _host(meta["hostname"]),
        "date": _date_of(start),
        "start_ns": start,
        "end_ns": start + duration,
        "duration_ns": duration,
        "offset_ns": realtime - monotonic,
        "lost": meta["lost"],
        "cpus": meta["cpus"],
        "kernel": meta["kernel_release"],
        "machine": meta["machine"],
        "preemption": _word(full, "preemption"),
        "backend": meta["backend"],
        # Suspended time counts, so that this stays the same until the host boots again.
        "booted_ns": realtime - boottime,
        "clock": "ahead" if start + duration > now + AHEAD_NS else None,
        "swtch_version": meta["swtch_version"],
        # Rows of older traces were read as the rules judge today.
        "rules_version": max(meta["rules_version"] or 0, JUDGED_AS_TODAY),
        "added_ns": now,
    }


def _host(name: str | None) -> str:
    """The name of the host, which becomes that of a folder."""
    if not name:
        raise Nonsense("it does not say its host")
    if len(_folder_of(name)) > _LONGEST_HOST:
        raise Nonsense(f"its host has a name of {len(name)} characters: {escaped(name[:40])}…")
    return name


def _moment(meta: dict[str, Any], name: str) -> int:
    """A moment of a clock of the host; 0 where an older trace does not say it."""
    clock = meta.get("clock")
    value = clock.get(name) if isinstance(clock, dict) else clock
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
        raise Nonsense(f"meta.json says {_short(value)} for clock.{name}")
    return value


def _word(meta: dict[str, Any], name: str) -> str | None:
    """A word about the host; `None` where an older trace does not say it."""
    host = meta.get("host")
    value = host.get(name) if isinstance(host, dict) else host
    if value is not None and not isinstance(value, str):
        raise Nonsense(f"meta.json says {_short(value)} for host.{name}")
    return value


def _short(value: Any) -> str:
    """A value of a trace in a message."""
    text = escaped(repr(value))
    return text if len(text) <= 80 else f"{text[:80]}…"


def _date_of(moment_ns: int) -> str:
    """The day in UTC."""
    seconds = moment_ns // NS_PER_S
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return f"second {seconds}"


def _write(trace: Trace, row: dict[str, Any], target: Path) -> None:
    """Writes the switches and puts their number into the row."""
    sql = (files("swtch.lake") / "segment.sql").read_text(encoding="utf-8")
    connection = trace.connection
    connection.execute(
        "CREATE TEMP TABLE labels AS "
        "SELECT ?::VARCHAR AS segment, ?::VARCHAR AS host, ?::BIGINT AS offset_ns",
        [row["segment"], row["host"], row.pop("offset_ns")],
    )
    cells = ", ".join(
        f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in SWITCH_COLUMNS.items()
    )
    try:
        with engine_errors(f"cannot convert {escaped(row['source'])}"):
            connection.execute(
                f"COPY (SELECT {cells} FROM ({sql})) TO {literal(str(target))} "
                "(FORMAT parquet, COMPRESSION zstd)"
            )
            _check(connection, target, row)
    except Error as why:
        if str(target) in str(why):
            # A disk that is full is not the trace's fault.
            raise LakeError(str(why)) from why
        raise


def _write_contention(trace: Trace, path: Path, row: dict[str, Any], target: Path) -> None:
    """Writes who had the CPU while tasks waited, which the program finds out."""
    rows = answer_of_program(["report", "--by", "neighbour", path])["rows"]
    paths = dict(
        trace.connection.execute(
            "SELECT cgroup, max(path) FROM stored.cgroup GROUP BY cgroup"
        ).fetchall()
    )

    def called(number: int) -> str:
        return paths.get(number) or f"#{number}"

    kept = [
        {
            **one,
            "segment": row["segment"],
            "host": row["host"],
            "cgroup": called(one["cgroup_id"]),
            "neighbour": called(one["neighbour_id"]) if one["kind"] == "cgroup" else None,
        }
        for one in rows
    ]
    write_contention(trace.connection, kept, target)


def write_contention(
    connection: DuckDBPyConnection, rows: Sequence[dict[str, Any]], target: Path
) -> None:
    """Writes rows of the table `contention` to a file."""
    cells = ", ".join(
        f'CAST(unnest(?) AS {kind}) AS "{name}"' for name, kind in CONTENTION_COLUMNS.items()
    )
    # A program that is older than this package tells no containers.
    values = [[row.get(name) for row in rows] for name in CONTENTION_COLUMNS]
    with engine_errors("cannot keep who had the CPU"):
        connection.execute(
            f"COPY (SELECT {cells}) TO {literal(str(target))} (FORMAT parquet, COMPRESSION zstd)",
            values,
        )


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


def prices_of(labels: Labels) -> dict[str, Any]:
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
