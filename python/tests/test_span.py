"""Requests that `swtch.span` publishes are those that `swtch record --span otel` reads."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LIMIT_S, why_not_ebpf

import swtch
from swtch.span import _threads

# Two threads serve requests, and the loop of a third two coroutines, for three seconds. Of each
# stretch in which a thread served one: thread, begin, end (ns, CLOCK_MONOTONIC), id.
SERVICE = """
import asyncio, sys, threading, time, swtch
until = time.monotonic() + 3

def stretch(served):
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    time.sleep(0.001)
    end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    sys.stdout.write(f"{threading.get_native_id()} {begin} {end} {served.trace_id}\\n")

def serve():
    while time.monotonic() < until:
        with swtch.span() as served:
            stretch(served)
            stretch(served)
        time.sleep(0.001)

async def answer(served):
    stretch(served)
    await asyncio.sleep(0.001)
    stretch(served)

async def serve_in_turns():
    while time.monotonic() < until:
        served = swtch.span()
        await served.run(answer(served))

async def loop():
    await asyncio.gather(serve_in_turns(), serve_in_turns())

threads = [threading.Thread(target=serve) for _ in range(2)]
threads.append(threading.Thread(target=lambda: asyncio.run(loop())))
for thread in threads: thread.start()
for thread in threads: thread.join()
"""

# Of the stretches since the process was found: switches in them, and those that carry their id.
SHARE = """
WITH served AS (
    SELECT * FROM (VALUES {rows}) AS told (tid, begin_ns, end_ns, trace_id)
    WHERE begin_ns >= (SELECT min(begin_ns) FROM stored.span)
)
SELECT count(*) AS inside, count(spans.tid) AS carrying
FROM switches JOIN served
    ON switches.tid = served.tid AND ts_ns >= served.begin_ns AND ts_ns < served.end_ns
LEFT JOIN stored.span AS spans
    ON spans.tid = served.tid AND spans.trace_id = served.trace_id
    AND ts_ns >= spans.begin_ns AND ts_ns < spans.end_ns
"""


def seen() -> bytes | None:
    """The trace id that a reader would see of this thread."""
    address = _threads().variable.value
    return None if address is None else ctypes.string_at(address, 16)


def test_switches_in_a_request_carry_its_id(
    program: str, tmp_path: Path, run: Callable[..., str]
) -> None:
    why = why_not_ebpf()
    if why is not None:
        pytest.skip(f"cannot record: {why}")
    path = tmp_path / "service.swtch"
    options = ["--no-stacks", "--span", "otel", "--"]
    told = run("record", "-o", path, *options, sys.executable, "-c", SERVICE)
    rows = [line.split() for line in told.splitlines()]
    values = ", ".join(f"({tid}, {begin}, {end}, '{id}')" for tid, begin, end, id in rows)
    with swtch.open(path) as trace:
        (share,) = trace.sql(SHARE.format(rows=values)).rows()
    assert share["inside"] > 500
    assert share["carrying"] >= 0.99 * share["inside"]


def test_blocks_within_each_other_and_threads_have_their_own() -> None:
    ids = ["11" * 16, "22" * 16]
    outer, inner = (swtch.span(trace_id=id) for id in ids)
    with outer:
        with pytest.raises(ZeroDivisionError), inner:
            assert seen() == bytes.fromhex(ids[1])
            _ = 1 / 0
        assert seen() == bytes.fromhex(ids[0])
        others = []
        thread = threading.Thread(target=lambda: others.append(seen()))
        thread.start()
        thread.join()
        assert others == [None]
    assert seen() is None


def test_a_coroutine_carries_its_own() -> None:
    async def answer(id: str) -> str:
        for _ in range(3):
            assert seen() == bytes.fromhex(id)
            await asyncio.sleep(0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.sleep(LIMIT_S), 0.001)
        assert seen() == bytes.fromhex(id)
        return id

    async def both() -> list[str]:
        ids = ["33" * 16, "44" * 16]
        return await asyncio.gather(*(swtch.span(trace_id=id).run(answer(id)) for id in ids))

    assert asyncio.run(both()) == ["33" * 16, "44" * 16]
    assert seen() is None


@pytest.mark.parametrize("id", ["", "12", "0" * 32, "g" * 32, "1" * 33])
def test_what_is_no_id_is_refused(id: str) -> None:
    with pytest.raises(swtch.Error, match="is no trace id\ngive 32 hexadecimal digits"):
        swtch.span(trace_id=id)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    script = "import swtch\nwith swtch.span(): pass"
    (tmp_path / "swtch").write_text("in the way", encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "-c", script],
        env={"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "swtch.span cannot make or load" in answer.stderr
    assert "set XDG_CACHE_HOME" in answer.stderr
