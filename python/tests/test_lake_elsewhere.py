"""The files of a lake read by other people's engines and catalogs, as docs/LAKE.md says."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from fleet_checks import assert_known

from swtch import fleet, lake
from swtch.fleet import generator
from swtch.tables import literal

FLEET = generator.Fleet(hosts=8, days=5, switches=1000)
SWITCHES = FLEET.hosts * FLEET.days * FLEET.switches
# Names as in the standard, null where a join finds nothing: what other engines do unasked.
STANDARD = "prefer_column_name_to_alias = 1, join_use_nulls = 1"


@pytest.fixture(scope="module")
def root(fleet_of: Callable[[generator.Fleet], Path]) -> Path:
    """A made-up fleet."""
    return fleet_of(FLEET)


@pytest.fixture(scope="module")
def files(root: Path) -> list[str]:
    """The files that count."""
    with lake.open(root) as opened:
        rows = opened.sql("SELECT DISTINCT file FROM segments ORDER BY file").rows()
    return [str(root / row["file"]) for row in rows]


class ClickHouse:
    """ClickHouse within this process (chdb)."""

    def __init__(self, root: Path, files: list[str], place: Path) -> None:
        reason = "chdb is not installed (python/requirements-engines.txt)"
        session = pytest.importorskip("chdb.session", reason=reason)
        self._session = session.Session(str(place / "clickhouse"))
        segments = place / "segments.parquet"
        with lake.open(root) as opened:
            opened.sql("SELECT * FROM segments").df().to_parquet(segments)
        self._session.query("CREATE DATABASE fleet")
        self._session.query("USE fleet")
        switches = f"{root}/{{{','.join(str(Path(file).relative_to(root)) for file in files)}}}"
        contention = switches.replace("data/", "contention/")
        views = {"switches": switches, "contention": contention, "segments": str(segments)}
        for name, path in views.items():
            source = f"file({literal(path)}, Parquet)"
            self._session.query(f"CREATE VIEW {name} AS SELECT * FROM {source}")

    def rows(self, question: str) -> list[dict[str, Any]]:
        """The answer to a question of `swtch fleet`."""
        text = (importlib.resources.files(fleet) / "sql" / f"{question}.sql").read_text()
        text = text.replace("$before", "'v1'").replace("$after", "'v2'")
        settings = f"{STANDARD}, output_format_json_quote_64bit_integers = 0"
        answer = self._session.query(f"{text} SETTINGS {settings}", "JSON")
        rows: list[dict[str, Any]] = json.loads(answer.bytes())["data"]
        return rows

    def close(self) -> None:
        """Frees it."""
        self._session.close()


@pytest.fixture(scope="module")
def clickhouse(
    root: Path, files: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClickHouse]:
    """ClickHouse, with both tables."""
    started = ClickHouse(root, files, tmp_path_factory.mktemp("clickhouse"))
    yield started
    started.close()


def test_clickhouse_knows_every_answer(clickhouse: ClickHouse) -> None:
    assert_known({question: clickhouse.rows(question) for question in fleet.QUESTIONS}, FLEET)


def test_iceberg_registers_the_files_as_they_are(files: list[str], tmp_path: Path) -> None:
    reason = "pyiceberg is not installed (python/requirements-engines.txt)"
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason=reason)
    from pyarrow import parquet

    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = sql.SqlCatalog("fleet", **where)
    catalog.create_namespace("fleet")
    table = catalog.create_table("fleet.switches", schema=parquet.read_schema(files[0]))
    table.add_files([f"file://{file}" for file in files])
    assert table.scan().count() == SWITCHES
    slices = table.scan(row_filter="reason = 'slice'", selected_fields=("host",)).to_arrow()
    expected = duckdb.sql(f"SELECT host FROM read_parquet({files}) WHERE reason = 'slice'")
    assert sorted(slices["host"].to_pylist()) == sorted(host for (host,) in expected.fetchall())


def test_ducklake_registers_the_files_as_they_are(files: list[str], tmp_path: Path) -> None:
    reason = "duckdb-extension-ducklake is not installed (python/requirements-engines.txt)"
    extension = pytest.importorskip("duckdb_extension_ducklake", reason=reason)
    (path,) = Path(extension.__path__[0]).glob("extensions/*/ducklake.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD {literal(str(path))}")
        catalog = literal(f"ducklake:{tmp_path}/catalog.ducklake")
        data = literal(str(tmp_path / "data"))
        connection.execute(f"ATTACH {catalog} AS fleet (DATA_PATH {data})")
        columns = f"FROM read_parquet({literal(files[0])}, hive_partitioning = false) LIMIT 0"
        connection.execute(f"CREATE TABLE fleet.switches AS {columns}")
        for file in files:
            connection.execute("CALL ducklake_add_data_files('fleet', 'switches', ?)", [file])
        counted = connection.sql("SELECT host, count(*) FROM fleet.switches GROUP BY host")
        by_host = dict(counted.fetchall())
    by_day = FLEET.days * FLEET.switches
    assert by_host == {generator.name_of(host): by_day for host in range(FLEET.hosts)}
