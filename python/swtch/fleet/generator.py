"""Made-up fleets whose answers are known: `python -m swtch.fleet.generator LAKE --hosts 20`.

Every figure of a switch follows from its host, its day and its number in the segment by
whole-number arithmetic, with a cycle of 1,000 switches. So sums, counts and percentiles are known
without asking an engine (`known_answers` counts one cycle in plain Python), and must come out to
the nanosecond.

What there is to find:

- the host `h0003` waits three times as long as the others: it pays most, and so do its cgroups;
- on `h0005`, `/batch.slice/job` has the CPU for half of the time that `/app.slice/web` waits;
  elsewhere a cgroup waits for itself alone, and for CPUs that are still idle;
- kernel 7.3 and instance type `small` have dearer switches than 6.18 and `large`;
- release `v2`, on every host from the middle day on, makes each wait 20 % longer and nothing else;
- on `h0007`, the waits of the day after the first are six times as long.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from ..database import new_database
from ..lake.columns import SEGMENT_COLUMNS, SWITCH_COLUMNS
from ..lake.manifest import Change, Segments, commit
from ..lake.segment import NS_PER_S, Converted, facts_of_files, name_for, write_contention
from ..lake.store import Store, store_at
from ..tables import literal

CYCLE = 1000
_SEGMENT_S = 3600
_CPUS = 16
_PAYS_MOST, _NOISY, _OUT_OF_BAND = 3, 5, 7
_BATCH = 64


@dataclass(frozen=True)
class Fleet:
    """A fleet of `hosts`, each with a segment of `switches` on each of `days` days."""

    hosts: int = 20
    days: int = 10
    switches: int = 10_000
    first_day: str = "2026-01-05"

    def __post_init__(self) -> None:
        if self.switches % CYCLE or min(self.hosts, self.days, self.switches) < 1:
            raise ValueError(f"a segment has a multiple of {CYCLE} switches")

    def date(self, day: int) -> str:
        """The day in UTC."""
        first = datetime.date.fromisoformat(self.first_day)
        return (first + datetime.timedelta(days=day)).isoformat()

    def release(self, day: int) -> str:
        """What runs on that day."""
        return "v2" if day >= self.days // 2 else "v1"

    def unit_ns(self, host: int, day: int) -> int:
        """What waits of a host on a day are multiples of; hosts and days differ a little."""
        unit = 10_000 + 10 * ((host * 37 + day * 101) % 60)
        unit *= 3 if host == _PAYS_MOST else 1
        unit *= 6 if (host, day) == (_OUT_OF_BAND, 1) else 1
        return unit * 6 // 5 if self.release(day) == "v2" else unit

    def price_ns(self, host: int) -> float:
        """What `swtch cost` would have measured there."""
        base = 1500 if host % 2 else 2000
        return float(base + (400 if (host // 2) % 2 else 0) + (host * 13) % 17)

    def kernel(self, host: int) -> str:
        """The kernel of a host."""
        return "6.18" if host % 2 else "7.3"

    def instance_type(self, host: int) -> str:
        """The instance type of a host."""
        return "small" if (host // 2) % 2 else "large"


def name_of(host: int) -> str:
    """The name of a host."""
    return f"h{host:04}"


def fill(store: Store, fleet: Fleet) -> None:
    """Writes a fleet into a lake. A second run adds nothing, and one that was killed goes on."""
    database = new_database()
    waiting: list[dict[str, Any]] = []
    with store.scratch() as place:
        for day in range(fleet.days):
            for host in range(fleet.hosts):
                made = _made_segment(database, fleet, host, day, place)
                made.put_into(store)
                waiting.append(made.row)
                if len(waiting) == _BATCH:
                    _commit(store, waiting)
                    waiting = []
        if waiting:
            _commit(store, waiting)
    database.close()


def _commit(store: Store, rows: list[dict[str, Any]]) -> None:
    def make(now: Segments) -> Change:
        known = {row[0] for row in now.rows("SELECT segment FROM segments")}
        change = Change.none()
        change.add = [row for row in rows if row["segment"] not in known]
        return change

    commit(store, make)


def _made_segment(
    database: duckdb.DuckDBPyConnection, fleet: Fleet, host: int, day: int, place: Path
) -> Converted:
    switches, contention = place / "switches.parquet", place / "contention.parquet"
    row = _write_segment(database, fleet, host, day, str(switches))
    rows = [
        {"segment": row["segment"], "host": row["host"], **part}
        for part in _contention(fleet, host, fleet.unit_ns(host, day))
    ]
    write_contention(database, rows, contention)
    row.update(facts_of_files(switches, contention))
    row["file"] = name_for(row["date"], row["host"], row["segment"])
    return Converted(row, switches, contention)


def _contention(fleet: Fleet, host: int, unit_ns: int) -> list[dict[str, Any]]:
    """Who had the CPU for how long while each cgroup waited, in a segment of such waits."""
    rows = []
    for cgroup, places in _CGROUPS.items():
        waits = len(places) * _cycles(fleet)
        runq = sum(_WAITS[k] for k in places) * _cycles(fleet) * unit_ns
        parts: list[tuple[str | None, str, int]] = [(None, "idle", runq // 10)]
        if host == _NOISY and cgroup == "/app.slice/web":
            parts.append(("/batch.slice/job", "cgroup", runq // 2))
        parts.append((cgroup, "cgroup", runq - sum(part[2] for part in parts)))
        rows += [
            {
                "cgroup": cgroup,
                "neighbour": neighbour,
                "kind": kind,
                "waits": waits,
                "runq_ns": time_ns,
                "container_id": _CONTAINERS.get(cgroup),
                "pod_uid": None,
                "neighbour_container_id": _CONTAINERS.get(neighbour),
                "neighbour_pod_uid": None,
            }
            for neighbour, kind, time_ns in parts
        ]
    return rows


def _write_segment(
    database: duckdb.DuckDBPyConnection, fleet: Fleet, host: int, day: int, target: str
) -> dict[str, Any]:
    date = fleet.date(day)
    midnight = datetime.datetime.fromisoformat(f"{date}T00:00:00+00:00")
    start = int(midnight.timestamp()) * NS_PER_S
    row: dict[str, Any] = dict.fromkeys(SEGMENT_COLUMNS)
    row.update(
        segment=f"made-{fleet.switches}-{date}-{name_of(host)}",
        host=name_of(host),
        date=date,
        start_ns=start,
        end_ns=start + _SEGMENT_S * NS_PER_S,
        duration_ns=_SEGMENT_S * NS_PER_S,
        switches=fleet.switches,
        lost=0,
        cpus=_CPUS,
        kernel=fleet.kernel(host),
        machine="x86_64",
        instance_type=fleet.instance_type(host),
        release=fleet.release(day),
        price_ns=fleet.price_ns(host),
        source="made up",
        added_ns=time.time_ns(),
    )
    sql = _SWITCH_SQL.format(
        segment=literal(row["segment"]),
        host=literal(row["host"]),
        start=start,
        step=_SEGMENT_S * NS_PER_S // fleet.switches,
        unit=fleet.unit_ns(host, day),
        noisy=str(host == _NOISY).lower(),
        cycle=CYCLE,
        cpus=_CPUS,
        switches=fleet.switches,
    )
    cells = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in SWITCH_COLUMNS.items())
    database.execute(
        f"COPY (SELECT {cells} FROM ({sql})) TO {literal(target)} "
        "(FORMAT parquet, COMPRESSION zstd)"
    )
    return row


# Of each cycle of 1,000: `k` is the place in it, `wait` mixes the places.
_SWITCH_SQL = """
WITH numbered AS (SELECT range AS i, range % {cycle} AS k FROM range({switches})),
placed AS (
    SELECT *, (k * 919) % {cycle} + 1 AS wait, k % 10 AS what,
        CASE WHEN k < 500 THEN '/app.slice/web' WHEN k < 800 THEN '/app.slice/db'
            ELSE '/batch.slice/job' END AS cgroup
    FROM numbered
)
SELECT
    {segment} AS segment, {host} AS host, {start} + i * {step} AS time_ns,
    (i * 7) % {cpus} AS cpu, 1000 + k AS tid, 1000 + k % 50 AS pid,
    split_part(cgroup, '/', 3) AS comm, cgroup,
    CASE WHEN what < 7 THEN 'synchronization' ELSE 'preemption' END AS category,
    CASE WHEN what < 7 THEN 'futex' WHEN what = 7 THEN 'wakeup' WHEN what = 8 THEN 'slice'
        ELSE 'throttle' END AS reason,
    'certain' AS certainty, 'fair' AS class, what < 7 AS is_voluntary,
    20000 + k * 11 AS ran_ns, 'futex' AS wait_reason, 50000 + wait * {unit} AS off_ns,
    50000 AS blocked_ns, wait * {unit} AS runq_ns,
    CASE WHEN what >= 7 THEN {unit} * 2 + k END AS after_runq_ns,
    CASE WHEN what >= 7 THEN 500 + k END AS need_resched_delay_ns,
    0 AS irq_ns, 0 AS stolen_ns, CASE WHEN what < 7 THEN 'futex' END AS object_kind,
    2000 + k AS next_tid, 2000 + k % 50 AS next_pid, 'next' AS next_comm,
    CASE WHEN {noisy} AND k < 500 AND what IN (7, 9) THEN '/batch.slice/job' ELSE cgroup
        END AS next_cgroup,
    NULL AS nominator_pid, NULL AS nominator_comm, 'task' AS waker_kind, 1 AS waker_pid,
    'waker' AS waker_comm
