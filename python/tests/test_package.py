"""What the package says of itself agrees with what it needs."""

from __future__ import annotations

import re

from conftest import REPOSITORY

from swtch import tables
from swtch.trace import Trace

PACKAGE = REPOSITORY / "python"


def test_the_tests_have_the_engine_that_the_package_asks_for() -> None:
    project = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    pinned = (PACKAGE / "requirements-test.txt").read_text(encoding="utf-8")
    (wanted,) = re.findall(r'^dependencies = \["(duckdb==[0-9.]+)"\]$', project, re.MULTILINE)
    assert wanted in pinned.splitlines()


def test_every_file_of_sql_is_used() -> None:
    questions = {file.stem for file in (PACKAGE / "swtch/sql").glob("*.sql")}
    assert questions <= set(dir(Trace))
    assert {file.stem for file in (PACKAGE / "swtch/views").glob("*.sql")} == set(tables.VIEWS)


def test_the_page_names_every_question_and_view() -> None:
    page = (REPOSITORY / "docs/PYTHON.md").read_text(encoding="utf-8")
    for file in (PACKAGE / "swtch/sql").glob("*.sql"):
        assert f"`{file.stem}(" in page, file.stem
    for view in tables.VIEWS:
        assert f"`{view}`" in page, view
