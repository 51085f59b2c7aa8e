"""Recording one's own process: the program `swtch`, started beside it and ended with the block.

    with swtch.record("my.swtch") as recording:
        work()
    recording.trace().reasons()

The program makes the directory of the trace, with its list of files, once it records; this is how
the block knows when to begin. It ends on SIGINT, and then the trace is made of the records.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .errors import Error
from .program import path_of_program
from .text import escaped
from .trace import Trace

if TYPE_CHECKING:
    from types import TracebackType

# Between two looks at whether it records: it takes about a second to start.
_LOOK_EVERY_S = 0.01


def record(
    path: str | os.PathLike[str],
    *,
    children: bool = False,
    stacks: bool = True,
    options: Sequence[str] = (),
    program: str | os.PathLike[str] | None = None,
    start_timeout_s: float = 60,
    stop_timeout_s: float = 600,
) -> Recording:
    """A recording of this process, for a `with` block; `path` is where the trace goes.

    All threads of this process are recorded. With `children` the processes below it are recorded,
    too; the recorder is one of them, so its own switches are in the trace then. `stacks` reads
    where threads wait, if the program runs as root. `options` are further options of
    `swtch record`. `program` is the program to use; without it that of the environment variable
    `SWTCH`, otherwise `swtch` in PATH.

    The block begins once the kernel is watched and ends with a finished trace. `Error` is raised
    when the program cannot record, with what it said.
    """
    words = [path_of_program(program), "record", "-p", str(os.getpid()), "-o", os.fspath(path)]
    if not children:
        words.append("--no-children")
    if not stacks:
        words.append("--no-stacks")
    return Recording(Path(path), [*words, *options], start_timeout_s, stop_timeout_s)


class Recording:
    """A recording that goes on within a `with` block; afterwards its trace can be opened."""

    def __init__(
        self, path: Path, words: Sequence[str], start_timeout_s: float, stop_timeout_s: float
    ) -> None:
        self.path = path
        # What the program said, once it has ended: number of switches, losses, own cost.
        self.messages = ""
        self._words = list(words)
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._is_finished = False

    def __enter__(self) -> Recording:
        if self._process is not None:
            raise Error("a recording can be made once: ask swtch.record for another one")
        if os.path.lexists(self.path):
            raise Error(
                f"{escaped(str(self.path))} already exists",
                "choose another name, or remove the old trace first",
            )
        # A file, because nobody would read a pipe while the block runs.
        self._stderr = tempfile.TemporaryFile()
        try:
            # In a session of its own: Ctrl-C at the terminal is for the block, whose end ends the
            # recording in order.
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,
            )
        except OSError as why:
            self._stderr.close()
            raise Error(f"cannot start {escaped(self._words[0])}: {why.strerror}") from why
        try:
            self._wait_until_it_records(self._process)
        except BaseException:
            self._kill(self._process)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        try:
            self._stop()
        except Error as failure:
            if error is None:
                raise
            # The error of the block is the one that its caller waits for.
            warnings.warn(str(failure), RuntimeWarning, stacklevel=2)

    def trace(self) -> Trace:
        """The recorded trace, opened. `Error` before the block has ended."""
        if not self._is_finished:
            raise Error("there is no finished trace yet: it is there after the `with` block")
        return Trace([self.path])

    def _wait_until_it_records(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while not (self.path / "checksums.csv").exists():
            if process.poll() is not None:
                raise self._failure("swtch could not record", process.returncode)
            if time.monotonic() > deadline:
                raise Error(f"swtch did not begin to record within {self._start_timeout_s} s")
            time.sleep(_LOOK_EVERY_S)

    def _stop(self) -> None:
        process = self._process
        if process is None:
            raise Error("the recording was not started")
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired as why:
            self._kill(process)
            raise Error(
                f"swtch did not finish {escaped(str(self.path))} within {self._stop_timeout_s} s",
                f"what was recorded can be read: swtch explain {escaped(str(self.path))}",
            ) from why
        if process.returncode != 0:
            raise self._failure("the recording failed", process.returncode)
        self._end()
        self._is_finished = True

    def _failure(self, what: str, code: int) -> Error:
        self._end()
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return Error(f"{what} ({how}): {self.messages.strip() or 'it said nothing'}")

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """Ends the program at once, if it still runs."""
        if process.poll() is None:
            process.kill()
            process.wait()
        self._end()

    def _end(self) -> None:
        """Reads what the program said."""
        if self._stderr is None or self._stderr.closed:
            return
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").splitlines()
        self.messages = "\n".join(escaped(line) for line in lines)
        self._stderr.close()
