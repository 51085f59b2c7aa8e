"""What the package says of itself agrees with what it needs."""

from __future__ import annotations

import re
from typing import get_args

from conftest import REPOSITORY

from swtch import fleet, tables
from swtch.bill import LABELS, By
from swtch.trace import Trace

PACKAGE = REPOSITORY / "python"


def test_the_tests_have_engines_that_the_package_asks_for() -> None:
    project = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    pinned = (PACKAGE / "requirements-test.txt").read_text(encoding="utf-8")
    script = (REPOSITORY / "scripts/python.sh").read_text(encoding="utf-8")
    wanted = re.search(r'^dependencies = \["duckdb>=([0-9.]+),<([0-9]+)"\]$', project, re.MULTILINE)
    (tested,) = re.findall(r"^duckdb==([0-9.]+)$", pinned, re.MULTILINE)
    ends = re.search(r"^duckdb_ends=\(([0-9.]+) ([0-9.]+)\)$", script, re.MULTILINE)
    assert wanted is not None and ends is not None
    # Both ends of the range are those that `scripts/python.sh duckdb` tests.
    assert ends[1] == wanted[1]
    assert int(ends[2].split(".")[0]) == int(wanted[2]) - 1
    low, pin, high = (tuple(map(int, one.split("."))) for one in (ends[1], tested, ends[2]))
    assert low <= pin <= high


def test_words_for_a_type_checker_are_those_that_are_taken() -> None:
    assert get_args(By) == tuple(LABELS)
    assert get_args(fleet.Question) == tuple(fleet.QUESTIONS)


def test_advice_names_packages_that_are_ours_to_name() -> None:
    """Nobody has registered `swtch` at PyPI for us, so only a wheel of our own is installed."""
    files = [*(PACKAGE / "swtch").rglob("*.py"), REPOSITORY / "crates/swtch/src/python.rs"]
    for file in files:
        told = re.findall(r"pip install ['\"]?swtch.?", file.read_text(encoding="utf-8"))
        assert set(told) <= {"pip install swtch-"}, file


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
