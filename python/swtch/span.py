"""Publishes which request a thread works on, for `swtch record --span otel` and other readers.

    with swtch.span(trace_id="4bf92f3577b34da6a3ce929d0e0e4736"):
        answer(request)

OpenTelemetry's thread context (OTEP 4947) is a variable of each thread, `otel_thread_ctx_v1`, that
readers find by its name in a library. Python cannot make such a variable, and this package has no
compiled part: so it writes that library itself, of a table of symbols and no code, into the user's
cache, and the dynamic linker does the rest. It needs glibc, on x86-64 or arm64.

A context is one of a thread. In a coroutine, `with` would leave it to whatever else the event loop
runs meanwhile: `await swtch.span(trace_id=…).run(coroutine)` carries it with the coroutine.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import re
import struct
import tempfile
import threading
import types
from collections.abc import Coroutine, Generator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from .errors import Error
from .text import escaped

_VARIABLE = "otel_thread_ctx_v1"

# By machine: its number in ELF, and that of the relocation TLSDESC.
_MACHINES = {"x86_64": (62, 36), "aarch64": (183, 1031)}

# The record: trace id, span id, valid, reserved, size of attributes.
_RECORD = struct.Struct("16s8sBBH")

_REMEDY = "set XDG_CACHE_HOME to a directory of your own that may be written to and executed from"

_Answer = TypeVar("_Answer")

# Of the largest pages that a kernel may use.
_PAGE = 0x10000


def _library(machine: str) -> bytes:
    """A shared library that has the variable, and one relocation for it (ELF, gABI chapter 4)."""
    number, tlsdesc = _MACHINES[machine]
    names = f"\0{_VARIABLE}\0".encode()
    sections = b"\0.tbss\0.dynsym\0.dynstr\0.rela.dyn\0.dynamic\0.shstrtab\0"
    # Header and five segments; what is only read; and on another page what the linker writes.
    at = 64 + 5 * 56
    place = {}
    sizes = {
        "symbols": 48,
        "relocation": 24,
        "hash": 20,
        "names": len(names),
        "sections": len(sections),
    }
    for part, size in sizes.items():
        place[part] = at
        at += -(-size // 8) * 8
    dynamic, written = at, _PAGE + at
    tags = [
        (4, place["hash"]),  # DT_HASH
        (5, place["names"]),  # DT_STRTAB
        (6, place["symbols"]),  # DT_SYMTAB
        (7, place["relocation"]),  # DT_RELA
        (8, 24),  # DT_RELASZ
        (9, 24),  # DT_RELAENT
        (10, len(names)),  # DT_STRSZ
        (11, 24),  # DT_SYMENT
        (0, 0),
    ]
    descriptor = written + 16 * len(tags)
    headers = dynamic + 16 * len(tags) + 16
    segments = [
        (1, 5, 0, 0, dynamic, dynamic, _PAGE),  # PT_LOAD, read and executable
        (1, 6, dynamic, written, headers - dynamic, headers - dynamic, _PAGE),  # PT_LOAD
        (2, 6, dynamic, written, 16 * len(tags), 16 * len(tags), 8),  # PT_DYNAMIC
        (7, 4, headers, _PAGE + headers, 0, 8, 8),  # PT_TLS
        (0x6474E551, 6, 0, 0, 0, 0, 16),  # PT_GNU_STACK: no code on stacks
    ]
    symbol = struct.pack("<IBBHQQ", 1, 0x16, 0, 1, 0, 8)  # global, of threads, in .tbss
    parts = [
        struct.pack(
            "<16sHHIQQQIHHHHHH",
            b"\x7fELF\2\1\1",
            3,
            number,
            1,
            0,
            64,
            headers,
            0,
            64,
            56,
            5,
            64,
            7,
            6,
        ),
        *(
            struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, in_file, size, align)
            for kind, flags, offset, address, in_file, size, align in segments
        ),
        bytes(24) + symbol,
        struct.pack("<QQq", descriptor, 1 << 32 | tlsdesc, 0),
        struct.pack("<5I", 1, 2, 1, 0, 0).ljust(24, b"\0"),
        names.ljust(place["sections"] - place["names"], b"\0"),
        sections.ljust(dynamic - place["sections"], b"\0"),
        *(struct.pack("<qQ", *tag) for tag in tags),
        bytes(16),
    ]
    rows = [
        ("", 0, 0, 0, 0, 0, 0, 0, 0),
        (".tbss", 8, 0x403, headers, 8, 0, 0, 8, 0),
        (".dynsym", 11, 2, place["symbols"], 48, 3, 1, 8, 24),
        (".dynstr", 3, 2, place["names"], len(names), 0, 0, 1, 0),
        (".rela.dyn", 4, 2, place["relocation"], 24, 2, 0, 8, 24),
        (".dynamic", 6, 3, dynamic, 16 * len(tags), 3, 0, 8, 16),
        (".shstrtab", 3, 0, place["sections"], len(sections), 0, 0, 1, 0),
    ]
    for name, kind, flags, offset, size, link, info, align, entry in rows:
        address = 0 if not flags else offset if offset < dynamic else _PAGE + offset
        name_at = sections.index(name.encode() + b"\0")
        parts.append(
            struct.pack(
                "<IIQQQQIIQQ", name_at, kind, flags, address, offset, size, link, info, align, entry
            )
        )
    return b"".join(parts)


@cache
def _loaded() -> ctypes.CDLL:
    """The library, which stays where it is: readers open it, too."""
    machine = platform.machine()
    if machine not in _MACHINES:
        raise Error(f"swtch.span knows no {machine}, only {' and '.join(_MACHINES)}")
    file = f"{_VARIABLE}-{machine}.so"
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swtch"
    except RuntimeError as why:
        raise Error(f"swtch.span has no place for {file}: {why}", _REMEDY) from why
    try:
        return _load(caches, file, _library(machine))
    except OSError as why:
        raise Error(
            f"swtch.span cannot make or load {escaped(str(caches / file))}: {why}", _REMEDY
        ) from why


def _load(caches: Path, name: str, library: bytes) -> ctypes.CDLL:
    """Loads the file, and makes it first where it is not what it should be.

    Who can change the file can run code in this process. So the directory must be the user's alone,
    and is held open meanwhile. It is locked: a file that another process has loaded must not be
    replaced by an equal one, or readers would look for one that is deleted.
    """
    caches.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(caches, os.O_RDONLY | os.O_DIRECTORY)
    try:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError("other users can write to the directory")
        fcntl.flock(directory, fcntl.LOCK_EX)
        path = Path(f"/proc/self/fd/{directory}", name)
        if not path.is_file() or path.read_bytes() != library:
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(library)
            Path(file.name).replace(path)
        return ctypes.CDLL(str(path))
    finally:
        os.close(directory)


class _Block:
    """A `with` block of a thread."""

    __slots__ = ("is_open", "outer", "span", "thread")

    def __init__(self, span: PublishedSpan, thread: _Thread) -> None:
        # Held for as long as it may be published: readers look at its memory.
        self.span = span
        self.thread = thread
        self.outer: int | None = thread.variable.value
        self.is_open = True


class _Thread:
    """Where a thread has the variable, and the blocks that began there, the newest last."""

    def __init__(self) -> None:
        self.variable = ctypes.c_void_p.in_dll(_loaded(), _VARIABLE)
        self.blocks: list[_Block] = []

    def leave_ended(self) -> None:
        """Publishes the newest block that is open. Called on the thread itself.

        Blocks of generators end in any order, and on any thread.
        """
        while self.blocks and not self.blocks[-1].is_open:
            self.variable.value = self.blocks.pop().outer


_LOCAL = threading.local()


def _thread() -> _Thread:
    """The calling one: the dynamic linker tells each where it has the variable."""
    try:
        thread: _Thread = _LOCAL.thread
    except AttributeError:
        thread = _LOCAL.thread = _Thread()
    return thread


def _id(name: str, text: str | None, size: int) -> bytes:
    """The bytes of an id; random ones if none is given."""
    if text is None:
        return os.urandom(size)
    if re.fullmatch(f"[0-9a-fA-F]{{{2 * size}}}", text) is None or int(text, 16) == 0:
        raise Error(
            f"{escaped(text)} is no {name}",
            f"give {2 * size} hexadecimal digits that are not all zero, as in traceparent",
        )
    return bytes.fromhex(text)


def span(trace_id: str | None = None, span_id: str | None = None) -> PublishedSpan:
    """A request that the thread works on within a `with` block, published by these ids.

    They are written as in the header `traceparent`: 32 and 16 hexadecimal digits; without them
    they are made up. `Error` where ids are none, and where nothing can be published.
    """
    return PublishedSpan(trace_id, span_id)


class PublishedSpan:
    """What `span` returns: for a `with` block, or to run a coroutine."""

    def __init__(self, trace_id: str | None, span_id: str | None) -> None:
        ids = _id("trace id", trace_id, 16), _id("span id", span_id, 8)
        self.trace_id, self.span_id = (value.hex() for value in ids)
        record = _RECORD.pack(*ids, 1, 0, 0)
        self._record = ctypes.create_string_buffer(record, len(record))
        self._address = ctypes.addressof(self._record)
        self._blocks: list[_Block] = []

    def __enter__(self) -> PublishedSpan:
        thread = _thread()
        thread.leave_ended()
        block = _Block(self, thread)
        self._blocks.append(block)
        thread.blocks.append(block)
        thread.variable.value = self._address
        return self

    def __exit__(self, *error: object) -> None:
        thread, block = _thread(), self._blocks[-1]
        if block.thread is not thread:
            own = (other for other in reversed(self._blocks) if other.thread is thread)
            block = next(own, block)
        self._blocks.remove(block)
        block.is_open = False
        thread.leave_ended()

    async def run(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Runs a coroutine, which carries the ids wherever it waits; what it returns.

        Tasks that it starts do not: each needs a `run` of its own.
        """
        if not isinstance(coroutine, Coroutine):
            raise Error(
                f"swtch.span runs coroutines, and {escaped(repr(coroutine))} is none",
                "call an `async def`, and wait for whatever else within it",
            )
        return await _carried(self, coroutine)


@types.coroutine
def _carried(
    published: PublishedSpan, coroutine: Coroutine[Any, Any, _Answer]
) -> Generator[Any, Any, _Answer]:
    """Steps through a coroutine, each time within the block, and waits for it outside."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            with published:
                waits_for = coroutine.send(answer) if error is None else coroutine.throw(error)
        except StopIteration as end:
            return end.value
        try:
            answer, error = (yield waits_for), None
        except BaseException as thrown:
            error = thrown
