"""The program `swtch`: where it is, and what it answers about a trace.

Some answers are the program's alone, because their rules stand there and nowhere else: what a
switch costs is one of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

from .errors import Error
from .text import escaped


def path_of_program(given: str | os.PathLike[str] | None = None) -> str:
    """The program to start: the given one, that of SWTCH, that in PATH, that of this package."""
    chosen = given or os.environ.get("SWTCH")
    if chosen:
        return os.fspath(chosen)
    scripts = sysconfig.get_path("scripts")
    found = shutil.which("swtch") or shutil.which("swtch", path=scripts)
    if found is None:
        raise Error(
            "the program swtch is not in PATH",
            "name it in the environment variable SWTCH, or install it",
        )
    return found


def version() -> str:
    """The version of this package, which is that of the program; empty if neither is installed."""
    try:
        return metadata.version("swtch")
    except metadata.PackageNotFoundError:
        with suppress(Error):  # in a clone
            return run_program(["--version"]).decode().split()[1]
    return ""


def answer_of_program(
    words: Sequence[str | os.PathLike[str]],
    program: str | os.PathLike[str] | None = None,
    limit_s: float | None = None,
) -> dict[str, Any]:
    """The object that the program prints for these words and `--format json`.

    Raises `Error` with what the program said when it refuses.
    """
    return json.loads(run_program([*words, "--format", "json"], program, limit_s))


def run_program(
    words: Sequence[str | os.PathLike[str]],
    program: str | os.PathLike[str] | None = None,
    limit_s: float | None = None,
    as_caller: bool = True,
) -> bytes:
    """What the program prints for these words; `Error` with what it said when it refuses.

    Under sudo the program writes as the caller (docs/SUDO.md); not `as_caller`, as who runs this,
    which it must to write into our own temporary directory.
    """
    environment = os.environ.copy()
    if not as_caller:
        for name in ("SUDO_UID", "SUDO_GID"):
            environment.pop(name, None)
    path = path_of_program(program)
    try:
        done = subprocess.run(
            [path, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as why:
        raise Error(f"swtch {words[0]} took longer than {limit_s:g} s and was given up") from why
    except OSError as why:
        raise Error(f"cannot start {escaped(path)}: {why.strerror}") from why
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        said = "\n".join(escaped(line) for line in lines).removeprefix("error: ")
        raise Error(f"swtch {words[0]}: {said or f'exit code {done.returncode}'}")
    return done.stdout
