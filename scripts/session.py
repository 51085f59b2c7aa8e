#!/usr/bin/env python3
"""Records the session of the README: types commands into a shell, and keeps what is shown.

scripts/session.py FILE.cast    as root, with swtch in PATH, while PostgreSQL serves pgbench

`asciinema play FILE.cast` plays it, and a picture of it is made by
`npx svg-term-cli --in FILE.cast --out FILE.svg --window --no-optimize`: optimised, it loses spaces.
Who wants no motion sees the 77th step, the whole first answer, after this:

    sed -i 's/}@key/;transform:translateX(-7700px)&/
    s/}@key/}@media(prefers-reduced-motion){.r{animation:none}&/' FILE.svg
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

COLUMNS, LINES = 100, 36

# How long to wait, in seconds, before what is typed then. Commands are typed key by key.
TYPED = (
    (1.0, "swtch explain -p $(pgrep -o postgres) -d 3 --no-bill | head -31\n"),
    (12.0, "clear\n"),
    (0.5, "swtch top -p $(pgrep -o postgres)\n"),
    (6.0, "5"),
    (3.0, "4"),
    (3.0, "q"),
    (1.5, ""),
)


def shell() -> int:
    """A shell at a terminal of its own; returns our end of it."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", PS1="# ")
        os.execlp("bash", "bash", "--norc", "--noprofile")
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    return terminal


def shown(terminal: int, seconds: float, decoder: codecs.IncrementalDecoder) -> Iterator[str]:
    """What the terminal shows meanwhile. A character may come in two parts."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            yield decoder.decode(os.read(terminal, 65536))


def main() -> None:
    """Types, and writes down what is shown and when (asciicast, version 2)."""
    terminal, start = shell(), time.monotonic()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    lines: list[object] = [{"version": 2, "width": COLUMNS, "height": LINES}]
    for pause, text in TYPED:
        for key, wait in zip(["", *text], [pause, *[0.04] * len(text)], strict=True):
            os.write(terminal, key.encode())
            for what in shown(terminal, wait, decoder):
                lines.append([round(time.monotonic() - start, 3), "o", what])
    Path(sys.argv[1]).write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FILE.cast")
    main()
