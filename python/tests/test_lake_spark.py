"""The same questions on a Spark cluster: a master and two workers, processes of their own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import LIMIT_S, REPOSITORY
from fleet_checks import ask_all, assert_known

import swtch
from swtch import fleet, lake
from swtch.fleet import generator

FLEET = generator.Fleet(hosts=8, days=5, switches=1000)
PACKAGE = REPOSITORY / "python"
_START_S = 120
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # The compiler that starts quickly: each test computes little.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


class Cluster:
    """A standalone cluster on loopback."""

    def __init__(self, place: Path) -> None:
        self._place = place
        spark = importlib.util.find_spec("pyspark")
        if spark is None or spark.origin is None:
            pytest.skip("pyspark is not installed (python/requirements-engines.txt)")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            pytest.skip("there is no Java (package default-jre-headless)")
        self._home = Path(spark.origin).parent
        (place / "conf").mkdir()
        lines = [f"{name} {value}\n" for name, value in _SMALL.items()]
        (place / "conf" / "spark-defaults.conf").write_text("".join(lines))
        self.environment = {
            "SPARK_HOME": str(self._home),
            "SPARK_CONF_DIR": str(place / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "--port", "0")
        self.url = self._said("spark://127\\.0\\.0\\.1:[0-9]+", 0)
        for number in (1, 2):
            self._start(
                "worker.Worker",
                "--cores",
                "1",
                "--memory",
                "600m",
                "--work-dir",
                str(place / "work"),
                self.url,
            )
            self._said("Successfully registered", number)

    def _start(self, name: str, *words: str) -> None:
        log = (self._place / f"{len(self.processes)}.log").open("wb")
        with log:
            self.processes.append(
                subprocess.Popen(
                    [
                        self._home / "bin" / "spark-class",
                        f"org.apache.spark.deploy.{name}",
                        "--host",
                        "127.0.0.1",
                        "--webui-port",
                        "0",
                        *words,
                    ],
                    env={**os.environ, **self.environment},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _said(self, words: str, number: int) -> str:
        """Waits until a process has written certain words."""
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            log = (self._place / f"{number}.log").read_text(errors="replace")
            found = re.search(words, log)
            if found is not None:
                return found.group()
            assert self.processes[number].poll() is None, log
            time.sleep(0.1)
        raise AssertionError(f"no {words!r} within {_START_S} s:\n{log}")

    def kill(self, number: int) -> None:
        """Kills a process, 0 for the master."""
        self.processes[number].kill()
        self.processes[number].wait()

    def executors(self, worker: int) -> list[int]:
        """Processes below a worker: its executors."""
        parent = self.processes[worker].pid
        children = Path(f"/proc/{parent}/task/{parent}/children")
        return [
            int(pid)
            for path in children.parents[1].glob("*/children")
            for pid in path.read_text().split()
        ]

    def close(self) -> None:
        """Ends all of it."""
        for number, process in enumerate(self.processes):
            if process.poll() is None:
                self.kill(number)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of all tests in this file."""
    with pytest.MonkeyPatch.context() as patch:
        started = Cluster(tmp_path_factory.mktemp("spark"))
        for name, value in started.environment.items():
            patch.setenv(name, value)
        yield started
        started.close()


@pytest.fixture(scope="module")
def root(
    tmp_path_factory: pytest.TempPathFactory, fleet_of: Callable[[generator.Fleet], Path]
) -> Path:
    """A made-up fleet under a name with all that needs care in SQL, shells and patterns."""
    root = tmp_path_factory.mktemp("spark fleet") / "it's [a] *lake?; {1,2} %41 --"
    return Path(shutil.copytree(fleet_of(FLEET), root))


@pytest.fixture(scope="module")
def opened(cluster: Cluster, root: Path) -> Iterator[lake.Lake]:
    """The fleet, opened on the cluster."""
    with lake.open(root, on=cluster.url) as opened:
        yield opened


def test_answers_are_those_that_are_known(opened: lake.Lake) -> None:
    assert_known(ask_all(opened), FLEET)


def test_a_cluster_without_room_is_told(cluster: Cluster, root: Path, tmp_path: Path) -> None:
    """Spark itself waits for ever. A process has one context, so this is asked in another."""
    settings = {**_SMALL, "spark.executor.memory": "3g"}
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (tmp_path / "spark-defaults.conf").write_text("".join(lines))
    code = """
import sys
from swtch import fleet, lake
from swtch.lake import engines
engines.MOST_WAIT_S = 2
with lake.open(sys.argv[1], on=sys.argv[2]) as opened:
    try:
        fleet.ask(opened, "hosts")
    except engines.Error as why:
        print(why)
"""
    said = subprocess.run(
        [sys.executable, "-c", code, root, cluster.url],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path), "PYTHONPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=True,
    ).stdout
    assert f"Spark started no task within 2 s: perhaps no worker of {cluster.url} has room" in said
    assert "start workers with 3g of memory free" in said


def test_a_mistake_is_shown_with_its_place(opened: lake.Lake) -> None:
    with pytest.raises(swtch.Error, match=r"(?s)UNRESOLVED_COLUMN.*hots.*pos 7"):
        opened.sql("SELECT hots FROM switches")


def test_a_session_in_hand_is_used_and_left(opened: lake.Lake, root: Path) -> None:
    session = opened.engine.session
    with lake.open(root, on=session, hosts=["h0001"]) as other:
        rows = other.sql("SELECT host, count(*) AS n FROM switches GROUP BY host").rows()
    assert rows == [{"host": "h0001", "n": 5000}]
    assert session.sql("SELECT 1 AS one").collect()[0].one == 1


def test_a_job_ends_though_a_worker_is_killed(
    cluster: Cluster, root: Path, opened: lake.Lake
) -> None:
    with lake.open(root, on=opened.engine.session) as again:
        slow = """SELECT CAST(SUM(a.runq_ns % 7) AS BIGINT) AS n
            FROM switches AS a JOIN switches AS b ON a.tid = b.tid AND a.cgroup = b.cgroup"""
        with lake.open(root) as embedded:
            expected = embedded.sql(slow).rows()
        killed = threading.Event()

        def kill() -> None:
            tracker = opened.engine.session.sparkContext.statusTracker()
            end = time.monotonic() + 60
            while not tracker.getActiveStageIds() and time.monotonic() < end:
                time.sleep(0.02)
            executors = cluster.executors(2)
            cluster.kill(2)
            for pid in executors:
                with contextlib.suppress(ProcessLookupError):  # it ended with its worker
                    os.kill(pid, 9)
            killed.set()

        thread = threading.Thread(target=kill)
        thread.start()
        rows = again.sql(slow).rows()
        thread.join()
        assert killed.is_set()
        assert rows == expected
        assert fleet.ask(again, "neighbours").rows()[0]["host"] == "h0005"


def test_an_engine_that_goes_away_is_told(opened: lake.Lake) -> None:
    # Last: afterwards there is no engine.
    opened.engine.session.sparkContext._gateway.proc.kill()
    with pytest.raises(swtch.Error, match=r"Spark went away"):
        opened.sql("SELECT count(*) FROM switches")
