#!/usr/bin/env python3
"""Whether the prices of switches are right (`swtch cost`), beside those of other programs.

peers: our hand-off beside that of other programs, in the same minute on the same CPU. Every arm runs once a round, in
an order that is rotated, and ratios are taken within a round. A peer divides by the number of switches that it
believes it makes, so the kernel's count of them stands beside it.

self-check: sessions of `swtch cost self-check`, which times two arms that do the same and one with about 1 % more to
do, with nothing else running and with a hog on each CPU. Is a difference found where there is none, is one found
where there is one, how narrow is the interval, and how often does it hold what many sessions come to?

No root, but only root may use SCHED_FIFO, by which others are kept out.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import harness
from harness import NOTHING, Answer, Child, Failed, Spread, shown

# A session takes 2 s, and 4 s with a hog on its CPU.
LIMIT_S = 180
# Fewer rounds of peers say little about the spread of a ratio.
ROUNDS = 7
SESSIONS = 20
# Exit codes of `swtch cost` that come with an answer; 1 says that an interval is too wide.
ANSWERED = (0, 1)
# Round trips of `perf bench sched pipe`, which take 0.2 to 0.6 s.
PIPE_LOOPS = 100_000


def prices(swtch: str, cpu: int, kinds: Iterable[str]) -> dict[str, Any]:
    """A price list of swtch."""
    words = [swtch, "cost", *kinds, "--cpu", str(cpu), "--format", "json"]
    return harness.run_json(words, ANSWERED, LIMIT_S)


# --- Peers. ---


@dataclasses.dataclass(frozen=True)
class Peer:
    """A program that measures hand-overs as `swtch cost` does."""

    # What a reader types to repeat it.
    command: str
    # The price of ours that is compared with it: peers run under the default policy, so ours does too.
    kind: str
    members: str
    number: str
    # Nanoseconds a hop, as the peer says; None if it says no number.
    hop_ns: Callable[[Answer], float | None]
    # Hops of a whole run; 0 if the command does not determine them.
    hops: int = 0

    def words(self) -> list[str]:
        """The command with the program's path; no words if it is not installed."""
        program, *words = self.command.split()
        # lmbench has its programs outside of PATH, in a folder for each architecture.
        lmbench = (str(path) for path in Path("/usr/lib/lmbench/bin").glob(f"*/{program}"))
        path = harness.installed(program) or next(lmbench, None)
        return [path, *words] if path else []

    def price_in(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Our price, in a list."""
        wanted = {"kind": self.kind, "members": self.members, "policy": "default", "place": "same-cpu"}
        for price in answer["prices"]:
            if wanted.items() <= price.items() and price[self.number]:
                return price
        raise Failed(f"swtch cost {self.kind} gave no {self.number} for {wanted}")


def number_after(pattern: str, text: str) -> float | None:
    """The number that a pattern finds."""
    found = re.search(pattern, text, re.MULTILINE)
    return float(found[1]) if found else None


def perf_ns(answer: Answer) -> float | None:
    """An operation is a round trip, which is two hops."""
    us = number_after(r"^\s*([\d.]+) usecs/op", answer.stdout)
    return us and us * 1e3 / 2


def schbench_ns(answer: Answer) -> float | None:
    """Round trips a second."""
    rate = number_after(r"avg worker transfer: *([\d.]+)", answer.stderr)
    return rate and 1e9 / rate / 2


def lat_ctx_ns(answer: Answer) -> float | None:
    """Microseconds, in the line for 2 processes. lmbench prints none when its subtraction gives 0 or less."""
    us = number_after(r"^2 +([\d.]+)$", answer.stderr)
    return us and us * 1e3


PEERS = (
    Peer(f"perf bench sched pipe -l {PIPE_LOOPS}", "pipe", "processes", "hand_off_ns", perf_ns, 2 * PIPE_LOOPS),
    Peer(f"perf bench sched pipe -T -l {PIPE_LOOPS}", "pipe", "threads", "hand_off_ns", perf_ns, 2 * PIPE_LOOPS),
    Peer("schbench -p 4 -m 1 -t 1 -r 2", "futex-private", "threads", "hand_off_ns", schbench_ns),
    # Less the calls alone, as our net price.
    Peer("lat_ctx -s 0 2", "pipe", "processes", "net_ns", lat_ctx_ns),
)


@dataclasses.dataclass(frozen=True)
class Beside:
    """A peer and ours in one round."""

    peer: str
    peer_ns: float | None
    ours_ns: float
    peer_switches_per_hop: float | None
    ours_switches_per_hop: float

    @property
    def ratio(self) -> float | None:
        """Ours by the peer's."""
        return self.peer_ns and self.ours_ns / self.peer_ns

    @classmethod
    def of(cls, peer: Peer, said: Answer, ours: dict[str, Any]) -> Beside:
        """What both said."""
        price = peer.price_in(ours)
        return cls(
            peer.command,
            peer.hop_ns(said),
            price[peer.number]["point"],
            said.used.switches / peer.hops if peer.hops else None,
            price["voluntary_per_op"] + price["involuntary_per_op"],
        )


def measure_peers(swtch: str, cpu: int, rounds: int) -> list[Beside]:
    """All installed peers and ours, in rounds."""
    peers = [peer for peer in PEERS if peer.words()]
    kinds = dict.fromkeys(peer.kind for peer in peers)
    measured = []
    for turn in range(rounds if peers else 0):
        harness.say(f"peers: round {turn + 1}/{rounds}")
        said = {}
        for arm in harness.rotated([None, *peers], turn):
            if arm is None:
                ours = prices(swtch, cpu, kinds)
            else:
                said[arm] = harness.run(["taskset", "-c", str(cpu), *arm.words()], limit_s=LIMIT_S)
        measured += [Beside.of(peer, said[peer], ours) for peer in peers]
    return measured


def peers_table(measured: list[Beside]) -> str:
    """One row for each peer, installed or not."""
    rows = [
        ["peer", "swtch's number", "peer, ns a hop", "swtch, ns a hop", "swtch ÷ peer", "peer's switches a hop",
         "swtch's switches a hop"],
    ]  # fmt: skip
    for peer in PEERS:
        of_peer = [each for each in measured if each.peer == peer.command]
        start = [peer.command, f"{peer.kind}, {peer.members}, {peer.number}"]
        if not of_peer:
            rows.append([*start, "not installed", *[NOTHING] * 4])
            continue
        numbers = (
            ("peer_ns", 0),
            ("ours_ns", 0),
            ("ratio", 3),
            ("peer_switches_per_hop", 3),
            ("ours_switches_per_hop", 3),
        )
        cells = [shown(Spread.of(getattr(each, name) for each in of_peer), digits) for name, digits in numbers]
        rows.append([*start, *cells])
    return harness.markdown(rows)


# --- Sessions of the self-check. ---

LOADS = ("no load of ours", "a CPU hog on each CPU")
TWIN = "self-check-twin"
INJECTED = "injected-1-pct"


@contextlib.contextmanager
def hogs(cpus: Iterable[int]) -> Iterator[None]:
    """A task on each CPU that does nothing but use it. It ends with this program, even when that is killed."""
    loop = (
        "import os, sys\n"
        "os.sched_setaffinity(0, {int(sys.argv[1])})\n"
        "while os.getppid() == int(sys.argv[2]):\n"
        "    for _ in range(1_000_000): pass"
    )
    running = []
    with contextlib.ExitStack() as stack:
        for cpu in cpus:
            words = [sys.executable, "-I", "-S", "-c", loop, str(cpu), str(os.getpid())]
            running.append(stack.enter_context(Child(words)))
        yield
        for hog in running:
            if hog.ends_within(0):
                hog.fail("ended before the measurement did")


@dataclasses.dataclass(frozen=True)
class Sessions:
    """All sessions under one load: the price list of each."""

    load: str
    lists: list[dict[str, Any]]

    def contrasts(self, name: str) -> list[dict[str, Any]]:
        """The comparison with this name, in each session."""
        return [named(answer, name) for answer in self.lists]

    def prices(self, number: str) -> list[dict[str, Any]]:
        """This number of the price, in each session."""
        return [answer["prices"][0][number] for answer in self.lists]

    def half_widths_pct(self) -> Spread | None:
        """Half the interval of the difference between equal arms, in percent of the net price of the same session."""
        pairs = zip(self.contrasts(TWIN), self.prices("net_ns"))
        ends = ((twin["difference_ns"], net["point"]) for twin, net in pairs)
        return Spread.of((both["high"] - both["low"]) / 2 / abs(net) * 100 for both, net in ends)

    def column(self) -> list[str]:
        """Its column of the table, in the order of ROWS."""
        twins, injected = self.contrasts(TWIN), self.contrasts(INJECTED)
        ratios = [twin["ratio"] for twin in twins]
        widths = self.half_widths_pct()
        longer = Spread.of((each["ratio"]["point"] - 1) * 100 for each in injected)
        return [
            str(len(self.lists)),
            shown(Spread.of(answer["session"]["took_s"] for answer in self.lists), 1),
            share(twin["verdict"] in ("larger", "smaller") for twin in twins),
            f"{widths.median:.2f}, {widths.max:.2f}" if widths else NOTHING,
            share(holds(ratio, 1) for ratio in ratios),
            covered(ratios),
            share(each["verdict"] == "larger" for each in injected),
            shown(longer, 2),
            covered([each["ratio"] for each in injected]),
            covered(self.prices("hand_off_ns")),
        ]


ROWS = (
    "sessions",
    "a session, s",
    "arms that do the same are said to differ",
    "half-width of their interval, % of net: median, worst",
    "the interval of their ratio holds 1",
    "the interval of their ratio holds the median of all sessions",
    "a delay of about 1 % is found",
    "the delay is seen as, %",
    "the interval of the ratio with the delay holds the median of all sessions",
    "the interval of hand-off, in ns, holds the median of all sessions",
)


def named(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """A comparison of a price list, among equal arms or others."""
    for contrast in [*answer["session"]["twins"], *answer["contrasts"]]:
        if contrast["name"] == name:
            return contrast
    raise Failed(f"swtch cost self-check has no contrast {name}: is this swtch of another version?")


def holds(estimate: dict[str, float], value: float) -> bool:
    """Whether an interval holds a value."""
    return estimate["low"] <= value <= estimate["high"]


def covered(estimates: list[dict[str, float]]) -> str:
    """How many of the intervals hold the median of all points."""
    middle = statistics.median(estimate["point"] for estimate in estimates)
    return share(holds(estimate, middle) for estimate in estimates)


def share(outcomes: Iterable[bool]) -> str:
    """How often something happened, with the interval of its probability."""
    happened = list(outcomes)
    low, high = wilson(sum(happened), len(happened))
    return f"{sum(happened)} of {len(happened)} ({low * 100:.0f}–{high * 100:.0f} %)"


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % confidence interval of a probability (Wilson, "Probable inference", JASA 22, 1927)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    rate = hits / of
    middle = rate + z * z / (2 * of)
    reach = z * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def measure_self_check(swtch: str, cpu: int, count: int) -> list[Sessions]:
    """The sessions of both loads, in turn, so that a machine that becomes slower does so for both."""
    lists: dict[str, list[dict[str, Any]]] = {load: [] for load in LOADS}
    for turn in range(count):
        for load in harness.rotated(LOADS, turn):
            harness.say(f"self-check: session {turn + 1}/{count}, {load}")
            with hogs(os.sched_getaffinity(0) if load == LOADS[1] else ()):
                lists[load].append(prices(swtch, cpu, ["self-check"]))
    return [Sessions(load, lists[load]) for load in LOADS]


def self_check_table(all_sessions: list[Sessions]) -> str:
    """A column for each load."""
    columns = [["", *ROWS], *([each.load, *each.column()] for each in all_sessions)]
    return harness.markdown(list(zip(*columns)))


# --- The report. ---


def parsed() -> argparse.Namespace:
    """The options."""
    parser = harness.options_of(__doc__, rounds="7 of peers, 20 sessions of each load")
    add = parser.add_argument
    add("--part", choices=("peers", "self-check"), help="measure this alone")
    add("--cpu", type=int, default=max(os.sched_getaffinity(0)), metavar="N",
        help="the CPU to measure on (default: the last that may be used)")  # fmt: skip
    add("--swtch", type=Path, metavar="PATH", help="the swtch to measure with")
    return parser.parse_args()


def benchmark() -> None:
    """Measures, and prints a table for each part."""
    options = parsed()
    swtch = harness.find_swtch(options.swtch)
    harness.needed("taskset", "util-linux")
    perf = harness.installed("perf")
    facts = harness.host_facts([*([perf] if perf else []), swtch])
    text = [f"{harness.host_line(facts)}. Measured on CPU {options.cpu}. Median (min–max) or 95 % interval of a share."]
    answer: dict[str, Any] = {"schema": "swtch.bench-cost/1", "host": facts, "cpu": options.cpu}
    if options.part != "self-check":
        measured = measure_peers(swtch, options.cpu, options.rounds or ROUNDS)
        answer["peers"] = [dataclasses.asdict(each) for each in measured]
        text.append(peers_table(measured))
    if options.part != "peers":
        sessions = measure_self_check(swtch, options.cpu, options.rounds or SESSIONS)
        answer["self_checks"] = [dataclasses.asdict(each) for each in sessions]
        text.append(self_check_table(sessions))
    print("\n\n".join(text))
    harness.write_json(options.json, answer)


if __name__ == "__main__":
    harness.main(benchmark)
