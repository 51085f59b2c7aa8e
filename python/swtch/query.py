"""`python -m swtch query "SQL" PATH…`: a question in SQL over one or several traces.

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

from .errors import Error
from .result import Result, cell_text
from .text import escaped, json_escaped
from .trace import Trace

_FORMULA_BEGINNINGS = ("=", "+", "-", "@", "'")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Letters that the terminal's encoding lacks are shown by number.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with Trace(options.paths) as trace:
            _write(trace.sql(options.sql), options.format, sys.stdout)
            sys.stdout.flush()
    except Error as why:
        print(f"error: {why}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough. Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m swtch", description="Ask questions of traces that swtch recorded"
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    query = verbs.add_parser("query", help="answer a question in SQL over one or several traces")
    query.add_argument("sql", metavar="SQL", help="the question; docs/PYTHON.md lists the views")
    query.add_argument("paths", metavar="PATH", nargs="+", help="a finished trace")
    query.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        default="table",
        help="format of the answer (default: table)",
    )
    return parser


def _write(result: Result, form: str, out: TextIO) -> None:
    if form == "table":
        out.write(result.to_text() + "\n")
    elif form == "json":
        out.write(_to_json(result))
    else:
        _write_csv(result, out)


def _to_json(result: Result) -> str:
    """One object; hostile characters are JSON's own escapes, so that values are exact."""
    rows = [{name: _json_value(value) for name, value in row.items()} for row in result.rows()]
    answer = {"schema": "swtch.query/1", "columns": result.columns, "rows": rows}
    return json_escaped(json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _json_value(value: Any) -> Any:
    """A value as JSON has it. JSON has no infinity and no NaN: they are null, as in reports."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _json_value(one) for key, one in value.items()}
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
