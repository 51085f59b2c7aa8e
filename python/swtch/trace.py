"""Opened traces: questions with a name, and questions in SQL."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import bill, tables
from .database import new_database
from .errors import Error
from .result import Asked, Result, engine_errors
from .text import escaped
from .trace_files import TraceFiles, open_files

if TYPE_CHECKING:
    from types import TracebackType

    from duckdb import DuckDBPyConnection

# The longest span that `timeline` can be asked for: everything.
_END_OF_TIME_NS = 2**62

_NOT_JUDGED = (
    "rates side by side, and no judgement: whether they differ by more than chance is for "
    "`swtch diff BEFORE.swtch -- AFTER.swtch` to say, from several recordings of each"
)


class Trace:
    """One or several finished traces, opened in memory.

    The methods with a question's name run the file of that name in `swtch/sql/`, whose first lines
    say what a row is, and the unit of each column. `sql` runs any question over the views.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], *, verify: bool = True) -> None:
        if not paths:
            raise Error("no trace is named")
        names = [os.fspath(path) for path in paths]
        for name in names:
            if names.count(name) > 1:
                raise Error(f"{escaped(str(name))} is given twice: its rows would count twice")
        self._files: list[TraceFiles] = [open_files(path, verify) for path in paths]
        self._connection: DuckDBPyConnection = new_database()
        with self._or_close():
            tables.create_all(self._connection, self._files)

    @contextmanager
    def _or_close(self) -> Iterator[None]:
        """Closes the database when it cannot be filled; says what the engine found wrong."""
        try:
            with engine_errors("cannot read " + ", ".join(escaped(name) for name in self.names)):
                yield
        except BaseException:
            self._connection.close()
            raise

    @property
    def names(self) -> list[str]:
        """The opened traces, by the paths that were given: the values of the column `trace`."""
        return [trace.name for trace in self._files]

    @property
    def meta(self) -> list[dict[str, Any]]:
        """The whole `meta.json` of each trace. The view `meta` has its main facts."""
        return [trace.meta for trace in self._files]

    @property
    def views(self) -> dict[str, str]:
        """Each view with its description: what a row is, and columns with their units."""
        return {view: tables.description("views", view) for view in tables.VIEWS}

    @property
    def connection(self) -> DuckDBPyConnection:
        """The connection of the engine, for what this class does not offer."""
        return self._connection

    def files_read_when_asked(self) -> list[str]:
        """Files that the engine opens for each question, as it is asked for them."""
        return tables.files_read_when_asked(self._files)

    def sql(self, query: str, params: dict[str, Any] | None = None) -> Result:
        """The answer to a question in SQL, with values for its `$name` placeholders.

        Raises `Error` with the engine's message, which shows the place of a mistake.
        """
        return Result.of_query(self._connection, query, params)

    def reasons(self) -> Result:
        """Why threads left their CPUs, and what that cost: `swtch report --by reason`."""
        return self._ask("reasons")

    def runq(self) -> Result:
        """How long each thread waited for a CPU while it could have run."""
        return self._ask("runq")

    def preemptors(self) -> Result:
        """Who took the CPU from running threads, and whose wakeups asked for that."""
        return self._ask("preemptors")

    def waits(self) -> Result:
        """What was waited for (futex words, pipes, sockets): `swtch report --by wait`."""
        return self._ask("waits")

    def processes(self) -> Result:
        """Switches, runs and waits by process: `swtch report --by process`."""
        return self._ask("processes")

    def threads(self) -> Result:
        """Switches, runs and waits by thread: `swtch report --by thread`."""
        return self._ask("threads")

    def timeline(self, since_ns: int = 0, until_ns: int | None = None) -> Result:
        """What each thread did in a span of time, counted in ns from the start of the trace."""
        until = _END_OF_TIME_NS if until_ns is None else until_ns
        if until <= since_ns:
            raise Error(f"nothing lies in the span: {until} is not after {since_ns}")
        return self._ask("timeline", {"since_ns": since_ns, "until_ns": until})

    def compare(self, other: Trace) -> Result:
        """Rates of this trace and another side by side, by reason; it judges nothing.

        Whether two rates differ by more than chance is for `swtch diff` to say, from several
        recordings of each side. Both sides are opened again, together.
        """
        before, after = self._only_file(), other._only_file()
        if before.directory.samefile(after.directory):
            raise Error(f"{escaped(before.name)} cannot be compared with itself")
        return side_by_side(Trace([before.directory, after.directory], verify=False))

    def bill(
        self,
        by: bill.By = "reason",
        *,
        prices: str | os.PathLike[str] | None = None,
        program: str | os.PathLike[str] | None = None,
    ) -> Result:
        """What the switches cost: `swtch report --bill`, by reason, process, thread, stack or pair.

        `direct_ns` is what the switches themselves took, between `direct_low_ns` and
        `direct_high_ns`; `measured_pct` of it stands on prices that were measured for that kind of
        switch, the rest on estimates, which the note names. What tasks lost afterwards in their
        caches is between 0 and `indirect_high_ns`. `prices` is a price list (`swtch cost -o
        FILE.json`); without it the one that `swtch cost --save` keeps for this machine is taken.
        The program makes the bill: see `record` for which one that is.
        """
        return self._of_program("bill", *bill.bill_query(self._files, by, prices, program))

    def tariffs(
        self,
        *,
        prices: str | os.PathLike[str] | None = None,
        program: str | os.PathLike[str] | None = None,
    ) -> Result:
        """At which price a bill counts one switch, by reason and by who came next.

        `basis` is `measured`, `estimated` or `none` (the list has no price for it), and `because`
        says why it was not measured. The arguments are those of `bill`.
        """
        return self._of_program("tariffs", *bill.tariffs_query(self._files, prices, program))

    def close(self) -> None:
        """Frees the memory; results that were not taken out cannot be asked any more."""
        self._connection.close()

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(escaped(name) for name in self.names)
        return f"<swtch.Trace {names}>"

    def _ask(
        self, question: str, params: dict[str, Any] | None = None, note: str | None = None
    ) -> Result:
        text = tables.text_of("sql", question)
        return Result.of_query(self._connection, text, params, note, self._asked(question, params))

    def _of_program(self, question: str, query: str, params: dict[str, Any], note: str) -> Result:
        return Result.of_query(self._connection, query, params, note, self._asked(question))

    def _asked(self, question: str, params: dict[str, Any] | None = None) -> Asked:
        # One value in every row tells nothing; it is there for results of several traces.
        not_shown = frozenset({"trace"} if len(self._files) == 1 else ())
        span = (0, None) if params is None else (params.get("since_ns", 0), params.get("until_ns"))
        return Asked(question, not_shown, span)

    def _only_file(self) -> TraceFiles:
        if len(self._files) != 1:
            raise Error(
                f"compare takes one trace on each side, not {len(self._files)}",
                "for several recordings of each side: swtch diff A*.swtch -- B*.swtch",
            )
        return self._files[0]


def side_by_side(both: Trace) -> Result:
    """Rates of two traces that were opened together, the first as the one before."""
    before, after = both.names
    return both._ask("compare", {"before": before, "after": after}, note=_NOT_JUDGED)
