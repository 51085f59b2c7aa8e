"""The answer to a question: for pandas, Arrow, polars, plain Python, a terminal or a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from . import plots
from .database import quiet
from .errors import Error, require
from .text import escaped, table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from matplotlib.figure import Figure

# Rows that a terminal or a notebook is shown; the other ways give all.
MOST_ROWS_SHOWN = 20
# Rows that an answer keeps. With the 40 columns of `switches` they take about 30 MB.
MOST_ROWS_KEPT = 100_000

_QUESTION = "the question cannot be answered"

_REPAIR = (
    "if the file is damaged: swtch lake verify --repair LAKE puts its segments into quarantine, so "
    "that the others are answered from"
)


@contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Makes an error of the engine one of this package, with the engine's own words."""
    try:
        yield
    except duckdb.Error as why:
        # Files of a lake lie in such folders.
        advice = _REPAIR if "data/date=" in str(why) else None
        raise Error(f"{what}: {why}", advice) from why


@dataclass(frozen=True)
class _Shown:
    """What a terminal or a notebook is shown, as text without hostile characters."""

    head: list[str]
    rows: list[list[str]]
    are_numbers: list[bool]


@dataclass(frozen=True)
class Asked:
    """The question with a name that an answer is to, which decides how it is shown."""

    name: str = ""
    # Columns that a terminal and a notebook are not shown.
    not_shown: frozenset[str] = frozenset()
    # The span that was asked for, in ns since the start of the trace.
    span: tuple[int, int | None] = (0, None)


class Result:
    """Rows with named columns.

    Iterating gives the rows as `rows` does, and `len` counts them. `pandas.DataFrame`,
    `polars.DataFrame`, `pyarrow.table` and SQL of DuckDB (`FROM result`) take an answer as it is:
    it has the stream of Arrow's PyCapsule interface. At the first use of all rows, an answer of at
    most `MOST_ROWS_KEPT` rows is kept; a longer one is asked anew at each use.
    """

    def __init__(
        self,
        relation: DuckDBPyRelation,
        note: str | None = None,
        asked: Asked = Asked(),
        own: _Own | None = None,
    ) -> None:
        # The answer on the connection that was asked, where it is computed at each use.
        self._relation = relation
        self._columns = list(relation.columns)
        self._own = own
        # What belongs to the answer, such as what it does not say: a sentence a line.
        self.note = note
        self._asked = asked

    @classmethod
    def of_query(
        cls,
        connection: DuckDBPyConnection,
        query: str,
        params: dict[str, Any] | None = None,
        note: str | None = None,
        asked: Asked = Asked(),
    ) -> Result:
        """The answer to a query; `Error` with the engine's message where it has a mistake."""
        with engine_errors(_QUESTION):
            own = None if _has_temporary(connection) else _Own(connection, query, params)
            # With values DuckDB 1 computes the rows at once.
            relation = own.relation() if own is not None and params else None
            if relation is None:
                relation = _relation_of(connection, query, params)
        if relation is None:
            raise Error("this SQL has no answer: ask a SELECT")
        return cls(relation, note, asked, own)

    @property
    def columns(self) -> list[str]:
        """Names of the columns; lengths of time end in their unit."""
        return list(self._columns)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, each as a dictionary from column to value; null is `None`."""
        columns = self.columns
        with self._all() as relation:
            return [dict(zip(columns, row, strict=True)) for row in relation.fetchall()]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __len__(self) -> int:
        with self._all() as relation:
            return len(relation)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows for whatever reads Arrow's PyCapsule interface."""
        with self._all() as relation:
            if self._own is None:
                # DuckDB 1 waits for ever when a query reads a stream of its own connection.
                raise Error(
                    "this answer is no stream: it may be of temporary tables of one connection",
                    "take the rows first: df(), arrow() or pl()",
                )
            return relation.__arrow_c_stream__(requested_schema)

    @contextmanager
    def _all(self) -> Iterator[DuckDBPyRelation]:
        """The relation that all rows are taken from; raises its errors as `Error`."""
        with engine_errors(_QUESTION):
            kept = None if self._own is None else self._own.relation()
            if kept is not None and list(kept.columns) == self._columns:
                self._relation = kept
            else:
                self._own = None
            yield self._relation

    def first_rows(self, most: int) -> tuple[list[dict[str, Any]], bool]:
        """At most so many rows, and whether there are more."""
        columns = self.columns
        with engine_errors(_QUESTION):
            found = self._relation.limit(most + 1).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in found[:most]], len(found) > most

    def df(self) -> pandas.DataFrame:
        """All rows as a data frame of pandas."""
        require("pandas")
        with self._all() as relation:
            return relation.df()

    def arrow(self) -> pyarrow.Table:
        """All rows as a table of Arrow."""
        require("pyarrow")
        with self._all() as relation:
            return relation.to_arrow_table()

    def pl(self) -> polars.DataFrame:
        """All rows as a data frame of polars."""
        require("polars")
        require("pyarrow")
        with self._all() as relation:
            return relation.pl()

    def plot(self, most: int = 15) -> Figure:
        """A picture of the answer to a question with a name, as a figure of matplotlib.

        It shows at most `most` rows, those with the largest values. A notebook shows it by itself;
        `plot().savefig("FILE.svg")` writes it.
        """
        require("matplotlib")
        return plots.draw(self._asked.name, self.rows(), most, self._asked.span)

    def to_text(self, most: int | None = None) -> str:
        """A table for a terminal, at most `most` rows of it; hostile characters are escaped."""
        shown, left_out = self._shown(most)
        lines = [table(shown.head, shown.rows, shown.are_numbers)]
        lines.extend(self._below(left_out))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.to_text(MOST_ROWS_SHOWN)

    def _repr_html_(self) -> str:
        """A table for a notebook. All text is escaped: names of processes may hold markup."""
        shown, left_out = self._shown(MOST_ROWS_SHOWN)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in shown.head)
        body = "".join(f"<tr>{_html_cells(row, shown.are_numbers)}</tr>" for row in shown.rows)
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self._below(left_out))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def _shown(self, most: int | None) -> tuple[_Shown, bool]:
        """The first rows as text, and whether there are more."""
        if most is None:
            with self._all() as relation:
                found = relation.fetchall()
        else:
            with engine_errors(_QUESTION):
                found = self._relation.limit(most + 1).fetchall()
        places = [n for n, name in enumerate(self.columns) if name not in self._asked.not_shown]
        rows = found if most is None else found[:most]
        shown = _Shown(
            head=[escaped(self.columns[place]) for place in places],
            rows=[[cell_text(row[place]) for place in places] for row in rows],
            are_numbers=[_is_number(self._relation.types[place]) for place in places],
        )
        return shown, len(found) > len(rows)

    def _below(self, left_out: bool) -> list[str]:
        lines = []
        if left_out:
            lines.append(
                f"(the first {MOST_ROWS_SHOWN} rows; rows(), df(), arrow() and pl() give all)"
            )
        if self.note is not None:
            lines.extend(f"note: {escaped(line)}" for line in self.note.splitlines())
        return lines


