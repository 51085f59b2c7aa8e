"""What changes a lake: add, compact, retain, verify.

Each writes new files first, then commits a version that names them, and deletes old files last and
later. So a segment that was committed once is in the lake until it is retained away, whenever a
writer is killed, and each of these may be run again.
"""

from __future__ import annotations

import datetime
import errno
import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from ..database import new_database
from ..errors import Error
from ..program import run_program
from ..tables import literal
from ..text import escaped
from . import segment as segments_of
from .columns import CONTENTION_COLUMNS, SEGMENT_COLUMNS, SWITCH_COLUMNS
from .manifest import VERSION, Change, Segments, commit, existing, latest, name_of
from .segment import Labels, Origin, contention_of
from .store import LakeError, Store, checked_name, quoted, with_names, without_wildcards

# Files above this are left as they are; small ones are merged up to twice of it.
TARGET_BYTES = 64 << 20
# A query that planned before a file was dropped may read it this long.
GRACE_S = 3600.0
# Files that no version names are deleted when they are older: their writer is surely gone.
LEFTOVER_S = 86_400.0
# A batch of new segments is committed when it has so many, or has waited so long.
_BATCH = 64
_OF_THIS_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_BATCH_S = 30.0
# A host's clock that moved more than this against the time since its boot was set meanwhile.
_MOVED_NS = 60 * segments_of.NS_PER_S

Say = Callable[[str], None]


@dataclass
class Added:
    """What became of the traces that were given."""

    added: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    # Path -> why it was refused.
    quarantined: dict[str, str] = field(default_factory=dict)
    # Segments of a flight recorder that it dropped while they were read.
    vanished: list[str] = field(default_factory=list)


class Given:
    """A finished trace that is to be added."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path.absolute()

    def origin(self) -> Origin:
        """Which segment of a lake it becomes."""
        return Origin(segments_of.id_of(self.path), str(self.path))

    @contextmanager
    def finished(self) -> Iterator[Path]:
        """The trace as tables."""
        yield self.path

    def has_vanished(self) -> bool:
        """Whether it is gone for a reason that is no trouble."""
        return False


def add(store: Store, traces: Iterable[Given], labels: Labels, say: Say) -> Added:
    """Adds finished traces; those that cannot be read or be true are put into quarantine."""
    outcome = Added()
    # The program finds out who had the CPU. That it is missing, or too old, is no trace's fault.
    run_program(["report", "--by", "neighbour", "--help"])
    prices = segments_of.prices_of(labels)
    waiting: list[dict[str, Any]] = []
    since = time.monotonic()
    with store.scratch() as place:
        try:
            for given in traces:
                row = _new_segment(store, given, place, labels, outcome, say)
                if row is not None:
                    waiting.append({**row, **prices})
                if waiting and (len(waiting) >= _BATCH or time.monotonic() - since > _BATCH_S):
                    batch, waiting, since = waiting, [], time.monotonic()
                    _commit_added(store, batch, outcome, say)
        finally:
            # An error ends the command; what came before it is in the lake.
            if waiting:
                _commit_added(store, waiting, outcome, say)
    return outcome


def _new_segment(
    store: Store, given: Given, place: Path, labels: Labels, outcome: Added, say: Say
) -> dict[str, Any] | None:
    """Brings a trace into the store as a data file that no version names yet."""
    if not given.path.is_dir():
        if given.has_vanished():
            _dropped(given, outcome, say)
            return None
        raise Error(f"{escaped(given.name)} is not a trace: there is no such directory")
    with _quarantine_of(store, given, outcome, say):
        origin = given.origin()
        if is_present(store, origin.segment):
            outcome.present.append(given.name)
            say(f"in the lake already  {escaped(given.name)}")
            return None
        with given.finished() as path:
            converted = segments_of.convert(path, origin, place, labels)
        converted.put_into(store)
        return converted.row
    return None


def _dropped(given: Given, outcome: Added, say: Say) -> None:
    outcome.vanished.append(given.name)
    say(f"dropped meanwhile  {escaped(given.name)}")


@contextmanager
def _quarantine_of(store: Store, given: Given, outcome: Added, say: Say) -> Iterator[None]:
    """Puts a trace into quarantine whatever is wrong with it, so that the others are added.

    A trace comes from anywhere and may raise anything. What the lake raises is not its fault, nor
    is that this machine has no more disk, memory or descriptors.
    """
    try:
        yield
    except (LakeError, MemoryError):
        raise
    except Exception as why:
        if isinstance(why, OSError) and why.errno in _OF_THIS_MACHINE:
            raise LakeError(f"cannot add {escaped(given.name)}: {why}") from why
        if given.has_vanished():
            _dropped(given, outcome, say)
            return
        text = str(why) if isinstance(why, Error) else f"{type(why).__name__}: {why}"
        outcome.quarantined[given.name] = text
        _quarantine(store, str(given.path), text, [])
        # What the engine quotes of a trace may hold line ends: none begins a line of ours.
        indented = text.replace("\n", "\n  ")
        say(f"quarantined  {escaped(given.name)}: {indented}")


def is_present(store: Store, identity: str) -> bool:
    """Whether a segment is in the lake."""
    now = Segments(store, latest(store))
    return bool(now.rows("SELECT 1 FROM segments WHERE segment = ? LIMIT 1", [identity]))


def _commit_added(
    store: Store, waiting: Sequence[dict[str, Any]], outcome: Added, say: Say
) -> None:
    twice: list[dict[str, Any]] = []
    taken: list[dict[str, Any]] = []

    def make(now: Segments) -> Change:
        twice.clear()
        taken.clear()
        known = {
            one[0]
            for one in now.rows(
                "SELECT segment FROM segments WHERE list_contains(?, segment)",
                [[row["segment"] for row in waiting]],
            )
        }
        change = Change.none()
        for row in waiting:
            if row["segment"] in known:
                twice.append(row)
                continue
            known.add(row["segment"])
            taken.append(row)
            change.add.append(_with_clock(now, row, taken))
        return change

    commit(store, make)
    for row in taken:
        outcome.added.append(row["source"])
        clock = {"ahead": "; its clock is ahead", "moved": "; its clock was set meanwhile"}
        note = clock.get(row["clock"] or "", "")
        say(
            f"added  {escaped(row['source'])}  {row['switches']} switches of "
            f"{escaped(row['host'])}, {row['date']}{note}"
        )
    for row in twice:
        # Another writer, or the same trace given twice under two names.
        outcome.present.append(row["source"])
        _delete(store, row["file"])
        say(f"in the lake already  {escaped(row['source'])}")


def _with_clock(
    now: Segments, row: dict[str, Any], taken: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Marks a segment whose host's clock was set while the host was up.

    Wall clock minus time since boot stays the same until the host boots again. It booted again if
    the new moment of booting is after all that was recorded before.
    """
    others = now.rows(
        "SELECT booted_ns, end_ns FROM segments WHERE host = ? AND start_ns < ? "
        "ORDER BY start_ns DESC LIMIT 1",
        [row["host"], row["start_ns"]],
    )
    others += [
        (one["booted_ns"], one["end_ns"])
        for one in taken
        if one["host"] == row["host"] and one["start_ns"] < row["start_ns"]
    ]
    for booted_ns, end_ns in others:
        moved = abs(row["booted_ns"] - booted_ns) > _MOVED_NS
        if moved and row["booted_ns"] < end_ns and row["clock"] is None:
            row["clock"] = "moved"
    return row


