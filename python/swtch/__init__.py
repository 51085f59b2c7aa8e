"""Context switches that `swtch` recorded, as tables.

    import swtch

    trace = swtch.open("my.swtch")
    trace.reasons()                                    # why threads left their CPUs
    trace.sql("SELECT comm, count(*) FROM switches GROUP BY comm").df()

    with swtch.record("own.swtch") as recording:       # record one's own process
        work()
    recording.trace().runq()

    with swtch.span(trace_id=id):                      # publish it, for `record --span otel`
        answer(request)

A trace is opened by DuckDB in memory, as views over the Parquet files of the trace. Each question
is a file of SQL in `swtch/sql/`, each view one in `swtch/views/`; their first lines say what a row
is and what its columns mean.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import Error
from .lake.engines import connect
from .recording import Recording, record
from .result import Result
from .span import PublishedSpan, span
from .trace import Trace
from .trace_files import AnyPath, paths_of

__all__ = [
    "Error",
    "PublishedSpan",
    "Recording",
    "Result",
    "Trace",
    "connect",
    "open",
    "record",
    "span",
]


def open(
    path: AnyPath | Iterable[AnyPath], *more: AnyPath | Iterable[AnyPath], verify: bool = True
) -> Trace:
    """Opens finished traces for questions.

    Each is a path, a list of paths, or a pattern: `swtch.open("runs/*.swtch")`. With several traces
    every view holds the rows of all of them; the column `trace` of each row is the path as it was
    given, or as the pattern found it. `verify=False` leaves out the comparison with the checksums
    of the trace, which reads every file once.

    Raises `Error` when a path leads to no trace, to one that is not finished, to one of a newer
    format, or to one whose files are not as they were written.
    """
    return Trace(paths_of([path, *more]), verify=verify)
