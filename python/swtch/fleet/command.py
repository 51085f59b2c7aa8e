"""`swtch lake fleet QUESTION LAKE`: a question to a fleet."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, TextIO

from .. import lake
from ..result import Result
from . import QUESTIONS, ask


def add_verbs(verbs: Any, write: Callable[[Result, str, TextIO], None]) -> None:
    """Adds the verb `fleet` to the parser of the package; `write` shows an answer."""
    fleet = verbs.add_parser("fleet", help="ask a lake what goes on in a fleet")
    questions = fleet.add_subparsers(dest="question", required=True)
    for name, (what, values) in QUESTIONS.items():
        verb = questions.add_parser(name, help=what, description=what[0].upper() + what[1:])
        verb.add_argument("lake", metavar="LAKE", help="a directory, or s3://BUCKET/PATH")
        verb.add_argument("--since", metavar="DATE", help="from this day on (UTC)")
        verb.add_argument("--until", metavar="DATE", help="up to this day, it included")
        verb.add_argument("--host", action="append", help="only this host (may be repeated)")
        verb.add_argument("--on", metavar="URL", help="engine: duckdb or spark://HOST:PORT")
        verb.add_argument(
            "--format", choices=("table", "csv", "json"), default="table", help="of the answer"
        )
        for value in values:
            verb.add_argument(f"--{value}", required=True, help=f"the release {value} the rollout")

        def run(options: argparse.Namespace, values: dict[str, Any] = values) -> int:
            with lake.open(
                options.lake,
                since=options.since,
                until=options.until,
                hosts=options.host,
                on=options.on,
            ) as opened:
                given = {value: getattr(options, value) for value in values}
                write(ask(opened, options.question, **given), options.format, sys.stdout)
            return 0

        verb.set_defaults(run=run)
