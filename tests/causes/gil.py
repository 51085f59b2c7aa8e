"""Four threads that compute in Python: its global lock lets one of them run at a time. `gil.py processes` has four
processes instead, as advised. `gil.py lock` has a lock of the program's own, whose holder sleeps. `gil.py loop` has one
event loop, whose tasks sleep in the middle of their turns."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

END = time.monotonic() + 1.5
LOCK = threading.Lock()


def work(end: float) -> int:
    total = rounds = 0
    while time.monotonic() < end:
        for number in range(1000):
            total += number * number
        rounds += 1
    return rounds


def puts_in_store(end: float) -> int:
    rounds = 0
    while time.monotonic() < end:
        with LOCK:
            time.sleep(0.004)
        rounds += 1
    return rounds


def charges_card() -> None:
    time.sleep(0.004)


async def serves(end: float) -> int:
    rounds = 0
    while time.monotonic() < end:
        charges_card()
        await asyncio.sleep(0)
        rounds += 1
    return rounds


async def serves_all() -> int:
    return sum(await asyncio.gather(*[serves(END) for _ in range(4)]))


if __name__ == "__main__":
    if "loop" in sys.argv:
        print("rounds", asyncio.run(serves_all()))
        sys.exit()
    work = puts_in_store if "lock" in sys.argv else work
    pool = ProcessPoolExecutor if "processes" in sys.argv else ThreadPoolExecutor
    with pool(4) as workers:
        print("rounds", sum(workers.map(work, [END] * 4)))
