"""Invariants of recordings, as SQL over their tables: each file of `sql/` asks for what breaks one.

They hold for whatever was recorded, so the loads here have as much of everything as a few seconds
have: blocking in many ways, threads that come and go, busy ones, and changes of affinity.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import LIMIT_S, why_not_ebpf

from swtch.schema import TABLES
from swtch.tables import literal

_SQL = Path(__file__).with_name("sql")
INVARIANTS = sorted(file.stem for file in _SQL.glob("*.sql"))

# Beside the sampler: busy processes that change their CPUs, short-lived ones, threads and pipes.
_MIXED = """
import os, sys, threading, time
end = time.monotonic() + float(sys.argv[1])
cpus = sorted(os.sched_getaffinity(0))
def busy():
    while time.monotonic() < end:
        sum(range(20000))
def wander(pid):
    n = 0
    while time.monotonic() < end:
        n += 1
        os.sched_setaffinity(pid, {cpus[n % len(cpus)]})
        time.sleep(0.003)
    os.sched_setaffinity(pid, cpus)
hogs = []
for _ in range(len(cpus) + 1):
    pid = os.fork()
    if pid == 0:
        busy()
        os._exit(0)
    hogs.append(pid)
walkers = [threading.Thread(target=wander, args=(pid,)) for pid in hogs]
for one in walkers:
    one.start()
read, write = os.pipe()
def answer():
    while os.read(read, 1) != b"e":
        pass
reader = threading.Thread(target=answer)
reader.start()
while time.monotonic() < end:
    os.write(write, b"x")
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    thread = threading.Thread(target=time.sleep, args=(0.001,))
    thread.start()
    thread.join()
os.write(write, b"e")
reader.join()
for one in walkers:
    one.join()
for pid in hogs:
    os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def recordings(
    program: str, run: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Some seconds of the whole machine under a mixed load, and that load as a command."""
    refusal = why_not_ebpf()
    if refusal is not None:
        pytest.skip(f"cannot record: {refusal}")
    place = tmp_path_factory.mktemp("invariants")
    load = place / "mixed.py"
    load.write_text(_MIXED)
    command, machine = place / "command.swtch", place / "machine.swtch"
    run("record", "-o", command, "--", sys.executable, load, "1.5")
    beside = [
        subprocess.Popen([sys.executable, load, "4"]),
        subprocess.Popen([program, "workload", "sampler"], stdout=subprocess.DEVNULL),
    ]
    run("record", "-a", "-d", "2", "-o", machine)
    for one in beside:
        assert one.wait(LIMIT_S) == 0
    return {"command": command, "machine": machine}


@pytest.fixture(scope="module")
def opened(recordings: dict[str, Path]) -> Iterator[dict[str, duckdb.DuckDBPyConnection]]:
    """The tables of each recording, with the place of each row."""
    databases = {}
    for name, path in recordings.items():
        databases[name] = duckdb.connect()
        for table in TABLES:
            file = path / f"{table}.parquet"
            if file.exists():
                source = f"read_parquet({literal(str(file))}, file_row_number = true)"
                select = f"SELECT * RENAME (file_row_number AS file_row) FROM {source}"
                databases[name].execute(f'CREATE TABLE "{table}" AS {select}')
    yield databases
    for database in databases.values():
        database.close()


@pytest.mark.parametrize("recording", ["command", "machine"])
@pytest.mark.parametrize("invariant", INVARIANTS)
def test_it_holds(
    invariant: str,
    recording: str,
    recordings: dict[str, Path],
    opened: dict[str, duckdb.DuckDBPyConnection],
) -> None:
    meta = json.loads((recordings[recording] / "meta.json").read_text())
    assert meta["counts"]["lost"] == 0
    text = (_SQL / f"{invariant}.sql").read_text()
    (rows,) = opened[recording].execute("SELECT count(*) FROM switch").fetchone()
    assert rows > 1000
    broken = opened[recording].sql(text)
    (count,) = broken.count("*").fetchone()
    assert count == 0, f"{count} rows of {rows} break it:\n{text}\n{broken.limit(5).df().T}"


# What reports of the same trace have in common, by whatever they group.
_SUMS = ("switches", "ran_ns", "waits", "off_ns", "blocked_ns", "runq_ns")
_GROUPINGS = ("reason", "process", "thread", "syscall", "cpu", "cgroup")
_HOLDERS = ("preemptor", "neighbour")


@pytest.mark.parametrize("recording", ["command", "machine"])
def test_reports_have_the_same_sums_by_whatever_they_group(
    recording: str, recordings: dict[str, Path], report: Callable[..., dict[str, Any]]
) -> None:
    path = recordings[recording]

    def sums(by: str, columns: tuple[str, ...]) -> dict[str, int]:
        rows = report(path, by)["rows"]
        return {name: sum(row[name] or 0 for row in rows) for name in columns}

    expected = sums("reason", _SUMS)
    assert min(expected.values()) > 0
    for by in _GROUPINGS:
        assert sums(by, _SUMS) == expected, by
    # Who had the CPU in the waits: the parts sum to the waits.
    for by in _HOLDERS:
        assert sums(by, ("runq_ns",)) == {"runq_ns": expected["runq_ns"]}, by
    level = next(row for row in report(path, "level")["rows"] if row["level"] == "os")
    assert {name: level[name] for name in _SUMS} == expected
