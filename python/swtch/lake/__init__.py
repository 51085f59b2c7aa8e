"""A lake: the switches of many hosts as immutable Parquet, for any engine.

    from swtch import lake

    with lake.open("/srv/lake", since="2026-11-20") as fleet:     # or "s3://bucket/lake"
        fleet.sql("SELECT host, count(*) FROM switches GROUP BY host").df()

`swtch lake add|compact|retain|verify` fills and keeps one. `docs/LAKE.md` describes its
files, tables and promises.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .engines import connect
from .reading import Lake

__all__ = ["Lake", "is_lake", "open"]


def is_lake(location: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a lake rather than of a trace."""
    text = os.fspath(location)
    return text.startswith("s3://") or Path(text, "manifest").is_dir()


def open(
    location: str | os.PathLike[str],
    *,
    since: str | None = None,
    until: str | None = None,
    hosts: Sequence[str] | None = None,
    on: Any = None,
) -> Lake:
    """Opens a lake for questions.

    `since` and `until` are days (`YYYY-MM-DD`, both included), `hosts` names of hosts. `on` is what
    `swtch.connect` takes or returns; the embedded DuckDB without it.
    """
    return Lake(location, since=since, until=until, hosts=hosts, on=connect(on))
