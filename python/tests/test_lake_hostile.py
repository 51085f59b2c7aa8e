"""A trace that says anything is quarantined with its reason, and those beside it are added."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import OLDEST
from fleet_checks import add, counts, verify, write_meta

import swtch
from swtch import text
from swtch.lake import operations, segment
from swtch.lake.store import Directory
from swtch.query import main

# The program finds out who had the CPU.
pytestmark = pytest.mark.usefixtures("program")

# What may stand in `meta.json` in the place of anything: every kind of JSON, and its borders.
KINDS: tuple[Any, ...] = (None, "abc", [1], {"a": 1}, 2**80, "\ud800")
BORDERS: tuple[Any, ...] = (
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63 - 1,
    -(2**63),
    float("inf"),
    float("nan"),
    "",
    "x" * 300,
    "../../x",
    "a\0b",
    "\x1b]0;pwn\a\u202e\n",
)
VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("clock.realtime_ns", "host.hostname", "counts.lost"), KINDS + BORDERS),
    **dict.fromkeys(
        (
            "clock",
            "clock.monotonic_ns",
            "clock.boottime_ns",
            "host",
            "host.cpus",
            "host.preemption",
            "host.kernel_release",
            "counts",
            "start_ns",
            "end_ns",
            "command",
            "format_version",
        ),
        KINDS,
    ),
    # A number that the list of segments has no room for, though a trace has.
    "host.cpus ": (2**31, 2**63 - 1),
}


def meta_with(place: str, value: Any) -> str:
    """The facts of the oldest trace, with another value at a place."""
    meta = json.loads((OLDEST / "meta.json").read_text())
    *way, last = place.strip().split(".")
    where = meta
    for key in way:
        where = where[key]
    where[last] = value
    return json.dumps(meta)


def trace_with(folder: Path, number: int, meta: str) -> Path:
    """A copy of the oldest trace that says these facts of itself."""
    path = folder / f"t{number}.swtch"
    path.mkdir(parents=True)
    for file in OLDEST.iterdir():
        if file.name != "meta.json":
            shutil.copy(file, path)
    write_meta(path, meta)
    return path


@pytest.mark.parametrize("place", VALUES)
def test_a_trace_may_say_anything_of_itself(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [
        trace_with(tmp_path, number, meta_with(place, value))
        for number, value in enumerate(VALUES[place])
    ]
    good = [trace_with(tmp_path, 900 + n, meta_with("scope", f"good {n}")) for n in (1, 2)]
    root = tmp_path / "lake"
    paths = [good[0], *bad, good[1]]
    code = main(["add", str(root), *map(str, paths)])
    said = capsys.readouterr()
    noted = {
        facts["source"]: facts["why"] for facts in operations.quarantined(Directory(str(root)))
    }
    # Each is in the lake or in quarantine, with its reason.
    kept = counts(root)
    assert set(map(segment.id_of, good)) <= set(kept)
    for path in bad:
        assert (segment.id_of(path) in kept) != (str(path) in noted)
    assert all(noted.values())
    assert code == (1 if noted else 0)
    assert not any(text.is_hostile(c) and c != "\n" for c in said.out + said.err)
    # What was taken can be asked, verified and merged.
    assert verify(Directory(str(root))).damaged == {}
    assert main(["fleet", "hosts", str(root)]) == 0


@pytest.mark.parametrize(
    "facts", ["[" * 200_000, "[1]", "5", "", "\xff", '{"clock": 5}'], ids=range(6)
)
def test_facts_that_are_none_are_quarantined(facts: str, tmp_path: Path) -> None:
    bad = trace_with(tmp_path, 0, "")
    write_meta(bad, facts.encode("latin-1"))
    good = trace_with(tmp_path, 1, meta_with("scope", "good"))
    outcome = add(tmp_path / "lake", bad, good)
    assert (list(outcome.quarantined), outcome.added) == ([str(bad)], [str(good)])


def test_a_pipe_in_a_trace_does_not_block(tmp_path: Path) -> None:
    bad = trace_with(tmp_path, 0, "{}")
    (bad / "checksums.csv").unlink()
    os.mkfifo(bad / "checksums.csv")
    outcome = add(tmp_path / "lake", bad)
    assert "is no regular file" in outcome.quarantined[str(bad)]


def test_what_is_not_foreseen_is_quarantined_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = (trace_with(tmp_path, n, meta_with("scope", f"t{n}")) for n in (0, 1))
    original = segment.convert

    def convert(path: Path, *words: Any) -> Any:
        if path.name == bad.name:
            raise ZeroDivisionError("by a trace")
        return original(path, *words)

    monkeypatch.setattr(segment, "convert", convert)
    outcome = add(tmp_path / "lake", bad, good)
    assert outcome.quarantined == {str(bad): "ZeroDivisionError: by a trace"}
    assert outcome.added == [str(good)]


def test_traces_before_an_error_are_in_the_lake(tmp_path: Path) -> None:
    good = trace_with(tmp_path, 0, meta_with("scope", "good"))
    with pytest.raises(swtch.Error, match=r"none\.swtch is not a trace"):
        add(tmp_path / "lake", good, tmp_path / "none.swtch")
    assert list(counts(tmp_path / "lake")) == [segment.id_of(good)]


@pytest.mark.parametrize(("owner", "call"), [(os, "replace"), (Path, "write_bytes")])
def test_a_lake_that_cannot_be_written_is_no_fault_of_a_trace(
    owner: Any, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = trace_with(tmp_path, 0, meta_with("scope", "good"))

    def full(*words: Any, **more: Any) -> Iterator[None]:
        raise OSError(errno.ENOSPC, "No space left on device")

    add(tmp_path / "lake", good)
    other = trace_with(tmp_path, 1, meta_with("scope", "other"))
    monkeypatch.setattr(owner, call, full)
    with pytest.raises(swtch.Error, match="No space left on device"):
        add(tmp_path / "lake", other)
    assert operations.quarantined(Directory(str(tmp_path / "lake"))) == []


def test_what_verify_and_add_print_moves_no_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = trace_with(tmp_path / "bad\x1b]0;pwn\a\u202e", 0, "{}")
    root = tmp_path / "lake\x1b[2J"
    assert main(["add", str(root), str(bad)]) == 1
    good = trace_with(tmp_path, 1, meta_with("scope", "good"))
    assert main(["add", str(root), str(good)]) == 0
    facts = {"source": "a\x1b[2J\nb", "why": "c\x07\nd", "when": "", "segments": []}
    (root / "quarantine/x.json").write_text(json.dumps(facts))
    (root / "quarantine/y.json").write_text("[5")
    assert main(["verify", str(root)]) == 0
    said = capsys.readouterr()
    assert "in quarantine  a\\x1b[2J\\x0ab: c\\x07\n" in said.out
    assert "in quarantine  quarantine/y.json: it is damaged" in said.out
    assert not any(text.is_hostile(c) and c != "\n" for c in said.out + said.err)


def test_what_an_engine_quotes_of_a_lake_moves_no_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manifest").mkdir()
    hostile = {"schema": "\x1b]0;mine\a\u202e", "version": 1, "lists": [], "dropped": []}
    (tmp_path / "manifest/v00000001.json").write_text(json.dumps(hostile))
    (tmp_path / "manifest/latest").write_text("1")
    assert main(["query", "SELECT 1", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "\x1b" not in said
    assert "\u202e" not in said
