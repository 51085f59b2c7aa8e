"""A lake takes from a flight recorder's ring what is sealed, each segment once."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import LIMIT_S, OLDEST, REPOSITORY, why_not_ebpf
from fleet_checks import counts, verify

from swtch import lake
from swtch.lake import operations
from swtch.lake.store import Directory
from swtch.query import main

BEGAN_NS = 1_000_000_000


def seal(ring: Path, number: int, began_ns: int = BEGAN_NS, **facts: object) -> Path:
    """Makes a segment of a ring as the recorder leaves it."""
    meta = json.loads((OLDEST / "meta.json").read_text())
    meta.update(ring={"kept": "5m", "began_ns": began_ns}, scope=f"segment {number}", **facts)
    path = ring / "segments" / f"{number:08}"
    path.mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps(meta))
    (path / "checksums.csv").write_text("file,offset,length,crc32\n")
    (path / "records.raw").write_bytes(b"")
    return path


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """A ring with three sealed segments, one that is written, and what else lies there."""
    ring = tmp_path / "flight\x1b[2J.swtch"
    for number in (7, 8, 9):
        seal(ring, number)
    seal(ring, 10, state="recording", end_ns=0)
    for other in (
        "dumps/00000001",
        "segments/1",
        "segments/0000000\uff17",
        "segments/0000001x",
        "segments/.unfinished",
    ):
        (ring / other).mkdir(parents=True)
    (ring / "segments/00000099").write_text("a file")
    return ring


@pytest.fixture
def stand_in(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the program's place for `dump`: the segments here have no records to make tables of.

    A segment with a file `vanish` is dropped while it is read, one with `refuse` is refused.
    """
    script = tmp_path / "stand-in"
    script.write_text(f"""#!/bin/sh
case $1 in
dump)
    [ "$3" = -o ] || exit 2
    [ -e "$2/refuse" ] && {{ echo "error: it is damaged" >&2; exit 1; }}
    [ -e "$2/vanish" ] && {{ rm "$2/meta.json"; (sleep 0.1; rm -r "$2") & exit 1; }}
    exec {sys.executable} {script.with_name("dump.py")} "$2" "$4" ;;
*) exec {program} "$@" ;;
esac
""")
    script.chmod(0o755)
    script.with_name("dump.py").write_text(f"""
import shutil, sys
from pathlib import Path
sys.path += {[str(Path(__file__).parent), str(REPOSITORY / "python")]!r}
from fleet_checks import write_meta
shutil.copytree({str(OLDEST)!r}, sys.argv[2])
write_meta(Path(sys.argv[2]), Path(sys.argv[1], "meta.json").read_bytes())
""")
    monkeypatch.setenv("SWTCH", str(script))
    return script


def take(root: Path, ring: Path) -> int:
    return main(["add", str(root), "--from", str(ring)])


