"""What a path leads to: a finished trace whose files are whole, or why there is none to read.

A trace is a directory. Its `checksums.csv` decides which files belong to it: when it lists Parquet
files, the trace is finished. Names in that list are compared with names of tables and never opened
as paths. A recording that goes on, or was cut off, holds the kernel's records in a format that only
the program reads, so it is refused here.
"""

from __future__ import annotations

import csv
import glob
import json
import os
import stat
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Error
from .schema import FORMAT_VERSION, TABLES
from .text import escaped

# Larger lists and facts are damaged or hostile: a trace of 100 GB has a list of 60 MB.
MOST_BYTES_OF_TEXT = 256 << 20

_UNFINISHED = "is not finished: it is still recorded, or its recorder was killed"
_END_IT = "if it is still recorded, end the recording and open it then"


@dataclass(frozen=True)
class TraceFiles:
    """A finished trace on disk."""

    # The path as it was given: how the trace is called in results.
    name: str
    # The same path, independent of the working directory.
    directory: Path
    # The contents of `meta.json`.
    meta: dict[str, Any]
    # Tables that the trace has, with their files.
    tables: dict[str, Path]


@dataclass(frozen=True)
class _Chunk:
    """A part of a file, as `checksums.csv` lists it."""

    file: str
    offset: int
    length: int
    crc32: int


AnyPath = str | os.PathLike[str]


def paths_of(given: Iterable[AnyPath | Iterable[AnyPath]]) -> list[AnyPath]:
    """The paths that are meant by paths, lists of paths, and patterns such as `runs/*.swtch`.

    A pattern stands for what it matches, in the order of names. A path that is there is no pattern.
    """
    paths: list[AnyPath] = []
    for one in given:
        if not isinstance(one, (str, bytes, os.PathLike)):
            paths.extend(paths_of(one))
        elif isinstance(one, str) and glob.has_magic(one) and not os.path.lexists(one):
            found = sorted(glob.glob(one))  # noqa: PTH207, names stay as they were given
            if not found:
                raise Error(f"no path matches {escaped(one)}")
            paths.extend(found)
        else:
            paths.append(one)
    return paths


def open_files(path: str | os.PathLike[str], verify: bool) -> TraceFiles:
    """The finished trace at `path`.

    Sizes of all files are checked, and with `verify` their checksums too, which reads them once.

    Raises `Error` when there is no trace, when it is not finished, when it is of a newer format, or
    when a file is not as it was written.
    """
    name = os.fspath(path)
    if not isinstance(name, str):
        raise Error("the path of a trace must be text, not bytes")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as why:
        raise Error(
            f"{escaped(name)}: the engine opens no path with bytes that are no UTF-8",
            "give the trace, and the directories above it, names in UTF-8",
        ) from why
    directory = Path(os.path.abspath(name))  # noqa: PTH100, resolve() would follow links
    chunks = _chunks(name, directory)
    meta = _meta(name, directory)
    if not any(chunk.file.endswith(".parquet") for chunk in chunks):
        raise _without_tables(name, directory, meta)
    version = meta.get("format_version")
    if not isinstance(version, int):
        raise Error(f"{escaped(name)}: meta.json does not say the format of the trace")
    if version > FORMAT_VERSION:
        raise Error(
            f"{escaped(name)} has format {version}, and this package knows formats up to "
            f"{FORMAT_VERSION}",
            "install the package that belongs to the swtch that recorded it, or a newer one",
        )
    listed = {chunk.file for chunk in chunks}
    _check_files(name, directory, chunks, verify)
    tables = {t: directory / f"{t}.parquet" for t in TABLES if f"{t}.parquet" in listed}
    for needed in ("switch", "task"):
        if needed not in tables:
            raise Error(f"{escaped(name)} is damaged: its list of files has no {needed}.parquet")
    return TraceFiles(name, directory, meta, tables)


def _without_tables(name: str, directory: Path, meta: dict[str, Any]) -> Error:
    """Says what reads a trace that has records and no tables.

    The state in `meta.json` is the same while a recording goes on and after its recorder was
    killed, so both are named. A dump of a flight recorder is finished without tables, unless it was
    asked for with a name of its own (`-o`).
    """
    quoted = _shell_word(name)
    # Facts about the ring come into `meta.json` at the end of a recording and with a dump.
    ring = meta.get("ring")
    if isinstance(ring, dict) and ring.get("dumped_because") is not None:
        why = "is a dump of a flight recorder, which holds the kernel's records and no tables"
        helps = "only the program reads it"
    elif (directory / "segments").is_dir():
        why = _UNFINISHED
        helps = f"{_END_IT}, or open a dump:\n  swtch dump {quoted} -o DUMP.swtch\n"
        helps += "otherwise only the program reads it"
    else:
        why, helps = _UNFINISHED, f"{_END_IT}; otherwise only the program reads it"
    program = escaped(str(meta.get("swtch_version", "unknown")))
    return Error(
        f"{escaped(name)} {why} (swtch {program})",
        f"{helps}:\n  swtch explain {quoted}\n  swtch report --by reason {quoted}\n"
        f"  swtch export {quoted} --to parquet -o FILE.parquet    (one table, for any Parquet "
        "reader)",
    )


