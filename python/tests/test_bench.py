"""What the benchmarks (bench/) read out of other programs' words, and make of numbers."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"

# As perf 6.1 prints it.
STATS = """
Aggregated stats:
           TOTAL events:     140457
          SAMPLE events:     140125  (99.8%)
sched:sched_switch stats:
          SAMPLE events:      60025
sched:sched_stat_runtime stats:
          SAMPLE events:      40082
"""
PIPE = """# Running 'sched/pipe' benchmark:
     Total time: 0.299 [sec]

       2.994770 usecs/op
         333915 ops/sec
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules by their names."""
    monkeypatch.syspath_prepend(str(BENCH))
    modules: dict[str, ModuleType] = {
        name: importlib.import_module(name) for name in ("harness", "record", "cost")
    }
    return SimpleNamespace(**modules)


def test_only_samples_of_sched_switch_are_switches(bench: Any) -> None:
    assert bench.record.switches_in(STATS) == 60_025
    with pytest.raises(bench.harness.Failed):
        bench.record.switches_in("Aggregated stats:\n")


def test_what_perf_lost_is_read_from_its_warning(bench: Any) -> None:
    warning = "Warning:\nProcessed 1007272 events and lost 3 chunks!\n\nCheck IO/CPU overload!"
    assert bench.record.lost_by_perf(warning) == (3, "chunks")
    assert bench.record.lost_by_perf("[ perf record: Woken up 8 times ]") == (0, "chunks")


def test_an_arm_is_compared_with_bare_of_its_own_round(bench: Any) -> None:
    """The machine is half as fast in the second round, which the ratios must not show."""
    bare, swtch = bench.record.TOOLS[0], bench.record.TOOLS[2]
    cpu_ns = {0: (100, 110), 1: (200, 240), 2: (100, 115)}
    runs = [
        bench.record.Run(turn, "pipe", tool, ns * 1_000_000, 10**9, 1000, 0)
        for turn, both in cpu_ns.items()
        for tool, ns in zip((bare, swtch), both, strict=True)
    ]
    numbers = bench.record.Summary("pipe", swtch, runs).numbers
    assert numbers["cpu_ratio"] == pytest.approx((1.15, 1.10, 1.20))
    assert numbers["extra_ns_per_switch"].median == pytest.approx(15_000)


def test_what_peers_say_is_told_for_a_hop(bench: Any) -> None:
    def answer(stdout: str, stderr: str) -> Any:
        return bench.harness.Answer(stdout, stderr, bench.harness.Used(0, 0, 0, 0))

    assert bench.cost.perf_ns(answer(PIPE, "")) == pytest.approx(1497.385)
    rate = "avg worker transfer: 500000.00 ops/sec 1.91MB/s\n"
    assert bench.cost.schbench_ns(answer("", rate)) == pytest.approx(1000)
    assert bench.cost.lat_ctx_ns(answer("", '\n"size=0k ovr=0.53\n2 0.87\n')) == pytest.approx(870)
    assert bench.cost.lat_ctx_ns(answer("", '\n"size=0k ovr=0.53\n')) is None


def test_never_in_twenty_may_still_be_one_in_seven(bench: Any) -> None:
    assert bench.cost.wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert bench.cost.share([False] * 20) == "0 of 20 (0\N{EN DASH}16 %)"


def test_a_command_that_fails_says_why(bench: Any) -> None:
    with pytest.raises(bench.harness.Failed, match="no/such/file"):
        bench.harness.run(["ls", "/no/such/file"])
    with pytest.raises(bench.harness.Failed, match="not done after"):
        bench.harness.run(["sh", "-c", "trap '' INT; sleep 60"], limit_s=0.1)


def test_the_wrapper_passes_the_exit_code_on_and_writes_what_was_used(tmp_path: Path) -> None:
    used = tmp_path / "used.json"
    busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7"
    command = [sys.executable, "-I", "-S", BENCH / "used.py", used, "sh", "-c", busy]
    assert subprocess.run(command).returncode == 7
    numbers = json.loads(used.read_text())
    assert 0 < numbers["cpu_ns"] <= 2 * numbers["wall_ns"]
