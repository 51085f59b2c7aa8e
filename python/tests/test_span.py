"""Requests that `swtch.span` publishes are those that `swtch record --span otel` reads."""

from __future__ import annotations

import asyncio
import ctypes
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from conftest import LIMIT_S, why_not_ebpf

import swtch
from swtch.span import _loaded, _thread

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
    address = _thread().variable.value
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


def test_a_block_may_be_open_on_several_threads() -> None:
    shared = swtch.span(trace_id="11" * 16)
    first, second = (threading.Event() for _ in range(2))
    after: list[bytes | None] = []

    def begins_first() -> None:
        with shared:
            first.set()
            second.wait(LIMIT_S)
        after.append(seen())

    thread = threading.Thread(target=begins_first)
    thread.start()
    first.wait(LIMIT_S)
    with shared:
        second.set()
        thread.join()
        assert seen() == bytes.fromhex("11" * 16)
    after.append(seen())
    assert after == [None, None]


def test_blocks_of_generators_end_in_any_order_and_on_any_thread() -> None:
    def answers(id: str) -> Generator[bytes | None, None, None]:
        with swtch.span(trace_id=id):
            yield seen()

    one, other, elsewhere = (answers(digit * 32) for digit in "567")
    assert (next(one), next(other)) == (b"\x55" * 16, b"\x66" * 16)
    one.close()
    assert seen() == b"\x66" * 16
    other.close()
    assert seen() is None
    thread = threading.Thread(target=lambda: next(elsewhere))
    thread.start()
    thread.join()
    elsewhere.close()
    assert seen() is None


def test_what_is_no_coroutine_is_refused() -> None:
    async def wait() -> None:
        future = asyncio.get_running_loop().create_future()
        await swtch.span().run(future)  # type: ignore[arg-type]

    with pytest.raises(swtch.Error, match="runs coroutines"):
        asyncio.run(wait())


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


def test_ids_neither_follow_nor_change_the_seed_of_the_program() -> None:
    random.seed(1)
    one = swtch.span().trace_id
    drawn = random.random()
    random.seed(1)
    assert swtch.span().trace_id != one
    random.seed(1)
    assert random.random() == drawn


@pytest.mark.parametrize("id", ["", "12", "0" * 32, "g" * 32, "1" * 33])
def test_what_is_no_id_is_refused(id: str) -> None:
    with pytest.raises(swtch.Error, match="is no trace id\ngive 32 hexadecimal digits"):
        swtch.span(trace_id=id)


def publishes_with_cache(cache: Path) -> str:
    """What a process that publishes with that cache says of it: nothing if it can."""
    answer = subprocess.run(
        [sys.executable, "-c", "import swtch\nwith swtch.span(): pass"],
        env={"XDG_CACHE_HOME": str(cache), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return answer.stderr


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "swtch").write_text("in the way", encoding="utf-8")
    said = publishes_with_cache(tmp_path)
    assert "swtch.span cannot make or load" in said
    assert "set XDG_CACHE_HOME" in said


def test_a_library_that_others_can_change_is_not_loaded(tmp_path: Path) -> None:
    cache = tmp_path / "swtch"
    assert publishes_with_cache(tmp_path) == ""
    assert cache.stat().st_mode & 0o777 == 0o700
    cache.chmod(0o777)
    said = publishes_with_cache(tmp_path)
    assert "other users can write to the directory" in said
    assert "set XDG_CACHE_HOME" in said


def test_a_library_that_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    assert publishes_with_cache(tmp_path) == ""
    (library,) = (tmp_path / "swtch").iterdir()
    whole = library.read_bytes()
    library.write_bytes(whole[:100])
    assert publishes_with_cache(tmp_path) == ""
    assert library.read_bytes() == whole


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(swtch.Error, match=r"has no place for .*\nset XDG_CACHE_HOME"):
        _loaded.__wrapped__()
