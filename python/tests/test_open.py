"""What is no finished trace is refused, with what can be done about it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from conftest import LIMIT_S, OLDEST, why_not_ebpf
from fleet_checks import write_meta

import swtch
from swtch import schema


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small trace that a test may damage, at a path with blanks, quotes and wildcards."""
    path = tmp_path / 'it\'s a "copy" [1]*?;--.swtch'
    shutil.copytree(OLDEST, path)
    return path


@pytest.fixture(autouse=True)
def directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are tried out leave their files where they are removed."""
    monkeypatch.chdir(tmp_path)


def refusal(path: Path | str) -> str:
    """What is said when the path is opened."""
    with pytest.raises(swtch.Error) as refused:
        swtch.open(path)
    return str(refused.value)


def test_a_path_may_have_any_characters(copy: Path) -> None:
    with swtch.open(copy) as trace, swtch.open(OLDEST) as plain:
        columns = "ts_ns, comm, reason"
        rows = trace.sql(f"SELECT {columns} FROM switches").rows()
        assert rows == plain.sql(f"SELECT {columns} FROM switches").rows() != []
        assert {row["trace"] for row in trace.threads().rows()} == {str(copy)}


def test_wildcards_of_a_path_match_no_other_trace(tmp_path: Path) -> None:
    """The engine takes paths as patterns; these must not."""
    for name in ("a*.swtch", "ab.swtch", "[x].swtch", "x.swtch"):
        shutil.copytree(OLDEST, tmp_path / name)
    with swtch.open(OLDEST) as plain:
        expected = plain.sql("SELECT count(*) AS n FROM switches").rows()
    for name in ("a*.swtch", "[x].swtch"):
        with swtch.open(tmp_path / name) as trace:
            assert trace.sql("SELECT count(*) AS n FROM switches").rows() == expected


def test_a_trace_stays_open_when_the_working_directory_changes(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.parent)
    with swtch.open(copy.name) as trace:
        monkeypatch.chdir("/")
        assert trace.sql("SELECT count(*) AS n FROM switches").rows()[0]["n"] > 0


def test_a_path_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path / "no\x1bne.swtch") == f"there is no trace at {tmp_path}/no\\x1bne.swtch"
    )


def test_a_path_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.swtch")
    shutil.copytree(OLDEST, path)
    assert "/\\xff.swtch: the engine opens no path" in refusal(path)


def test_a_directory_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path)
    assert f"{tmp_path} is not a trace, or not all of one: it has no checksums.csv" in said


def test_a_file_is_no_trace(copy: Path) -> None:
    assert "it is no directory" in refusal(copy / "switch.parquet")


def test_a_newer_format_is_refused(copy: Path) -> None:
    meta = json.loads((copy / "meta.json").read_text(encoding="utf-8"))
    known = schema.FORMAT_VERSION
    meta["format_version"] = known + 1
    (copy / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    said = refusal(copy)
    assert f"has format {known + 1}, and this package knows formats up to {known}" in said
    assert "or a newer one" in said


def test_an_older_trace_is_judged_by_the_rules_of_today(
    sampler: swtch.Trace, trace_path: Callable[[str], Path], tmp_path: Path
) -> None:
    """Up to version 5 a request at a wakeup was called the end of a slice."""
    older = tmp_path / "older.swtch"
    shutil.copytree(trace_path("sampler"), older)
    rows = f"read_parquet('{older}/switch.parquet', file_row_number = true)"
    at_wakeup = "rule IN ('protection_lapsed_at_wakeup', 'slice_end_at_wakeup')"
    was = f"lag({at_wakeup}) OVER (PARTITION BY task ORDER BY file_row_number)"
    told = f"""SELECT * EXCLUDE (file_row_number) REPLACE (
        CASE WHEN {at_wakeup} THEN 'slice' ELSE reason END AS reason,
        CASE WHEN off_reason = 'wakeup' AND {was} THEN 'slice' ELSE off_reason END AS off_reason)
        FROM {rows} ORDER BY file_row_number"""
    duckdb.sql(told).write_parquet(str(older / "told.parquet"))
    (older / "told.parquet").replace(older / "switch.parquet")
    size = (older / "switch.parquet").stat().st_size
    lines = (older / "checksums.csv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("switch.parquet,")]
    crc = zlib.crc32((older / "switch.parquet").read_bytes())
    (older / "checksums.csv").write_text(
        "\n".join([*kept, f"switch.parquet,0,{size},{crc:08x}"]) + "\n", encoding="utf-8"
    )
    meta = json.loads((older / "meta.json").read_text(encoding="utf-8"))
    write_meta(older, json.dumps({**meta, "rules_version": 5}))
    ask = "SELECT file_row, reason, category, wait_reason FROM switch_rows ORDER BY file_row"
    with swtch.open(older) as read:
        assert read.sql(ask).rows() == sampler.sql(ask).rows()
    at_wakeups = sampler.sql(f"SELECT count(*) AS n FROM switch_rows WHERE {at_wakeup}").rows()
    assert at_wakeups[0]["n"] > 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data[:-100], r"switch\.parquet: it has \d+ bytes, and \d+ were written"),
        (
            lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
            r"switch\.parquet: the part at byte 0 has changed",
        ),
    ],
    ids=["cut", "one bit"],
)
def test_a_damaged_table_is_refused(
    copy: Path, change: Callable[[bytes], bytes], expected: str
) -> None:
    file = copy / "switch.parquet"
    file.write_bytes(change(file.read_bytes()))
    said = refusal(copy)
    assert re.search(expected, said), said
    assert "copy the trace again" in said


def test_a_damaged_table_that_was_not_verified_is_an_error_of_ours(copy: Path) -> None:
    file = copy / "task.parquet"
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(swtch.Error, match=r"task\.parquet"):
        swtch.open(copy, verify=False)


def test_a_missing_table_is_named(copy: Path) -> None:
    (copy / "frame.parquet").unlink()
    assert "it has no frame.parquet" in refusal(copy)


def test_a_pipe_in_a_trace_does_not_block(copy: Path) -> None:
    (copy / "task.parquet").unlink()
    os.mkfifo(copy / "task.parquet")
    assert "task.parquet is no regular file" in refusal(copy)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("meta.json", "{", "meta.json is no JSON"),
        ("meta.json", "[]", "meta.json holds no facts"),
        ("meta.json", "{}", "meta.json does not say the format"),
        ("meta.json", '{"format_version": 1, "start_ns": "x"}', "meta.json says 'x' for start_ns"),
        ("checksums.csv", "file,offset,length,crc32\nswitch.parquet,0,x,0\n", "checksums.csv has"),
        ("checksums.csv", "nonsense\nswitch.parquet\n", "checksums.csv has"),
        ("checksums.csv", "file,offset,length,crc32\nother.parquet,0,1,0\n", "no switch.parquet"),
    ],
)
def test_damaged_facts_are_refused(copy: Path, file: str, text: str, expected: str) -> None:
    (copy / file).write_text(text, encoding="utf-8")
    assert expected in refusal(copy)


def test_the_same_trace_twice_is_refused() -> None:
    with pytest.raises(swtch.Error, match="is given twice"):
        swtch.open(OLDEST, OLDEST)


def test_a_trace_that_is_recorded_or_was_killed_is_refused_with_what_reads_it(
    program: str, run: Callable[..., str], tmp_path: Path
) -> None:
    """Both look the same from outside. The commands of the advice do what they say."""
    why = why_not_ebpf()
    if why is not None:
        pytest.skip(f"cannot record: {why}")
    path = tmp_path / "it's killed.swtch"
    words = [program, "record", "-o", path, "--", program, "workload", "sampler"]
    recorder = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LIMIT_S
        listed = path / "checksums.csv"
        while not listed.exists() or "records.raw,44" not in listed.read_text("utf-8"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while_it_records = refusal(path)
    finally:
        recorder.send_signal(signal.SIGKILL)
        recorder.wait()
    killed = refusal(path)
    assert killed == while_it_records
    assert "is not finished: it is still recorded, or its recorder was killed" in killed
    assert_advice_works(killed, ["explain", "report", "export"], program)


def test_a_flight_recorder_is_refused_with_what_reads_it(
    program: str, run: Callable[..., str], tmp_path: Path
) -> None:
    """Its dumps are links to its files, without tables, but for those with a name of their own."""
    why = why_not_ebpf()
    if why is not None:
        pytest.skip(f"cannot record: {why}")
    path = tmp_path / "ring.swtch"
    words = [program, "record", "-a", "--ring", "10s", "-o", path]
    recorder = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (path / "dump.socket").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while_it_records = refusal(path)
        assert_advice_works(while_it_records, ["dump", "explain", "report", "export"], program)
        run("dump", path)
    finally:
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(LIMIT_S) == 0
    (dump,) = (path / "dumps").iterdir()
    said = refusal(dump)
    assert "is a dump of a flight recorder, which holds the kernel's records and no tables" in said
    assert_advice_works(said, ["explain", "report", "export"], program)
    # The recording itself has tables once it has ended, and so has the dump with a name.
    with swtch.open(path, Path("DUMP.swtch")) as both:
        assert {row["trace"] for row in both.reasons().rows()} == {str(path), "DUMP.swtch"}


def assert_advice_works(said: str, verbs: list[str], program: str) -> None:
    """The commands that a refusal names are these, and do what it says of them."""
    commands = re.findall(r"^  (swtch .*?)(?:    \(.*)?$", said, re.MULTILINE)
    assert [command.split()[1] for command in commands] == verbs
    for command in commands:
        shell = ["bash", "-c", f'swtch() {{ "{program}" "$@"; }}; {command}']
        subprocess.run(shell, check=True, capture_output=True, timeout=LIMIT_S)
    file = Path("FILE.parquet")
    assert file.stat().st_size > 0
    file.unlink()