FROM placed
"""


def known_answers(fleet: Fleet) -> dict[str, list[dict[str, Any]]]:
    """The answer to each question, from the rules above and without SQL."""
    return {
        "hosts": _hosts(fleet),
        "cgroups": _cgroups(fleet),
        "neighbours": _neighbours(fleet),
        "kinds": _kinds(fleet),
        "rollout": _rollout(fleet),
        "band": _band(fleet),
    }


_WAITS = [k * 919 % CYCLE + 1 for k in range(CYCLE)]
_CGROUPS = {
    "/app.slice/web": range(500),
    "/app.slice/db": range(500, 800),
    "/batch.slice/job": range(800, CYCLE),
}
_CONTAINERS: dict[str | None, str] = {"/batch.slice/job": "3f2a" * 16}
_TAKEN = [k for k in range(CYCLE) if k % 10 >= 7]


def _units(fleet: Fleet, host: int) -> int:
    return sum(fleet.unit_ns(host, day) for day in range(fleet.days))


def _cycles(fleet: Fleet) -> int:
    return fleet.switches // CYCLE


def _paid(fleet: Fleet, host: int, places: range) -> dict[str, Any]:
    """Sums over some places of the cycle, on all days of a host."""
    switches = len(places) * _cycles(fleet) * fleet.days
    runq = sum(_WAITS[k] for k in places) * _cycles(fleet) * _units(fleet, host)
    recorded = fleet.days * _SEGMENT_S * NS_PER_S
    direct = switches * fleet.price_ns(host)
    return {
        "host": name_of(host),
        "switches": switches,
        "per_s": switches * 1e9 / recorded,
        "involuntary_pct": sum(k % 10 >= 7 for k in places) * 100 / len(places),
        "runq_ns": runq,
        "direct_ns": direct,
        "paid_cpus": (runq + direct) / recorded,
    }


def _hosts(fleet: Fleet) -> list[dict[str, Any]]:
    rows = []
    for host in range(fleet.hosts):
        row = _paid(fleet, host, range(CYCLE))
        row["paid_pct"] = row.pop("paid_cpus") * 100 / _CPUS
        facts = {
            "kernel": fleet.kernel(host),
            "instance_type": fleet.instance_type(host),
            "cpus": _CPUS,
        }
        rows.append({**row, **facts})
    return sorted(rows, key=lambda row: (-row["paid_pct"], row["host"]))[:50]


def _cgroups(fleet: Fleet) -> list[dict[str, Any]]:
    rows = [
        {**_paid(fleet, host, places), "cgroup": cgroup}
        for host in range(fleet.hosts)
        for cgroup, places in _CGROUPS.items()
    ]
    return sorted(rows, key=lambda row: (-row["paid_cpus"], row["host"], row["cgroup"]))[:50]


def _neighbours(fleet: Fleet) -> list[dict[str, Any]]:
    if fleet.hosts <= _NOISY:
        return []
    # Throttling (9) is nobody's taking, whoever came next.
    taken = len([k for k in range(500) if k % 10 == 7]) * _cycles(fleet) * fleet.days
    web = [
        part
        for day in range(fleet.days)
        for part in _contention(fleet, _NOISY, fleet.unit_ns(_NOISY, day))
        if part["cgroup"] == "/app.slice/web"
    ]
    job = [part for part in web if part["neighbour"] == "/batch.slice/job"]
    waits, waited = (sum(part[name] for part in job) for name in ("waits", "runq_ns"))
    return [
        {
            "host": name_of(_NOISY),
            "neighbour": "/batch.slice/job",
            "victim": "/app.slice/web",
            "waits": waits,
            "waited_ns": waited,
            "mean_ns": waited / waits,
            "share_pct": waited * 100 / sum(part["runq_ns"] for part in web),
            "taken": taken,
            "neighbour_container_id": _CONTAINERS["/batch.slice/job"],
            "neighbour_pod_uid": None,
            "victim_container_id": None,
            "victim_pod_uid": None,
        }
    ]


def _kinds(fleet: Fleet) -> list[dict[str, Any]]:
    kinds: dict[tuple[str, str], list[int]] = {}
    for host in range(fleet.hosts):
        kinds.setdefault((fleet.kernel(host), fleet.instance_type(host)), []).append(host)
    rows: list[dict[str, Any]] = []
    for (kernel, instance_type), hosts in kinds.items():
        prices = [fleet.price_ns(host) for host in hosts]
        price = statistics.fmean(prices)
        half = None
        if len(hosts) >= 4:
            half = statistics.stdev(prices) / math.sqrt(len(hosts)) * _t95(len(hosts) - 1)
        units = statistics.fmean(_units(fleet, host) for host in hosts) / fleet.days
        rows.append(
            {
                "kernel": kernel,
                "instance_type": instance_type,
                "hosts": len(hosts),
                "priced_hosts": len(hosts),
                "price_ns": price,
                "low_ns": None if half is None else price - half,
                "high_ns": None if half is None else price + half,
                "runq_mean_ns": statistics.fmean(_WAITS) * units,
                "delay_mean_ns": 500 + statistics.fmean(_TAKEN),
            }
        )
    cheapest = min(row["price_ns"] for row in rows)
    for row in rows:
        row["dearer_pct"] = (row["price_ns"] / cheapest - 1) * 100
    return sorted(rows, key=lambda row: -row["price_ns"])


def _t95(df: int) -> float:
    """Student's t as the questions compute it; a test compares that with tables."""
    return 1.95996 + 2.37227 / df + 2.82250 / df**2 + 2.55585 / df**3


