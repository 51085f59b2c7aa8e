"""A lake keeps what it was given, tells nonsense, and loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from conftest import REPOSITORY
from fleet_checks import add, copy_of, counts, verify, write_meta

import swtch
from swtch import lake
from swtch.fleet import generator
from swtch.lake import operations
from swtch.lake.columns import FIRST_CONTENTION_COLUMNS, SWITCH_COLUMNS
from swtch.lake.manifest import Change, commit, latest
from swtch.lake.segment import id_of
from swtch.lake.store import Directory, without_wildcards
from swtch.query import main

MakeTrace = Callable[..., Path]
DAY_S = 86_400


@pytest.fixture
def made(trace_path: Callable[[str], Path], tmp_path: Path) -> MakeTrace:
    """A copy of the made-up trace that says another host and moment."""

    def make(name: str, host: str = "one", ago_s: float = 3600, booted_ago_s: float = 9e5) -> Path:
        path = tmp_path / f"it's {name}.swtch"
        return copy_of(trace_path("made-up"), path, host, ago_s, booted_ago_s)

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake under a name with all that needs care in SQL, shells and patterns."""
    return tmp_path / "it's [a] *lake?; {1,2} %41 --"


def small_fleet(root: Path, days: int = 2) -> Directory:
    store = Directory(str(root))
    generator.fill(store, generator.Fleet(hosts=1, days=days, switches=1000))
    return store


def test_a_lake_has_the_switches_of_its_traces(
    root: Path, made: MakeTrace, trace_path: Callable[[str], Path]
) -> None:
    hosts = ("one", "2", "../it's a/host=*?")
    add(root, *(made(f"t{place}", host) for place, host in enumerate(hosts)))
    ours = """SELECT reason, comm, next_comm, waker_comm, count(*) AS n,
        sum(runq_ns)::BIGINT AS runq_ns, sum(ran_ns)::BIGINT AS ran_ns, max(pid) AS pid
        FROM switches {} GROUP BY ALL ORDER BY ALL"""
    with swtch.open(trace_path("made-up")) as trace, lake.open(root) as opened:
        expected = trace.sql(ours.format("")).rows()
        for host in hosts:
            where = "WHERE host = $host"
            assert opened.sql(ours.format(where), {"host": host}).rows() == expected
    # No host leads out of the lake.
    assert not list(root.parent.glob("*/host=*"))
    assert verify(Directory(str(root))).damaged == {}


def test_a_wait_after_a_switch_is_that_of_the_next_row(
    root: Path, trace_path: Callable[[str], Path]
) -> None:
    path = trace_path("sampler")
    add(root, path)
    with lake.open(root) as opened, swtch.open(path) as trace:
        after = opened.sql("SELECT sum(after_runq_ns)::BIGINT AS n FROM switches").rows()
        expected = trace.sql(
            """SELECT sum(runq_ns)::BIGINT AS n FROM switches AS s WHERE EXISTS (
            FROM switches AS b WHERE b.task = s.task AND b.ts_ns < s.ts_ns)"""
        ).rows()
        cgroups = opened.sql("SELECT DISTINCT cgroup FROM switches").rows()
    assert after == expected
    # The sampler has a cgroup of its own, and all have a path.
    assert len(cgroups) > 1
    assert all(row["cgroup"].startswith("/") for row in cgroups)


