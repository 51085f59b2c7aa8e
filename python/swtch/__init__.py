"""Context switches that `swtch` recorded, as tables.

    import swtch

    trace = swtch.open("my.swtch")
    trace.reasons()                                    # why threads left their CPUs
    trace.sql("SELECT comm, count(*) FROM switches GROUP BY comm").df()

    with swtch.record("own.swtch") as recording:       # record one's own process
        work()
    recording.trace().runq()

A trace is opened by DuckDB in memory, as views over the Parquet files of the trace. Each question
is a file of SQL in `swtch/sql/`, each view one in `swtch/views/`; their first lines say what a row
is and what its columns mean.
"""

from __future__ import annotations

import os

from .errors import Error
from .lake.engines import connect
from .recording import Recording, record
from .result import Result
from .trace import Trace

__all__ = ["Error", "Recording", "Result", "Trace", "connect", "open", "record"]


def open(path: str | os.PathLike[str], *more: str | os.PathLike[str], verify: bool = True) -> Trace:
    """Opens finished traces for questions.

    With several paths every view holds the rows of all of them; the column `trace` of each row is
    the path as it was given. `verify=False` leaves out the comparison with the checksums of the
    trace, which reads every file once.

    Raises `Error` when a path leads to no trace, to one that is not finished, to one of a newer
    format, or to one whose files are not as they were written.
    """
    return Trace([path, *more], verify=verify)
