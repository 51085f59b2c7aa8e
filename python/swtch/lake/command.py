"""`swtch lake VERB LAKE …`: the command line of a lake."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import Error
from ..text import escaped
from . import operations, ring
from .segment import Labels
from .store import store_at


def add_verbs(verbs: Any) -> None:
    """Adds the verbs that keep a lake to the parser of the package."""
    add = _verb(verbs, "add", _add, "add finished traces; one that is there already is left out")
    add.add_argument("paths", metavar="NAME.swtch", nargs="*", type=Path)
    add.add_argument(
        "--from",
        dest="rings",
        metavar="RING",
        action="append",
        default=[],
        type=Path,
        help="add what the flight recorder (`swtch record --ring`) that writes RING has sealed",
    )
    add.add_argument("--release", help="what was rolled out on the host, for fleet questions")
    add.add_argument("--instance-type", help="what the host is, for fleet questions")
    add.add_argument(
        "--prices",
        metavar="FILE",
        help="what switches cost on the host: the file of `swtch cost --quick -o FILE.json`",
    )
    compact = _verb(verbs, "compact", _compact, "merge small files of a host and day")
    compact.add_argument(
        "--target-mib", type=int, default=64, help="leave larger files alone (default: 64)"
    )
    retain = _verb(verbs, "retain", _retain, "take out what is old")
    age = retain.add_mutually_exclusive_group(required=True)
    age.add_argument("--days", type=int, help="keep so many days, today included")
    age.add_argument("--before", metavar="DATE", help="take out days before this one (UTC)")
    for verb in (compact, retain):
        verb.add_argument(
            "--grace-s",
            type=float,
            default=operations.GRACE_S,
            help="seconds for which queries that run may read replaced files (default: 3600)",
        )
    verify = _verb(verbs, "verify", _verify, "compare every file with what was written")
    verify.add_argument(
        "--repair",
        action="store_true",
        help="put segments of damaged files into quarantine, and delete what killed writers left",
    )


def _verb(verbs: Any, name: str, run: Any, what: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=what, description=what[0].upper() + what[1:])
    verb.add_argument("lake", metavar="LAKE", help="a directory, or s3://BUCKET/PATH")
    verb.set_defaults(run=run)
    return verb


def _say(text: str) -> None:
    """Prints what a verb says. Names of others in it end no line and move no cursor."""
    print("\n".join(escaped(line) for line in text.split("\n")), flush=True)


def _given(options: argparse.Namespace) -> Iterator[operations.Given]:
    """What is to be added: traces, then what rings have sealed."""
    if not options.paths and not options.rings:
        raise Error("name the traces to be added, or with --from the ring of a flight recorder")
    yield from map(operations.Given, options.paths)
    for place in options.rings:
        yield from ring.sealed(place)


def _add(options: argparse.Namespace) -> int:
    labels = Labels(options.release, options.instance_type, options.prices)
    outcome = operations.add(store_at(options.lake), _given(options), labels, _say)
    dropped = f", {len(outcome.vanished)} dropped meanwhile" if outcome.vanished else ""
    print(
        f"{len(outcome.added)} added, {len(outcome.present)} in the lake already, "
        f"{len(outcome.quarantined)} quarantined{dropped}",
        file=sys.stderr,
    )
    return 1 if outcome.quarantined else 0


def _compact(options: argparse.Namespace) -> int:
    target = options.target_mib << 20
    merged = operations.compact(store_at(options.lake), _say, target, options.grace_s)
    print(f"{merged} files merged", file=sys.stderr)
    return 0


def _retain(options: argparse.Namespace) -> int:
    before = options.before
    if before is None:
        if options.days < 1:
            raise Error("--days keeps at least one day")
        today = datetime.datetime.now(datetime.timezone.utc).date()
        before = (today - datetime.timedelta(days=options.days - 1)).isoformat()
    taken = operations.retain(store_at(options.lake), before, _say, options.grace_s)
    print(f"{taken} segments taken out", file=sys.stderr)
    return 0


def _verify(options: argparse.Namespace) -> int:
    store = store_at(options.lake)
    found = operations.verify(store, repair=options.repair, say=_say)
    for facts in operations.quarantined(store):
        _say(f"in quarantine  {escaped(facts['source'])}: {facts['why'].partition(chr(10))[0]}")
    print(
        f"{found.files} files, {found.segments} segments, {found.switches} switches; "
        f"{len(found.damaged)} files damaged",
        file=sys.stderr,
    )
    return 1 if found.damaged else 0
