"""Engines that answer questions over a lake: DuckDB in this process, or Spark on a cluster.

Questions are SQL that both understand, with values as `$name`. An engine makes the tables of a lake
from the files that the manifest names, and turns an answer into a `Result`.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import duckdb

from ..database import new_database
from ..errors import Error
from ..result import Result, engine_errors
from ..tables import literal
from ..text import escaped
from .columns import SEGMENT_COLUMNS
from .store import Bucket, Store, without_wildcards

# How long Spark may start no task while there is one to start. Where executors come late (a queue,
# an image that is fetched), more can be asked for.
MOST_WAIT_S = float(os.environ.get("SWTCH_SPARK_WAIT_S", "60"))

_QUESTION = "the question cannot be answered"
_SPARK_TYPES = {
    "VARCHAR": "STRING",
    "BIGINT": "BIGINT",
    "INTEGER": "INT",
    "BOOLEAN": "BOOLEAN",
    "DOUBLE": "DOUBLE",
}


class Engine(Protocol):
    """What a lake asks of an engine."""

    def create_segments(self, rows: Path) -> None:
        """Makes the table `segments` of the rows of a Parquet file on this machine."""

    def create_view(
        self,
        store: Store,
        name: str,
        columns: Mapping[str, str],
        by_columns: Mapping[tuple[str, ...], Sequence[str]],
    ) -> None:
        """Makes a view with these columns over files, given by the columns that they have."""

    def answer(self, query: str, params: dict[str, Any] | None) -> Result:
        """The answer to a question."""
        ...

    def close(self) -> None:
        """Frees what the engine holds."""


def connect(where: Any = None) -> Engine | None:
    """An engine for `swtch.lake.open(…, on=…)`.

    `None` or "duckdb" is the embedded DuckDB, "spark://HOST:PORT" a Spark cluster (or "local[2]"
    for Spark within this process), and a session of Spark is used as it is.
    """
    if where is None or where == "duckdb":
        return Embedded()
    if not isinstance(where, str):
        return where if hasattr(where, "create_view") else Spark(where)
    if where.startswith(("spark://", "local")):
        engine = Spark(_spark_session(where))
        engine.is_own = True
        return engine
    raise Error(
        f"no engine is called {escaped(where)}",
        "duckdb, spark://HOST:PORT or local[2]; docs/LAKE.md tells how ClickHouse and Trino read "
        "a lake",
    )


class Embedded:
    """DuckDB in this process."""

    def __init__(self) -> None:
        self._spill = tempfile.TemporaryDirectory(prefix="swtch-duckdb-")
        self.connection = new_database(temp_directory=self._spill.name)
        self._reads_by_python = False
        self._answers = itertools.count()

    def create_segments(self, rows: Path) -> None:
        """Makes the table `segments` of the rows of a Parquet file on this machine."""
        self.connection.execute(f"CREATE OR REPLACE TABLE segments AS {_rows_of([str(rows)])}")

    def create_view(
        self,
        store: Store,
        name: str,
        columns: Mapping[str, str],
        by_columns: Mapping[tuple[str, ...], Sequence[str]],
    ) -> None:
        """Makes a view with these columns over files, given by the columns that they have."""
        # Once for all views: a database takes a file system of one name only once.
        if isinstance(store, Bucket) and not self._reads_by_python:
            self.connection.register_filesystem(store.filesystem)
            self._reads_by_python = True
        selects = [
            _select(columns, found, [store.url(file) for file in files])
            for found, files in by_columns.items()
        ]
        if not selects:
            nulls = ", ".join(
                f'CAST(NULL AS {kind}) AS "{column}"' for column, kind in columns.items()
            )
            selects = [f"SELECT {nulls} WHERE false"]
        with engine_errors(f"cannot read the lake {escaped(store.location)}"):
            self.connection.execute(
                f"CREATE OR REPLACE VIEW {name} AS {' UNION ALL '.join(selects)}"
            )

    def answer(self, query: str, params: dict[str, Any] | None) -> Result:
        """The answer to a question."""
        if params and self._reads_by_python:
            table = f"swtch_answer_{next(self._answers)}"
            if self._keep_answer(table, query, params):
                query, params = f"FROM {table}", None
        return Result.of_query(self.connection, query, params)

    def _keep_answer(self, table: str, query: str, params: dict[str, Any]) -> bool:
        """Asks, and keeps the answer as a table; `False` if there is a mistake in the question.

        Seen with DuckDB 1.5.5: `sql` with values holds Python's lock until the last thread has
        ended, and waits for ever if that one reads a file by fsspec, which takes the lock. It
        happened once in eight runs of a test. `execute` lets go of the lock.
        """
        with engine_errors(_QUESTION):
            try:
                self.connection.execute(f"CREATE TABLE {table} AS {query}", params)
            except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
                return False  # `sql` tells its place in what was asked, and reads nothing
        return True

    def close(self) -> None:
        """Frees the memory."""
        self.connection.close()
        self._spill.cleanup()

    def __enter__(self) -> Embedded:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()


def _select(wanted: Mapping[str, str], found: Sequence[str], urls: Sequence[str]) -> str:
    """All rows of files with the same columns."""
    cells = ", ".join(
        f'"{name}"' if name in found else f'CAST(NULL AS {kind}) AS "{name}"'
        for name, kind in wanted.items()
    )
    return f"SELECT {cells} {_rows_of(urls)}"


def _rows_of(urls: Sequence[str]) -> str:
    files = ", ".join(literal(without_wildcards(url)) for url in urls)
    return f"FROM read_parquet([{files}], hive_partitioning = false)"


class Spark:
    """Spark, by a session of pyspark."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.is_own = False

    def create_segments(self, rows: Path) -> None:
        """Makes the table `segments` of the rows of a Parquet file on this machine."""
        # As a table of Arrow: executors need neither the file nor Python.
        with Embedded() as local:
            table = local.connection.sql(_rows_of([str(rows)])).to_arrow_table()
        with _spark_errors("cannot hand the segments over to Spark"):
            frame = self.session.createDataFrame(table, _spark_schema(SEGMENT_COLUMNS))
            frame.createOrReplaceTempView("segments")

    def create_view(
        self,
        store: Store,
        name: str,
        columns: Mapping[str, str],
        by_columns: Mapping[tuple[str, ...], Sequence[str]],
    ) -> None:
        """Makes a view over files; columns that a file lacks are null in Spark anyway."""
        schema = _spark_schema(columns)
        urls = [_hadoop_url(store.url(file)) for files in by_columns.values() for file in files]
        with _spark_errors(f"Spark cannot read the lake {escaped(store.location)}"):
            if urls:
                with self._few_tasks_for_paths():
                    frame = self.session.read.schema(schema).parquet(*urls)
            else:
                frame = self.session.sql("SELECT 1 WHERE false").select().to(schema)
            frame.createOrReplaceTempView(name)

    @contextmanager
    def _few_tasks_for_paths(self) -> Iterator[None]:
        """Looks at up to 1,000 paths from here, and at more in 16 tasks.

        Spark's own rule is a task for each path from 33 on. Seen: 60 s for 200 files.
        """
        rule = "spark.sql.sources.parallelPartitionDiscovery."
        before = {name: self.session.conf.get(rule + name) for name in ("threshold", "parallelism")}
        self.session.conf.set(rule + "threshold", "1000")
        self.session.conf.set(rule + "parallelism", "16")
        try:
            yield
        finally:
            for name, value in before.items():
                self.session.conf.set(rule + name, value)

    @contextmanager
    def _ended_without_executor(self) -> Iterator[None]:
        """Ends what a session of ours computes when Spark starts no task of it.

        Spark itself waits for ever when no worker has room for an executor, and says so only in its
        log. A session that was handed to us may wait as its owner likes.
        """
        if not self.is_own:
            yield
            return
        context = self.session.sparkContext
        tag = f"swtch-{uuid.uuid4()}"
        is_done, is_given_up = threading.Event(), threading.Event()

        def watch() -> None:
            tracker = context.statusTracker()
            before, since = None, time.monotonic()
            while not is_done.wait(0.5):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                told = [stage for stage in stages if stage is not None]
                ended = [(stage.stageId, stage.numCompletedTasks) for stage in told]
                if not told or any(stage.numActiveTasks for stage in told) or ended != before:
                    before, since = ended, time.monotonic()
                elif time.monotonic() - since > MOST_WAIT_S:
                    is_given_up.set()
                    context.cancelJobsWithTag(tag)
                    return

        def watch_while_it_is_there() -> None:
            # When Spark goes away, whoever waits for the answer is told.
            with suppress(Exception):
                watch()

        thread = threading.Thread(target=watch_while_it_is_there, daemon=True)
        context.addJobTag(tag)
        thread.start()
        try:
            yield
        except Exception as why:
            if not is_given_up.is_set():
                raise
            wanted = context.getConf().get("spark.executor.memory", "1g")
            raise Error(
                f"Spark started no task within {MOST_WAIT_S:g} s: perhaps no worker of "
                f"{escaped(context.master)} has room for an executor",
                f"start workers with {wanted} of memory free, which is spark.executor.memory, "
                "set less in spark-defaults.conf, or wait longer (SWTCH_SPARK_WAIT_S=600)",
            ) from why
        finally:
            is_done.set()
            thread.join(1)
            with suppress(Exception):
                context.removeJobTag(tag)

    def answer(self, query: str, params: dict[str, Any] | None) -> Result:
        """The answer to a question; its rows are fetched into this process."""
        with _spark_errors(_QUESTION):
            frame = self.session.sql(re.sub(r"\$([a-z_]+)", r":\1", query), args=params or {})
            if not frame.columns:
                raise Error("this SQL has no answer: ask a SELECT")
            with self._ended_without_executor():
                table = frame.toArrow()
        connection = new_database()
        connection.from_arrow(table).create("answer")
        return Result.of_query(connection, "FROM answer")

    def close(self) -> None:
        """Ends the session if it was started for this."""
        if self.is_own:
            # A session whose Java has gone is ended.
            from py4j.protocol import Py4JNetworkError

            with suppress(ConnectionError, Py4JNetworkError):
                self.session.stop()