def _t99(df: int) -> float:
    return 2.57583 + 4.91659 / df + 8.83410 / df**2 + 12.14480 / df**3


def _rollout(fleet: Fleet) -> list[dict[str, Any]]:
    middle = fleet.days // 2
    sides = (range(middle), range(middle, fleet.days))
    if not middle:
        return []
    rate = fleet.switches / _SEGMENT_S
    unit = [
        [statistics.fmean(fleet.unit_ns(host, day) for day in side) for side in sides]
        for host in range(fleet.hosts)
    ]
    wait = statistics.fmean(_WAITS)
    same = [1.0, 1.0]
    figures: list[tuple[str, float, list[list[float]]]] = [
        ("switches per second", rate, [same] * fleet.hosts),
        ("involuntary switches per second", rate * len(_TAKEN) / CYCLE, [same] * fleet.hosts),
        ("run-queue ns per second", rate * wait, unit),
        ("mean run-queue wait, ns", wait, unit),
        ("mean delay of reschedules, ns", 500 + statistics.fmean(_TAKEN), [same] * fleet.hosts),
    ]
    rows = []
    for figure, scale, amounts in figures:
        logs = [math.log(after / before) for before, after in amounts]
        middle_log = statistics.fmean(logs)
        half = None
        verdict = "too few hosts"
        if fleet.hosts >= 6:
            error = statistics.stdev(logs) / math.sqrt(fleet.hosts)
            half = error * _t99(fleet.hosts - 1)
            verdict = "worse" if middle_log - half > 0 else "no sure change"
        rows.append(
            {
                "figure": figure,
                "hosts": fleet.hosts,
                "before": scale * statistics.fmean(one[0] for one in amounts),
                "after": scale * statistics.fmean(one[1] for one in amounts),
                "change_pct": math.expm1(middle_log) * 100,
                "low_pct": None if half is None else math.expm1(middle_log - half) * 100,
                "high_pct": None if half is None else math.expm1(middle_log + half) * 100,
                "verdict": verdict,
            }
        )
    return rows