def _quarantine(store: Store, source: str, why: str, segments: Sequence[dict[str, Any]]) -> None:
    """Writes down what was refused and why; the same trouble of the same source once."""
    facts = {
        "schema": "swtch.quarantine/1",
        "source": source,
        "why": why,
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "segments": list(segments),
    }
    name = f"quarantine/{zlib.crc32(f'{source}{why}'.encode(errors='replace')):08x}.json"
    store.write(name, json.dumps(facts, indent=1, ensure_ascii=True).encode())


def quarantined(store: Store) -> list[dict[str, Any]]:
    """What was refused, with the reasons."""
    found = []
    for one in store.names("quarantine"):
        text = store.read(one.name)
        try:
            facts = json.loads(text or b"")
            noted = {key: str(facts[key]) for key in ("source", "why", "when")}
            found.append({**noted, "segments": list(facts["segments"])})
        except (ValueError, KeyError, TypeError, RecursionError):
            why = "it is damaged, and does not say what was refused"
            found.append({"source": one.name, "why": why, "when": "", "segments": []})
    return sorted(found, key=lambda facts: (facts["when"], facts["source"]))


def compact(store: Store, say: Say, target: int = TARGET_BYTES, grace_s: float = GRACE_S) -> int:
    """Merges small files of a host and day; returns how many files it merged."""
    merged = 0
    failed = []
    for files in _small_files(store, target):
        try:
            merged += _merge(store, files, say)
        except Error as why:
            failed.append(str(why))
    tidy(store, grace_s)
    if failed:
        raise Error(
            "\n".join(failed),
            f"the rest is merged; what is damaged leaves the answers with: "
            f"swtch lake verify --repair {escaped(store.location)}",
        )
    return merged


