"""Runs an operation of a lake again and again, and kills it before its first, second, … step.

usage: kill_between_steps.py add|compact|retain LAKE SCRATCH TRACE

A step is what changes the lake on disk: a rename, a link, a deletion. After each kill a line of
JSON tells what queries find, and what they find once the operation has been run again. The last
line is of a run that was not killed. This process forks and never opens an engine itself.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401, loaded once for all children
from fleet_checks import add, counts, verify

from swtch.lake import operations
from swtch.lake.store import Directory


def run(operation: str, place: Path, trace: Path) -> None:
    """The operation, on a lake."""
    store = Directory(str(place))
    if operation == "add":
        add(place, trace)
    elif operation == "compact":
        operations.compact(store, lambda _: None, grace_s=0)
    else:
        operations.retain(store, "2026-01-06", lambda _: None, grace_s=0)


def in_child(what: Callable[[], Any]) -> Any:
    """What a function returns, called in a process of its own; `None` if that was killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with os.fdopen(write, "w") as out:
            json.dump(what(), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return None
    assert status == 0
    return json.loads(text)


def killed_before(step: int, what: Callable[[], None]) -> Callable[[], bool]:
    """The function, killed when it is about to make its step of that number."""

    def call() -> bool:
        steps = 0

        def counted(original: Callable[..., Any]) -> Callable[..., Any]:
            def made(*words: Any, **more: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*words, **more)

            return made

        os.replace, os.link = counted(os.replace), counted(os.link)
        Directory.delete = counted(Directory.delete)
        what()
        return True

    return call


def main() -> None:
    """Kills before every step in turn, until the operation ends before that step."""
    operation, base, scratch, trace = sys.argv[1], *map(Path, sys.argv[2:5])
    ended = None
    step = 0
    while ended is None:
        step += 1
        place = scratch / f"killed-{step}"
        shutil.copytree(base, place)
        operate = partial(run, operation, place, trace)
        ended = in_child(killed_before(step, operate))
        found = in_child(partial(counts, place))
        again, damaged = in_child(partial(after_another_run, operate, place))
        print(json.dumps({"counts": found, "again": again, "damaged": damaged}), flush=True)


def after_another_run(operate: Callable[[], None], place: Path) -> tuple[dict[str, int], Any]:
    """What queries find, and what is damaged, once the operation has been run again."""
    operate()
    return counts(place), verify(Directory(str(place))).damaged


main()