def test_each_sealed_segment_is_taken_once(
    stand_in: Path, ring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "lake"
    before = sorted(ring.rglob("*"))
    assert take(root, ring) == 0
    assert "3 added, 0 in the lake already, 0 quarantined" in capsys.readouterr().err
    assert len(counts(root)) == 3
    assert take(root, ring) == 0
    said = capsys.readouterr()
    assert "0 added, 3 in the lake already, 0 quarantined" in said.err
    assert "\x1b" not in said.out
    # The next one is sealed, and an old one is dropped.
    shutil.rmtree(ring / "segments/00000007")
    shutil.rmtree(ring / "segments/00000010")
    seal(ring, 10)
    assert take(root, ring) == 0
    assert "1 added, 2 in the lake already" in capsys.readouterr().err
    with lake.open(root) as opened:
        sources = opened.sql("SELECT source FROM segments ORDER BY source").rows()
    assert [Path(row["source"]).name for row in sources] == [f"{n:08}" for n in (7, 8, 9, 10)]
    assert verify(Directory(str(root))).damaged == {}
    # Nothing was written there.
    assert set(ring.rglob("*")) <= set(before)


def test_another_recording_has_segments_of_its_own(
    stand_in: Path, ring: Path, tmp_path: Path
) -> None:
    assert take(tmp_path / "lake", ring) == 0
    shutil.rmtree(ring)
    seal(ring, 7, began_ns=BEGAN_NS + 1)
    assert take(tmp_path / "lake", ring) == 0
    assert len(counts(tmp_path / "lake")) == 4


def test_a_segment_whose_facts_are_damaged_is_told_of(
    stand_in: Path, ring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ring / "segments/00000008/meta.json").write_text('{"state": "fin')
    assert take(tmp_path / "lake", ring) == 1
    said = capsys.readouterr()
    assert "2 added, 0 in the lake already, 1 quarantined" in said.err
    assert "meta.json is no JSON" in said.out


def test_under_sudo_a_segment_is_made_where_only_we_may_write(
    stand_in: Path, ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program would write as the caller, who may not write into a directory of root."""
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    script = stand_in.read_text()
    refuses = (
        '    [ -z "$SUDO_UID$SUDO_GID" ] || { echo "error: Permission denied" >&2; exit 1; }\n'
    )
    stand_in.write_text(script.replace("dump)\n", f"dump)\n{refuses}", 1))
    assert take(tmp_path / "lake", ring) == 0
    assert len(counts(tmp_path / "lake")) == 3


def test_what_vanishes_is_no_trouble_and_what_is_damaged_is(
    stand_in: Path, ring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "lake"
    (ring / "segments/00000007/vanish").touch()
    (ring / "segments/00000008/refuse").touch()
    assert take(root, ring) == 1
    said = capsys.readouterr()
    assert "1 added, 0 in the lake already, 1 quarantined, 1 dropped meanwhile" in said.err
    assert "it is damaged" in said.out
    (noted,) = operations.quarantined(Directory(str(root)))
    assert noted["source"].endswith("segments/00000008")
    # When it can be read after all, it is taken.
    (ring / "segments/00000008/refuse").unlink()
    assert take(root, ring) == 0
    assert len(counts(root)) == 2


def test_segments_that_do_not_say_whose_they_are_are_quarantined(
    stand_in: Path, ring: Path, tmp_path: Path
) -> None:
    for number, meta in ((7, "[1]"), (8, "{"), (9, '{"state": "finished", "end_ns": 5}')):
        (ring / f"segments/{number:08}/meta.json").write_text(meta)
    seal(ring, 11)
    assert take(tmp_path / "lake", ring) == 1
    assert len(counts(tmp_path / "lake")) == 1


def test_what_is_no_ring_is_told(
    stand_in: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take(tmp_path / "lake", tmp_path / "none") == 2
    assert "there is no ring of a flight recorder at" in capsys.readouterr().err
    assert take(tmp_path / "lake", OLDEST) == 2
    assert "a recording that has ended is a trace" in capsys.readouterr().err
    assert main(["add", str(tmp_path / "lake")]) == 2
    assert "name the traces to be added" in capsys.readouterr().err


@pytest.fixture
def recorder(program: str, tmp_path: Path) -> Iterator[Path]:
    """The ring of a flight recorder that goes on, with some switches in it."""
    refusal = why_not_ebpf()
    if refusal is not None:
        pytest.skip(f"cannot record: {refusal}")
    ring = tmp_path / "flight.swtch"
    words = [program, "record", "-a", "--ring", "5s", "-o", ring]
    started = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    yield ring
    started.send_signal(signal.SIGINT)
    assert started.wait(LIMIT_S) == 0


def wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_recorder_that_goes_on_is_taken_without_a_hole(recorder: Path, tmp_path: Path) -> None:
    """Runs of `lake add` beside it: all between the first and the last segment are there."""
    root = tmp_path / "lake"

    def newest() -> int:
        place = recorder / "segments"
        return max((int(one.name) for one in place.iterdir()), default=0) if place.exists() else 0

    wait_until(lambda: newest() >= 2)
    for _ in range(3):
        assert take(root, recorder) == 0
        met = newest()
        wait_until(lambda met=met: newest() > met)
    with lake.open(root) as opened:
        rows = opened.sql(
            "SELECT source, start_ns, end_ns, switches FROM segments ORDER BY start_ns"
        ).rows()
        (sums,) = opened.sql("SELECT count(*) AS n FROM switches").rows()
    assert len(rows) >= 3
    assert sum(row["switches"] for row in rows) == sums["n"] > 0
    numbers = [int(Path(row["source"]).name) for row in rows]
    assert numbers == sorted(set(numbers))
    for before, after in itertools.pairwise(rows):
        if int(Path(after["source"]).name) == int(Path(before["source"]).name) + 1:
            assert after["start_ns"] == before["end_ns"]
