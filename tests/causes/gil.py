"""Four threads that compute in Python: its global lock lets one of them run at a time. `gil.py processes` has four
processes instead, as advised. `gil.py lock` has a lock of the program's own, whose holder sleeps."""

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


if __name__ == "__main__":
    work = puts_in_store if "lock" in sys.argv else work
    pool = ProcessPoolExecutor if "processes" in sys.argv else ThreadPoolExecutor
    with pool(4) as workers:
        print("rounds", sum(workers.map(work, [END] * 4)))
