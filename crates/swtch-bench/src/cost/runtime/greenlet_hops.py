"""Two greenlets switch to each other.

Reads "block N", does about N hops, answers "HOPS NS VOLUNTARY INVOLUNTARY".
"""

import resource
import sys
import time

try:
    from greenlet import getcurrent, greenlet
except ImportError:
    print("missing module greenlet", flush=True)
    sys.exit(0)

main = getcurrent()


def give_back():
    while True:
        main.switch()


other = greenlet(give_back)


def lap(times):
    switch = other.switch
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    for _ in range(times):
        switch()
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - start


print("ready", flush=True)
for line in sys.stdin:
    times = max(int(line.removeprefix("block ")) // 2, 1)
    lap(2 + times // 16)
    before = resource.getrusage(resource.RUSAGE_SELF)
    elapsed = lap(times)
    after = resource.getrusage(resource.RUSAGE_SELF)
    voluntary = after.ru_nvcsw - before.ru_nvcsw
    involuntary = after.ru_nivcsw - before.ru_nivcsw
    print(2 * times, elapsed, voluntary, involuntary, flush=True)