@contextmanager
def _spark_errors(what: str) -> Iterator[None]:
    """Makes what pyspark, py4j and Java raise an `Error`; they have no common class."""
    try:
        yield
    except Error:
        raise
    except Exception as why:
        raise Error(f"{what}: {_spark_message(why)}", _spark_advice(why)) from why


def _spark_schema(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {_SPARK_TYPES[kind]}" for name, kind in columns.items())


def _hadoop_url(url: str) -> str:
    """An address as Hadoop takes it: letters that it takes as a pattern stand for themselves."""
    text = "s3a://" + url.removeprefix("s3://") if url.startswith("s3://") else url
    return re.sub(r"([\\*?\[\]{},])", r"\\\1", text)


def _spark_message(why: Exception) -> str:
    """The engine's words without Java's stack."""
    text = str(why).strip() or type(why).__name__
    return text.split("\n\tat ")[0].split("JVM stacktrace:")[0].strip()


def _spark_advice(why: Exception) -> str | None:
    """Says when Spark itself is gone.

    py4j wraps what Java throws in errors of other classes; its plain `Py4JError` is that Java did
    not answer.
    """
    gone = type(why).__name__ in ("Py4JError", "Py4JNetworkError")
    stopped = ("SparkContext was shut down", "stopped SparkContext")
    if gone or isinstance(why, ConnectionError) or any(words in str(why) for words in stopped):
        return "Spark went away: open the lake again, in a new process"
    return None


def _spark_session(url: str) -> Any:
    """A session of Spark on a cluster."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as why:
        raise Error(
            "pyspark is not installed", "pip install pyspark pyarrow 'pandas>=2.2,<3'"
        ) from why
    with _spark_errors(f"cannot start Spark on {escaped(url)}"):
        builder = SparkSession.builder.master(url).appName("swtch")
        session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        return session
