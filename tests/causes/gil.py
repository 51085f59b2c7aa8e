"""Four threads that compute in Python: its global lock lets one of them run at a time. `gil.py processes` has four
processes instead, as advised."""

import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

END = time.monotonic() + 1.5


def work(end: float) -> int:
    total = rounds = 0
    while time.monotonic() < end:
        for number in range(1000):
            total += number * number
        rounds += 1
    return rounds


if __name__ == "__main__":
    pool = ProcessPoolExecutor if "processes" in sys.argv else ThreadPoolExecutor
    with pool(4) as workers:
        print("rounds", sum(workers.map(work, [END] * 4)))