def _shell_word(path: str) -> str:
    """A path quoted as one word for a shell."""
    if all(c.isascii() and (c.isalnum() or c in "/._+-") for c in path):
        return path
    return "'" + escaped(path).replace("'", "'\\''") + "'"


def _chunks(name: str, directory: Path) -> list[_Chunk]:
    """The lines of `checksums.csv`; `Error` when there is no trace."""
    if not directory.exists():
        raise Error(f"there is no trace at {escaped(name)}")
    if not directory.is_dir():
        raise Error(
            f"{escaped(name)} is not a trace: it is no directory",
            "a trace is the directory NAME.swtch itself",
        )
    text = _read_text(name, directory / "checksums.csv")
    rows = csv.DictReader(text.splitlines())
    try:
        return [
            _Chunk(r["file"], int(r["offset"]), int(r["length"]), int(r["crc32"], 16)) for r in rows
        ]
    except (KeyError, TypeError, ValueError) as why:
        raise Error(f"{escaped(name)} is damaged: checksums.csv has a line that is none") from why


def _meta(name: str, directory: Path) -> dict[str, Any]:
    text = _read_text(name, directory / "meta.json")
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as why:
        raise Error(f"{escaped(name)} is damaged: meta.json is no JSON ({why})") from why
    if not isinstance(meta, dict):
        raise Error(f"{escaped(name)} is damaged: meta.json holds no facts")
    return meta


def read_small(name: str, file: Path) -> bytes:
    """A small file of the trace; every trace has it."""
    size = _size_of(name, file)
    if size > MOST_BYTES_OF_TEXT:
        raise Error(f"{escaped(name)} is damaged: {file.name} has {size} bytes")
    try:
        return file.read_bytes()
    except OSError as why:
        raise _unreadable(name, file, why) from why


def _read_text(name: str, file: Path) -> str:
    try:
        return read_small(name, file).decode("utf-8")
    except UnicodeDecodeError as why:
        raise Error(f"{escaped(name)} is damaged: {file.name} is no UTF-8") from why


def _size_of(name: str, file: Path) -> int:
    """Bytes of a regular file. A pipe or a device in a trace would block or never end."""
    try:
        facts = file.stat()
    except FileNotFoundError as why:
        raise Error(
            f"{escaped(name)} is not a trace, or not all of one: it has no {file.name}",
            "a trace is the directory NAME.swtch itself; copy it with all its files",
        ) from why
    except OSError as why:
        raise _unreadable(name, file, why) from why
    if not stat.S_ISREG(facts.st_mode):
        raise Error(f"{escaped(name)} is damaged: {file.name} is no regular file")
    return facts.st_size


def _unreadable(name: str, file: Path, why: OSError) -> Error:
    advice = None
    if isinstance(why, PermissionError):
        advice = "a trace belongs to whoever recorded it, and only that user and root may read it"
    return Error(f"cannot read {file.name} of {escaped(name)}: {why.strerror}", advice)


def _check_files(name: str, directory: Path, chunks: list[_Chunk], verify: bool) -> None:
    """Compares the tables with their checksums, or only their sizes."""
    for table in TABLES:
        own = [chunk for chunk in chunks if chunk.file == f"{table}.parquet"]
        if own:
            _check_file(name, directory / own[0].file, own, verify)


def _check_file(name: str, file: Path, chunks: list[_Chunk], verify: bool) -> None:
    size = _size_of(name, file)
    end = max(chunk.offset + chunk.length for chunk in chunks)
    if size != end:
        raise _damaged(name, file, f"it has {size} bytes, and {end} were written")
    if not verify:
        return
    try:
        with file.open("rb") as stream:
            for chunk in chunks:
                stream.seek(chunk.offset)
                if zlib.crc32(stream.read(chunk.length)) != chunk.crc32:
                    raise _damaged(name, file, f"the part at byte {chunk.offset} has changed")
    except OSError as why:
        raise _unreadable(name, file, why) from why


def _damaged(name: str, file: Path, what: str) -> Error:
    return Error(
        f"{escaped(name)} is damaged: {file.name}: {what}",
        "copy the trace again from where it was recorded; check the disk",
    )
