"""Traces for the tests, and their results in the words of cargo, which `scripts/test.sh` sums up.

The program is that of the environment variable SWTCH, the maker of made-up traces that of
SWTCH_MAKE_TRACE; `scripts/python.sh test` sets both.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import swtch
from swtch.fleet import generator
from swtch.lake.store import Directory

REPOSITORY = Path(__file__).resolve().parents[2]

# A program that hangs fails its test. None takes a tenth of it, but others may use the machine.
LIMIT_S = 300

# Bit numbers of CAP_SYS_ADMIN and CAP_SYS_NICE (include/uapi/linux/capability.h).
_CAPABILITIES = (21, 23)

_counts = {"passed": 0, "failed": 0, "skipped": 0}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts a test once, and says why one was skipped or failed."""
    if report.skipped:
        _counts["skipped"] += 1
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        print(f"\ntest {report.nodeid} ... skipped: {reason.removeprefix('Skipped: ')}")
    elif report.failed:
        _counts["failed"] += 1
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message if crash else report.longreprtext
        print(f"\ntest {report.nodeid} ... FAILED: {' '.join(why.split())}")
    elif report.when == "call":
        _counts["passed"] += 1


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The sum, as cargo prints it. A run that ended oddly has at least one failure."""
    failed = _counts["failed"] or int(exitstatus != 0)
    verdict = "FAILED" if failed else "ok"
    print(
        f"\ntest result: {verdict}. {_counts['passed']} passed; {failed} failed; "
        f"{_counts['skipped']} skipped; the Python package"
    )


@pytest.fixture(scope="session")
def program() -> str:
    """The program under test."""
    path = os.environ.get("SWTCH")
    if path is None:
        pytest.skip("SWTCH does not name the program: use scripts/python.sh test")
    return path


@pytest.fixture(scope="session")
def run(program: str) -> Callable[..., str]:
    """Runs the program to its end and returns what it wrote to stdout."""

    def call(*words: str | Path) -> str:
        answer = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return call


@pytest.fixture(scope="session")
def report(run: Callable[..., str]) -> Callable[..., dict[str, Any]]:
    """What `swtch report` says of a trace, as JSON."""

    def call(path: Path, by: str, *more: str) -> dict[str, Any]:
        return json.loads(run("report", "--by", by, "--format", "json", *more, path))

    return call


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose name has all that needs care in SQL, shells and patterns."""
    return tmp_path_factory.mktemp("it's [a] *trace?; --")


def why_not_ebpf() -> str | None:
    """Why nothing can be recorded with all evidence here; `None` if it can."""
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "the kernel has no BTF"
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    effective = int(status.split("CapEff:")[1].split()[0], 16)
    if any(effective >> bit & 1 == 0 for bit in _CAPABILITIES):
        return "not root, or a root without CAP_SYS_ADMIN or CAP_SYS_NICE"
    return None


def why_not_perf() -> str | None:
    """Why perf events do not record own processes here; `None` if they do."""
    setting = Path("/proc/sys/kernel/perf_event_paranoid")
    if not setting.exists():
        return "the kernel has no perf events"
    if os.geteuid() != 0 and int(setting.read_text(encoding="utf-8")) > 2:
        return "kernel.perf_event_paranoid is above 2"
    return None


def _recorded(name: str, program: str, place: Path, run: Callable[..., str]) -> Path:
    """Records a load of the program into a new trace."""
    ways: dict[str, list[str]] = {
        # Every kind of switch, by threads that name themselves after it.
        "sampler": ["--", program, "workload", "sampler"],
        # Escape sequences, markup and bytes that are no UTF-8 as names.
        "renamer": ["--", program, "workload", "renamer"],
        # Kernel threads, idle CPUs, and waits that are open at the end.
        "machine": ["-a", "-d", "0.3"],
        "perf": ["--backend", "perf", "--", program, "workload", "pipe-processes"],
    }
    refusal = why_not_perf() if name == "perf" else why_not_ebpf()
    if refusal is not None:
        pytest.skip(f"cannot record: {refusal}")
    path = place / f"{name}.swtch"
    run("record", "-o", path, *ways[name])
    return path


def _made_up(place: Path) -> Path:
    maker = os.environ.get("SWTCH_MAKE_TRACE")
    if maker is None:
        pytest.skip("SWTCH_MAKE_TRACE names no program: use scripts/python.sh test")
    path = place / "made-up.swtch"
    words = [maker, path, "--switches", "10000", "--crowded", "3"]
    subprocess.run(words, check=True, capture_output=True, timeout=LIMIT_S)
    return path


# The trace of the oldest format is kept in the tree: it has no levels and no command lines.
OLDEST = REPOSITORY / "crates/swtch-store/tests/format-1.swtch"

# What `swtch cost --quick` measured once, so that bills of the tests do not depend on the machine.
PRICES = Path(__file__).with_name("prices.json")

TRACES = ("sampler", "renamer", "machine", "perf", "made-up", "format-1")


@pytest.fixture(scope="session")
def trace_path(program: str, place: Path, run: Callable[..., str]) -> Callable[[str], Path]:
    """The path of a trace of `TRACES`, recorded when it is asked for first."""
    made: dict[str, Path] = {}

    def path_of(name: str) -> Path:
        if name not in made:
            if name == "format-1":
                made[name] = OLDEST
            elif name == "made-up":
                made[name] = _made_up(place)
            else:
                made[name] = _recorded(name, program, place, run)
        return made[name]

    return path_of


@pytest.fixture(scope="session")
def fleet_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[generator.Fleet], Path]:
    """A lake with a made-up fleet, filled when it is asked for first. Tests only read it."""
    made: dict[generator.Fleet, Path] = {}

    def root_of(fleet: generator.Fleet) -> Path:
        if fleet not in made:
            root = tmp_path_factory.mktemp("fleet")
            generator.fill(Directory(str(root)), fleet)
            made[fleet] = root
        return made[fleet]

    return root_of


@pytest.fixture(params=TRACES)
def any_path(request: pytest.FixtureRequest, trace_path: Callable[[str], Path]) -> Path:
    """Each of the traces in turn."""
    return trace_path(request.param)


@pytest.fixture(scope="session")
def opened() -> Iterator[Callable[[Path], swtch.Trace]]:
    """Opens a trace once for all tests, which only ask."""
    traces: dict[Path, swtch.Trace] = {}

    def open_once(path: Path) -> swtch.Trace:
        if path not in traces:
            traces[path] = swtch.open(path)
        return traces[path]

    yield open_once
    for trace in traces.values():
        trace.close()


@pytest.fixture
def any_trace(any_path: Path, opened: Callable[[Path], swtch.Trace]) -> swtch.Trace:
    """Each of the traces in turn, opened."""
    return opened(any_path)


def middle_of(trace: swtch.Trace, share: float) -> tuple[int, int]:
    """A span around the middle of a trace with this share of its switches, in nanoseconds since its
    start, rounded to milliseconds: how long a load took is the machine's to say."""
    ends = [(1 - share) / 2, (1 + share) / 2]
    (found,) = trace.sql(
        f"SELECT quantile_disc(ts_ns - start_ns, {ends}) AS ends"
        " FROM switch_rows JOIN meta USING (trace)"
    ).rows()
    since, until = (end // 1_000_000 * 1_000_000 for end in found["ends"])
    return since, until + 1_000_000


@pytest.fixture
def sampler(
    trace_path: Callable[[str], Path], opened: Callable[[Path], swtch.Trace]
) -> swtch.Trace:
    """The trace with every kind of switch."""
    return opened(trace_path("sampler"))