def _small_files(store: Store, target: int) -> list[list[str]]:
    """Files to be merged, a list for each new file."""
    groups: list[list[str]] = []
    place, total = None, 0
    rows = Segments(store, existing(store)).rows(
        """SELECT date, host, file, any_value(file_bytes) AS bytes
        FROM segments GROUP BY date, host, file
        HAVING bytes < ? ORDER BY date, host, min(start_ns)""",
        [target],
    )
    for date, host, file, size in rows:
        if (date, host) != place or total >= target:
            groups.append([])
            place, total = (date, host), 0
        groups[-1].append(file)
        total += size
    return [group for group in groups if len(group) > 1]


def _merge(store: Store, files: Sequence[str], say: Say) -> int:
    now = Segments(store, latest(store))
    where = "list_contains(?, file)"
    rows = _segment_rows(now, where, [list(files)])
    if {row["file"] for row in rows} != set(files):
        return 0
    # Segments of older packages have no contention.
    with_contention = {row["file"] for row in rows if row["contention_bytes"] is not None}
    of_contention = [contention_of(file) for file in files if file in with_contention]
    with store.scratch() as place, ExitStack() as held:
        sources = _sources(store, files, held)
        others = _sources(store, of_contention, held)
        new, contention = place / "merged.parquet", place / "contention.parquet"
        counts = _write_merged(sources, SWITCH_COLUMNS, "time_ns", new)
        if others:
            order = "segment, cgroup, runq_ns DESC, neighbour, kind"
            _write_merged(others, CONTENTION_COLUMNS, order, contention)
        expected = {row["segment"]: row["switches"] for row in rows if row["switches"]}
        if counts != expected:
            raise Error(
                f"{escaped(files[0])} and {len(files) - 1} more are not merged: they hold "
                f"{sum(counts.values())} switches, and {sum(expected.values())} were added"
            )
        facts = segments_of.facts_of_files(new, contention if others else None)
        stem = f"merged-{len(rows)}"
        name = segments_of.name_for(rows[0]["date"], rows[0]["host"], stem)
        if others:
            store.put(contention, contention_of(name))
        store.put(new, name)

    committed = False

    def make(current: Segments) -> Change:
        nonlocal committed
        change = Change.none()
        here = _segment_rows(current, where, [list(files)])
        committed = {row["segment"] for row in here} == {row["segment"] for row in rows}
        if committed:
            change.add = [{**row, **facts, "file": name} for row in here]
            change.remove = {row["segment"] for row in here}
            change.drop = set(files)
        return change

    commit(store, make)
    if not committed:
        # Another writer merged or retained them meanwhile.
        _delete(store, name)
        return 0
    say(f"merged  {len(files)} files of {escaped(rows[0]['host'])}, {rows[0]['date']}")
    return len(files)


def _segment_rows(now: Segments, where: str, params: Sequence[Any]) -> list[dict[str, Any]]:
    names = list(SEGMENT_COLUMNS)
    found = now.rows(f"SELECT {', '.join(names)} FROM segments WHERE {where}", params)
    return [dict(zip(names, row, strict=True)) for row in found]


def _sources(store: Store, files: Sequence[str], held: ExitStack) -> dict[str, str]:
    """Files as the engine is given them, as long as they are `held`."""
    names = [checked_name(file, "data", "contention") for file in files]
    return {name: quoted(held.enter_context(store.local(name))) for name in names}


def _delete(store: Store, file: str) -> None:
    """Deletes a data file, and its contention before it."""
    store.delete(contention_of(file))
    store.delete(file)


def _write_merged(
    sources: Mapping[str, str], columns: Mapping[str, str], order: str, target: Path
) -> dict[str, int]:
    """Writes all rows of several files into one; returns the rows of each segment in it."""
    database = new_database()
    kinds = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    names = ", ".join(f'"{name}"' for name in columns)
    try:
        database.execute(f"CREATE TABLE empty ({kinds})")
        everything = " UNION ALL BY NAME ".join(
            [
                "SELECT * FROM empty",
                *(f"SELECT * FROM read_parquet({one})" for one in sources.values()),
            ]
        )
        database.execute(
            f"COPY (SELECT {names} FROM ({everything}) ORDER BY {order}) "
            f"TO {literal(str(target))} (FORMAT parquet, COMPRESSION zstd)"
        )
        counted = database.execute(
            "SELECT segment, count(*) FROM "
            f"read_parquet({literal(without_wildcards(str(target)))}) GROUP BY segment"
        ).fetchall()
    except duckdb.Error as why:
        first = escaped(next(iter(sources)))
        told = with_names(str(why), sources)
        raise Error(f"{len(sources)} files from {first} on are not merged: {told}") from why
    finally:
        database.close()
    return dict(counted)


