"""Databases of DuckDB within this process."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

_settings: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def use_threads(most: int) -> None:
    """Gives so many threads to each database that is opened in this process from now on."""
    _settings["threads"] = most


def new_database(**settings: Any) -> DuckDBPyConnection:
    """An empty database in memory.

    No extension is fetched from the network because a question names one of its functions. Nothing
    but answers is written to stdout: DuckDB takes a process that was started by `python -m` for
    one that a person types into, and draws how far it has come there.
    """
    return quiet(duckdb.connect(config={**_settings, **settings}))


def quiet(connection: DuckDBPyConnection) -> DuckDBPyConnection:
    """The same connection, which draws no progress bar from now on."""
    # In a notebook without ipywidgets it draws none, and refuses to be told so; so does a database
    # whose settings are locked, as that of `mcp`, where stdout is not the answer.
    with suppress(duckdb.Error):
        connection.execute("SET enable_progress_bar = false")
    return connection