class _Own:
    """A question that is asked on a connection of its own, where its answer is kept if it is short.

    Names mean the same there, unless the asking connection has temporary tables.
    """

    def __init__(
        self, connection: DuckDBPyConnection, query: str, params: dict[str, Any] | None
    ) -> None:
        # Now, because a query that reads the stream of this has the asking connection.
        self._connection = quiet(connection.cursor())
        self._question = query, params
        self._answer: DuckDBPyRelation | None = None

    def relation(self) -> DuckDBPyRelation | None:
        """All rows; `None` for a question of which no table can be made."""
        if self._answer is None:
            query, params = self._question
            # A comment may end the query.
            some = f"FROM ({query.rstrip().rstrip(';')}\n) LIMIT {MOST_ROWS_KEPT + 1}"
            try:
                self._connection.execute(f"CREATE TEMP TABLE answer AS {some}", params)
            except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
                return None
            answer = self._connection.sql("FROM answer")
            if len(answer) > MOST_ROWS_KEPT:
                self._connection.execute("DROP TABLE answer")
                answer = self._connection.sql(query, params=params)
            self._answer = answer
        return self._answer


def _has_temporary(connection: DuckDBPyConnection) -> bool:
    """Whether some names mean something else to this connection than to another one."""
    found = connection.sql(
        "SELECT 1 FROM duckdb_tables() WHERE temporary UNION ALL "
        "SELECT 1 FROM duckdb_views() WHERE temporary AND NOT internal LIMIT 1"
    )
    return bool(found.fetchall())


def _relation_of(
    connection: DuckDBPyConnection, query: str, params: dict[str, Any] | None
) -> DuckDBPyRelation | None:
    """What the engine makes of a query; `None` for a statement without an answer."""
    try:
        relation = connection.sql(query, params=params)
    except (duckdb.BinderException, duckdb.CatalogException):
        # Seen with DuckDB 1.5.5: `sql` leaves the line with the mistake out, `execute` tells it. A
        # single statement that could not be bound has done nothing yet, so it may be given again.
        if len(connection.extract_statements(query)) == 1:
            connection.execute(query, params)
        raise
    # DuckDB 1 has none for a statement without an answer, DuckDB 2 has one with such a column.
    if relation is not None and list(relation.columns) in (["Count"], ["Success"]):
        told = connection.extract_statements(query)[-1].expected_result_type
        return relation if list(told) == [duckdb.ExpectedResultType.QUERY_RESULT] else None
    return relation


def cell_text(value: Any) -> str:
    """A value as a table shows it: null is `-`, and hostile characters are escaped."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, bytes):
        return "".join(chr(b) if 0x20 <= b < 0x7F else f"\\x{b:02x}" for b in value)
    if isinstance(value, list):
        return "[" + ", ".join(cell_text(one) for one in value) + "]"
    return escaped(str(value))


def _float_text(value: float) -> str:
    """A rate, mean or share: as many digits as tell something, and all of them before the point."""
    size = abs(value)
    if size >= 1000:
        return f"{value:.0f}"
    return f"{value:.4f}" if size >= 0.001 or size == 0 else f"{value:.3g}"


def _is_number(kind: Any) -> bool:
    words = ("INT", "DOUBLE", "FLOAT", "DECIMAL")
    return any(word in str(kind) for word in words) and not str(kind).endswith("[]")


def _html_cells(cells: list[str], numbers: list[bool]) -> str:
    style = {True: ' style="text-align: right"', False: ' style="text-align: left"'}
    pairs = zip(cells, numbers, strict=True)
    return "".join(f"<td{style[is_number]}>{html.escape(cell)}</td>" for cell, is_number in pairs)
