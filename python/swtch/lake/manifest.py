"""What belongs to a lake: immutable lists of segments, and a pointer that moves in one step.

    manifest/v00000012.json         version 12: which lists count, and which data files were dropped
    manifest/segments-….parquet     a list of segments: a row each, with the file that holds it
    manifest/latest                 the number of a version; newer ones may exist beside it
    data/date=…/host=…/….parquet    switches
    quarantine/….json               what was refused, and why

A version exists once its file does, and a file of a version is created only if there is none of
that number. So two writers never commit the same number: the second reads the new version and
makes its change again. A writer that is killed before this step has left files that no version
names; one that is killed after it has changed the lake. `latest` only saves the search.

A lake may have hundreds of thousands of segments, so a version is not a list of all of them: it
names a handful of lists, each at least four times as long as the next. Adding a segment writes a
list of one row, and now and then merges short lists.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from ..database import new_database
from ..tables import literal
from ..text import escaped
from .columns import SEGMENT_COLUMNS
from .store import LakeError, Store, checked_name, quoted, with_names

SCHEMA = "swtch.lake/1"
# The files of versions.
VERSION = re.compile(r"manifest/v(\d{8,18})\.json")
# Versions are deleted when they are a day old, so a writer must not take longer than that between
# reading one and creating the next: the number could be free again.
OLDEST_BASE_S = 3600
_GROWTH = 4


@dataclass(frozen=True)
class SegmentList:
    """A file that lists segments."""

    file: str
    segments: int


@dataclass(frozen=True)
class Dropped:
    """A data file that no segment is in any more, since when (seconds, Unix time)."""

    file: str
    since_s: float


@dataclass(frozen=True)
class Manifest:
    """One version of a lake. Version 0 is a lake in which nothing is yet."""

    version: int = 0
    lists: tuple[SegmentList, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    def to_json(self) -> bytes:
        """The file of this version. The token makes it differ from another writer's."""
        return json.dumps(
            {
                "schema": SCHEMA,
                "version": self.version,
                "token": uuid.uuid4().hex,
                "lists": [{"file": one.file, "segments": one.segments} for one in self.lists],
                "dropped": [{"file": one.file, "since_s": one.since_s} for one in self.dropped],
            },
            indent=1,
        ).encode()

    @classmethod
    def of_json(cls, text: bytes, where: str) -> Manifest:
        """Reads the file of a version; `LakeError` for a newer schema and for damage."""
        try:
            facts = json.loads(text)
            if facts["schema"] != SCHEMA:
                raise LakeError(
                    f"{escaped(where)} has the schema {facts['schema']}, and this package knows "
                    f"{SCHEMA}",
                    "install a newer package",
                )
            lists = [(checked_name(one["file"], "manifest"), one) for one in facts["lists"]]
            dropped = [(checked_name(one["file"], "data"), one) for one in facts["dropped"]]
            return cls(
                int(facts["version"]),
                tuple(SegmentList(file, int(one["segments"])) for file, one in lists),
                tuple(Dropped(file, float(one["since_s"])) for file, one in dropped),
            )
        except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as why:
            raise LakeError(f"{escaped(where)} is damaged: it is no manifest of a lake") from why


def existing(store: Store) -> Manifest:
    """The newest version; `LakeError` where there is no lake but somebody's own files."""
    newest = latest(store)
    if newest.version == 0:
        raise LakeError(
            f"there is no lake at {escaped(store.location)}",
            "a lake begins with the first segment: swtch lake add LAKE NAME.swtch",
        )
    return newest


def name_of(version: int) -> str:
    """The file of a version."""
    return f"manifest/v{version:08}.json"


def latest(store: Store) -> Manifest:
    """The newest version of a lake; version 0 where there is none."""
    pointer = re.fullmatch(rb"\d{1,18}\s*", store.read("manifest/latest") or b"")
    version = int(pointer[0]) if pointer is not None else 0
    newest = store.read(name_of(version)) if version else None
    if newest is None:
        # The pointer was never written, or long ago.
        found = (VERSION.fullmatch(one.name) for one in store.names("manifest"))
        versions = [int(one[1]) for one in found if one is not None]
        if not versions:
            return Manifest()
        version = max(versions)
        newest = store.read(name_of(version))
        if newest is None:
            raise LakeError(
                f"{escaped(store.location)}: {name_of(version)} has vanished", "try again"
            )
    while (newer := store.read(name_of(version + 1))) is not None:
        version, newest = version + 1, newer
    return Manifest.of_json(newest, store.url(name_of(version)))


