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
import os
import platform
import random
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
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swtch"
    path, library = caches / f"{_VARIABLE}-{machine}.so", _library(machine)
    try:
        if not path.is_file() or path.read_bytes() != library:
            caches.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=caches, delete=False) as file:
                file.write(library)
            Path(file.name).replace(path)
        return ctypes.CDLL(str(path))
    except OSError as why:
        raise Error(
            f"swtch.span cannot make or load {escaped(str(path))}: {why}",
            "set XDG_CACHE_HOME to a directory that may be written to and executed from",
        ) from why


class _Thread(threading.local):
    """Where the calling thread has the variable: the dynamic linker tells each its own."""

    def __init__(self) -> None:
        self.variable = ctypes.c_void_p.in_dll(_loaded(), _VARIABLE)


@cache
def _threads() -> _Thread:
    return _Thread()


def _id(name: str, text: str | None, size: int) -> bytes:
    """The bytes of an id; random ones if none is given."""
    if text is None:
        return random.randbytes(size)
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
        # For each block that is open: the variable of its thread, and what was published before.
        self._outer: list[tuple[ctypes.c_void_p, int | None]] = []

    def __enter__(self) -> PublishedSpan:
        variable = _threads().variable
        self._outer.append((variable, variable.value))
        variable.value = self._address
        return self

    def __exit__(self, *error: object) -> None:
        variable, outer = self._outer.pop()
        variable.value = outer

    async def run(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Runs a coroutine, which carries the ids wherever it waits; what it returns."""
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
