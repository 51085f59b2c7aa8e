"""Four threads that compute in Python: its global lock lets one of them run at a time."""

import threading
import time

END = time.monotonic() + 1.5


def work() -> None:
    total = 0
    while time.monotonic() < END:
        for number in range(1000):
            total += number * number


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
