"""The tables of traces as tables of an engine, and the views over them.

The schema `stored` holds what is on disk, for all opened traces together: each row has the trace it
is of and its place in the file. The views in `views/` make of that what questions are asked of;
joins and expressions that only this engine has stand there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from .errors import Error
from .schema import OLD_NAMES, REASONS, TABLES
from .text import escaped
from .trace_files import TraceFiles

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Views in the order in which they need each other. The small ones are computed once, at opening.
_COMPUTED_ONCE = ("identities", "tasks", "processes", "meta", "reason_words")
_COMPUTED_WHEN_ASKED = (
    "switch_rows",
    "switches",
    "wait_rows",
    "waits",
    "opens",
    "amounts",
    "stacks",
    "gaps",
)
# Only this table is large. The others are kept in memory, so that they are read once.
_READ_WHEN_ASKED = "switch"

VIEWS = _COMPUTED_ONCE + _COMPUTED_WHEN_ASKED

# Facts of `meta.json`: column, type, and the way to it.
_FACTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("hostname", "VARCHAR", ("host", "hostname")),
    ("kernel_release", "VARCHAR", ("host", "kernel_release")),
    ("machine", "VARCHAR", ("host", "machine")),
    ("cpus", "BIGINT", ("host", "cpus")),
    ("scope", "VARCHAR", ("scope",)),
    ("command", "VARCHAR", ("command",)),
    ("backend", "VARCHAR", ("backend",)),
    ("state", "VARCHAR", ("state",)),
    ("stop_reason", "VARCHAR", ("stop_reason",)),
    ("start_ns", "BIGINT", ("start_ns",)),
    ("end_ns", "BIGINT", ("end_ns",)),
    ("counted_lost", "BIGINT", ("counts", "lost")),
    ("untraced", "BIGINT", ("counts", "untraced")),
    ("unnamed", "BIGINT", ("counts", "unnamed")),
    ("storage_failed", "BIGINT", ("counts", "storage_failed")),
    ("format_version", "BIGINT", ("format_version",)),
    ("rules_version", "BIGINT", ("rules_version",)),
    ("swtch_version", "VARCHAR", ("swtch_version",)),
)
_COUNTS = ("counted_lost", "untraced", "unnamed", "storage_failed")


# Rules whose reason was `slice` before this version of the rules, and is `wakeup` since.
JUDGED_AS_TODAY = 6
REJUDGED = ("slice_end_at_wakeup", "protection_lapsed_at_wakeup")


def create_all(connection: DuckDBPyConnection, traces: Sequence[TraceFiles]) -> None:
    """Creates the tables and views of `traces` in an empty database."""
    connection.execute("CREATE SCHEMA stored")
    _create_meta(connection, traces)
    _create_reasons(connection)
    for table in TABLES:
        selects = [_select_of(connection, table, trace) for trace in traces]
        kind = "VIEW" if table == _READ_WHEN_ASKED else "TABLE"
        connection.execute(f'CREATE {kind} stored."{table}" AS {" UNION ALL ".join(selects)}')
    for view in VIEWS:
        kind = "TABLE" if view in _COMPUTED_ONCE else "VIEW"
        connection.execute(f"CREATE {kind} {view} AS\n{text_of('views', view)}")


def text_of(folder: str, name: str) -> str:
    """The text of a file of SQL in this package: `views` or `sql`."""
    return (files("swtch") / folder / f"{name}.sql").read_text(encoding="utf-8")


def description(folder: str, name: str) -> str:
    """The comment at the head of a file of SQL, without its marks: rows and columns in words."""
    lines = []
    for line in text_of(folder, name).splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[2:].removeprefix(" "))
    return "\n".join(lines)


def files_read_when_asked(traces: Iterable[TraceFiles]) -> list[str]:
    """Files that stay on disk, by their paths and as the engine is given them."""
    files = [trace.tables.get(_READ_WHEN_ASKED) for trace in traces]
    paths = [str(file) for file in files if file is not None]
    return list(dict.fromkeys([*paths, *map(_without_wildcards, paths)]))


def _create_meta(connection: DuckDBPyConnection, traces: Sequence[TraceFiles]) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind, _ in _FACTS)
    connection.execute(f"CREATE TABLE stored.meta (trace VARCHAR, {columns})")
    marks = ", ".join("?" for _ in range(len(_FACTS) + 1))
    for trace in traces:
        facts = [_column(trace, *fact) for fact in _FACTS]
        connection.execute(f"INSERT INTO stored.meta VALUES ({marks})", [trace.name, *facts])


def _column(trace: TraceFiles, name: str, kind: str, way: Sequence[str]) -> Any:
    """A fact as a column: the command as one text, and 0 for a count that is not told."""
    if name == "command":
        words = trace.meta.get("command")
        return " ".join(map(str, words)) if isinstance(words, list) and words else None
    value = fact(trace, int if kind == "BIGINT" else str, *way)
    return 0 if value is None and name in _COUNTS else value


def fact(trace: TraceFiles, wanted: type[int] | type[str], *way: str) -> Any:
    """A fact of `meta.json`; `None` where an older trace lacks it, `Error` where it is no such."""
    value: Any = trace.meta
    for key in way:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return None
    if not isinstance(value, wanted) or isinstance(value, bool):
        way_text = ".".join(way)
        said = escaped(repr(value)[:80])
        raise Error(f"{escaped(trace.name)} is damaged: meta.json says {said} for {way_text}")
    return value


def _create_reasons(connection: DuckDBPyConnection) -> None:
    connection.execute(
        "CREATE TABLE stored.reason (place INTEGER, reason VARCHAR, category VARCHAR)"
    )
    rows = [(place, reason, category) for place, (reason, category) in enumerate(REASONS)]
    connection.executemany("INSERT INTO stored.reason VALUES (?, ?, ?)", rows)


def _select_of(connection: DuckDBPyConnection, table: str, trace: TraceFiles) -> str:
    """All rows of one table of one trace; columns that an older trace lacks are null."""
    columns = TABLES[table]
    label = literal(trace.name)
    file = trace.tables.get(table)
    if file is None:
        nulls = ", ".join(f'CAST(NULL AS {kind}) AS "{name}"' for name, kind in columns.items())
        return f"SELECT {label} AS trace, CAST(NULL AS BIGINT) AS file_row, {nulls} WHERE false"
    source = f"read_parquet({literal(_without_wildcards(str(file)))}, file_row_number = true)"
    found = {row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    cells = ", ".join(_cell(table, name, kind, found) for name, kind in columns.items())
    rows = f"SELECT {label} AS trace, file_row_number AS file_row, {cells} FROM {source}"
    return rows if _is_judged_as_today(trace) else _judged_as_today(table, trace, rows)


def _is_judged_as_today(trace: TraceFiles) -> bool:
    version = fact(trace, int, "rules_version")
    return version is None or version >= JUDGED_AS_TODAY


def _judged_as_today(table: str, trace: TraceFiles, rows: str) -> str:
    """Rows of an older trace with the reasons of today's rules (`rejudged`, `rules.rs`).

    A row names its rule; a wait, and what was open at the end, began with its task's row before.
    """
    rules = ", ".join(map(literal, REJUDGED))
    was_slice = f"rule IN ({rules}) AND reason = 'slice'"
    if table == "switch":
        # Both reasons are preemptions, so the category stays.
        return f"""SELECT * REPLACE (
            CASE WHEN {was_slice} THEN 'wakeup' ELSE reason END AS reason,
            CASE
                WHEN off_reason = 'slice' AND lag({was_slice}) OVER (
                    PARTITION BY task, coalesce(level, 'os') ORDER BY file_row
                ) THEN 'wakeup'
                ELSE off_reason
            END AS off_reason)
            FROM ({rows})"""
    file = trace.tables.get("switch")
    if table != "open" or file is None:
        return rows
    source = f"read_parquet({literal(_without_wildcards(str(file)))}, file_row_number = true)"
    return f"""SELECT o.* REPLACE (
        CASE
            WHEN reason = 'slice' AND task IN (
                SELECT task FROM {source} GROUP BY task
                HAVING arg_max({was_slice}, file_row_number)
            ) THEN 'wakeup'
            ELSE reason
        END AS reason)
        FROM ({rows}) AS o"""


def _cell(table: str, name: str, kind: str, found: set[str]) -> str:
    old = OLD_NAMES.get((table, name))
    source = name if name in found else old if old in found else None
    value = "NULL" if source is None else f'"{source}"'
    return f'CAST({value} AS {kind}) AS "{name}"'


def literal(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _without_wildcards(path: str) -> str:
    """A path whose `*`, `?` and `[` stand for themselves: the engine takes paths as patterns."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)