class Segments:
    """The segments of one version as the table `segments` of a database in memory."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        self.manifest = manifest
        self.connection = new_database()
        columns = ", ".join(f"{name} {kind}" for name, kind in SEGMENT_COLUMNS.items())
        self.connection.execute(f"CREATE TABLE empty ({columns})")
        held = contextlib.ExitStack()
        weakref.finalize(self, held.close)
        files = [one.file for one in manifest.lists]
        self._sources = {file: quoted(held.enter_context(store.local(file))) for file in files}
        lists = select_of_lists(self._sources)
        self.connection.execute(f"CREATE VIEW segments AS {lists}")

    def rows(self, query: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The answer to a query over `segments`."""
        try:
            return self.connection.execute(query, list(params)).fetchall()
        except duckdb.Error as why:
            where = escaped(self._store.location)
            told = with_names(str(why), self._sources)
            raise LakeError(f"cannot read the lists of the lake {where}: {told}") from why

    def files(self) -> dict[str, list[tuple[str, int]]]:
        """Data files with the segments in each and their switches."""
        files: dict[str, list[tuple[str, int]]] = {}
        for file, segment, switches in self.rows("SELECT file, segment, switches FROM segments"):
            files.setdefault(file, []).append((segment, switches))
        return files


def select_of_lists(sources: Mapping[str, str]) -> str:
    """SQL for the rows of lists. An older list may lack columns: they are null."""
    if not sources:
        return "SELECT * FROM empty"
    lists = [f"SELECT * FROM read_parquet({one})" for one in sources.values()]
    names = ", ".join(SEGMENT_COLUMNS)
    everything = " UNION ALL BY NAME ".join(["SELECT * FROM empty", *lists])
    return f"SELECT {names} FROM ({everything})"


@dataclass
class Change:
    """What a commit does: rows to add, segments to take out, data files to drop or to forget."""

    add: list[dict[str, Any]]
    remove: set[str]
    drop: set[str]
    forget: set[str]

    @classmethod
    def none(cls) -> Change:
        """A change that does nothing yet."""
        return cls([], set(), set(), set())

    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not (self.add or self.remove or self.drop or self.forget)


def commit(store: Store, make: Callable[[Segments], Change]) -> Manifest:
    """Makes a change against the newest version, again if another writer was faster.

    `make` sees the segments of the version that the change is for, and must not keep anything from
    an earlier call.
    """
    for attempt in range(100):
        begun = time.monotonic()
        base = latest(store)
        change = make(Segments(store, base))
        if change.is_empty():
            return base
        lists, written = _lists_after(store, base, change)
        now = time.time()
        kept = [one for one in base.dropped if one.file not in change.forget]
        drop = sorted(checked_name(file, "data") for file in change.drop)
        dropped = (*kept, *(Dropped(file, now) for file in drop))
        new = replace(base, version=base.version + 1, lists=lists, dropped=dropped)
        in_time = time.monotonic() - begun < OLDEST_BASE_S
        if in_time and store.create(name_of(new.version), new.to_json()):
            store.write("manifest/latest", str(new.version).encode())
            return new
        for file in written:
            store.delete(file)
        time.sleep(min(0.01 * 2 ** min(attempt, 6), 0.5))
    raise LakeError(f"{escaped(store.location)}: other writers were faster 100 times", "try again")


def _lists_after(
    store: Store, base: Manifest, change: Change
) -> tuple[tuple[SegmentList, ...], list[str]]:
    """The lists of the next version, and which of them were written for it."""
    # Whoever removes segments reads all lists anyway, so that they become one again.
    kept = [] if change.remove else list(base.lists)
    merged = list(base.lists) if change.remove else []
    total = len(change.add)
    while kept and kept[-1].segments < _GROWTH * total:
        merged.append(kept.pop())
        total += merged[-1].segments
    if not merged and not change.add:
        return tuple(kept), []
    now = Segments(store, replace(base, lists=tuple(merged)))
    database = now.connection
    names = list(SEGMENT_COLUMNS)
    database.execute("CREATE TABLE gone (segment VARCHAR)")
    if change.remove:
        database.execute("INSERT INTO gone SELECT unnest(?)", [sorted(change.remove)])
    database.execute(
        "CREATE TABLE listed AS SELECT * FROM segments WHERE segment NOT IN (FROM gone)"
    )
    if change.add:
        # One row of lists, each as long as the change, is far quicker than a row at a time.
        values = [[row[name] for row in change.add] for name in names]
        cells = ", ".join(f"CAST(unnest(?) AS {SEGMENT_COLUMNS[name]})" for name in names)
        database.execute(f"INSERT INTO listed SELECT {cells}", values)
    (count,) = database.execute("SELECT count(*) FROM listed").fetchone() or (0,)
    if count == 0:
        return tuple(kept), []
    file = f"manifest/segments-{uuid.uuid4().hex}.parquet"
    with store.scratch() as place:
        new = place / "list.parquet"
        database.execute(
            f"COPY (FROM listed ORDER BY date, host, start_ns) TO {literal(str(new))} "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
        store.put(new, file)
    return (*kept, SegmentList(file, count)), [file]