def retain(store: Store, before: str, say: Say, grace_s: float = GRACE_S) -> int:
    """Takes out segments of days before a date (`YYYY-MM-DD`); returns how many."""
    try:
        datetime.date.fromisoformat(before)
    except ValueError as why:
        raise Error(f"{before!r} is no date: YYYY-MM-DD") from why
    existing(store)
    count = 0

    def make(now: Segments) -> Change:
        nonlocal count
        change = Change.none()
        for segment, file in now.rows(
            "SELECT segment, file FROM segments WHERE date < ?", [before]
        ):
            change.remove.add(segment)
            change.drop.add(file)
        count = len(change.remove)
        return change

    commit(store, make)
    if count:
        say(f"taken out  {count} segments of days before {before}")
    tidy(store, grace_s)
    return count


def tidy(store: Store, grace_s: float) -> None:
    """Deletes dropped files after their grace, and what writers that were killed left."""
    now = Segments(store, latest(store))
    named = set(now.files())
    due = {
        one.file
        for one in now.manifest.dropped
        if one.since_s < time.time() - grace_s and one.file not in named
    }
    for file in sorted(due):
        _delete(store, file)
    if due:
        commit(store, lambda _: Change([], set(), set(), due))
    for name in leftovers(store, now):
        store.delete(name)


# What writers put into a lake, and versions are made of. Other files there are somebody else's.
_OWN = re.compile(
    r"(data|contention)/date=[^/]+/host=[^/]+/[^/]+-[0-9a-f]{8}\.parquet"
    r"|manifest/segments-[0-9a-f]{32}\.parquet"
    rf"|{VERSION.pattern}"
    r"|incoming/[^/]+/[a-z_]+(\.parquet)?"
)


def leftovers(store: Store, now: Segments) -> list[str]:
    """Files of writers that are older than a day and that no version names."""
    files = {*now.files(), *(one.file for one in now.manifest.dropped)}
    kept = {
        *files,
        *map(contention_of, files),
        *(one.file for one in now.manifest.lists),
        name_of(now.manifest.version),
    }
    return [
        one.name
        for folder in ("data", "contention", "manifest", "incoming")
        for one in store.names(folder)
        if one.age_s > LEFTOVER_S and one.name not in kept and _OWN.fullmatch(one.name)
    ]


@dataclass(frozen=True)
class Verified:
    """What `verify` found: files that are damaged, with the reason, and how many were read."""

    files: int
    segments: int
    switches: int
    damaged: dict[str, str]


def verify(store: Store, *, repair: bool, say: Say) -> Verified:
    """Reads every data file and compares it with what was written.

    With `repair`, segments of damaged files are put into quarantine, so that questions are answered
    without them.
    """
    now = Segments(store, existing(store))
    damaged: dict[str, str] = {}
    facts = now.rows(
        """SELECT file, any_value(file_bytes), any_value(file_crc32), sum(switches)::BIGINT,
        count(*), any_value(contention_bytes), any_value(contention_crc32)
        FROM segments GROUP BY file ORDER BY file"""
    )
    for file, size, crc32, _, _, contention_bytes, contention_crc32 in facts:
        why = _damage(store, checked_name(file, "data"), size, crc32)
        if why is None and contention_bytes is not None:
            why = _damage(store, contention_of(file), contention_bytes, contention_crc32)
            why = why and f"{contention_of(escaped(file))}: {why}"
        if why is not None:
            damaged[file] = why
            say(f"damaged  {escaped(file)}: {why}")
    if repair and damaged:
        _take_out(store, damaged, say)
        tidy(store, GRACE_S)
    return Verified(
        len(facts), sum(one[4] for one in facts), sum(one[3] or 0 for one in facts), damaged
    )


def _damage(store: Store, file: str, size: int, crc32: int) -> str | None:
    """What is wrong with a file; `None` if it is as it was written."""
    found = store.size(file)
    if found is None:
        return "it is missing"
    if found != size:
        return f"it has {found} bytes, and {size} were written"
    text = store.read(file)
    if text is None:
        return "it is missing"
    return None if zlib.crc32(text) == crc32 else "its bytes have changed"


def _take_out(store: Store, damaged: dict[str, str], say: Say) -> None:
    """Puts the segments of damaged files into quarantine; the files stay where they are."""
    rows = _segment_rows(
        Segments(store, latest(store)), "list_contains(?, file)", [sorted(damaged)]
    )
    for file, why in damaged.items():
        own = [row for row in rows if row["file"] == file]
        _quarantine(store, file, why, own)
        for row in own:
            say(f"quarantined  {escaped(row['source'])} of {escaped(row['host'])}: {why}")

    def make(now: Segments) -> Change:
        change = Change.none()
        change.remove = {
            row["segment"] for row in _segment_rows(now, "list_contains(?, file)", [list(damaged)])
        }
        if change.remove:
            change.drop = set(damaged)
        return change

    commit(store, make)
