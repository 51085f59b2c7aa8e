"""used.py FILE COMMAND…: runs the command, and writes what it used to FILE. Part of record.py.

A tool that records a command is its parent, so the kernel's account of the tool's children mixes both. With this
program between the two they are told apart:

    record.py ── tool ── used.py FILE ── benchmark
        └ the tool and all below            └ the benchmark and all below

What this wrapper took itself is written too, so that it can be taken off the tool's. A command that leaves children
running is not measured completely.
"""

import json
import os
import resource
import signal
import sys
import time

FILE, *COMMAND = sys.argv[1:]


def cpu_ns(usage: resource.struct_rusage) -> int:
    """User and system time together."""
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


start_ns = time.monotonic_ns()
# Python ignores SIGPIPE; the benchmark must not inherit that.
child = os.posix_spawnp(COMMAND[0], COMMAND, os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
_, status, usage = os.wait4(child, 0)
used = {
    "cpu_ns": cpu_ns(usage),
    "wall_ns": time.monotonic_ns() - start_ns,
    "switches": usage.ru_nvcsw + usage.ru_nivcsw,
}
with open(FILE, "w") as file:  # noqa: PTH123, pathlib takes longer to load than all the rest
    json.dump({**used, "wrapper_cpu_ns": cpu_ns(resource.getrusage(resource.RUSAGE_SELF))}, file)
code = os.waitstatus_to_exitcode(status)
# Without the end of Python, which would be counted for the tool.
os._exit(code if code >= 0 else 128 - code)
