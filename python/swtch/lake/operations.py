"""What changes a lake: add, compact, retain, verify.

Each writes new files first, then commits a version that names them, and deletes old files last and
later. So a segment that was committed once is in the lake until it is retained away, whenever a
writer is killed, and each of these may be run again.
"""

from __future__ import annotations

import datetime
import json
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from ..database import new_database
from ..errors import Error
from ..tables import literal
from ..text import escaped
from . import segment as segments_of
from .columns import SEGMENT_COLUMNS, SWITCH_COLUMNS
from .manifest import Change, Segments, commit, latest
from .segment import Labels
from .store import Store, without_wildcards

# Files above this are left as they are; small ones are merged up to twice of it.
TARGET_BYTES = 64 << 20
# A query that planned before a file was dropped may read it this long.
GRACE_S = 3600.0
# Files that no version names are deleted when they are older: their writer is surely gone.
LEFTOVER_S = 86_400.0
# A batch of new segments is committed when it has so many, or has waited so long.
_BATCH = 64
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


def add(store: Store, paths: Iterable[Path], labels: Labels, say: Say) -> Added:
    """Adds finished traces; those that cannot be read or be true are put into quarantine."""
    outcome = Added()
    waiting: list[dict[str, Any]] = []
    since = time.monotonic()
    with store.scratch() as place:
        for path in paths:
            row = _new_segment(store, path, place, labels, outcome, say)
            if row is not None:
                waiting.append(row)
            if waiting and (len(waiting) >= _BATCH or time.monotonic() - since > _BATCH_S):
                _commit_added(store, waiting, outcome, say)
                waiting, since = [], time.monotonic()
        if waiting:
            _commit_added(store, waiting, outcome, say)
    return outcome


def _new_segment(
    store: Store, path: Path, place: Path, labels: Labels, outcome: Added, say: Say
) -> dict[str, Any] | None:
    """Brings a trace into the store as a data file that no version names yet."""
    absolute = path.absolute()
    try:
        identity = segments_of.id_of(absolute)
        if _is_present(store, identity):
            outcome.present.append(str(path))
            say(f"in the lake already  {escaped(str(path))}")
            return None
        file = place / "switches.parquet"
        row = segments_of.convert(absolute, file, labels)
    except Error as why:
        if not absolute.is_dir() or labels_are_wrong(why, labels):
            raise
        outcome.quarantined[str(path)] = str(why)
        _quarantine(store, str(absolute), str(why), [])
        say(f"quarantined  {escaped(str(path))}: {why}")
        return None
    store.put(file, row["file"])
    return row


def labels_are_wrong(why: Error, labels: Labels) -> bool:
    """Whether an error is about the list of prices, so that every trace would have it."""
    return labels.prices is not None and escaped(str(labels.prices)) in str(why)


def _is_present(store: Store, identity: str) -> bool:
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
        store.delete(row["file"])
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
        if text is not None:
            found.append(json.loads(text))
    return sorted(found, key=lambda facts: facts["when"])


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
    rows = Segments(store, latest(store)).rows(
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
    sources = [literal(without_wildcards(str(store.local(file)))) for file in files]
    with store.scratch() as place:
        new = place / "merged.parquet"
        counts = _write_merged(sources, new)
        expected = {row["segment"]: row["switches"] for row in rows if row["switches"]}
        if counts != expected:
            raise Error(
                f"{escaped(files[0])} and {len(files) - 1} more are not merged: they hold "
                f"{sum(counts.values())} switches, and {sum(expected.values())} were added"
            )
        facts = segments_of.facts_of_file(new)
        stem = f"merged-{len(rows)}"
        name = segments_of.name_for(rows[0]["date"], rows[0]["host"], stem)
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
        store.delete(name)
        return 0
    say(f"merged  {len(files)} files of {escaped(rows[0]['host'])}, {rows[0]['date']}")
    return len(files)


def _segment_rows(now: Segments, where: str, params: Sequence[Any]) -> list[dict[str, Any]]:
    names = list(SEGMENT_COLUMNS)
    found = now.rows(f"SELECT {', '.join(names)} FROM segments WHERE {where}", params)
    return [dict(zip(names, row, strict=True)) for row in found]


def _write_merged(sources: Sequence[str], target: Path) -> dict[str, int]:
    """Writes all rows of several files into one; returns the rows of each segment in it."""
    database = new_database()
    kinds = ", ".join(f'"{name}" {kind}' for name, kind in SWITCH_COLUMNS.items())
    names = ", ".join(f'"{name}"' for name in SWITCH_COLUMNS)
    try:
        database.execute(f"CREATE TABLE empty ({kinds})")
        everything = " UNION ALL BY NAME ".join(
            ["SELECT * FROM empty", *(f"SELECT * FROM read_parquet({one})" for one in sources)]
        )
        database.execute(
            f"COPY (SELECT {names} FROM ({everything}) ORDER BY time_ns) "
            f"TO {literal(str(target))} (FORMAT parquet, COMPRESSION zstd)"
        )
        counted = database.execute(
            "SELECT segment, count(*) FROM "
            f"read_parquet({literal(without_wildcards(str(target)))}) GROUP BY segment"
        ).fetchall()
    except duckdb.Error as why:
        raise Error(f"{len(sources)} files from {sources[0]} on are not merged: {why}") from why
    finally:
        database.close()
    return dict(counted)


def retain(store: Store, before: str, say: Say, grace_s: float = GRACE_S) -> int:
    """Takes out segments of days before a date (`YYYY-MM-DD`); returns how many."""
    try:
        datetime.date.fromisoformat(before)
    except ValueError as why:
        raise Error(f"{before!r} is no date: YYYY-MM-DD") from why
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
        store.delete(file)
    if due:
        commit(store, lambda _: Change([], set(), set(), due))
    for name in leftovers(store, now):
        store.delete(name)


def leftovers(store: Store, now: Segments) -> list[str]:
    """Files older than a day that no version names."""
    kept = {
        *now.files(),
        *(one.file for one in now.manifest.dropped),
        *(one.file for one in now.manifest.lists),
        "manifest/latest",
        f"manifest/v{now.manifest.version:08}.json",
    }
    return [
        one.name
        for folder in ("data", "manifest", "incoming")
        for one in store.names(folder)
        if one.age_s > LEFTOVER_S and one.name not in kept
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
    now = Segments(store, latest(store))
    damaged: dict[str, str] = {}
    facts = now.rows(
        """SELECT file, any_value(file_bytes), any_value(file_crc32), sum(switches)::BIGINT,
        count(*) FROM segments GROUP BY file ORDER BY file"""
    )
    for file, size, crc32, switches, _ in facts:
        why = _damage(store, file, size, crc32, switches)
        if why is not None:
            damaged[file] = why
            say(f"damaged  {escaped(file)}: {why}")
    if repair and damaged:
        _take_out(store, damaged, say)
        tidy(store, GRACE_S)
    return Verified(
        len(facts), sum(one[4] for one in facts), sum(one[3] or 0 for one in facts), damaged
    )


def _damage(store: Store, file: str, size: int, crc32: int, switches: int) -> str | None:
    """What is wrong with a data file; `None` if it is as it was written."""
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
