"""A lake opened for questions, on an engine: the views `switches`, `contention` and `segments`.

Which files hold a day or a host is known from the manifest. No directory is listed, and files of
other days and hosts are not opened.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..result import Result
from ..tables import literal
from ..text import escaped
from .columns import (
    CONTENTION_COLUMNS,
    FIRST_CONTENTION_COLUMNS,
    SEGMENT_COLUMNS,
    SWITCH_COLUMNS,
)
from .engines import Embedded, Engine
from .manifest import Segments, existing
from .segment import contention_of
from .store import checked_name, store_at

if TYPE_CHECKING:
    from types import TracebackType


class Lake:
    """What a lake held when it was opened. What is added later needs another `open`."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        since: str | None = None,
        until: str | None = None,
        hosts: Sequence[str] | None = None,
        on: Engine | None = None,
    ) -> None:
        self.store = store_at(location)
        segments = Segments(self.store, existing(self.store))
        # Dates are texts that sort as days do.
        segments.connection.execute(
            "CREATE TABLE chosen AS SELECT * FROM segments WHERE date >= ? AND date <= ? "
            "AND (? IS NULL OR list_contains(?, host))",
            [since or "", until or "9999", hosts, list(hosts or [])],
        )
        self.version = segments.manifest.version
        self.engine: Engine = on if on is not None else Embedded()
        with tempfile.TemporaryDirectory(prefix="swtch-lake-") as place:
            file = Path(place, "segments.parquet")
            names = ", ".join(SEGMENT_COLUMNS)
            segments.connection.execute(
                f"COPY (SELECT {names} FROM chosen) TO {literal(str(file))} (FORMAT parquet)"
            )
            self.engine.create_segments(file)
        # Files that were written with the same columns are read together.
        by_columns: dict[tuple[str, ...], list[str]] = {}
        contention: dict[tuple[str, ...], list[str]] = {}
        for columns, file, of_contention in segments.rows(
            """SELECT file_columns, file, CASE WHEN max(contention_bytes) IS NOT NULL
            THEN coalesce(max(contention_columns), ?) END
            FROM chosen WHERE switches > 0 GROUP BY file_columns, file ORDER BY file""",
            [FIRST_CONTENTION_COLUMNS],
        ):
            by_columns.setdefault(tuple(columns.split(",")), []).append(checked_name(file, "data"))
            if of_contention is not None:
                contention.setdefault(tuple(of_contention.split(",")), []).append(
                    contention_of(file)
                )
        self.engine.create_view(self.store, "switches", SWITCH_COLUMNS, by_columns)
        self.engine.create_view(self.store, "contention", CONTENTION_COLUMNS, contention)
        segments.connection.close()

    def sql(self, query: str, params: dict[str, Any] | None = None) -> Result:
        """The answer to a question in SQL, with values for its `$name` placeholders.

        Raises `Error` with the engine's message, which shows the place of a mistake.
        """
        return self.engine.answer(query, params)

    def close(self) -> None:
        """Frees what the engine holds for this lake."""
        self.engine.close()

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<swtch.lake.Lake {escaped(self.store.location)} version {self.version}>"
