"""What a flight recorder has sealed: the segments of its ring, each a recording of its own.

    RING/segments/00000017/    sealed: complete, and never changed until it is dropped
    RING/segments/00000018/    the one that is written

A segment says in its `meta.json` that it is finished. It holds the kernel's records, which the
program makes tables of. It goes when the ring has no more room for it, also while it is read here:
then it was dropped, and nothing is wrong. Nothing is written into the ring.

The same recording has the same numbers always, so a segment's name in a lake is made of the host,
the start of the recording, and the number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import Error
from ..program import run_program
from ..text import escaped
from ..trace_files import read_small
from .operations import Given
from .segment import Nonsense, Origin

_NUMBER = re.compile(r"[0-9]{8,18}")
# A recorder unlinks the files of a segment one by one: how long that may take.
_DROPPED_WITHIN_S = 2.0


def sealed(ring: Path) -> Iterator[Given]:
    """The segments that a ring has sealed, the oldest first."""
    place = ring / "segments"
    try:
        names = [
            one.name for one in place.iterdir() if _NUMBER.fullmatch(one.name) and one.is_dir()
        ]
    except FileNotFoundError as why:
        raise _no_ring(ring) from why
    except OSError as why:
        raise Error(f"cannot read the ring {escaped(str(ring))}: {why}") from why
    newest = max(names, key=int, default=None)
    for name in sorted(names, key=int):
        segment = Segment(ring, place / name)
        if segment.is_sealed(is_newest=name == newest):
            yield segment


def _no_ring(ring: Path) -> Error:
    if (ring / "meta.json").exists():
        return Error(
            f"{escaped(str(ring))} is no ring that is written: it has no segments",
            "a recording that has ended is a trace: swtch lake add LAKE NAME.swtch",
        )
    return Error(f"there is no ring of a flight recorder at {escaped(str(ring))}")


class Segment(Given):
    """A segment of a ring."""

    def __init__(self, ring: Path, path: Path) -> None:
        super().__init__(path)
        self._ring = ring

    def is_sealed(self, *, is_newest: bool) -> bool:
        """Whether it is complete. One whose recorder was killed never is."""
        try:
            meta = self._meta()
        except Error:
            # The newest has just begun. Any other is damaged, or was dropped meanwhile: who adds it
            # finds out which, and says so.
            return not is_newest
        end = meta.get("end_ns")
        return meta.get("state") == "finished" and isinstance(end, int) and end > 0

    def origin(self) -> Origin:
        """Which segment of a lake it becomes, however often it is met."""
        meta = self._meta()
        try:
            host, clock, ring = (meta[key] for key in ("host", "clock", "ring"))
            facts = (host["hostname"], clock["realtime_ns"], ring["began_ns"], int(self.path.name))
        except (TypeError, KeyError) as why:
            raise Nonsense("it does not say of which recording it is") from why
        digest = hashlib.sha256(json.dumps(facts).encode())
        return Origin(digest.hexdigest()[:20], str(self.path))

    @contextlib.contextmanager
    def finished(self) -> Iterator[Path]:
        """A trace with tables, made of the records."""
        with tempfile.TemporaryDirectory(prefix="swtch-lake-") as place:
            made = Path(place, f"{self.path.name}.swtch")
            run_program(["dump", self.path, "-o", made], as_caller=False)
            yield made

    def has_vanished(self) -> bool:
        """Whether the recorder has dropped it: it is gone, or goes file by file."""
        end = time.monotonic() + _DROPPED_WITHIN_S
        while self.path.exists():
            is_whole = (self.path / "meta.json").exists() and (self.path / "records.raw").exists()
            if is_whole or time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def _meta(self) -> dict[str, Any]:
        try:
            meta = json.loads(read_small(self.name, self.path / "meta.json"))
        except (ValueError, RecursionError) as why:
            raise Nonsense(f"meta.json is no JSON ({why})") from why
        if not isinstance(meta, dict):
            raise Nonsense("meta.json holds no facts")
        return meta