def _band(fleet: Fleet) -> list[dict[str, Any]]:
    rows = []
    for host in range(fleet.hosts):
        # The waits of a day are 1 … 1,000 units, so that the percentile is 990 of them.
        p99 = [_rounded(990 * fleet.unit_ns(host, day)) for day in range(fleet.days)]
        if fleet.days < 5:
            continue
        ordered = sorted(p99)
        q1, q2, q3 = (ordered[math.ceil(fleet.days * part) - 1] for part in (0.25, 0.5, 0.75))
        low = min(q1 - 3 * (q3 - q1), q2 * 0.75)
        high = max(q3 + 3 * (q3 - q1), q2 * 1.25)
        rows += [
            {
                "host": name_of(host),
                "date": fleet.date(day),
                "waits": fleet.switches,
                "p99_ns": wait,
                "band_low_ns": float(low),
                "band_high_ns": float(high),
                "times": wait / q2,
            }
            for day, wait in enumerate(p99)
            if not low <= wait <= high
        ]
    return rows


def _rounded(wait_ns: int) -> int:
    """Three digits of a whole number."""
    scale = 10 ** max(0, len(str(wait_ns)) - 3)
    return wait_ns - wait_ns % scale


def main() -> int:
    """Writes a fleet into a lake, from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m swtch.fleet.generator", description="Fill a lake with a made-up fleet"
    )
    parser.add_argument("lake", metavar="LAKE")
    for name, value in (("hosts", 20), ("days", 10), ("switches", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"(default: {value})")
    options = parser.parse_args()
    fleet = Fleet(options.hosts, options.days, options.switches)
    fill(store_at(options.lake), fleet)
    total = fleet.hosts * fleet.days * fleet.switches
    print(f"{total} switches of {fleet.hosts} hosts on {fleet.days} days", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
