"""The answer to a question: for pandas, Arrow, polars, plain Python, a terminal or a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from . import plots
from .errors import Error
from .text import escaped, table

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from matplotlib.figure import Figure

# Rows that a terminal or a notebook is shown; the other ways give all.
MOST_ROWS_SHOWN = 20

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
    """Rows with named columns. Each of `df`, `arrow`, `pl` and `rows` runs the question anew."""

    def __init__(
        self,
        relation: DuckDBPyRelation,
        note: str | None = None,
        asked: Asked = Asked(),
    ) -> None:
        self._relation = relation
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
        with engine_errors("the question cannot be answered"):
            relation = _relation_of(connection, query, params)
        if relation is None:
            raise Error("this SQL has no answer: ask a SELECT")
        return cls(relation, note, asked)

    @property
    def columns(self) -> list[str]:
        """Names of the columns; lengths of time end in their unit."""
        return list(self._relation.columns)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, each as a dictionary from column to value; null is `None`."""
        columns = self.columns
        with engine_errors("the question cannot be answered"):
            return [dict(zip(columns, row, strict=True)) for row in self._relation.fetchall()]

    def first_rows(self, most: int) -> tuple[list[dict[str, Any]], bool]:
        """At most so many rows, and whether there are more."""
        columns = self.columns
        with engine_errors("the question cannot be answered"):
            found = self._relation.limit(most + 1).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in found[:most]], len(found) > most

    def df(self) -> pandas.DataFrame:
        """All rows as a data frame of pandas."""
        _require("pandas", "pandas")
        with engine_errors("the question cannot be answered"):
            return self._relation.df()

    def arrow(self) -> pyarrow.Table:
        """All rows as a table of Arrow."""
        _require("pyarrow", "arrow")
        with engine_errors("the question cannot be answered"):
            return self._relation.to_arrow_table()

    def pl(self) -> polars.DataFrame:
        """All rows as a data frame of polars."""
        _require("polars", "polars")
        _require("pyarrow", "polars")
        with engine_errors("the question cannot be answered"):
            return self._relation.pl()

    def plot(self, most: int = 15) -> Figure:
        """A picture of the answer to a question with a name, as a figure of matplotlib.

        It shows at most `most` rows, those with the largest values. A notebook shows it by itself;
        `plot().savefig("FILE.svg")` writes it.
        """
        _require("matplotlib", "plot")
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
        with engine_errors("the question cannot be answered"):
            if most is None:
                found = self._relation.fetchall()
            else:
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


def _relation_of(
    connection: DuckDBPyConnection, query: str, params: dict[str, Any] | None
) -> DuckDBPyRelation | None:
    """What the engine makes of a query; `None` for a statement without an answer."""
    try:
        return connection.sql(query, params=params)
    except (duckdb.BinderException, duckdb.CatalogException):
        # Seen with DuckDB 1.5.5: `sql` leaves the line with the mistake out, `execute` tells it. A
        # single statement that could not be bound has done nothing yet, so it may be given again.
        if len(connection.extract_statements(query)) == 1:
            connection.execute(query, params)
        raise


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


def _require(module: str, extra: str) -> None:
    """Says which extra of this package brings a module that is not installed."""
    try:
        __import__(module)
    except ImportError as why:
        raise Error(f"{module} is not installed", f"pip install 'swtch[{extra}]'") from why
