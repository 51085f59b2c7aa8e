"""Two tasks of asyncio hand a turn to and fro: each completes the future that the other awaits.

Reads "block N", does about N hops, answers "HOPS NS VOLUNTARY INVOLUNTARY".
"""

import asyncio
import resource
import sys
import time


async def take_turns(turns, me, laps):
    loop = asyncio.get_running_loop()
    for _ in range(laps):
        await turns[me]
        turns[me] = loop.create_future()
        turns[1 - me].set_result(None)


async def lap(times):
    loop = asyncio.get_running_loop()
    turns = [loop.create_future(), loop.create_future()]
    turns[0].set_result(None)
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    await asyncio.gather(take_turns(turns, 0, times), take_turns(turns, 1, times))
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - start


async def main():
    print("ready", flush=True)
    for line in sys.stdin:
        times = max(int(line.removeprefix("block ")) // 2, 1)
        await lap(2 + times // 16)
        before = resource.getrusage(resource.RUSAGE_SELF)
        elapsed = await lap(times)
        after = resource.getrusage(resource.RUSAGE_SELF)
        voluntary = after.ru_nvcsw - before.ru_nvcsw
        involuntary = after.ru_nivcsw - before.ru_nivcsw
        print(2 * times, elapsed, voluntary, involuntary, flush=True)


asyncio.run(main())
