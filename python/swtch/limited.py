"""Answers that are made in a process of their own, so that limits hold whatever is asked.

DuckDB computes constants while it plans a question, counts no memory and hears no interrupt then.
Seen with 1.5.5: `SELECT length(repeat('x', 2000000000))`, with limits of 5 s and 2 GB, was answered
after 45 s with 4.1 GB. What the kernel limits is limited.

    server ─────────▶ worker ── forks for each question ──▶ child: opens an engine, answers, ends
           a line of JSON        kills it after its time            │ at most so much memory
           ◀───────────── what the child said ◀─────────────────────┘

The worker has everything loaded and never opens an engine, so that it has one thread and can be
forked quickly.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from . import database
from .errors import Error

# Memory of an engine for one answer, in bytes.
MEMORY = 1 << 30
# Address space of a child beyond that: what an engine has that has done nothing yet (430 MB on 2
# CPUs), and each of its threads (24 MB, seen with 64).
_ROOM = 512 << 20
_ROOM_OF_THREAD = 32 << 20
# Threads of an engine, so that hosts of many CPUs give no more memory.
_MOST_THREADS = 8
# The longest answer, in bytes. An assistant reads all of it.
MOST_BYTES = 1 << 20

_IN_WORKER = """\
import sys
sys.path[:] = {path!r}
# The engine would load them for each answer (0.5 s), to look whether a value is one of theirs.
for unused in ("numpy", "pandas", "polars", "pyarrow"):
    sys.modules[unused] = None
from {module} import {function}
from swtch.limited import serve
serve({function}, {seconds!r})
"""

Answer = Callable[..., str]


class Worker:
    """Asks a function of a module, which is called with keywords and returns a text."""

    def __init__(self, module: str, function: str, seconds: float) -> None:
        self._code = _IN_WORKER.format(
            path=sys.path, module=module, function=function, seconds=seconds
        )
        self._process: Any = None
        # One answer at a time, so that all of them together have the limits of one.
        self._turn = threading.Lock()

    def ask(self, **values: Any) -> str:
        """The answer; `Error` where the function raises one, or the answer takes too much."""
        with self._turn:
            told = json.loads(self._said(json.dumps(values).encode() + b"\n"))
        if "refused" in told:
            raise Error(told["refused"])
        return told["told"]

    def _said(self, line: bytes) -> bytes:
        for is_again in (False, True):
            process = self._started()
            try:
                process.stdin.write(line)
                process.stdin.flush()
                said = process.stdout.readline()
            except BrokenPipeError:
                said = b""
            if said.endswith(b"\n"):
                return said
            # Somebody has killed the worker; the next one answers.
            self.close()
            if is_again:
                break
        raise Error("the process that answers has ended twice; ask again")

    def _started(self) -> Any:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process

    def close(self) -> None:
        """Ends the worker, and the answer that it makes."""
        if self._process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process = None

    def __del__(self) -> None:
        self.close()


def serve(answer: Answer, seconds: float) -> None:
    """Answers each line of stdin by a line on stdout, until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = io.FileIO(0, closefd=False)
    # What an answer prints is none: it goes to stderr.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while line := lines.readline():
        said = _forked(answer, line, seconds, lines.fileno())
        answers.write(said + b"\n")
        answers.flush()


def _forked(answer: Answer, line: bytes, seconds: float, asker: int) -> bytes:
    """What a child says within its time and at most so long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(answer, line, seconds, writing)
    os.close(writing)
    said = b""
    end = time.monotonic() + seconds
    is_done = False
    while not is_done and len(said) <= MOST_BYTES and (left := end - time.monotonic()) > 0:
        ready, _, _ = select.select([reading, asker], [], [], left)
        if asker in ready:
            # Nobody asks twice at once: the server has ended.
            _kill(child)
            sys.exit(0)
        if reading in ready:
            block = os.read(reading, 1 << 16)
            said += block
            is_done = not block
    os.close(reading)
    _kill(child)
    _, status = os.waitpid(child, 0)
    if not is_done and len(said) <= MOST_BYTES:
        return _refusal(
            f"the answer took longer than {seconds:g} s and was given up\n"
            "ask for a shorter span, fewer traces, or sums in place of rows"
        )
    if len(said) > MOST_BYTES:
        return _refusal(
            f"the answer is longer than {MOST_BYTES >> 10} KiB\nask for fewer rows or columns"
        )
    if not said.endswith(b"}"):
        return _refusal(
            f"the answer came to no end ({_ending(status)}): it has {MEMORY >> 20} MiB of memory\n"
            "ask for a shorter span, fewer traces, or sums in place of rows"
        )
    return said


def _kill(child: int) -> None:
    """Kills a child that has not been waited for, and the program that it may have started."""
    os.kill(child, signal.SIGKILL)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return  # it had not yet made its group


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _refusal(text: str) -> bytes:
    return json.dumps({"refused": text}).encode()


def _answer(answer: Answer, line: bytes, seconds: float, writing: int) -> NoReturn:
    """What a child does: it answers within its limits, and ends."""
    try:
        os.setpgid(0, 0)
        _limit(seconds)
        said = json.dumps({"told": answer(**json.loads(line))}).encode()
    except Error as why:
        said = _refusal(str(why))
    except MemoryError:
        said = _refusal(f"the answer needs more than {MEMORY >> 20} MiB of memory")
    except Exception as why:
        said = _refusal(f"the question cannot be answered: {type(why).__name__}: {why}")
    try:
        with os.fdopen(writing, "wb") as out:
            out.write(said)
    finally:
        os._exit(0)


def _limit(seconds: float) -> None:
    """Limits this process and what it starts."""
    threads = min(os.cpu_count() or 1, _MOST_THREADS)
    database.use_threads(threads)
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123, memory is counted here
        used = int(file.read().split()[0]) * resource.getpagesize()
    most = used + MEMORY + _ROOM + threads * _ROOM_OF_THREAD
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Should the worker be killed, nobody is left to end this.
    cpu_s = int(seconds * (os.cpu_count() or 1)) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