def test_the_contention_of_a_cgroup_sums_to_its_waits(
    root: Path, trace_path: Callable[[str], Path], made: MakeTrace
) -> None:
    add(root, trace_path("sampler"), trace_path("machine"), made("one"), made("two", "two"))
    by = "SELECT segment, cgroup, sum(runq_ns)::BIGINT AS runq_ns FROM {} GROUP BY ALL ORDER BY ALL"

    def ask(table: str) -> list[dict[str, object]]:
        with lake.open(root) as opened:
            rows = opened.sql(by.format(table)).rows()
        return [row for row in rows if row["runq_ns"]]

    expected = ask("switches")
    assert len(expected) >= 4
    contention = ask("contention")
    # A task that goes into another cgroup in a run had waited in the one before; its row has the
    # new one.
    with lake.open(root) as opened:
        moved = opened.sql(
            """SELECT segment, sum(runq_ns)::BIGINT AS runq_ns FROM (
            SELECT segment, runq_ns, cgroup, lag(cgroup) OVER of_task AS before FROM switches
            WINDOW of_task AS (PARTITION BY segment, pid, tid ORDER BY time_ns))
            WHERE before IS DISTINCT FROM cgroup GROUP BY ALL"""
        ).rows()
    may_differ = {row["segment"]: row["runq_ns"] or 0 for row in moved}

    def waited(rows: list[dict[str, object]], *keys: str) -> Counter[tuple[object, ...]]:
        sums: Counter[tuple[object, ...]] = Counter()
        for row in rows:
            sums[tuple(row[key] for key in keys)] += int(str(row["runq_ns"]))
        return sums

    assert waited(contention, "segment") == waited(expected, "segment")
    of_cgroups = [waited(rows, "segment", "cgroup") for rows in (contention, expected)]
    for key in of_cgroups[0] | of_cgroups[1]:
        apart = abs(of_cgroups[0][key] - of_cgroups[1][key])
        assert apart <= may_differ.get(key[0], 0), key
    with lake.open(root) as opened:
        containers = opened.sql(
            """SELECT DISTINCT container_id, neighbour_container_id, pod_uid FROM contention
            WHERE cgroup LIKE '/docker/%' AND kind = 'cgroup'"""
        ).rows()
    made_up = "3f2a" * 16
    assert containers == [
        {"container_id": made_up, "neighbour_container_id": made_up, "pod_uid": None}
    ]
    store = Directory(str(root))
    operations.compact(store, lambda _: None, grace_s=0)
    assert ask("contention") == contention
    files = [one.name for one in store.names("contention")]
    assert sorted(files) == sorted(
        one.name.replace("data/", "contention/", 1) for one in store.names("data")
    )
    # It is verified, and goes with its segments.
    damaged = root / files[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert list(verify(store, repair=True).damaged) == [files[0].replace("contention/", "data/")]
    operations.retain(store, "9999-12-31", lambda _: None, grace_s=0)
    assert list(store.names("contention")) == list(store.names("data")) == []


def test_a_duplicate_is_added_once(root: Path, made: MakeTrace, tmp_path: Path) -> None:
    first = made("first")
    copied = tmp_path / "copy.swtch"
    subprocess.run(["cp", "-r", first, copied], check=True)
    assert len(add(root, first, copied).added) == 1
    outcome = add(root, copied)
    assert (outcome.added, outcome.present) == ([], [str(copied)])
    assert counts(root) == {id_of(first): 10_000}
    assert len(list(Directory(str(root)).names("data"))) == 1


def test_nonsense_is_quarantined_and_named(root: Path, made: MakeTrace) -> None:
    truncated = made("truncated", "a")
    table = truncated / "switch.parquet"
    table.write_bytes(table.read_bytes()[:-1000])
    newer = made("newer", "b")
    meta = json.loads((newer / "meta.json").read_text())
    write_meta(newer, json.dumps({**meta, "format_version": 99}))
    unset = made("unset", "c", ago_s=time.time())
    future = made("future", "d", ago_s=-3 * DAY_S)
    outside = made("outside", "e")
    meta = json.loads((outside / "meta.json").read_text())
    meta["end_ns"] = meta["start_ns"] + 1_000_000_000
    write_meta(outside, json.dumps(meta))
    other = made("other schema", "f")
    duckdb.sql("SELECT 1 AS something").write_parquet(str(other / "switch.parquet"))
    good = made("good")
    outcome = add(root, truncated, newer, unset, future, outside, other, good)
    why = {Path(path): text for path, text in outcome.quarantined.items()}
    for path, words in {
        truncated: "is damaged: switch.parquet",
        newer: "has format 99",
        unset: "clock says 1970",
        future: "still to come",
        outside: "a time outside the recording",
        other: "is damaged: switch.parquet",
    }.items():
        assert words in why.pop(path)
    assert why == {}
    assert counts(root) == {id_of(good): 10_000}
    # Adding them again says the same, and notes nothing twice.
    add(root, truncated, newer, unset)
    noted = operations.quarantined(Directory(str(root)))
    assert len(noted) == 6
    assert {facts["source"] for facts in noted} == set(map(str, outcome.quarantined))


def test_a_clock_that_is_an_hour_off_is_marked(root: Path, made: MakeTrace) -> None:
    ago = 3 * 3600
    add(root, made("before", "back", ago_s=ago, booted_ago_s=DAY_S))
    # The same boot, and a clock that was set an hour ahead meanwhile.
    add(root, made("after", "back", ago_s=ago - 3600 - 1800, booted_ago_s=DAY_S - 3600))
    add(root, made("ahead", "ahead", ago_s=-3600))
    # A host that booted again is no wrong clock.
    add(root, made("once", "again", ago_s=ago, booted_ago_s=DAY_S))
    add(root, made("twice", "again", ago_s=600, booted_ago_s=1200))
    with lake.open(root) as opened:
        rows = opened.sql("SELECT source, clock FROM segments WHERE clock IS NOT NULL").rows()
        assert opened.sql("SELECT count(*) AS n FROM switches").rows() == [{"n": 50_000}]
    marked = {Path(row["source"]).name: row["clock"] for row in rows}
    assert marked == {"it's after.swtch": "moved", "it's ahead.swtch": "ahead"}


def test_older_and_newer_files_are_read_together(root: Path) -> None:
    store = small_fleet(root)

    def rewrite(file: str, select: str, columns: str) -> None:
        """Makes a data file of another version of the package."""
        path = root / file
        new = path.with_name("new.parquet")
        source = duckdb.read_parquet([without_wildcards(str(path))])
        source.project(select).write_parquet(str(new))
        new.replace(path)
        rows = operations._segment_rows(
            operations.Segments(store, latest(store)), "file = ?", [file]
        )
        facts = {**operations.segments_of.facts_of_files(path, None), "file_columns": columns}
        changed = [{**row, **facts} for row in rows]
        commit(store, lambda _: Change(changed, {row["segment"] for row in rows}, set(), set()))

    def ask() -> list[dict[str, object]]:
        with lake.open(root) as opened:
            return opened.sql(
                """SELECT count(*) AS n, count(waker_comm) AS wakers, sum(runq_ns)::BIGINT AS runq
                FROM switches"""
            ).rows()

    first = sorted(operations.Segments(store, latest(store)).files())[0]
    before = ask()
    names = list(SWITCH_COLUMNS)
    older = [name for name in names if name != "waker_comm"]
    rewrite(first, ", ".join(older), ",".join(older))
    expected = [{**before[0], "wakers": 1000}]
    assert ask() == expected
    second = sorted(operations.Segments(store, latest(store)).files())[1]
    rewrite(second, "*, 1 AS from_the_future", ",".join([*names, "from_the_future"]))
    assert ask() == expected
    operations.compact(store, lambda _: None, grace_s=0)
    assert verify(store).damaged == {}


def test_contention_of_an_older_package_tells_no_containers(root: Path) -> None:
    store = small_fleet(root)

    def ask() -> dict[str, int]:
        with lake.open(root) as opened:
            (row,) = opened.sql(
                "SELECT count(*) AS n, count(container_id) AS told, sum(waits)::BIGINT AS waits "
                "FROM contention"
            ).rows()
        return row

    before = ask()
    (row, *_) = operations._segment_rows(operations.Segments(store, latest(store)), "true", [])
    path = root / operations.contention_of(row["file"])
    new = path.with_name("new.parquet")
    source = duckdb.read_parquet([without_wildcards(str(path))])
    source.project(FIRST_CONTENTION_COLUMNS).write_parquet(str(new))
    new.replace(path)
    facts = operations.segments_of.facts_of_files(root / row["file"], path)
    older = {**row, **facts, "contention_columns": None}
    commit(store, lambda _: Change([older], {row["segment"]}, set(), set()))
    after = ask()
    assert 0 < after["told"] < before["told"]
    assert after == {**before, "told": after["told"]}
    operations.compact(store, lambda _: None, grace_s=0)
    assert ask() == after
    assert verify(store).damaged == {}


def test_a_damaged_file_is_named_and_can_be_taken_out(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = small_fleet(root)
    files = sorted(operations.Segments(store, latest(store)).files())
    path = root / files[0]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(swtch.Error, match=r"swtch lake verify --repair"):
        counts(root)
    assert main(["verify", str(root)]) == 1
    assert f"damaged  {files[0]}: it has" in capsys.readouterr().out
    assert main(["verify", "--repair", str(root)]) == 1
    assert list(counts(root).values()) == [1000]
    assert main(["verify", str(root)]) == 0
    assert f"in quarantine  {files[0]}" in capsys.readouterr().out
    (noted,) = operations.quarantined(store)
    assert [row["host"] for row in noted["segments"]] == ["h0000"]


def test_compact_and_retain_keep_what_they_should(root: Path) -> None:
    store = Directory(str(root))
    made = generator.Fleet(hosts=2, days=2, switches=1000)
    generator.fill(store, made)
    # Two more segments of the same hosts and days.
    generator.fill(store, generator.Fleet(hosts=2, days=2, switches=2000))
    before = counts(root)
    assert len(before) == 8
    assert operations.compact(store, lambda _: None) == 8
    assert counts(root) == before
    assert len(operations.Segments(store, latest(store)).files()) == 4
    # Replaced files stay for queries that run.
    assert len(list(store.names("data"))) == 12
    assert operations.compact(store, lambda _: None, grace_s=0) == 0
    assert len(list(store.names("data"))) == 4
    assert operations.retain(store, made.date(1), lambda _: None, grace_s=0) == 4
    assert counts(root) == {name: n for name, n in before.items() if made.date(1) in name}
    assert operations.retain(store, made.date(1), lambda _: None, grace_s=0) == 0
    assert len(list(store.names("data"))) == 2
    operations.retain(store, made.date(9), lambda _: None, grace_s=0)
    assert counts(root) == {}
    assert verify(store).damaged == {}


@pytest.mark.parametrize("operation", ["add", "compact", "retain"])
def test_nothing_is_lost_when_a_writer_is_killed_between_two_steps(
    operation: str, made: MakeTrace, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    small_fleet(base, days=2)
    if operation == "compact":
        generator.fill(Directory(str(base)), generator.Fleet(hosts=1, days=1, switches=2000))
    words = [sys.executable, REPOSITORY / "python/tests/kill_between_steps.py", operation]
    answer = subprocess.run(
        [*words, base, tmp_path, made("new")],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY / "python")},
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    runs = [json.loads(line) for line in answer.stdout.splitlines()]
    before, after = runs[0]["counts"], runs[-1]["counts"]
    expected = {
        "add": {**before, id_of(tmp_path / "it's new.swtch"): 10_000},
        "compact": before,
        "retain": {name: n for name, n in before.items() if "2026-01-06" in name},
    }
    assert after == expected[operation]
    assert len(runs) >= 5
    for run in runs:
        assert run["counts"] in (before, after)
        assert run["again"] == after
        assert run["damaged"] == {}


def test_two_writers_do_not_lose_each_other(root: Path) -> None:
    store = small_fleet(root, days=1)
    once = []

    def make(now: operations.Segments) -> Change:
        if not once:
            # Another writer is faster, between reading the version and creating the next.
            once.append(True)
            generator.fill(store, generator.Fleet(hosts=1, days=1, switches=2000))
        rows = operations._segment_rows(now, "switches = 1000", [])
        return Change([{**rows[0], "segment": "third"}], set(), set(), set())

    commit(store, make)
    with lake.open(root) as opened:
        rows = opened.sql("SELECT segment FROM segments ORDER BY segment").rows()
    assert [row["segment"].split("-")[0] for row in rows] == ["made", "made", "third"]
    assert len(rows) == 3


def test_a_hundred_thousand_segments_stay_quick(root: Path, made: MakeTrace) -> None:
    store = small_fleet(root, days=1)
    (row,) = operations._segment_rows(operations.Segments(store, latest(store)), "true", [])
    many = [
        {**row, "segment": f"s{n}", "host": f"h{n % 5000}", "file": f"data/{n}.parquet"}
        for n in range(100_000)
    ]
    commit(store, lambda _: Change(many, set(), set(), set()))
    begun = time.process_time()
    assert len(add(root, made("one")).added) == 1
    adding_s = time.process_time() - begun
    begun = time.process_time()
    with lake.open(root, hosts=["one"]) as opened:
        rows = opened.sql("SELECT count(*) AS n FROM switches").rows()
    planning_s = time.process_time() - begun
    assert rows == [{"n": 10_000}]
    assert (adding_s < 5, planning_s < 3) == (True, True), (adding_s, planning_s)
    # The long list was not written again.
    assert latest(store).lists[0].segments >= 100_000
    assert len(latest(store).lists) == 2


def test_days_and_hosts_choose_files(root: Path) -> None:
    made = generator.Fleet(hosts=2, days=3, switches=1000)
    store = Directory(str(root))
    generator.fill(store, made)
    # Files of other days and hosts are not even opened.
    for file in operations.Segments(store, latest(store)).files():
        if "host=h0001" not in file or made.date(1) not in file:
            (root / file).unlink()
    with lake.open(root, since=made.date(1), until=made.date(1), hosts=["h0001"]) as opened:
        assert opened.sql("SELECT count(*) AS n FROM switches").rows() == [{"n": 1000}]


def test_the_command_line_answers_and_refuses(
    root: Path, capsys: pytest.CaptureFixture[str], made: MakeTrace
) -> None:
    assert main(["query", "SELECT 1", str(root)]) == 2
    assert main(["add", str(root), str(root.parent / "none.swtch")]) == 2
    assert "none.swtch is not a trace" in capsys.readouterr().err
    assert main(["add", str(root), str(made("a"))]) == 0
    assert main(["query", "SELECT count(*) AS n FROM switches", str(root), "--format", "csv"]) == 0
    assert capsys.readouterr().out.endswith("n\r\n10000\r\n")
    assert main(["query", "SELECT hots FROM switches", str(root)]) == 2
    assert "LINE 1: SELECT hots FROM switches" in capsys.readouterr().err
    assert main(["fleet", "hosts", str(root)]) == 0
    assert main(["retain", str(root), "--before", "soon"]) == 2
    assert main(["query", "SELECT 1", str(root), "--on", "oracle://"]) == 2
    assert "no engine is called oracle://" in capsys.readouterr().err
