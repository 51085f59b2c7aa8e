"""The command line: `swtch lake VERB`, which `python -m swtch VERB` is, too.

stdout is the answer, stderr the talk; the exit code is 0, or 2 for an error.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import io
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from . import lake
from .errors import Error
from .fleet import command as fleet_command
from .lake import command as lake_command
from .result import Result, cell_text
from .text import escaped, json_escaped
from .trace import Trace

_FORMULA_BEGINNINGS = ("=", "+", "-", "@", "'")


def main(arguments: Sequence[str] | None = None, program: str = "python -m swtch") -> int:
    """Runs the command line, which calls itself `program`, and returns its exit code."""
    options = _parser(program).parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Letters that the terminal's encoding lacks are shown by number.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except Error as why:
        # What an engine or a server says may quote what others wrote.
        print("\n".join(escaped(line) for line in f"error: {why}".split("\n")), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough. Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program, description="Ask questions of traces that swtch recorded"
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    query = verbs.add_parser("query", help="answer a question in SQL over one or several traces")
    query.add_argument("sql", metavar="SQL", help="the question; docs/PYTHON.md lists the views")
    query.add_argument("paths", metavar="PATH", nargs="+", help="a finished trace, or one lake")
    add_format(query)
    query.add_argument(
        "--on", metavar="URL", help="engine for a lake: duckdb (default) or spark://HOST:PORT"
    )
    query.set_defaults(run=_query)
    lake_command.add_verbs(verbs)
    fleet_command.add_verbs(verbs, write)
    serve = verbs.add_parser("mcp", help="let an assistant ask traces, over stdin and stdout")
    serve.add_argument(
        "paths", metavar="PATH", nargs="*", default=["."], help="traces, or folders of them"
    )
    serve.add_argument("--rows", type=int, default=200, help="most rows of an answer")
    serve.add_argument("--seconds", type=float, default=30, help="longest time for an answer")
    serve.set_defaults(run=_serve)
    return parser


def add_format(verb: argparse.ArgumentParser) -> None:
    """Adds the option that chooses how an answer is written."""
    verb.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        default="table",
        help="format of the answer (default: table)",
    )


def _query(options: argparse.Namespace) -> int:
    if any(lake.is_lake(path) for path in options.paths):
        if len(options.paths) > 1:
            raise Error("a lake is asked alone: its segments are traces of many hosts already")
        with lake.open(options.paths[0], on=options.on) as opened:
            write(opened.sql(options.sql), options.format, sys.stdout)
        return 0
    if options.on is not None:
        raise Error("--on is for a lake; traces are opened by DuckDB in this process")
    with Trace(options.paths) as trace:
        write(trace.sql(options.sql), options.format, sys.stdout)
    return 0


def _serve(options: argparse.Namespace) -> int:
    """Answers an assistant until it closes stdin; docs/MACHINES.md says how to set it up."""
    # Only here: it takes a package that the rest does not need.
    from .mcp import Limits, server

    server(options.paths, Limits(options.rows, options.seconds)).run("stdio")
    return 0


def write(result: Result, form: str, out: TextIO) -> None:
    """Writes an answer as a table, CSV or JSON."""
    if form == "table":
        out.write(result.to_text() + "\n")
    elif form == "json":
        out.write(_to_json(result))
    else:
        _write_csv(result, out)


def _to_json(result: Result) -> str:
    """One object; hostile characters are JSON's own escapes, so that values are exact."""
    rows = [{name: json_value(value) for name, value in row.items()} for row in result.rows()]
    answer = {"schema": "swtch.query/1", "columns": result.columns, "rows": rows}
    return json_escaped(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def json_value(value: Any) -> Any:
    """A value as JSON has it. JSON has no infinity and no NaN: they are null, as in reports."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [json_value(one) for one in value]
    if isinstance(value, dict):
        return {str(key): json_value(one) for key, one in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return cell_text(value)


def _write_csv(result: Result, out: TextIO) -> None:
    """CSV by RFC 4180, with texts made safe for terminals and spreadsheets."""
    out.write(",".join(_quoted(escaped(name)) for name in result.columns) + "\r\n")
    for row in result.rows():
        out.write(",".join(_csv_field(value) for value in row.values()) + "\r\n")


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, decimal.Decimal)):
        return str(value)
    text = cell_text(value)
    # Spreadsheets would compute a text that begins like a formula. Removing one leading apostrophe
    # always gives the text again.
    return _quoted("'" + text if text.startswith(_FORMULA_BEGINNINGS) else text)


def _quoted(text: str) -> str:
    if not any(c in text for c in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'
