"""`swtch.record` records what its block does, and says why when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LIMIT_S, REPOSITORY, why_not_ebpf, why_not_perf

import swtch


@pytest.fixture
def may_record(program: str) -> str:
    """The program, where it may record own processes with all evidence."""
    why = why_not_ebpf()
    if why is not None:
        pytest.skip(f"cannot record: {why}")
    return program


def sleep_often(times: int) -> None:
    """Leaves the CPU this often, in clock_nanosleep."""
    for _ in range(times):
        time.sleep(0.001)


def test_the_switches_of_the_block_are_recorded(may_record: str, tmp_path: Path) -> None:
    """A load whose number of switches is known, held against the kernel's own counter."""
    path = tmp_path / "my own.swtch"

    def counted() -> None:
        sleep_often(200)
        status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text("utf-8")
        kernel.append(int(status.split("voluntary_ctxt_switches:")[1].split()[0]))

    kernel: list[int] = []
    with swtch.record(path) as recording:
        thread = threading.Thread(target=counted)
        thread.start()
        thread.join()
        tid = thread.native_id
    with recording.trace() as trace:
        own = [row for row in trace.threads().rows() if row["tid"] == tid]
        assert len(own) == 1
        # The end of the thread comes after the kernel's counter was read.
        assert 200 <= kernel[0] <= own[0]["voluntary"] <= kernel[0] + 3
        assert own[0]["main_reason"] == "sleep"
        assert {row["pid"] for row in trace.processes().rows()} == {os.getpid()}
    assert "switches, 0 lost" in recording.messages


def test_it_records_from_the_first_statement_to_the_last(may_record: str, tmp_path: Path) -> None:
    with swtch.record(tmp_path / "t.swtch") as recording:
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        sleep_often(3)
        end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    (meta,) = recording.trace().meta
    assert meta["start_ns"] <= begin < end <= meta["end_ns"]


def test_children_are_recorded_when_asked_for(may_record: str, tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time\nfor _ in range(50): time.sleep(0.001)"]
    with swtch.record(tmp_path / "c.swtch", children=True, stacks=True) as recording:
        child = subprocess.Popen(sleep)
        assert child.wait(LIMIT_S) == 0
    with recording.trace() as trace:
        rows = {row["pid"]: row for row in trace.processes().rows()}
        assert rows[child.pid]["voluntary"] >= 50
        assert trace.sql("SELECT count(*) AS n FROM stacks").rows()[0]["n"] > 0


def test_without_root_perf_events_record(program: str, tmp_path: Path) -> None:
    why = why_not_perf()
    if why is not None:
        pytest.skip(f"cannot record: {why}")
    path = tmp_path / "p.swtch"
    with swtch.record(path, options=["--backend", "perf"]) as recording:
        sleep_often(50)
    with recording.trace() as trace:
        counted = {row["reason"]: row["switches"] for row in trace.reasons().rows()}
        assert counted["blocked"] >= 50
        assert trace.sql("SELECT backend FROM meta").rows() == [{"backend": "perf"}]


def test_an_error_of_the_block_goes_on_and_the_trace_is_finished(
    may_record: str, tmp_path: Path
) -> None:
    with pytest.raises(ZeroDivisionError), swtch.record(tmp_path / "z.swtch") as recording:
        sleep_often(5)
        _ = 1 / 0
    assert recording.trace().reasons().rows()


def test_no_recorder_is_left_behind(may_record: str, tmp_path: Path) -> None:
    recording = swtch.record(tmp_path / "l.swtch")
    with recording:
        process = recording._process
        assert process is not None and process.poll() is None
    assert process.returncode == 0


def test_there_is_no_trace_within_the_block(may_record: str, tmp_path: Path) -> None:
    with (
        swtch.record(tmp_path / "w.swtch") as recording,
        pytest.raises(swtch.Error, match="it is there after the `with` block"),
    ):
        recording.trace()


def test_a_refusal_is_told_in_the_words_of_the_program(program: str, tmp_path: Path) -> None:
    path = tmp_path / "r.swtch"
    with (
        pytest.raises(swtch.Error, match=r"(?s)could not record \(exit code 2\): .*--nonsense"),
        swtch.record(path, options=["--nonsense"]),
    ):
        pytest.fail("the block must not run")
    assert not path.exists()


def test_a_recorder_that_dies_is_an_error(may_record: str, tmp_path: Path) -> None:
    with (
        pytest.raises(swtch.Error, match=r"the recording failed \(signal 9\)"),
        swtch.record(tmp_path / "d.swtch") as recording,
    ):
        assert recording._process is not None
        recording._process.kill()


def test_a_trace_that_is_there_is_not_touched(tmp_path: Path) -> None:
    """Its files would look as if the recording had begun."""
    path = tmp_path / "there.swtch"
    path.mkdir()
    with (
        pytest.raises(swtch.Error, match="already exists"),
        swtch.record(path, program="/bin/false"),
    ):
        pytest.fail("the block must not run")


def test_a_program_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SWTCH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    look_for_scripts_in(tmp_path, monkeypatch)
    with pytest.raises(swtch.Error, match="swtch is not in PATH"):
        swtch.record(tmp_path / "n.swtch")
    with (
        pytest.raises(swtch.Error, match=r"cannot start .*/none: No such file"),
        swtch.record(tmp_path / "n.swtch", program=tmp_path / "none"),
    ):
        pytest.fail("the block must not run")


def test_a_program_that_does_not_begin_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "slow"
    program.write_text("#!/bin/sh\nexec sleep 100\n", encoding="utf-8")
    program.chmod(0o755)
    recording = swtch.record(tmp_path / "s.swtch", program=program, start_timeout_s=0.3)
    with pytest.raises(swtch.Error, match=r"did not begin to record within 0\.3 s"), recording:
        pytest.fail("the block must not run")
    assert recording._process is not None
    assert recording._process.returncode == -9


def test_the_recorder_ends_with_a_process_that_is_killed(may_record: str, tmp_path: Path) -> None:
    """Nobody is left who could end it."""
    path = tmp_path / "k.swtch"
    code = (
        "import os, signal, sys, swtch\n"
        "with swtch.record(sys.argv[1]) as recording:\n"
        "    print(recording._process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert killed.returncode == -9
    recorder = Path(f"/proc/{int(killed.stdout)}")
    deadline = time.monotonic() + LIMIT_S
    while recorder.exists() and "\tZ" not in (recorder / "status").read_text("utf-8"):
        assert time.monotonic() < deadline, "the recorder goes on"
        time.sleep(0.05)
    with swtch.open(path) as trace:
        assert trace.reasons().rows()


def test_it_can_be_used_once(may_record: str, tmp_path: Path) -> None:
    recording = swtch.record(tmp_path / "o.swtch")
    with recording:
        pass
    with pytest.raises(swtch.Error, match="can be made once"), recording:
        pytest.fail("the block must not run")


def look_for_scripts_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a directory the one into which programs of wheels are installed."""
    get_path: Callable[[str], str] = lambda kind: str(directory)  # noqa: E731
    monkeypatch.setattr("sysconfig.get_path", get_path)


def test_the_search_finds_the_program_beside_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    """A wheel puts the program beside the interpreter, which need not be in PATH."""
    monkeypatch.delenv("SWTCH", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "swtch").symlink_to(program)
    look_for_scripts_in(tmp_path, monkeypatch)
    recording = swtch.record(tmp_path / "b.swtch")
    assert recording._words[0] == str(tmp_path / "swtch")
